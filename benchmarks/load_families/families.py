"""Families of runs: fair ones, which must not be judged oscillating or starved, and herding ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from load_families.engine import (
    Backend,
    Choose,
    Clock,
    Crowd,
    Gateway,
    Lengths,
    Request,
    Speed,
    late_counts,
    least_busy,
    polled_counts,
    prefix_aware,
    round_robin,
    shuffle,
    sticky,
    turns,
    two_stages,
    zipf,
)

SECONDS = 600.0


@dataclass(slots=True)
class Scene:
    """One run of ten minutes."""

    dice: random.Random
    clock: Clock
    backends: list[Backend]
    lengths: Lengths
    gateway: Gateway
    about: str = ""
    """What distinguishes the run from others of its family."""
    strategy: str | None = None
    """The label of the router; None if no router is known."""
    hz: float = 4.0
    offsets_s: Sequence[float] = ()
    """Seconds by which each backend is sampled later than the common time."""
    jitter_s: float = 0.01
    slots_known: bool = False
    appears_s: dict[int, float] = field(default_factory=dict)
    """Time at which a backend begins to answer, by index; the others answer from the start."""
    unwatched: bool = False
    """Whether these backends are not configured before that time."""
    weights: dict[str, float] = field(default_factory=dict)
    """Weights of the backends as the configuration has them; empty where it has none."""
    lost_known: bool = True
    """Whether the throughput of the best split is what this group could have reached."""

    @property
    def crowd(self) -> Crowd:
        """Clients that send through the router."""
        return Crowd(self.clock, self.gateway.send, self.dice, self.lengths)


def speed(dice: random.Random) -> Speed:
    """Draw the duration of a step: 20 to 60 ms with an empty batch, twice as much at 8 to 80 requests."""
    base_s = dice.uniform(0.02, 0.06)
    return Speed(base_s, base_s / dice.uniform(8, 80), slots=dice.choice((64, 128, 256)))


def output_tokens(dice: random.Random, cost: Speed, batch: float, life_s: tuple[float, float]) -> int:
    """Draw the mean tokens of an answer with which a request takes a time within `life_s` at a batch."""
    lives = dice.uniform(*life_s)
    return max(8, round(lives / (cost.base_s + cost.per_request_s * min(batch, cost.slots))))


def scene(
    seed: str,
    *,
    backends: Sequence[int] = (2, 2, 2, 3, 4, 8),
    kinds: Sequence[str] = ("fixed", "uniform", "log-normal"),
    per_backend: tuple[float, float] = (4, 40),
    life_s: tuple[float, float] = (3, 25),
    slots: int | None = None,
    factors: Sequence[float] = (),
    routed: bool = True,
) -> tuple[Scene, int]:
    """Draw servers and lengths; return the scene and the number of clients, log-uniform in `per_backend`."""
    dice = random.Random(seed)  # noqa: S311 - repeatable chance, not secrets
    clock, cost = Clock(), speed(dice)
    count = len(factors) or dice.choice(backends)
    each = per_backend[0] * (per_backend[1] / per_backend[0]) ** dice.random()
    if slots is not None:
        cost = replace(cost, slots=slots)
    lengths = Lengths(dice.choice(kinds), output_tokens(dice, cost, each, life_s))
    servers = [
        Backend(
            clock,
            f"spark-{chr(97 + index)}",
            replace(cost, factor=factors[index] if factors else 1.0),
        )
        for index in range(count)
    ]
    made = Scene(dice, clock, servers, lengths, Gateway(clock, servers))
    made.hz = dice.choice((4.0, 4.0, 2.0, 1.0))
    made.offsets_s = [dice.uniform(0, 0.02) for _ in servers]
    made.slots_known = dice.random() < 0.5
    clients = round(each * count)
    made.about = f"{count} backends, {clients} clients, {lengths.kind} {lengths.output} tokens"
    if routed:
        made.strategy = "simple-shuffle"
    return made, clients


Make = Callable[[str], Scene]
"""Function that draws a scene from a seed; its clients are ready to start."""


def owners(seed: str) -> Scene:
    """Two owners without a router: jobs that take turns every 30 s, or agents that pause for 8 s."""
    made, clients = scene(seed, backends=(2,), routed=False, life_s=(1, 8))
    jobs = made.dice.random() < 0.5
    period_s = 30.0 if jobs else 8.0
    for index, backend in enumerate(made.backends):
        crowd = Crowd(made.clock, backend.send, made.dice, made.lengths)
        on_s, off_s = (period_s * made.dice.uniform(0.9, 1.1) if not jobs else period_s for _ in range(2))
        phase_s = index * period_s if jobs else made.dice.uniform(0, 2 * period_s)
        crowd.closed_loop(max(2, clients // 2), works=turns(made.clock, on_s, off_s, phase_s), spread_s=1.0)
    made.about += ", jobs 30/30 s" if jobs else ", agents 8/8 s"
    made.lost_known = False
    return made


def drained(seed: str) -> Scene:
    """Least-busy on fresh counts; one backend gets nothing for 60 s, three times."""
    made, clients = scene(seed)
    gateway = _gateway(made, least_busy, "least-busy")
    victim = made.dice.randrange(len(made.backends))
    for start_s in (made.dice.uniform(60, 120), made.dice.uniform(230, 290), made.dice.uniform(400, 460)):
        made.clock.at(start_s, lambda: gateway.withheld.add(victim))
        made.clock.at(start_s + 60, lambda: gateway.withheld.discard(victim))
    made.crowd.closed_loop(clients)
    return made


def late(seed: str) -> Scene:
    """A backend that joins after one to five minutes, under fair routing."""
    made, clients = scene(seed)
    name = made.dice.choice(("least-busy", "least-busy", "round-robin", "simple-shuffle"))
    _fair(made, name)
    joins_s, index = made.dice.uniform(60, 300), len(made.backends) - 1
    made.appears_s[index] = joins_s
    made.unwatched = made.dice.random() < 0.5
    made.backends[index].up = False

    def join() -> None:
        made.backends[index].before_change()
        made.backends[index].up = True

    made.clock.at(joins_s, join)
    made.crowd.closed_loop(clients)
    made.about += f", {name}, joins at {joins_s:.0f} s"
    return made


def roles(seed: str) -> Scene:
    """Two prefill and two decode workers in one group, each pair routed round-robin or at random."""
    made, clients = scene(seed, factors=(1.0, 1.0, 1.0, 1.0))
    made.lengths = Lengths(made.lengths.kind, made.lengths.output, prompt=made.dice.choice((512, 2048, 8192)))
    pairs = [Gateway(made.clock, made.backends[:2]), Gateway(made.clock, made.backends[2:])]
    name = made.dice.choice(("round-robin", "simple-shuffle"))
    for gateway in pairs:
        gateway.choose = round_robin() if name == "round-robin" else shuffle(made.dice)
    send = two_stages(pairs[0].send, pairs[1].send)
    Crowd(made.clock, send, made.dice, made.lengths).closed_loop(clients)
    made.strategy = name if made.dice.random() < 0.5 else None
    made.about += f", {name}, prompts of {made.lengths.prompt}"
    made.lost_known = False
    return made


def unlike(seed: str) -> Scene:
    """Backends of speed 1 and 0.5 under round-robin, random and weighted routing."""
    factors = (1.0, 0.5) if seed.endswith(("0", "2", "4", "6", "8")) else (1.0, 1.0, 0.5, 0.5)
    made, clients = scene(seed, factors=factors, slots=256)
    weights = [2 if factor == 1 else 1 for factor in factors]
    ways: Mapping[str, Choose] = {
        "round-robin": round_robin(),
        "simple-shuffle": shuffle(made.dice),
        "weighted shuffle": shuffle(made.dice, weights),
        "weighted round-robin": round_robin(weights),
    }
    name = made.dice.choice(list(ways))
    made.gateway.choose = ways[name]
    made.strategy = name
    made.crowd.closed_loop(clients)
    made.about += f", {name}"
    return made


def weighted(seed: str) -> Scene:
    """Canary and capacity weights: 50 : 50 to 95 : 5, known to sparktop or to be inferred."""
    made, clients = scene(seed, backends=(2, 2, 3), slots=256)
    first = made.dice.choice((2, 3, 4, 9, 19))
    weights = [first, *(1 for _ in made.backends[1:])]
    name = made.dice.choice(("weighted shuffle", "weighted round-robin"))
    made.gateway.choose = shuffle(made.dice, weights) if name == "weighted shuffle" else round_robin(weights)
    made.strategy = "simple-shuffle" if name == "weighted shuffle" else name
    if made.dice.random() < 0.5:
        made.weights = {one.name: float(weight) for one, weight in zip(made.backends, weights, strict=True)}
    made.crowd.closed_loop(clients)
    made.about += f", {name} {first} : 1{', known' if made.weights else ''}"
    made.lost_known = False
    return made


def waves(seed: str) -> Scene:
    """Waves of 8 to 32 requests on a pair, dealt at random or in turn."""
    made, clients = scene(seed, backends=(2,), per_backend=(4, 16), life_s=(2, 8), kinds=("fixed", "uniform"))
    name = made.dice.choice(("simple-shuffle", "simple-shuffle", "round-robin"))
    _fair(made, name)
    made.hz = made.dice.choice((1.0, 1.0, 2.0))
    made.crowd.bursts(clients, made.dice.uniform(0.1, 1.5))
    made.about += f", {name}, waves"
    return made


def full(seed: str) -> Scene:
    """Random routing with 1.5 to 4 times as many clients as slots."""
    slots = 16
    made, _ = scene(seed, slots=slots, per_backend=(16, 16), life_s=(2, 15))
    made.gateway.choose = shuffle(made.dice)
    over = made.dice.uniform(1.5, 4.0)
    made.crowd.closed_loop(round(over * slots * len(made.backends)))
    made.about = (
        f"{len(made.backends)} backends, {over:.1f} x the slots, {made.lengths.kind} {made.lengths.output}"
    )
    return made


def affinity(seed: str) -> Scene:
    """Sessions that stay at their backend, and requests that follow cached prefixes."""
    made, clients = scene(seed)
    gateway = made.gateway
    crowd = made.crowd
    if made.dice.random() < 0.5:
        first = made.dice.choice((shuffle(made.dice), least_busy(lambda: gateway.in_flight, made.dice)))
        gateway.choose, made.strategy = sticky(first), "session-affinity"
        turns_each, think_s = made.dice.randint(5, 40), made.dice.choice((0.0, 2.0, 10.0))
        asked: dict[int, int] = {}

        def session(client: int) -> dict[str, int]:
            asked[client] = asked.get(client, -made.dice.randint(0, turns_each)) + 1
            return {"session": 100_000 * client + (asked[client] + turns_each) // turns_each}

        crowd.closed_loop(clients, think_s=think_s, marks=session)
        made.about += f", sessions of {turns_each}, think {think_s:g} s"
        return made
    most_ahead = made.dice.choice((2, 8, 32, 1000))
    gateway.choose, made.strategy = prefix_aware(gateway, made.dice, most_ahead), "prefix-aware"
    prefixes = made.dice.randint(2, 24)
    crowd.closed_loop(clients, marks=lambda _client: {"prefix": zipf(prefixes, made.dice)})
    made.about += f", {prefixes} prefixes, at most {most_ahead} ahead"
    return made


def skewed_looks(seed: str) -> Scene:
    """Fair routing sampled once a second, with 100 to 400 ms between the backends' samples."""
    made, clients = scene(seed, life_s=(1.5, 15))
    name = made.dice.choice(("least-busy", "round-robin", "simple-shuffle"))
    _fair(made, name)
    widest = made.dice.uniform(0.1, 0.4)
    made.hz = 1.0
    made.offsets_s = [0.0, *(made.dice.uniform(0, widest) for _ in made.backends[2:]), widest]
    bursts = made.dice.random() < 0.6
    if bursts:
        made.crowd.bursts(clients, made.dice.uniform(0.2, 2.0))
    else:
        made.crowd.closed_loop(clients)
    made.about += f", {name}, {1000 * widest:.0f} ms apart{', bursts' if bursts else ''}"
    return made


