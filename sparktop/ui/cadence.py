"""How often to poll and to draw: as requested, unless the terminal or the servers cannot keep up."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

from sparktop.model.snapshot import BackendView

LOW_BANDWIDTH_S = 4.0
"""Seconds between two drawings with --low-bandwidth: keeps a screen of 120x36 below 2 kB/s."""
LIVELY_S = 0.5
"""Greatest time between two drawings while a sweep runs, in seconds."""
MAX_DRAW_S = 8.0
MAX_INTERVAL_S = 10.0
"""Slow answers never raise the polling interval above this; the user may."""
_BACKLOG = 3
"""Pending writes from which on the terminal counts as lagging; one drawing makes about two."""
_CALM_DRAWS = 10
"""Drawings without lag, or with quick answers, after which the cadence rises by one step."""
_SLOW_DRAWS = 5
_SLOW_SHARE = 0.5
"""Share of the interval from which on the median poll counts as slow."""
_QUICK_SHARE = 0.2


class Cadence:
    """Decides the time between two drawings and between two polls."""

    def __init__(self, interval_s: float, *, low_bandwidth: bool = False) -> None:
        """Start with the requested interval."""
        self.asked_s = interval_s
        self.low_bandwidth = low_bandwidth
        self.lively = False
        """True while something changes faster than servers are polled: draw between two polls, too."""
        self._draw_factor = 1
        self._poll_factor = 1
        self._calm = 0
        self._slow = 0
        self._quick = 0

    @property
    def interval_s(self) -> float:
        """Seconds between two polls."""
        return max(self.asked_s, min(MAX_INTERVAL_S, self.asked_s * self._poll_factor))

    @property
    def draw_s(self) -> float:
        """Seconds between two drawings: a multiple of the interval, or less while `lively`."""
        if self.lively and not self.low_bandwidth:
            return min(LIVELY_S, self.interval_s) * self._draw_factor
        least = LOW_BANDWIDTH_S if self.low_bandwidth else 0.0
        intervals = max(1, math.ceil(least / self.interval_s)) * self._draw_factor
        return intervals * self.interval_s

    @property
    def coarse(self) -> int:
        """Number of intervals per dot column of a graph: with low bandwidth a drawing adds one column."""
        return max(1, math.ceil(LOW_BANDWIDTH_S / self.interval_s)) if self.low_bandwidth else 1

    def ask(self, interval_s: float) -> None:
        """Set the interval that the user requests, and forget past slowness."""
        self.asked_s = interval_s
        self._draw_factor = self._poll_factor = 1
        self._calm = self._slow = self._quick = 0

    def drew(self, backlog: int) -> None:
        """Record one drawing, and how many writes were pending before it."""
        if backlog >= _BACKLOG:
            self._calm = 0
            if 2 * self.draw_s <= max(MAX_DRAW_S, self.interval_s):
                self._draw_factor *= 2
            return
        self._calm += 1
        if self._calm >= _CALM_DRAWS and self._draw_factor > 1:
            self._draw_factor //= 2
            self._calm = 0

    def polled(self, backends: Iterable[BackendView]) -> bool:
        """Record how long polls take; return whether the time between two polls changed.

        The median counts: a single slow server does not slow down the others.
        """
        took = [view.poll_ms / 1000 for view in backends if view.ok and view.poll_ms is not None]
        if not took:
            return False
        typical = median(took)
        before = self.interval_s
        self._slow = self._slow + 1 if typical > _SLOW_SHARE * before else 0
        self._quick = self._quick + 1 if typical < _QUICK_SHARE * before else 0
        if self._slow >= _SLOW_DRAWS:
            self._slow = 0
            if before < MAX_INTERVAL_S:
                self._poll_factor *= 2
        elif self._quick >= _CALM_DRAWS and self._poll_factor > 1:
            self._poll_factor, self._quick = self._poll_factor // 2, 0
        return self.interval_s != before

    @property
    def notice(self) -> str | None:
        """Why drawing or polling is slower than requested, for the header; None if it is not."""
        if self._poll_factor > 1:
            return f"slow polls: every {self.interval_s:g} s"
        if self._draw_factor > 1:
            return f"slow terminal: drawn every {self.draw_s:g} s"
        if self.low_bandwidth:
            return f"drawn every {self.draw_s:g} s"
        return None
