"""Which of a target's levels is the best: the lowest concurrency that reaches the highest token rate."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.sweep.compare.compare import NOISE_FLOOR_PERCENT
from sparktop.sweep.compare.ratio import Ratio, ratio_of
from sparktop.sweep.compare.series import Figure
from sparktop.sweep.result.results import LevelResult

MAIN_RATES = ("sustained_tps", "decode_tps", "output_tps", "total_tps")
"""The first of these that a level has is its main token rate."""


def main_rate(levels: Sequence[LevelResult]) -> str | None:
    """Return the name of the main token rate that most of `levels` have; None if none has any."""
    counts = {name: sum(one.rate(name) is not None for one in levels) for name in MAIN_RATES}
    most = max(counts.values(), default=0)
    return next((name for name, count in counts.items() if count == most), None) if most else None


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


def best_of(levels: Sequence[LevelResult], metric: str) -> LevelResult:
    """Return the level with the lowest load whose rate is within the noise floor of the highest rate.

    Each of `levels`, at least one, has the rate `metric`.
    """
    highest = max(rate.mean for one in levels if (rate := one.rate(metric)) is not None)
    least = highest / (1 + NOISE_FLOOR_PERCENT / 100)
    reaching = [one for one in levels if (rate := one.rate(metric)) is not None and rate.mean >= least]
    return min(reaching, key=lambda one: one.point)
