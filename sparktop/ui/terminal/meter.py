"""Measures how many bytes per second are sent to the terminal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable


class TerminalMeter:
    """Counts the bytes that are sent to the terminal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, window_s: float = 10.0) -> None:
        """Start at 0; `rate` averages over `window_s` seconds of the monotonic `clock`."""
        self._clock = clock
        self._window_s = window_s
        self._total = 0
        self._marks: deque[tuple[float, int]] = deque()

    def count(self, data: str) -> None:
        """Add the bytes of one text sent to the terminal."""
        self._total += len(data.encode())

    def rate(self) -> float | None:
        """Return the bytes per second over at most the last `window_s` seconds; None at the first call."""
        now = self._clock()
        self._marks.append((now, self._total))
        while len(self._marks) > 1 and now - self._marks[1][0] >= self._window_s:
            self._marks.popleft()
        start, total = self._marks[0]
        return (self._total - total) / (now - start) if now > start else None