def control(seed: str) -> Scene:
    """Plain random or round-robin routing of closed loops, bursts and random arrivals."""
    made, clients = scene(seed)
    name = made.dice.choice(("round-robin", "simple-shuffle"))
    _fair(made, name)
    load = made.dice.choice(("closed loop", "thinking", "bursts", "arrivals"))
    if load == "closed loop":
        made.crowd.closed_loop(clients)
    elif load == "thinking":
        made.crowd.closed_loop(2 * clients, think_s=made.dice.uniform(2, 20))
    elif load == "bursts":
        made.crowd.bursts(clients, made.dice.uniform(0.2, 3.0))
    else:
        capacity = sum(one.speed.tokens_per_s(one.speed.slots) for one in made.backends) / made.lengths.output
        made.crowd.poisson(made.dice.uniform(0.2, 0.7) * capacity)
    made.about += f", {name}, {load}"
    return made


def stale(seed: str) -> Scene:
    """Herding: least-busy on counts that are late or rarely polled."""
    made, clients = scene(seed, backends=(2, 2, 2, 3, 4), per_backend=(8, 40), life_s=(3, 20))
    gateway = made.gateway
    old_s = made.dice.uniform(0.5, 5.0)
    way = made.dice.choice(("late", "polled"))
    counts = late_counts(gateway, old_s) if way == "late" else polled_counts(gateway, old_s)
    gateway.choose, made.strategy = least_busy(counts), "least-busy"
    made.crowd.closed_loop(clients)
    made.about += f", counts {old_s:.1f} s {way}"
    return made


