"""The power of a comparison: the smallest difference that its runs can show, and the runs a difference needs.

A difference counts as found if it is called in four of five tables (power 80 %) at a level, in a comparison
of `levels` levels in which the targets differ by that much everywhere, with the same spread of runs at all
levels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from sparktop.sweep.compare.proof import ERROR_RATE, FISHER_SHARE
from sparktop.sweep.result.comparison import CouldShow
from sparktop.sweep.terms.statistics import combined_p, student_t, two_sided_t

USUAL_SPREAD_PERCENT = 6.5
"""Standard deviation between identical runs on DGX Sparks (6.5 to 6.9 %), used where none was measured."""
_POWER = 0.8
_MOST_RUNS = 50
_MOST_PERCENT = 100_000.0
_WELCH_SHARE = 0.8
"""Degrees of freedom of Welch's test for runs of equal spread, on average, as a share of the maximum."""


@dataclass(frozen=True, slots=True)
class Design:
    """The design of a comparison: runs, levels, and the error rate of the figure's first test."""

    runs: int
    """Runs per target and level."""
    levels: int
    rate: float
    """Error rate of the first test of a pair of targets in this figure, see `proof.first_rate`."""


def findable_percent(design: Design, spread_percent: float) -> float | None:
    """Return the smallest difference in percent that is found; None for single runs, or if out of range."""
    if design.runs < 2 or spread_percent <= 0:  # noqa: PLR2004 - no test is possible
        return None
    error = math.log1p(spread_percent / 100) * math.sqrt(2 / design.runs)
    try:
        return 100 * math.expm1(_needed(design) * error)
    except OverflowError:
        return None


def could_show_words(found: CouldShow) -> str:
    """Return in words which differences the runs of a figure could show."""
    if found.percent is None or found.spread_percent is None:
        return "single runs show no difference, however large"
    least = percent_words(found.percent)
    return f"{found.runs} runs that spread {found.spread_percent:.1f} % show differences from {least} on"


def percent_words(percent: float) -> str:
    """Return a difference as text: "+22 %", with one decimal below 10."""
    return f"+{percent:.{0 if percent >= 9.95 else 1}f} %"  # noqa: PLR2004 - no decimals from 10 on


def runs_needed(percent: float, design: Design, spread_percent: float) -> int | None:
    """Return how many runs of each target would find a difference; None if even 50 would not."""
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
    """Return the smallest difference that is found, in standard errors."""
    freedom = 2.0 * (design.runs - 1)
    own = _WELCH_SHARE * freedom
    if design.levels == 1:
        return student_t(1 - design.rate / 2, own) + student_t(_POWER, own)
    whole = freedom * design.levels
    within = student_t(1 - ERROR_RATE / design.levels / 2, whole) + student_t(_POWER, whole)
    return max(within, _opening(design, own))


def _opening(design: Design, freedom: float) -> float:
    """Return the difference, in standard errors, at which all levels together show that targets differ."""
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
