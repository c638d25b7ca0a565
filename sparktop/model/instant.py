"""A moment on two clocks, and the bounds of the interval between two polls and of a poll's duration."""

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
