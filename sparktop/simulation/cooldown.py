"""Cooldown of failing backends in a simulated router, by LiteLLM's rules."""

from __future__ import annotations

import math

AT_ONCE = frozenset({401, 404, 429})
"""Status codes that start a cooldown at the first failure."""
COOLDOWN_S = 5.0
WINDOW_S = 60.0
SHARE = 0.5
"""Share of failures among the counted requests of a backend, above which its cooldown starts; a single
request is not enough."""


class _Window:
    """A counter that drops to 0 `WINDOW_S` seconds after its first count; later counts do not delay this."""

    def __init__(self) -> None:
        self._count = 0
        self._until = -math.inf

    def add(self, now: float) -> None:
        count = self.at(now)
        if not count:
            self._until = now + WINDOW_S
        self._count = count + 1

    def at(self, now: float) -> int:
        return self._count if now <= self._until else 0


class Cooldown:
    """The backends that are cooling down (get no requests), as in LiteLLM 1.83 to 1.109 by default.

    A backend cools down for `seconds` if at least two of its requests were counted in the last minute or less
    (see `_Window`), and more than half of them failed. It also cools down if a request was answered 429, 401
    or 404. Failures during the cooldown do not prolong it.
    """

    def __init__(self, backends: int, seconds: float | None = COOLDOWN_S) -> None:
        """Start without a cooldown; `seconds` is the duration of each cooldown, None for no cooldowns at all.

        Raises:
            ValueError: `seconds` is not above 0.
        """
        if seconds is not None and seconds <= 0:
            raise ValueError("a cooldown is longer than 0 s; None for none")
        self._seconds = seconds
        self._fails = [_Window() for _ in range(backends)]
        self._successes = [_Window() for _ in range(backends)]
        self._until: dict[int, float] = {}
        """End of the current or latest cooldown, by backend."""

    def note(self, backend: int, now: float, *, ok: bool, status: int | None) -> None:
        """Count an answer of a backend at the time `now`; start a cooldown if the backend failed too often.

        `ok` is whether the request succeeded. `status` is the HTTP status of a failure, None if it had none.
        """
        if self._seconds is None:
            return
        (self._successes if ok else self._fails)[backend].add(now)
        if ok or self._until.get(backend, -math.inf) > now:
            return
        fails = self._fails[backend].at(now)
        counted = fails + self._successes[backend].at(now)
        if status in AT_ONCE or (counted > 1 and fails > SHARE * counted):
            self._until[backend] = now + self._seconds

    def at(self, now: float) -> frozenset[int]:
        """Return the indices of the backends that are cooling down at the time `now`."""
        if not self._until:
            return frozenset()
        for backend in [index for index, until in self._until.items() if until <= now]:
            del self._until[backend]
        return frozenset(self._until)
