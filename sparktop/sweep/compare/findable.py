"""What so many runs can show: the smallest difference that they find, and how many runs a difference needs.

A difference counts as found where it is called in four of five tables (power 80 %) at a level, in a
comparison of `levels` levels in which the targets differ by that much, and runs spread alike at all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from sparktop.sweep.compare.proof import ERROR_RATE, FISHER_SHARE
from sparktop.sweep.result.comparison import CouldShow
from sparktop.sweep.terms.statistics import combined_p, student_t, two_sided_t

USUAL_SPREAD_PERCENT = 6.5
"""Standard deviation between identical runs on DGX Sparks (6.5 to 6.9 %), where none was measured."""
_POWER = 0.8
_MOST_RUNS = 50
_MOST_PERCENT = 100_000.0
_WELCH_SHARE = 0.8
"""Of all degrees of freedom that Welch's test has, on average, of runs that spread alike."""


@dataclass(frozen=True, slots=True)
class Design:
    """What is compared: how often, at how many levels, and the error rate of the figure's first test."""

    runs: int
    """Of each target at each level."""
    levels: int
    rate: float
    """Error rate at which a pair of targets is tested in this figure at first: `proof.first_rate`."""


def findable_percent(design: Design, spread_percent: float) -> float | None:
    """Return by how many percent targets must differ at least to be told apart; None for single runs."""
    if design.runs < 2 or spread_percent <= 0:  # noqa: PLR2004 - no test is possible
        return None
    error = math.log1p(spread_percent / 100) * math.sqrt(2 / design.runs)
    try:
        return 100 * math.expm1(_needed(design) * error)
    except OverflowError:
        return None


def could_show_words(found: CouldShow) -> str:
    """Return what the runs of a figure could show, in words."""
    if found.percent is None or found.spread_percent is None:
        return "single runs show no difference, however large"
    least = percent_words(found.percent)
    return f"{found.runs} runs that spread {found.spread_percent:.1f} % show differences from {least} on"


def percent_words(percent: float) -> str:
    """Return a difference that is found: "+22 %", with a tenth below 10."""
    return f"+{percent:.{0 if percent >= 9.95 else 1}f} %"  # noqa: PLR2004 - whole from 10 on


def runs_needed(percent: float, design: Design, spread_percent: float) -> int | None:
    """Return how many runs of each would find a difference; None where even 50 would not."""
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
    """Return the difference that is found, in standard errors of it."""
    freedom = 2.0 * (design.runs - 1)
    own = _WELCH_SHARE * freedom
    if design.levels == 1:
        return student_t(1 - design.rate / 2, own) + student_t(_POWER, own)
    whole = freedom * design.levels
    within = student_t(1 - ERROR_RATE / design.levels / 2, whole) + student_t(_POWER, whole)
    return max(within, _opening(design, own))


def _opening(design: Design, freedom: float) -> float:
    """Return the difference at which all levels together show that the targets differ at all."""
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
