"""A router's strategies, as pure functions of time: for virtual time and for a proxy in real time.

The caller asks `choose` for each request, then calls `started` at once, and `ended` when the stream is over.
That a count rises late, as in LiteLLM after a hop to another thread, is a setting of the router.

    router = make_router("least-busy", 2, RouterSettings(increment_lag_s=0.002))
    backend = router.choose(now)        # None: all cool down, the request is refused
    router.started(backend, now)
    ...
    router.ended(backend, now, ok=True)
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sparktop.simulation.cooldown import COOLDOWN_S, Cooldown
from sparktop.simulation.counts import Counts


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """What a router knows and when; defaults are the ideal case, except for LiteLLM's cooldown."""

    increment_lag_s: float = 0.0
    """Seconds from a choice until the count shows it: a hop to another thread."""
    decrement_lag_s: float = 0.0
    """Seconds from a stream's end until the count shows it."""
    poll_s: float | None = None
    """Seconds between readings of the counts, which show no choice in between; None: always up to date."""
    expiry_s: float | None = None
    """Seconds after the first write at which all counts expire: 600 in old LiteLLM, 3,600 in newer; None:
    never."""
    random_ties: bool = False
    """Whether equal counts are resolved at random (the newest LiteLLM) rather than by taking the first."""
    cooldown_s: float | None = COOLDOWN_S
    """Seconds that a failing backend gets no requests; None is LiteLLM's `disable_cooldowns`."""


class Router(ABC):
    """Chooses a backend for each request; times must not decrease."""

    strategy: ClassVar[str]

    def __init__(self, backends: int, settings: RouterSettings | None = None, *, seed: int | str = 0) -> None:
        """Start with no requests in flight.

        Raises:
            ValueError: there is no backend.
        """
        if backends < 1:
            raise ValueError("a router has at least one backend")
        self.backends = backends
        self.settings = settings or RouterSettings()
        # Chances of routing need no cryptographic randomness.
        self._random = random.Random(seed)  # noqa: S311
        self._cooldown = Cooldown(backends, self.settings.cooldown_s)
        self._counts = self._make_counts()

    def choose(self, now: float) -> int | None:
        """Return the backend for a request that arrives now; None if all backends cool down."""
        cooling = self._cooldown.at(now)
        if not cooling:
            return self._choose(None, now)
        healthy = [backend for backend in range(self.backends) if backend not in cooling]
        return self._choose(healthy, now) if healthy else None

    def started(self, backend: int, now: float) -> None:
        """Record that a request was sent to a backend."""
        self._counts.add(backend, 1, now)

    def ended(self, backend: int, now: float, *, ok: bool | None = True, status: int | None = None) -> None:
        """Record that a request's stream is over.

        `ok` is None if its client disconnected, which counts neither for nor against the backend. `status` is
        the HTTP status of a failure, if it had one.
        """
        self._counts.add(backend, -1, now)
        if ok is not None:
            self._cooldown.note(backend, now, ok=ok, status=status)

    def counts(self, now: float) -> tuple[int, ...]:
        """Return the requests in flight on each backend as the router sees them."""
        return tuple(self._counts.at(now))

    def cooling(self, now: float) -> frozenset[int]:
        """Return the backends that get no requests now because they failed."""
        return self._cooldown.at(now)

    def _make_counts(self) -> Counts:
        given = self.settings
        return Counts(
            self.backends,
            increment_lag_s=given.increment_lag_s,
            decrement_lag_s=given.decrement_lag_s,
            poll_s=given.poll_s,
            expiry_s=given.expiry_s,
        )

    @abstractmethod
    def _choose(self, healthy: Sequence[int] | None, now: float) -> int:
        """Choose among the healthy backends, at least one; None: all are healthy."""


class SimpleShuffle(Router):
    """A random healthy backend, all equally likely (LiteLLM's default)."""

    strategy = "simple-shuffle"

    def _choose(self, healthy: Sequence[int] | None, now: float) -> int:
        del now
        return self._random.randrange(self.backends) if healthy is None else self._random.choice(healthy)


class RoundRobin(Router):
    """The healthy backends in turn."""

    strategy = "round-robin"
    _next = 0

    def _choose(self, healthy: Sequence[int] | None, now: float) -> int:
        del now
        backend = self._next
        while healthy is not None and backend not in healthy:
            backend = (backend + 1) % self.backends
        self._next = (backend + 1) % self.backends
        return backend


class LeastBusy(Router):
    """The lowest count, chosen as in LiteLLM's least-busy.

    Ties go to the first backend, and the lowest count is determined among all backends: if that backend cools
    down, a random healthy one is chosen, whatever its count. With `random_ties`, as in the newest version,
    neither is the case.
    """

    strategy = "least-busy"

    def _choose(self, healthy: Sequence[int] | None, now: float) -> int:
        counts = self._counts.at(now)
        if self.settings.random_ties:
            among = range(self.backends) if healthy is None else healthy
            lowest = min(counts[backend] for backend in among)
            return self._random.choice([backend for backend in among if counts[backend] == lowest])
        backend = counts.index(min(counts))
        return backend if healthy is None or backend in healthy else self._random.choice(healthy)


class PowerOfTwo(Router):
    """The lower count of two healthy backends drawn at random; with two backends, the lowest of all."""

    strategy = "power-of-two"

    def _choose(self, healthy: Sequence[int] | None, now: float) -> int:
        counts, among = self._counts.at(now), range(self.backends) if healthy is None else healthy
        if len(among) == 1:
            return among[0]
        first, second = self._random.sample(among, 2)
        return first if counts[first] <= counts[second] else second


class ShortestQueue(Router):
    """The lowest count of all healthy backends, known perfectly: without lags, polls and expiry."""

    strategy = "shortest-queue"

    def _make_counts(self) -> Counts:
        return Counts(self.backends)

    def _choose(self, healthy: Sequence[int] | None, now: float) -> int:
        counts = self._counts.at(now)
        return counts.index(min(counts)) if healthy is None else min(healthy, key=counts.__getitem__)


STRATEGIES: dict[str, type[Router]] = {
    router.strategy: router for router in (SimpleShuffle, RoundRobin, LeastBusy, PowerOfTwo, ShortestQueue)
}
"""Router classes by the name of the strategy."""


def make_router(
    strategy: str, backends: int, settings: RouterSettings | None = None, *, seed: int | str = 0
) -> Router:
    """Make a router with the named strategy.

    Raises:
        ValueError: there is no such strategy.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"no strategy {strategy!r}; there are {', '.join(STRATEGIES)}")
    return STRATEGIES[strategy](backends, settings, seed=seed)
