"""One figure over another, with its interval where runs allow one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from sparktop.sweep.result_parts import LARGEST
from sparktop.sweep.series import Figure
from sparktop.sweep.statistics import CONFIDENCE, student_t

LEAST_RUNS = 2
"""Of each, for a test."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """One figure over another."""

    ratio: float
    ci95: tuple[float, float] | None
    """None where one of them has a single value: no test is possible."""

    @property
    def percent(self) -> float:
        """How much more the first is than the second."""
        return 100 * (self.ratio - 1)

    def significant(self, floor_percent: float) -> bool | None:
        """Tell whether a difference is shown; None where no test is possible."""
        if self.ci95 is None:
            return None
        low, high = self.ci95
        return not low <= 1 <= high and abs(self.percent) > floor_percent


def ratio_of(first: Figure, second: Figure) -> Ratio | None:
    """Give the ratio of two figures' means with its 95 % interval; None where a mean is not above 0."""
    if first.mean <= 0 or second.mean <= 0:
        return None
    ratio = first.mean / second.mean
    one, other = first.values, second.values
    if min(len(one), len(other)) < LEAST_RUNS or min(*one, *other) <= 0:
        return Ratio(ratio, None)
    logs, other_logs = [math.log(value) for value in one], [math.log(value) for value in other]
    difference = fmean(logs) - fmean(other_logs)
    half = _half_width(logs, other_logs)
    try:
        return Ratio(ratio, (math.exp(difference - half), math.exp(difference + half)))
    except OverflowError:  # runs so far apart that they tell nothing
        return Ratio(ratio, (0.0, LARGEST))


def _half_width(first: Sequence[float], second: Sequence[float]) -> float:
    """Welch's: the variances need not be equal; degrees of freedom by Satterthwaite, rounded down."""
    parts = [(variance(values) / len(values), len(values) - 1) for values in (first, second)]
    spread = sum(part for part, _ in parts)
    if spread == 0:
        return 0.0
    freedom = spread**2 / sum(part**2 / free for part, free in parts)
    return student_t((1 + CONFIDENCE) / 2, max(1, math.floor(freedom + 1e-9))) * math.sqrt(spread)
