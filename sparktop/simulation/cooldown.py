"""Backends that a router leaves alone for a while because they failed, by LiteLLM's rules."""

from __future__ import annotations

import math

AT_ONCE = frozenset({401, 404, 429})
"""Status codes after which one failure is enough."""
COOLDOWN_S = 5.0
WINDOW_S = 60.0
SHARE = 0.5
"""Of the requests counted now, more failures than this are too many; a single request is never enough."""


class _Window:
    """A count that starts again `WINDOW_S` after its first one, whatever comes in between."""

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
    """Which backends are left alone; LiteLLM 1.83 to 1.109 with its default policy.

    More than half of the requests counted now have failed (at least two were counted), or one was answered
    429, 401 or 404: the backend gets nothing for `seconds`. Failures meanwhile do not prolong it.
    """

    def __init__(self, backends: int, seconds: float | None = COOLDOWN_S) -> None:
        """Start with none left alone; without `seconds` none ever is."""
        if seconds is not None and seconds <= 0:
            raise ValueError("a cooldown is longer than 0 s; None for none")
        self._seconds = seconds
        self._fails = [_Window() for _ in range(backends)]
        self._successes = [_Window() for _ in range(backends)]
        self._until: dict[int, float] = {}
        """Of each backend that is left alone, or was until short ago."""

    def note(self, backend: int, now: float, *, ok: bool, status: int | None) -> None:
        """Count an answer, and leave its backend alone if that was one failure too many."""
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
        """Give the backends that are left alone at a time."""
        if not self._until:
            return frozenset()
        for backend in [one for one, until in self._until.items() if until <= now]:
            del self._until[backend]
        return frozenset(self._until)
