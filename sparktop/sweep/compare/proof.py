"""Significance tests for all differences in a comparison table, at one error rate for the complete table.

If all targets are equal, the probability that the table names any difference is at most 5 %. If two targets
differ in a metric at some levels only, the probability that the table also names a level at which these
targets are equal is at most 5 %.

1. For each metric and each pair of targets there is one p-value over all levels: Fisher's combination of the
levels' p-values, or the smallest of them times their number. The p-value of a level is that of Welch's test
with the variance of this level's own runs, so a level with a larger variance does no harm. These p-values are
tested at 5 % for the complete table by Holm's procedure with weights: the main token rate, TTFT and prefill
rate (at a rate: TTFT and E2E from the due time) have one share of the error rate each, all other metrics
share one. The weights keep many secondary
metrics, which come from the same runs, from weakening the tests of the main ones.

2. Where the first step finds a difference, the levels of this metric and pair are tested at 5 % by Holm's
procedure. Here the variances of levels are shrunk towards their mean (`shared_spreads`).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from statistics import fmean
from typing import TypeVar

from sparktop.sweep.compare.ratio import Ratio, Spread
from sparktop.sweep.compare.series import Load
from sparktop.sweep.terms.definitions import MAIN_RATES
from sparktop.sweep.terms.statistics import CONFIDENCE, combined_p, variance
from sparktop.values import dataclass

ERROR_RATE = 1 - CONFIDENCE
_DUE = ("ttft_due_ms", "e2e_due_ms")


FISHER_SHARE = 0.8
"""Share (0 to 1) of the first step's error rate for Fisher's test over all levels; the remainder is for the
smallest p-value of a single level."""
Pair = tuple[str, str]
"""Names of two targets."""
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Proven:
    """The ratio of two targets' values at a level, and whether the difference is significant."""

    ratio: Ratio
    """Its confidence interval and p-value use the variances shrunk by `shared_spreads`."""
    shown: bool


def proofs(
    tests: Mapping[tuple[str, Pair], Mapping[Load, Ratio]],
) -> dict[tuple[str, Pair], dict[Load, Proven]]:
    """Test all differences of a table; return the results by (metric, pair of targets), then by load.

    `tests` has, by the same keys, the ratio of the two targets' values; every ratio has a p-value. The noise
    floor is not considered here.
    """
    asked = {key: levels for key, levels in tests.items() if levels}
    tested = {key: _tested(levels) for key, levels in asked.items()}
    shares = _shares({metric for metric, _ in asked})
    together = {key: _together(levels, tested[key]) for key, levels in asked.items()}
    opened = holm(together, weights={key: shares[key[0]] for key in asked})
    return {
        key: _proven(levels, holm({load: _p(one) for load, one in levels.items()}) if key in opened else ())
        for key, levels in tested.items()
    }


def holm(
    values: Mapping[_Key, float], weights: Mapping[_Key, float] | None = None, rate: float = ERROR_RATE
) -> set[_Key]:
    """Return the keys whose p-values are significant by Holm's procedure at the common error rate `rate`.

    `weights` distributes the error rate over the keys; by default they have equal weights.
    """
    rejected: set[_Key] = set()
    while len(rejected) < len(values):
        left = [key for key in values if key not in rejected]
        whole = sum(weights[key] for key in left) if weights else float(len(left))
        found = {key for key in left if values[key] <= rate * (weights[key] if weights else 1.0) / whole}
        if not found:
            break
        rejected |= found
    return rejected


def main_metrics(metrics: Collection[str]) -> list[str]:
    """Return the main metrics among `metrics`: the main token rate, TTFT and prefill rate, in this order.

    Requests at a rate are judged by their latencies from the due time: token rates follow from the rate.
    """
    due = [name for name in _DUE if name in metrics]
    if due:
        return due
    rate = next((name for name in MAIN_RATES if name in metrics), None)
    return [name for name in (rate, "ttft_ms", "prefill_tps") if name is not None and name in metrics]


def _shares(metrics: Collection[str]) -> dict[str, float]:
    """Return each metric's share (0 to 1) of the table's error rate.

    Main metrics have equal shares; all other metrics together have one such share.
    """
    main = main_metrics(metrics)
    rest = [name for name in metrics if name not in main]
    whole = max(1, len(main) + (1 if rest else 0))
    return dict.fromkeys(main, 1 / whole) | {name: 1 / whole / len(rest) for name in rest}


def shared_spreads(ratios: Mapping[Load, Ratio]) -> dict[Load, Spread]:
    """Return each level's variance between runs, shrunk towards the mean variance of all levels.

    Estimates of one variance differ by chance, with a squared coefficient of variation of 2 / (degrees of
    freedom). Any larger variation is taken as a real difference between levels, and reduces the shrinking.
    """
    known = {load: one.spread for load, one in ratios.items() if one.spread is not None}
    mean = fmean(one.variance for one in known.values()) if known else 0.0
    if len(known) == 1 or mean <= 0:
        return known
    freedom = fmean(ratios[load].freedom for load in known)
    chance = 2 / freedom
    differing = variance([one.variance for one in known.values()]) / mean**2
    real = (differing - chance) / (1 + chance)
    most = freedom * (len(known) - 1)
    borrowed = most if real <= 0 else min(most, 1 / real)
    return {load: _drawn(one, mean, ratios[load].freedom, borrowed) for load, one in known.items()}


def _drawn(own: Spread, mean: float, freedom: float, borrowed: float) -> Spread:
    together = freedom + borrowed
    return Spread((freedom * own.variance + borrowed * mean) / together, together)


def _tested(levels: Mapping[Load, Ratio]) -> dict[Load, Ratio]:
    spreads = shared_spreads(levels)
    return {load: one.with_spread(spreads[load]) for load, one in levels.items()}


def _together(own: Mapping[Load, Ratio], tested: Mapping[Load, Ratio]) -> float:
    """Return the p-value of the hypothesis that two targets are equal in a metric at all levels.

    `own` has each level's ratio tested with the variance of that level, `tested` with the shrunk variance. A
    difference at a single level must be significant in both tests, because the shrunk variance may be too
    small for that level.
    """
    if len(own) == 1:
        return min(_p(one) for one in own.values())
    alone = min(max(len(own) * _p(tested[load]) / (1 - FISHER_SHARE), _p(one)) for load, one in own.items())
    return min(1.0, combined_p([_p(one) for one in own.values()]) / FISHER_SHARE, alone)


def _proven(levels: Mapping[Load, Ratio], found: Collection[Load]) -> dict[Load, Proven]:
    return {load: Proven(one, load in found) for load, one in levels.items()}


def _p(ratio: Ratio) -> float:
    return 1.0 if ratio.p is None else ratio.p
