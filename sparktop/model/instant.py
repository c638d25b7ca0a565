"""A moment on two clocks, a range of durations, and the bounds of intervals and durations of polls."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

MIN_INTERVAL_S = 0.25
MAX_INTERVAL_S = 60.0
"""Bounds of the seconds between two polls, whether a user or a viewer elsewhere asks for them."""
MIN_TIMEOUT_S = 1.0
MAX_TIMEOUT_S = 60.0
"""Bounds of the longest time that a poll may take."""


class Instant(Struct, frozen=True):
    """One moment on two clocks: monotonic, to compute durations, and wall clock, to show to people."""

    at: float
    """Monotonic seconds."""
    wall: datetime
    """UTC."""


class TimeRange(Struct, frozen=True):
    """The range in which an estimated duration lies, in seconds."""

    least_s: float
    most_s: float

    def after(self, seconds: float) -> TimeRange:
        """Return the range of what is left of the duration after `seconds`."""
        return TimeRange(max(0.0, self.least_s - seconds), max(0.0, self.most_s - seconds))
