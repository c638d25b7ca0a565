"""A *check* is a measured value of a group of backends with its limit; a *rule* is a list of checks."""

from __future__ import annotations

from sparktop.analysis.balance import limits
from sparktop.analysis.balance.dispersion import fewest_requests
from sparktop.model.balance import Balance
from sparktop.values import dataclass

_SMALLEST_CHANCE = 0.001
"""Smallest probability shown as a number."""


@dataclass(frozen=True, slots=True)
class Check:
    """One measured value of a group of backends with its limit."""

    name: str
    value: float | None
    limit: float | None = None
    """None where the value is only informative."""
    unit: str = ""
    """"%", "×", "ms", "s", "life" (a duration in seconds), "chance" (0 to 1), or "" for a plain number."""
    digits: int = 0
    """Decimals of the value."""
    meaning: str = ""
    most: bool = False
    """True where the limit is the highest allowed value, False where it is the lowest."""
    slack: float = 0.0
    """By how much the value may miss the limit."""
    signed: bool = False
    either: bool = False
    """True where another condition, named in `meaning`, holds instead of the limit."""

    @property
    def holds(self) -> bool | None:
        """Whether the value is within its limit; None if there is no limit or the value is unknown."""
        if self.value is None or self.limit is None:
            return None
        if self.either:
            return True
        return self.value <= self.limit + self.slack if self.most else self.value >= self.limit - self.slack


@dataclass(frozen=True, slots=True)
class Rule:
    """A named condition on a group of backends; it holds if all its checks hold."""

    name: str
    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool:
        """Whether every check with a limit holds; an unknown value fails its check."""
        return all(check.holds for check in self.checks if check.limit is not None)

    @property
    def deciding(self) -> Check | None:
        """The first check that does not hold; if all hold, the first that has a limit.

        None if no check has a limit.
        """
        limited = [check for check in self.checks if check.limit is not None]
        return next((check for check in limited if not check.holds), limited[0] if limited else None)


def time_with_load(balance: Balance) -> Check:
    """Return the check of the percentage of time in which the group has enough requests for a verdict."""
    least = fewest_requests(max(limits.PAIR, len(balance.backends)))
    return Check(
        "time with load",
        balance.loaded_percent,
        100 * limits.LOADED_SHARE,
        "%",
        meaning=f"of the time the group had {least} requests or more",
    )


def chance_text(chance: float | None) -> str:
    """Format a probability (0 to 1) such as "0.034"; "<0.001" for smaller ones, "–" for None."""
    if chance is None:
        return "–"
    return "<0.001" if chance < _SMALLEST_CHANCE else f"{chance:.2g}"
