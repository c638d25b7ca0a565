"""A moment on the viewer's two clocks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Instant:
    """The same moment on the monotonic clock, for durations, and on the wall clock, for people."""

    at: float
    """Monotonic seconds."""
    wall: datetime
    """UTC."""
