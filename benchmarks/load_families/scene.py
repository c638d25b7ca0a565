"""A simulated run before it is judged: servers, clients, and how the servers are sampled."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from load_families.clients import Crowd, Lengths
from load_families.engine import Backend, Clock, Speed
from load_families.routing import Gateway

SECONDS = 600.0


@dataclass(slots=True)
class Scene:
    """One run of ten minutes."""

    dice: random.Random
    clock: Clock
    backends: list[Backend]
    lengths: Lengths
    about: str = ""
    """What distinguishes the run from others of its family."""
    gateway: Gateway | None = None
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
        assert self.gateway is not None  # noqa: S101 - families without a router make their own crowds
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
        cost = Speed(cost.base_s, cost.per_request_s, slots=slots)
    lengths = Lengths(dice.choice(kinds), output_tokens(dice, cost, each, life_s))
    servers = [
        Backend(
            clock,
            f"spark-{chr(97 + index)}",
            Speed(
                cost.base_s,
                cost.per_request_s,
                cost.prompt_token_s,
                cost.slots,
                factors[index] if factors else 1.0,
            ),
        )
        for index in range(count)
    ]
    made = Scene(dice, clock, servers, lengths)
    made.hz = dice.choice((4.0, 4.0, 2.0, 1.0))
    made.offsets_s = [dice.uniform(0, 0.02) for _ in servers]
    made.slots_known = dice.random() < 0.5
    clients = round(each * count)
    made.about = f"{count} backends, {clients} clients, {lengths.kind} {lengths.output} tokens"
    if routed:
        made.gateway = Gateway(clock, servers)
        made.strategy = "simple-shuffle"
    return made, clients
