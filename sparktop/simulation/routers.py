"""Simulated routers, a class per strategy, as pure functions of time: for virtual time and a real proxy.

The caller calls `choose` for each request, then `started` at once, and `ended` when the response has ended. A
router can be set to count a request only some time after `started`, as LiteLLM does, because it counts in
another thread.

router = make_router("least-busy", 2, RouterSettings(increment_lag_s=0.002))
backend = router.choose(now)        # None: all backends cool down, the request is refused
router.started(backend, now)
...
router.ended(backend, now, ok=True)
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from sparktop.simulation.cooldown import COOLDOWN_S, Cooldown
from sparktop.simulation.counts import Counts


class RouterSettings(Struct, frozen=True):
    """How late a router's counts of requests in flight are, and how long failing backends cool down.

    By default the counts are exact and immediate, and the cooldown is LiteLLM's.
    """

    increment_lag_s: float = 0.0
    """Seconds from the choice of a backend until the backend's count includes the request."""
    decrement_lag_s: float = 0.0
    """Seconds from the end of a request until the backend's count no longer includes it."""
    poll_s: float | None = None
    """Seconds between the times at which the router reads the counts; None: it always has the current
    counts."""
    expiry_s: float | None = None
    """Seconds from the first change of a count until all counts are reset: 600 in old LiteLLM, 3,600 in
    newer; None: never."""
    random_ties: bool = False
    """Whether a random backend is chosen among those with equal counts (newest LiteLLM), or else the
    first."""
    cooldown_s: float | None = COOLDOWN_S
    """Seconds that a failing backend gets no requests; None is LiteLLM's `disable_cooldowns`."""


class Router(ABC):
    """Base of the routers: chooses a backend for each request.

    Times passed to the methods must not decrease.
    """

    strategy: ClassVar[str]

    def __init__(self, backends: int, settings: RouterSettings | None = None, *, seed: int | str = 0) -> None:
        """Start with no requests in flight on any of the backends, numbered from 0.

        `seed` fixes random choices.

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
        """Return the index of the backend for a request that arrives at `now`.

        Return None if all backends are cooling down after failures: the request is refused.
        """
        cooling = self._cooldown.at(now)
        if not cooling:
            return self._choose(None, now)
        healthy = [backend for backend in range(self.backends) if backend not in cooling]
        return self._choose(healthy, now) if healthy else None

    def started(self, backend: int, now: float) -> None:
        """Record that a request was sent to a backend at the time `now`."""
        self._counts.add(backend, 1, now)

    def ended(self, backend: int, now: float, *, ok: bool | None = True, status: int | None = None) -> None:
        """Record that a request on a backend ended at the time `now`.

        `ok` is whether the request succeeded. It is None if the client disconnected, which says nothing about
        the backend. `status` is the HTTP status of a failure, None if it had none.
        """
        self._counts.add(backend, -1, now)
        if ok is not None:
            self._cooldown.note(backend, now, ok=ok, status=status)

    def counts(self, now: float) -> tuple[int, ...]:
        """Return the number of requests in flight by backend, as the router knows it at the time `now`."""
        return tuple(self._counts.at(now))

    def cooling(self, now: float) -> frozenset[int]:
        """Return the indices of the backends that get no requests at the time `now`, because they failed."""
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
        """Return the index of the backend to use, one of those in `healthy`.

        `healthy` has the indices of the backends that are not cooling down; None if all backends are healthy.
        """


class SimpleShuffle(Router):
    """Router that chooses a random healthy backend, all with equal probability (LiteLLM's default)."""

    strategy = "simple-shuffle"

    def _choose(self, healthy: Sequence[int] | None, now: float) -> int:
        del now
        return self._random.randrange(self.backends) if healthy is None else self._random.choice(healthy)


class RoundRobin(Router):
    """Router that chooses the healthy backends in turn."""

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
    """Router that chooses the backend with the fewest requests in flight, as LiteLLM's least-busy does.

    Of equal backends, the first is chosen. Backends that are cooling down are compared too: if such a backend
    has the fewest requests, a random healthy backend is chosen instead. With `random_ties`, as in LiteLLM's
    newest version, only healthy backends are compared, and of equal ones a random one is chosen.
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
    """Router that draws two healthy backends at random and chooses the one with fewer requests in flight.

    With two backends, it always chooses the less loaded one.
    """

    strategy = "power-of-two"

    def _choose(self, healthy: Sequence[int] | None, now: float) -> int:
        counts, among = self._counts.at(now), range(self.backends) if healthy is None else healthy
        if len(among) == 1:
            return among[0]
        first, second = self._random.sample(among, 2)
        return first if counts[first] <= counts[second] else second


class ShortestQueue(Router):
    """Router that chooses the healthy backend with the fewest requests in flight.

    Unlike those of other routers, its counts are always exact: they have no lags, polls or expiry.
    """

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
    """Return a new router with the strategy named `strategy`.

    Raises:
        ValueError: there is no such strategy.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"no strategy {strategy!r}; there are {', '.join(STRATEGIES)}")
    return STRATEGIES[strategy](backends, settings, seed=seed)
