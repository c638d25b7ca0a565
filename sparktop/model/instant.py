"""A moment as a time of this machine's monotonic clock and of its wall clock."""

from __future__ import annotations

from datetime import datetime

from sparktop.values import dataclass


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment on two clocks: monotonic, to compute durations, and wall clock, to show to people."""

    at: float
    """Monotonic seconds."""
    wall: datetime
    """UTC."""
