"""Which of a target's levels is the best: the one with the highest token rate, whatever warnings it has."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.sweep.compare.compare import NOISE_FLOOR_PERCENT
from sparktop.sweep.compare.ratio import Ratio, ratio_of
from sparktop.sweep.compare.series import Figure
from sparktop.sweep.result.results import LevelResult
from sparktop.sweep.terms.definitions import MAIN_RATES, main_rate_of
from sparktop.values import dataclass


@dataclass(frozen=True, slots=True)
class BestLevel:
    """The level with the highest token rate among levels of one target with the same lengths."""

    level: LevelResult
    metric: str
    """Name of the token rate."""
    alike: tuple[LevelResult, ...] = ()
    """Levels whose rate is not clearly lower."""
    untested: bool = False
    """Whether a level has too few runs to test whether its rate is clearly lower."""


def main_rate(levels: Sequence[LevelResult]) -> str | None:
    """Return the name of the main token rate that most of `levels` have; None if none has any."""
    return main_rate_of([[name for name in MAIN_RATES if one.rate(name) is not None] for one in levels])


def rate_ratio(one: LevelResult, other: LevelResult, metric: str) -> Ratio | None:
    """Return the ratio `one` / `other` of the rates `metric` of two levels, tested if both have several runs.

    None if a rate is unknown or 0.
    """
    first, second = one.rate(metric), other.rate(metric)
    if first is None or second is None:
        return None
    return ratio_of(
        Figure(first.mean, first.values, first.std), Figure(second.mean, second.values, second.std)
    )


def best_level(levels: Sequence[LevelResult], metric: str) -> BestLevel:
    """Return the best of `levels`, at least one, each with the rate `metric`: the first of equals.

    The other levels are compared with it as in the table of levels.
    """
    best = max(levels, key=lambda one: rate.mean if (rate := one.rate(metric)) is not None else 0.0)
    ratios = [(one, rate_ratio(best, one, metric)) for one in levels if one is not best]
    tests = [
        (one, ratio.significant(NOISE_FLOOR_PERCENT), ratio.beyond(NOISE_FLOOR_PERCENT))
        for one, ratio in ratios
        if ratio is not None
    ]
    return BestLevel(
        best,
        metric,
        tuple(one for one, test, _ in tests if test is False),
        any(test is None and beyond for _, test, beyond in tests),
    )
