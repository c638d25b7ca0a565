"""Does a source answer, and since when does it not?"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sparktop.model.failure import Failure

DOWN_AFTER_S = 3.0
"""Failing for this long makes a source "down"; a single lost poll does not."""
DOWN_AFTER_FAILURES = 3


@dataclass(slots=True)
class Health:
    """The present run of failures of a source, if there is one."""

    failure: Failure | None = None
    """Of the newest poll."""
    failing_since: datetime | None = None
    failing_at: float | None = None
    """Monotonic seconds of the first failure of the run."""
    failures: int = 0
    good_at: float | None = None
    """Monotonic seconds of the newest good sample."""

    def good(self, at: float) -> None:
        """Note a good sample: the run of failures ends."""
        self.failure = self.failing_since = self.failing_at = None
        self.failures = 0
        self.good_at = at

    def bad(self, failure: Failure, now: datetime) -> None:
        """Note a failure; the first one of a run starts it at `now`."""
        if self.failing_at is None:
            self.failing_at, self.failing_since = failure.at, now
        self.failure = failure
        self.failures += 1

    @property
    def down(self) -> bool:
        """True once it failed long enough, or often enough, to call it down."""
        if self.failure is None or self.failing_at is None:
            return False
        return self.failures >= DOWN_AFTER_FAILURES or self.failure.at - self.failing_at >= DOWN_AFTER_S

    def age_s(self, at: float) -> float | None:
        """Give the seconds from the newest good sample to `at`; None when there never was one."""
        return None if self.good_at is None else max(0.0, at - self.good_at)
