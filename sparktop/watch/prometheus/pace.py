"""How often a Prometheus is queried, and for how many servers at a time; less where it answers "too much"."""

from __future__ import annotations

USUAL_S = 15.0
"""Seconds between two scrapes where nothing is known of it."""
LEAST_S, LONGEST_S = 1.0, 120.0
MOST_AT_ONCE = 16
"""Servers in one query of raw samples: 0.4 to 1.3 MB of JSON, whose reading delays no key for long."""
_RECOVERS_AFTER = 20
"""Answers in a row after which more is asked for again."""
_LOOKS = 3.0
"""Looks within a scrape's interval: a sample is seen at most a third of it after Prometheus has it."""


class Pace:
    """The size of queries and the time between two of them."""

    def __init__(self) -> None:
        """Start at the usual pace."""
        self.every_s = USUAL_S
        """Seconds between two scrapes."""
        self.at_once = MOST_AT_ONCE
        self.slowed = 1
        """How many times the usual time between two queries; doubled by each refusal."""
        self.reason = ""
        """The message of the refusal; "" at the usual pace."""
        self._good = 0

    def period_s(self, servers: int) -> float:
        """Return the seconds between two queries for the raw samples of this many servers."""
        looks = _LOOKS if servers <= MOST_AT_ONCE else 1.0
        return min(LONGEST_S, max(LEAST_S, self.every_s / looks) * self.slowed)

    def refused(self, message: str) -> None:
        """Ask for half as many servers half as often."""
        self.at_once = max(1, self.at_once // 2)
        self.slowed = min(self.slowed * 2, max(1, round(LONGEST_S / self.every_s)))
        self.reason, self._good = message, 0

    def answered(self) -> None:
        """Count an answer; after enough of them in a row, ask for more again."""
        self._good += 1
        if self.slowed > 1 and self._good >= _RECOVERS_AFTER:
            self.at_once, self.slowed, self._good = min(MOST_AT_ONCE, 2 * self.at_once), self.slowed // 2, 0
            if self.slowed == 1:
                self.at_once, self.reason = MOST_AT_ONCE, ""

    @property
    def note(self) -> str:
        """What is asked for less than usual, in one line; "" at the usual pace."""
        if not self.reason:
            return ""
        return f"asks for {self.at_once} servers at a time, {self.slowed} × less often: {self.reason}"
