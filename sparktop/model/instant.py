"""A moment on two clocks, a range of durations, and the bounds of intervals and durations of polls.

Also a sweep that is about to start.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from sparktop.model.load import LoadPoint


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

    def before(self, seconds: float) -> Instant:
        """Return the moment `seconds` earlier."""
        return Instant(self.at - seconds, self.wall - timedelta(seconds=seconds))


class TimeRange(Struct, frozen=True):
    """The range in which an estimated duration lies, in seconds."""

    least_s: float
    most_s: float

    def after(self, seconds: float) -> TimeRange:
        """Return the range of what is left of the duration after `seconds`."""
        return TimeRange(max(0.0, self.least_s - seconds), max(0.0, self.most_s - seconds))


# A sweep that is about to start, as screens show it.


class Countdown(Struct, frozen=True):
    """A sweep (load test of servers) whose first request is sent in `left_s` seconds."""

    title: str
    """The preset's name."""
    plan_words: str
    """Prompt and answer length of each request, in words."""
    targets: tuple[str, ...]
    levels: tuple[LoadPoint, ...]
    """The points of all levels on the axis of the sweep; empty for a search."""
    requests: int | None
    """Number of measured requests; None where only a duration limits the sweep."""
    warm_ups: int
    """Number of warm-up requests, in addition to `requests`."""
    left_s: float
    whole_s: float
    simulated: bool = False
    climb_to: int | None = None
    """Highest concurrency to which the sweep goes on while tokens/s rise; None if it does not."""
    at_least: bool = False
    """Whether more than `requests` may be sent."""
    time: str = ""
    """Range of the sweep's duration as text; "" if unknown."""
