"""Simulated routers as pure functions of time: for virtual time and a real proxy.

The caller calls `choose` for each request, then `record_start` at once, and `record_end` when the response
has ended. A router can be set to count a request only some time after `record_start`, as LiteLLM does,
because it counts in another thread.

router = Router("least-busy", 2, RouterSettings(increment_lag_s=0.002))
backend = router.choose(now)        # None: all backends cool down, the request is refused
router.record_start(backend, now)
...
router.record_end(backend, now, ok=True)
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence

from msgspec import Struct

AT_ONCE = frozenset({401, 404, 429})
"""Status codes that start a cooldown at the first failure."""
BROKEN_AFTER = 100
"""Tokens after which a request is broken off, of those of which an answer is to fail."""
COOLDOWN_S = 5.0
WINDOW_S = 60.0
SHARE = 0.5
"""Share of failures among the counted requests of a backend, above which its cooldown starts; a single
request is not enough."""


class _Expiring:
    """A counter that drops to 0 `WINDOW_S` seconds after its first count; later counts do not delay this."""

    def __init__(self) -> None:
        self._count = 0
        self._until = -math.inf

    def add(self, now: float) -> None:
        """Count something that happened at the time `now`."""
        count = self.at(now)
        if not count:
            self._until = now + WINDOW_S
        self._count = count + 1

    def at(self, now: float) -> int:
        """Return the count at the time `now`."""
        return self._count if now <= self._until else 0


class Cooldown:
    """The backends that are cooling down (get no requests), as in LiteLLM 1.83 to 1.109 by default.

    A backend cools down for `COOLDOWN_S` if at least two of its requests were counted in the last minute or
    less (`_Expiring`), and more than half of them failed. It also cools down if a request was answered 429,
    401 or 404. Failures during the cooldown do not prolong it.
    """

    def __init__(self, backends: int) -> None:
        """Start without a cooldown."""
        self._fails = [_Expiring() for _ in range(backends)]
        self._successes = [_Expiring() for _ in range(backends)]
        self._until: dict[int, float] = {}
        """End of the current or latest cooldown, by backend."""

    def note(self, backend: int, now: float, *, ok: bool, status: int | None) -> None:
        """Count an answer of a backend at the time `now`; start a cooldown if the backend failed too often.

        `ok` is whether the request succeeded. `status` is the HTTP status of a failure, None if it had none.
        """
        (self._successes if ok else self._fails)[backend].add(now)
        if ok or self._until.get(backend, -math.inf) > now:
            return
        fails = self._fails[backend].at(now)
        request_count = fails + self._successes[backend].at(now)
        if status in AT_ONCE or (request_count > 1 and fails > SHARE * request_count):
            self._until[backend] = now + COOLDOWN_S

    def at(self, now: float) -> frozenset[int]:
        """Return the indices of the backends that are cooling down at the time `now`."""
        return frozenset(backend for backend, until in self._until.items() if until > now)


class RouterSettings(Struct, frozen=True):
    """How late a router's counts of requests in flight are; by default they are exact and immediate."""

    increment_lag_s: float = 0.0
    """Seconds from the choice of a backend until the backend's count includes the request."""
    poll_s: float | None = None
    """Seconds between the times at which the router reads the counts; None: it always has the current
    counts."""


