"""A moment on two clocks, and the bounds of the interval between two polls."""

from __future__ import annotations

from datetime import datetime

from sparktop.values import dataclass

MIN_INTERVAL_S = 0.25
MAX_INTERVAL_S = 60.0
"""Bounds of the seconds between two polls, whether a user or a viewer elsewhere asks for them."""


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment on two clocks: monotonic, to compute durations, and wall clock, to show to people."""

    at: float
    """Monotonic seconds."""
    wall: datetime
    """UTC."""