def convoys(seed: str) -> Scene:
    """Herding: fixed lengths and clients that start together, on counts that are a little too old."""
    made, clients = scene(seed, backends=(2,), kinds=("fixed",), per_backend=(8, 32), life_s=(2.5, 12))
    gateway = made.gateway
    old_s = made.dice.uniform(0.1, 0.6)
    gateway.choose, made.strategy = least_busy(late_counts(gateway, old_s)), "least-busy"
    made.crowd.closed_loop(clients, spread_s=0.05)
    made.about += f", counts {1000 * old_s:.0f} ms late"
    return made


def cooldowns(seed: str) -> Scene:
    """Herding: answers that break off exclude a backend for 5 s, repeatedly while it has load."""
    made, clients = scene(seed, backends=(2,), per_backend=(12, 40), life_s=(6, 20))
    gateway = _gateway(made, least_busy, "least-busy")
    gateway.cooldown_s = 5.0
    share = made.dice.uniform(0.3, 1.0)
    crowd = made.crowd

    def broken(request: Request) -> None:
        if made.dice.random() < share:
            request.fails, request.output = True, max(2, round(0.8 * request.output))
        gateway.send(request)

    crowd.send = broken
    crowd.closed_loop(clients)
    made.about += f", {100 * share:.0f} % fail"
    return made


