"""Batching servers, routers and clients in virtual time, which share no code with sparktop."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

LIFE_BOUNDS_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0),
    *(30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
"""Upper bounds of vLLM's histogram of request latencies, without the last (infinity)."""
ANSWER_BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)
"""Upper bounds of the histogram of answer lengths in tokens, without the last."""


class Clock:
    """Virtual time: actions run in the order of their times."""

    def __init__(self) -> None:
        """Start at 0 s."""
        self.now_s = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, when_s: float, action: Callable[[], None]) -> None:
        """Run `action` at `when_s`, or now if that has passed."""
        heapq.heappush(self._due, (max(when_s, self.now_s), next(self._order), action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Run `action` in `delay_s` seconds."""
        self.at(self.now_s + delay_s, action)

    def run(self, until_s: float) -> None:
        """Run all actions due up to `until_s`."""
        while self._due and self._due[0][0] <= until_s:
            self.now_s, _, action = heapq.heappop(self._due)
            action()
        self.now_s = until_s


@dataclass(slots=True, eq=False)
class Request:
    """A request: its prompt and answer tokens, and the function to call when it ends."""

    prompt: int
    output: int
    ended: Callable[[Request], None]
    session: int = 0
    prefix: int = 0
    """Number of the shared prefix with which its prompt begins."""
    fails: bool = False
    """Whether its answer ends in an error."""
    born_s: float = 0.0
    next_output: int = 0
    """Tokens to generate at a second worker; 0 if one worker does all."""


@dataclass(slots=True)
class Observations:
    """A histogram with fixed bounds; its counts are not cumulative."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        """Start empty."""
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(frozen=True, slots=True)
class Speed:
    """The duration of a step: a base, a part per request or its root, and one per prompt token."""

    base_s: float
    per_request_s: float
    prompt_token_s: float = 0.00002
    prompt_step_s: float = 0.0
    """What a step takes longer if it has a prompt at all, as reading all experts does."""
    slots: int = 64
    factor: float = 1.0
    """Speed relative to other backends."""
    exponent: float = 1.0
    """Power of the batch with which a step grows: 0.5 where more requests read more experts."""

    def step_s(self, batch: int) -> float:
        """Return the seconds of a step without prompts."""
        return self.base_s + self.per_request_s * math.pow(batch, self.exponent)

    def tokens_per_s(self, load: int) -> float:
        """Return the decode throughput with `load` requests."""
        batch = min(load, self.slots)
        return self.factor * batch / self.step_s(batch)


class Backend:
    """One server: it admits waiting requests at the start of a step, up to its slots."""

    def __init__(self, clock: Clock, name: str, speed: Speed) -> None:
        """Start idle."""
        self.name, self.speed = name, speed
        self.up = True
        self.before_change: Callable[[], None] = lambda: None
        """Called before the load changes."""
        self.running: list[tuple[int, int, Request]] = []
        """Heap of (step after which it ends, order, request)."""
        self.waiting: deque[Request] = deque()
        self.prompt_tokens = self.generated_tokens = 0
        self.finished: Counter[str] = Counter()
        self.lives = Observations(LIFE_BOUNDS_S)
        self.answers = Observations(ANSWER_BOUNDS)
        self._clock = clock
        self._steps = 0
        self._stepping = False
        self._order = itertools.count()

    @property
    def load(self) -> int:
        """Number of requests running and waiting."""
        return len(self.running) + len(self.waiting)

    def send(self, request: Request) -> None:
        """Queue a request; start a step if the server is idle."""
        self.before_change()
        request.born_s = self._clock.now_s
        self.waiting.append(request)
        if not self._stepping:
            self._begin_step()

    def _begin_step(self) -> None:
        prompt = 0
        while self.waiting and len(self.running) < self.speed.slots:
            request = self.waiting.popleft()
            prompt += request.prompt
            heapq.heappush(self.running, (self._steps + request.output, next(self._order), request))
        self._stepping = bool(self.running)
        if self._stepping:
            speed = self.speed
            work_s = speed.step_s(len(self.running)) + speed.prompt_token_s * prompt
            work_s += speed.prompt_step_s if prompt else 0.0
            self.prompt_tokens += prompt
            self._clock.after(work_s / speed.factor, self._end_step)

    def _end_step(self) -> None:
        self._steps += 1
        self.generated_tokens += len(self.running)
        while self.running and self.running[0][0] <= self._steps:
            self.before_change()
            _, _, request = heapq.heappop(self.running)
            self.finished["error" if request.fails else "length"] += 1
            self.lives.add(self._clock.now_s - request.born_s)
            self.answers.add(float(request.output))
            request.ended(request)
        self._begin_step()


Choose = Callable[[Request, Sequence[int]], int]
"""Function that returns the index of one of the allowed backends."""
RETRY_S = 0.7
"""Seconds until a refused request is sent again."""


class Gateway:
    """A proxy in front of backends: counts requests in flight, and skips backends that are not allowed."""

    def __init__(self, clock: Clock, backends: Sequence[Backend], *, cooldown_s: float = 0.0) -> None:
        """Start with all backends allowed; set `choose` before the first request."""
        self.clock, self.backends = clock, backends
        self.choose: Choose = lambda _request, allowed: allowed[0]
        self.in_flight = [0] * len(backends)
        self.past: deque[tuple[float, tuple[int, ...]]] = deque([(0.0, (0,) * len(backends))])
        """(time, requests in flight per backend) after each change, for late counts."""
        self.past_s = 0.0
        """Seconds of `past` that are needed."""
        self.withheld: set[int] = set()
        """Backends that the operator drains."""
        self.cooldown_s = cooldown_s
        self.failures: Counter[int] = Counter()
        self.cooldowns = self.refusals = 0
        self._cold_until = [0.0] * len(backends)

    def send(self, request: Request) -> None:
        """Pass a request on to a backend; try again later if none is allowed."""
        now = self.clock.now_s
        allowed = [
            index
            for index, backend in enumerate(self.backends)
            if backend.up and index not in self.withheld and self._cold_until[index] <= now
        ]
        if not allowed:
            self.refusals += 1
            self.clock.after(RETRY_S, lambda: self.send(request))
            return
        index = self.choose(request, allowed)
        then = request.ended

        def ended(done: Request) -> None:
            self._count(index, -1)
            if done.fails:
                self.failures[index] += 1
                if self.cooldown_s:
                    self.cooldowns += 1
                    self._cold_until[index] = self.clock.now_s + self.cooldown_s
            then(done)

        request.ended = ended
        self._count(index, 1)
        self.backends[index].send(request)

    def _count(self, index: int, by: int) -> None:
        self.in_flight[index] += by
        if self.past_s:
            self.past.append((self.clock.now_s, tuple(self.in_flight)))


def shuffle(dice: random.Random, weights: Sequence[float] | None = None) -> Choose:
    """Return random routing, with probabilities by weight if there are weights."""

    def choose(_request: Request, allowed: Sequence[int]) -> int:
        if weights is None:
            return dice.choice(allowed)
        return dice.choices(allowed, [weights[index] for index in allowed])[0]

    return choose


def round_robin(weights: Sequence[int] | None = None) -> Choose:
    """Return round-robin routing; with weights, smooth weighted round-robin as in nginx."""
    credit: Counter[int] = Counter()

    def choose(_request: Request, allowed: Sequence[int]) -> int:
        for index in allowed:
            credit[index] += 1 if weights is None else weights[index]
        best = max(allowed, key=lambda index: (credit[index], -index))
        credit[best] -= len(allowed) if weights is None else sum(weights[index] for index in allowed)
        return best

    return choose


def least_busy(counts: Callable[[], Sequence[int]], dice: random.Random | None = None) -> Choose:
    """Return routing to the lowest count; among equal ones to the first, or with `dice` to a random one."""

    def choose(_request: Request, allowed: Sequence[int]) -> int:
        known = counts()
        least = min(known[index] for index in allowed)
        best = [index for index in allowed if known[index] == least]
        return dice.choice(best) if dice else best[0]

    return choose


def late_counts(gateway: Gateway, late_s: float) -> Callable[[], Sequence[int]]:
    """Return a function that returns the requests in flight `late_s` seconds ago, per backend."""
    gateway.past_s = late_s

    def counts() -> Sequence[int]:
        past = gateway.past
        while len(past) > 1 and past[1][0] <= gateway.clock.now_s - late_s:
            past.popleft()
        return past[0][1]

    return counts


def polled_counts(gateway: Gateway, every_s: float) -> Callable[[], Sequence[int]]:
    """Return a function that returns the backends' loads at the last poll; polls are every `every_s`."""
    known = [0] * len(gateway.backends)

    def poll() -> None:
        known[:] = [backend.load for backend in gateway.backends]
        gateway.clock.after(every_s, poll)

    gateway.clock.after(0.0, poll)
    return lambda: known


def sticky(first: Choose) -> Choose:
    """Return routing by session: `first` routes a session's first request, the others follow it."""
    homes: dict[int, int] = {}

    def choose(request: Request, allowed: Sequence[int]) -> int:
        home = homes.get(request.session)
        if home is None or home not in allowed:
            home = homes[request.session] = first(request, allowed)
        return home

    return choose


def prefix_aware(gateway: Gateway, dice: random.Random, most_ahead: int) -> Choose:
    """Return routing to a cached prefix, unless its backend is over `most_ahead` above the least load."""
    homes: dict[int, set[int]] = {}

    def choose(request: Request, allowed: Sequence[int]) -> int:
        loads = gateway.in_flight
        least = min(loads[index] for index in allowed)
        there = [index for index in homes.setdefault(request.prefix, set()) if index in allowed]
        if there:
            best = min(there, key=lambda index: loads[index])
            if loads[best] - least <= most_ahead:
                return best
        chosen = dice.choice([index for index in allowed if loads[index] == least])
        homes[request.prefix].add(chosen)
        return chosen

    return choose


Send = Callable[[Request], None]
TURNAROUND_S = 0.008
"""Mean time from an answer's end to the next request's arrival, without thinking."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths of prompts and answers in tokens."""

    kind: str
    """fixed, uniform (half to one and a half of the mean) or log-normal."""
    output: int
    prompt: int = 128

    def draw(self, dice: random.Random) -> int:
        """Draw the length of an answer in tokens, at least 2."""
        if self.kind == "uniform":
            return max(2, round(self.output * dice.uniform(0.5, 1.5)))
        if self.kind == "log-normal":
            return max(2, round(self.output * min(8.0, dice.lognormvariate(-0.32, 0.8))))
        return self.output


@dataclass(slots=True)
class Crowd:
    """Clients that all send to the same destination."""

    clock: Clock
    send: Send
    dice: random.Random
    lengths: Lengths

    def request(self, ended: Callable[[Request], None], session: int = 0, prefix: int = 0) -> Request:
        """Return a new request with a random answer length."""
        return Request(self.lengths.prompt, self.lengths.draw(self.dice), ended, session, prefix)

    def closed_loop(
        self,
        clients: int,
        *,
        think_s: float = 0.0,
        spread_s: float = 3.0,
        works: Callable[[], bool] = lambda: True,
        marks: Callable[[int], dict[str, int]] = lambda _client: {},
    ) -> None:
        """Start clients over `spread_s` seconds; each sends again after an answer and a pause.

        The pause is exponential, with the mean `think_s`. A client checks `works()` before it sends, and
        again every 0.2 s while it is false.
        """

        def begin(client: int) -> None:
            if not works():
                self.clock.after(0.2, lambda: begin(client))
                return
            self.send(self.request(lambda _done: again(client), **marks(client)))

        def again(client: int) -> None:
            pause_s = self.dice.expovariate(1 / TURNAROUND_S)
            pause_s += self.dice.expovariate(1 / think_s) if think_s else 0.0
            self.clock.after(pause_s, lambda: begin(client))

        for client in range(clients):
            self.clock.after(self.dice.uniform(0.0, spread_s), lambda client=client: begin(client))  # type: ignore[misc]  # bound now

    def bursts(self, clients: int, gap_s: float) -> None:
        """Send `clients` requests at once, wait for the last answer and about `gap_s` seconds, and repeat."""
        left = 0

        def burst() -> None:
            nonlocal left
            left = clients
            for _ in range(clients):
                self.clock.after(self.dice.expovariate(1 / TURNAROUND_S), one)

        def one() -> None:
            self.send(self.request(ended))

        def ended(_done: Request) -> None:
            nonlocal left
            left -= 1
            if not left:
                self.clock.after(gap_s * self.dice.uniform(0.5, 1.5), burst)

        self.clock.after(0.5, burst)

    def poisson(self, rate_per_s: float) -> None:
        """Send requests at random times (a Poisson process), whether or not earlier ones have ended."""

        def arrive() -> None:
            self.send(self.request(lambda _done: None))
            self.clock.after(self.dice.expovariate(rate_per_s), arrive)

        self.clock.after(self.dice.expovariate(rate_per_s), arrive)


def turns(clock: Clock, on_s: float, off_s: float, phase_s: float) -> Callable[[], bool]:
    """Return a function that is true while an owner works: `on_s` of every `on_s + off_s`, from `phase_s`."""
    return lambda: (clock.now_s - phase_s) % (on_s + off_s) < on_s


def two_stages(prefill: Send, decode: Send) -> Send:
    """Return a `Send` that prefills at one worker (one token) and generates the rest at another."""

    def send(request: Request) -> None:
        then, output = request.ended, request.output

        def decode_it(done: Request) -> None:
            done.prompt, done.output, done.ended = 0, max(1, output - 1), then
            decode(done)

        request.output, request.ended = 1, decode_it
        prefill(request)

    return send


def zipf(count: int, dice: random.Random) -> int:
    """Draw a number below `count`, with a probability proportional to 1 / (number + 1)."""
    weights: Sequence[float] = [1 / (rank + 1) for rank in range(count)]
    return dice.choices(range(count), weights)[0]
