"""The range in which an estimated duration lies."""

from __future__ import annotations

from msgspec import Struct


class TimeRange(Struct, frozen=True):
    """The range in which an estimated duration lies, in seconds."""

    least_s: float
    most_s: float

    def after(self, seconds: float) -> TimeRange:
        """Return the range of what is left of the duration after `seconds`."""
        return TimeRange(max(0.0, self.least_s - seconds), max(0.0, self.most_s - seconds))
