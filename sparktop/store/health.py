"""Whether a source answers, and since when it does not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sparktop.model.failure import Failure

DOWN_AFTER_S = 3.0
"""Seconds of failures that make a source "down"; a single lost poll does not."""
DOWN_AFTER_FAILURES = 3


@dataclass(slots=True)
class Health:
    """The current run of failures of a source, if there is one."""

    failure: Failure | None = None
    """The newest poll's failure; None if it succeeded."""
    failing_since: datetime | None = None
    failing_at: float | None = None
    """Monotonic time of the first failure of the run, in seconds."""
    failures: int = 0
    good_at: float | None = None
    """Monotonic time of the newest good sample, in seconds."""

    def good(self, at: float) -> None:
        """Record a good sample: the run of failures ends."""
        self.failure = self.failing_since = self.failing_at = None
        self.failures = 0
        self.good_at = at

    def bad(self, failure: Failure, now: datetime) -> None:
        """Record a failure; the first one of a run starts it at `now`."""
        if self.failing_at is None:
            self.failing_at, self.failing_since = failure.at, now
        self.failure = failure
        self.failures += 1

    @property
    def down(self) -> bool:
        """Whether it has failed long enough, or often enough, to be called down."""
        if self.failure is None or self.failing_at is None:
            return False
        return self.failures >= DOWN_AFTER_FAILURES or self.failure.at - self.failing_at >= DOWN_AFTER_S

    def age_s(self, at: float) -> float | None:
        """Return the seconds from the newest good sample to `at`; None when there never was one."""
        return None if self.good_at is None else max(0.0, at - self.good_at)
