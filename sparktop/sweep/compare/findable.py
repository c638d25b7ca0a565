"""Statistical power: the smallest difference that runs can detect, and the number of runs that detects one.

A difference is detected if it is significant at a given level in at least four of five comparisons (power
80 %). All targets are assumed to differ by that much at every level, and all levels to have the same standard
deviation between runs (spread).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from sparktop.sweep.compare.proof import ERROR_RATE, FISHER_SHARE
from sparktop.sweep.result.comparison import CouldShow
from sparktop.sweep.terms.statistics import combined_p, student_t, two_sided_t
from sparktop.values import dataclass

USUAL_SPREAD_PERCENT = 6.5
"""Standard deviation between identical runs on DGX Sparks (6.5 to 6.9 %), used where none was measured."""
_POWER = 0.8
_MOST_RUNS = 50
_LARGEST_EXPONENT = math.log1p(100_000.0 / 100)
"""Differences whose logarithm is larger count as impossible to detect."""
_MOST_SHOWN_PERCENT = 100.0
"""A difference above this is not stated as one that runs can show: they differ too much for a comparison."""
_WELCH_SHARE = 0.8
"""Average degrees of freedom of Welch's test for runs of equal variance, as a share of the maximum."""


@dataclass(frozen=True, slots=True)
class Design:
    """The design of a comparison in one metric: numbers of runs and levels, and the error rate of tests."""

    runs: int
    """Runs per target and level."""
    levels: int
    rate: float
    """Error rate (0 to 1) at which a pair of targets is tested first, see `proof.first_rate`."""


def findable_percent(design: Design, spread_percent: float) -> float | None:
    """Return the smallest difference in percent that a comparison can detect.

    `spread_percent` is the standard deviation between runs. Return None for single runs or a spread of 0, and
    where the difference is too large to be represented.
    """
    if design.runs < 2 or spread_percent <= 0:  # noqa: PLR2004 - no test is possible
        return None
    error = math.log1p(spread_percent / 100) * math.sqrt(2 / design.runs)
    exponent = _needed(design) * error
    return 100 * math.expm1(exponent) if exponent < _LARGEST_EXPONENT else None


def could_show_words(found: CouldShow) -> str:
    """Return a sentence such as "5 or more runs with a spread of 3 % can show differences of +6.2 % or more".

    For single runs, and for runs with a large spread, the sentence states that they show no difference.
    """
    if found.spread_percent is None:
        return "single runs show no difference, however large"
    if found.percent is None or found.percent > _MOST_SHOWN_PERCENT:
        return (
            f"the runs differ too much from each other, by {found.spread_percent:.0f} %, to show differences"
        )
    least = percent_words(found.percent)
    spread = f"{found.runs} or more runs with a spread of {found.spread_percent:.1f} %"
    return f"{spread} can show differences of {least} or more"


def percent_words(percent: float) -> str:
    """Return a difference as text: "+22 %", with one decimal below 10."""
    return f"+{percent:.{0 if percent >= 9.95 else 1}f} %"  # noqa: PLR2004 - no decimals from 10 on


def runs_needed(percent: float, design: Design, spread_percent: float) -> int | None:
    """Return the minimum number of runs per target and level that detect a difference of `percent`.

    `design.runs` is ignored. Return None if more than 50 runs would be needed.
    """
    low, high = 2, _MOST_RUNS
    wanted = abs(percent)
    if not _finds(high, wanted, design, spread_percent):
        return None
    while low < high:
        middle = (low + high) // 2
        if _finds(middle, wanted, design, spread_percent):
            high = middle
        else:
            low = middle + 1
    return low


def _finds(runs: int, percent: float, design: Design, spread_percent: float) -> bool:
    found = findable_percent(replace(design, runs=runs), spread_percent)
    return found is not None and found <= percent


@lru_cache(maxsize=256)
def _needed(design: Design) -> float:
    """Return the smallest difference that the runs of `design` can detect at a level, in standard errors."""
    freedom = 2.0 * (design.runs - 1)
    own = _WELCH_SHARE * freedom
    if design.levels == 1:
        return student_t(1 - design.rate / 2, own) + student_t(_POWER, own)
    whole = freedom * design.levels
    within = student_t(1 - ERROR_RATE / design.levels / 2, whole) + student_t(_POWER, whole)
    return max(within, _opening(design, own))


def _opening(design: Design, freedom: float) -> float:
    """Return the smallest difference that the test over all levels together detects, in standard errors.

    `freedom` is the number of degrees of freedom of the test at a single level.
    """
    less = student_t(_POWER, freedom * design.levels) / math.sqrt(design.levels)
    low, high = 0.0, 1000.0
    while high - low > 0.01:  # noqa: PLR2004 - a hundredth of a standard error
        middle = (low + high) / 2
        value = two_sided_t(max(0.0, middle - less), freedom)
        if combined_p([value] * design.levels) <= FISHER_SHARE * design.rate:
            high = middle
        else:
            low = middle
    return high
