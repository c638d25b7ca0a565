"""A small event-driven model of continuous batching: steps of a + s·b seconds, slots, a queue, counters."""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable
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
    """The duration of a step: a base, and a part per request in the batch and per prompt token."""

    base_s: float
    per_request_s: float
    prompt_token_s: float = 0.00002
    slots: int = 64
    factor: float = 1.0
    """Speed relative to other backends."""

    def tokens_per_s(self, load: int) -> float:
        """Return the decode throughput with `load` requests."""
        batch = min(load, self.slots)
        return self.factor * batch / (self.base_s + self.per_request_s * batch)


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
            work_s = speed.base_s + speed.per_request_s * len(self.running) + speed.prompt_token_s * prompt
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