class Router:
    """A router: chooses a backend for each request by its `strategy`.

    simple-shuffle   a random backend, LiteLLM's default
    round-robin      the backends in turn
    least-busy       the fewest requests in flight, as LiteLLM's; of equal backends the first. Backends that
                     cool down are compared too: if one has the fewest, a random other one is chosen
    power-of-two     two random backends, and of these the one with fewer requests in flight
    shortest-queue   the fewest requests in flight, whose counts are always exact

    Times passed to the methods must not decrease.
    """

    def __init__(
        self, strategy: str, backends: int, settings: RouterSettings | None = None, *, seed: int | str = 0
    ) -> None:
        """Start with no requests in flight on any of the backends, numbered from 0.

        `seed` fixes random choices.
        """
        self.strategy = strategy
        self.backends = backends
        # Chances of routing need no cryptographic randomness.
        self._random = random.Random(seed)  # noqa: S311
        self._cooldown = Cooldown(backends)
        exact = RouterSettings()
        self._counts = LateCounts(backends, exact if strategy == "shortest-queue" else settings or exact)
        self._next = 0
        """The backend whose turn is next."""

    def choose(self, now: float) -> int | None:
        """Return the index of the backend for a request that arrives at `now`.

        Return None if all backends are cooling down after failures: the request is refused.
        """
        cooling = self._cooldown.at(now)
        healthy = [backend for backend in range(self.backends) if backend not in cooling]
        return self._choose(healthy, self._counts.at(now)) if healthy else None

    def record_start(self, backend: int, now: float) -> None:
        """Record that a request was sent to a backend at the time `now`."""
        self._counts.add(backend, 1, now)

    def record_end(
        self, backend: int, now: float, *, ok: bool | None = True, status: int | None = None
    ) -> None:
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

    def cooling_backends(self, now: float) -> frozenset[int]:
        """Return the indices of the backends that get no requests at the time `now`, because they failed."""
        return self._cooldown.at(now)

    def _choose(self, healthy: Sequence[int], counts: Sequence[int]) -> int:
        """Return one of the backends `healthy`, which do not cool down; `counts` are of all."""
        if self.strategy == "simple-shuffle":
            return self._random.choice(healthy)
        if self.strategy == "round-robin":
            backend = next((backend for backend in healthy if backend >= self._next), healthy[0])
            self._next = (backend + 1) % self.backends
            return backend
        if self.strategy == "least-busy":
            backend = counts.index(min(counts))
            return backend if backend in healthy else self._random.choice(healthy)
        if self.strategy == "power-of-two" and len(healthy) > 1:
            healthy = self._random.sample(healthy, 2)
        return min(healthy, key=counts.__getitem__)


# A simulated router's counts of requests in flight, which may be late or read periodically.


class LateCounts:
    """A router's counts of requests in flight, one per backend, which can be late.

    A count rises `increment_lag_s` after a request went to its backend, and falls at the request's end. With
    `poll_s`, the router sees the counts as they were at the last multiple of `poll_s`.
    Times passed to the methods must not decrease.
    """

    def __init__(self, backends: int, settings: RouterSettings) -> None:
        """Start with no requests in flight."""
        poll_s = settings.poll_s
        self._current = [0] * backends
        self._seen = self._current if poll_s is None else [0] * backends
        self._lag_s = settings.increment_lag_s
        self._late: deque[tuple[float, int]] = deque()
        """(When its count rises, backend) of requests that are not counted yet."""
        self._poll_s = poll_s
        self._poll_at = -math.inf if poll_s is None else 0.0

    def at(self, now: float) -> list[int]:
        """Return the counts that the router sees at the time `now`, by backend.

        The list is the router's own and not a copy: it changes when the counts change.
        """
        self._catch_up(now)
        return self._seen

    def add(self, backend: int, change: int, now: float) -> None:
        """Record at the time `now` that a request on a backend started (`change` 1) or ended (-1)."""
        self._catch_up(now)
        if self._lag_s and change > 0:
            self._late.append((now + self._lag_s, backend))
        else:
            self._current[backend] += change

    def _catch_up(self, now: float) -> None:
        if self._poll_s is not None and now >= self._poll_at:
            # Of the polls since the last call, only the newest is still visible.
            newest_at = math.floor(now / self._poll_s) * self._poll_s
            self._count_late(newest_at)
            self._seen[:] = self._current
            self._poll_at = newest_at + self._poll_s
        self._count_late(now)

    def _count_late(self, now: float) -> None:
        while self._late and self._late[0][0] <= now:
            _, backend = self._late.popleft()
            self._current[backend] += 1
