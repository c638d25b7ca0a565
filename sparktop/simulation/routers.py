"""The strategies of a router, as pure functions of time: for virtual time and for a proxy in real time.

Whoever routes a request asks `choose`, tells `started` at once, and `ended` when the stream is over. That a
count rises late, as in LiteLLM after a hop to another thread, is the router's own matter: a setting.

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
    """What a router knows and when; each default is the harmless case, but for LiteLLM's cooldown."""

    increment_lag_s: float = 0.0
    """From a choice until the count shows it: a hop to another thread."""
    decrement_lag_s: float = 0.0
    """From a stream's end until the count shows it."""
    poll_s: float | None = None
    """The counts are read so often and no choice in between shows in them; None: they are kept up to date."""
    expiry_s: float | None = None
    """All counts are forgotten so long after the first: 600 s in old LiteLLM, 3,600 s in newer."""
    random_ties: bool = False
    """Equal counts: any of them (the newest LiteLLM), instead of the first."""
    cooldown_s: float | None = COOLDOWN_S
    """How long a failing backend gets nothing; None is LiteLLM's `disable_cooldowns`."""


class Router(ABC):
    """Chooses a backend for each request; times never go back."""

    strategy: ClassVar[str]

    def __init__(self, backends: int, settings: RouterSettings | None = None, *, seed: int | str = 0) -> None:
        """Start with nothing under way; ValueError without a backend."""
        if backends < 1:
            raise ValueError("a router has at least one backend")
        self.backends = backends
        self.settings = settings or RouterSettings()
        # Chances of routing, no secrets.
        self._random = random.Random(seed)  # noqa: S311
        self._cooldown = Cooldown(backends, self.settings.cooldown_s)
        self._counts = self._make_counts()

    def choose(self, now: float) -> int | None:
        """Give the backend for a request that came now; None when every one of them cools down."""
        cooling = self._cooldown.at(now)
        if not cooling:
            return self._choose(None, now)
        healthy = [backend for backend in range(self.backends) if backend not in cooling]
        return self._choose(healthy, now) if healthy else None

    def started(self, backend: int, now: float) -> None:
        """Note that a request was given to a backend."""
        self._counts.add(backend, 1, now)

    def ended(self, backend: int, now: float, *, ok: bool | None = True, status: int | None = None) -> None:
        """Note that a request's stream is over.

        `ok` is None when its client went away, which speaks neither for the backend nor against it. `status`
        is the failure's, where it had one.
        """
        self._counts.add(backend, -1, now)
        if ok is not None:
            self._cooldown.note(backend, now, ok=ok, status=status)

    def counts(self, now: float) -> tuple[int, ...]:
        """Give the requests under way on each backend as the router sees them."""
        return tuple(self._counts.at(now))

    def cooling(self, now: float) -> frozenset[int]:
        """Give the backends that get nothing now because they failed."""
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
        """Choose among the healthy ones, at least one; None: all are."""


class SimpleShuffle(Router):
    """Any healthy backend, each as likely (LiteLLM's default)."""

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
    """The lowest count, as LiteLLM's least-busy chooses it.

    Ties go to the first, and the lowest is looked for among all backends: when it cools down, any healthy one
    is taken, whatever its count. With `random_ties`, as in the newest version, both are mended.
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
    """The lower count of two healthy backends drawn at random (with two backends: the lowest of all)."""

    strategy = "power-of-two"

    def _choose(self, healthy: Sequence[int] | None, now: float) -> int:
        counts, among = self._counts.at(now), range(self.backends) if healthy is None else healthy
        if len(among) == 1:
            return among[0]
        one, other = self._random.sample(among, 2)
        return one if counts[one] <= counts[other] else other


class ShortestQueue(Router):
    """The lowest count of all healthy backends, known perfectly: lags, polls and expiry do not reach it."""

    strategy = "shortest-queue"

    def _make_counts(self) -> Counts:
        return Counts(self.backends)

    def _choose(self, healthy: Sequence[int] | None, now: float) -> int:
        counts = self._counts.at(now)
        return counts.index(min(counts)) if healthy is None else min(healthy, key=counts.__getitem__)


STRATEGIES: dict[str, type[Router]] = {
    router.strategy: router for router in (SimpleShuffle, RoundRobin, LeastBusy, PowerOfTwo, ShortestQueue)
}
"""By the name that people choose them with."""


def make_router(
    strategy: str, backends: int, settings: RouterSettings | None = None, *, seed: int | str = 0
) -> Router:
    """Make a router by its strategy's name; ValueError for a name that is none."""
    if strategy not in STRATEGIES:
        raise ValueError(f"no strategy {strategy!r}; there are {', '.join(STRATEGIES)}")
    return STRATEGIES[strategy](backends, settings, seed=seed)
