"""How often to poll and to draw: as requested, or less often if the terminal or servers cannot keep up."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

from sparktop.model.snapshot import BackendView

LOW_BANDWIDTH_S = 4.0
"""Seconds between two drawings with --low-bandwidth. This keeps a screen of 120x36 cells below 2 kB/s."""
LIVELY_S = 0.5
"""The longest time between two drawings while a sweep runs, in seconds."""
MAX_DRAW_S = 8.0
MAX_INTERVAL_S = 10.0
"""Slow servers never raise the poll interval above this; a user's request may exceed it."""
_BACKLOG = 3
"""Number of pending writes from which on the terminal counts as too slow; one drawing makes about two."""
_CALM_DRAWS = 10
"""After this many drawings without delay, or polls with quick answers, drawing or polling becomes faster by
one step."""
_SLOW_DRAWS = 5
"""Draws in a row with slow polls after which the interval is raised."""
_SLOW_SHARE = 0.5
"""Share of the interval from which on the median duration of the polls counts as slow."""
_QUICK_SHARE = 0.2


class Cadence:
    """Decides the time between two drawings and the time between two polls."""

    def __init__(self, interval_s: float, *, low_bandwidth: bool = False) -> None:
        """Start with the requested interval in seconds."""
        self.asked_s = interval_s
        self.low_bandwidth = low_bandwidth
        self.lively = False
        """True while a sweep is about to start or running: its progress changes faster than servers are
        polled, so the screen is drawn between two polls too."""
        self._draw_factor = 1
        self._poll_factor = 1
        self._calm = 0
        self._slow = 0
        self._quick = 0

    @property
    def interval_s(self) -> float:
        """Seconds between two polls: the requested interval, or more if servers answer slowly."""
        return max(self.asked_s, min(MAX_INTERVAL_S, self.asked_s * self._poll_factor))

    @property
    def draw_s(self) -> float:
        """Seconds between two drawings: a multiple of the poll interval.

        While a sweep is about to start or running (`lively`), it can be less than the poll interval.
        """
        if self.lively and not self.low_bandwidth:
            return min(LIVELY_S, self.interval_s) * self._draw_factor
        least = LOW_BANDWIDTH_S if self.low_bandwidth else 0.0
        intervals = max(1, math.ceil(least / self.interval_s)) * self._draw_factor
        return intervals * self.interval_s

    @property
    def coarse(self) -> int:
        """Number of poll intervals that one dot column of a graph covers: 1, or more with low bandwidth.

        With low bandwidth it is as many as `LOW_BANDWIDTH_S` seconds have, so that a drawing adds few
        columns.
        """
        return max(1, math.ceil(LOW_BANDWIDTH_S / self.interval_s)) if self.low_bandwidth else 1

    def set_interval(self, interval_s: float) -> None:
        """Set the poll interval that the user requests, in seconds, and forget earlier slowness."""
        self.asked_s = interval_s
        self._draw_factor = self._poll_factor = 1
        self._calm = self._slow = self._quick = 0

    def note_drawing(self, backlog: int) -> None:
        """Record one drawing, and how many writes to the terminal were pending before it."""
        if backlog >= _BACKLOG:
            self._calm = 0
            if 2 * self.draw_s <= max(MAX_DRAW_S, self.interval_s):
                self._draw_factor *= 2
            return
        self._calm += 1
        if self._calm >= _CALM_DRAWS and self._draw_factor > 1:
            self._draw_factor //= 2
            self._calm = 0

    def note_polls(self, backends: Iterable[BackendView]) -> bool:
        """Record how long the newest polls of `backends` took; return whether `interval_s` changed.

        The median duration counts, so that a single slow server does not slow down the polls of the others.
        """
        durations_s = [view.poll_ms / 1000 for view in backends if view.ok and view.poll_ms is not None]
        if not durations_s:
            return False
        typical = median(durations_s)
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
        """Text for the header: why drawing or polling is slower than requested; None if neither is slower."""
        if self._poll_factor > 1:
            return f"slow polls: every {self.interval_s:g} s"
        if self._draw_factor > 1:
            return f"slow terminal: drawn every {self.draw_s:g} s"
        if self.low_bandwidth:
            return f"drawn every {self.draw_s:g} s"
        return None