def _gateway(made: Scene, choose: Callable[..., Choose], strategy: str) -> Gateway:
    gateway = made.gateway
    gateway.choose, made.strategy = choose(lambda: gateway.in_flight), strategy
    return gateway


def _fair(made: Scene, name: str) -> None:
    gateway = made.gateway
    ways: Mapping[str, Choose] = {
        "least-busy": least_busy(lambda: gateway.in_flight),
        "round-robin": round_robin(),
        "simple-shuffle": shuffle(made.dice),
    }
    gateway.choose, made.strategy = ways[name], name


@dataclass(frozen=True, slots=True)
class Family:
    """A family: runs of one kind."""

    name: str
    make: Make
    herds: bool = False
    """Whether oscillating is the right verdict."""
    seconds: float = SECONDS


FAMILIES: tuple[Family, ...] = (
    Family("owners without a router", owners),
    Family("least-busy, drained backend", drained),
    Family("backend joins late", late),
    Family("prefill and decode roles", roles),
    Family("unlike speed", unlike),
    Family("weights, known or not", weighted),
    Family("random, full servers", full),
    Family("sticky and prefix-aware", affinity),
    Family("skewed looks", skewed_looks),
    Family("random and round-robin", control),
    Family("waves on a pair", waves),
    Family("herding: stale counts", stale, herds=True),
    Family("herding: convoys", convoys, herds=True),
    Family("herding: cooldowns", cooldowns, herds=True),
)
