"""How often to look and to draw: as asked, unless the terminal or the servers cannot follow."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

from sparktop.model.snapshot import BackendView

LOW_BANDWIDTH_S = 4.0
"""Seconds between two drawings with --low-bandwidth: keeps a screen of 120x36 under 2 kB/s."""
LIVELY_S = 0.5
"""Seconds between two drawings at most while a sweep runs."""
MAX_DRAW_S = 8.0
MAX_INTERVAL_S = 10.0
"""Slow answers never make the time between two polls longer than this; the user may."""
_BACKLOG = 3
"""Writes that wait for the terminal from which on it counts as lagging; one drawing makes about two."""
_CALM_DRAWS = 10
"""Drawings without lag, or with quick answers, after which the cadence rises again by one step."""
_SLOW_DRAWS = 5
_SLOW_SHARE = 0.5
"""Share of the interval that the median poll takes from which on polls count as slow."""
_QUICK_SHARE = 0.2


class Cadence:
    """Decides the time between two drawings and between two polls."""

    def __init__(self, interval_s: float, *, low_bandwidth: bool = False) -> None:
        """Start with what was asked for."""
        self.asked_s = interval_s
        self.low_bandwidth = low_bandwidth
        self.lively = False
        """Something moves faster than servers are asked: draw between two polls, too."""
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
        """Seconds between two drawings: a whole number of intervals, or less where it is to be lively."""
        if self.lively and not self.low_bandwidth:
            return min(LIVELY_S, self.interval_s) * self._draw_factor
        least = LOW_BANDWIDTH_S if self.low_bandwidth else 0.0
        intervals = max(1, math.ceil(least / self.interval_s)) * self._draw_factor
        return intervals * self.interval_s

    @property
    def coarse(self) -> int:
        """Intervals that a dot column of a graph stands for: with low bandwidth one drawing adds one."""
        return max(1, math.ceil(LOW_BANDWIDTH_S / self.interval_s)) if self.low_bandwidth else 1

    def ask(self, interval_s: float) -> None:
        """Take a new wish of the user's; past trouble is forgotten."""
        self.asked_s = interval_s
        self._draw_factor = self._poll_factor = 1
        self._calm = self._slow = self._quick = 0

    def drew(self, backlog: int) -> None:
        """Note one drawing and how many writes were still waiting for the terminal before it."""
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
        """Note how long polls take; True when the time between two polls changed.

        The median counts: one slow server among others slows nobody down.
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
        """Why it is slower than asked, for the header."""
        if self._poll_factor > 1:
            return f"slow polls: every {self.interval_s:g} s"
        if self._draw_factor > 1:
            return f"slow terminal: drawn every {self.draw_s:g} s"
        if self.low_bandwidth:
            return f"drawn every {self.draw_s:g} s"
        return None
