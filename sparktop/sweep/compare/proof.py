"""Which differences in a comparison table the runs prove: many rows, one common error rate.

Servers that do not differ are called different, anywhere in a table, in at most 5 % of tables. Where they
differ in a figure at some levels, at most 5 % of such figures name a level at which they do not.

Two servers that do not differ are called different, anywhere in a table, in at most 5 % of tables. Where they
differ in a figure at some levels, at most 5 % of such figures name a level at which they do not.

1. For each figure and each pair of targets there is one p-value over all levels: those of the levels combined
(Fisher), or the smallest of them times their number. The p-value of a level is Welch's with its own spread,
so a level with larger spread does no harm. These p-values are tested at 5 % for the complete table by Holm's
procedure with weights: the first rate of tokens, TTFT and prefill have one share each, all other figures
share one. Weights are needed because the figures come from the same runs, so the rows of a table are not
independent.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from statistics import fmean, variance
from typing import TypeVar

from sparktop.sweep.compare.ratio import Ratio, Spread
from sparktop.sweep.compare.series import Load
from sparktop.sweep.terms.statistics import CONFIDENCE, combined_p

ERROR_RATE = 1 - CONFIDENCE
_RATES = ("sustained_tps", "decode_tps", "output_tps", "total_tps")
"""The first of these that was measured has a share of its own."""


FISHER_SHARE = 0.8
"""Share of the first step's error rate for all levels combined; the remainder is for single levels."""
Pair = tuple[str, str]
"""Names of two targets."""
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Proven:
    """A ratio with the spread that is shared among levels, and whether the table proves it."""

    ratio: Ratio
    shown: bool


def proofs(
    tests: Mapping[tuple[str, Pair], Mapping[Load, Ratio]],
) -> dict[tuple[str, Pair], dict[Load, Proven]]:
    """Return what a table proves, by metric and pair, then by level; every ratio in `tests` has a p-value.

    The noise floor is left to the caller, because it can only remove differences.
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
    """Return the keys whose p-values are rejected at a common error rate (Holm, optionally weighted)."""
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
    """Return the figures with a share of their own: the first rate of tokens, TTFT, prefill."""
    rate = next((name for name in _RATES if name in metrics), None)
    return [name for name in (rate, "ttft_ms", "prefill_tps") if name is not None and name in metrics]


def first_rate(metrics: Collection[str], pairs: int) -> float:
    """Return the error rate of the first test of one of `pairs` pairs in a figure with a share of its own."""
    return ERROR_RATE * max(_shares(metrics).values(), default=1.0) / max(1, pairs)


def _shares(metrics: Collection[str]) -> dict[str, float]:
    """Return the share of the error rate of each figure: equal shares for main ones, one for all others."""
    main = main_metrics(metrics)
    rest = [name for name in metrics if name not in main]
    whole = max(1, len(main) + (1 if rest else 0))
    return dict.fromkeys(main, 1 / whole) | {name: 1 / whole / len(rest) for name in rest}


def shared_spreads(ratios: Mapping[Load, Ratio]) -> dict[Load, Spread]:
    """Return each level's spread of runs, shrunk towards the mean of all levels as far as they are similar.

    Estimates of the same variance differ by chance, with a squared coefficient of variation of 2 / freedom.
    Any larger variation is taken as real: the more of it, the fewer degrees of freedom a level borrows from
    the others.
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
    """Return the p-value of a figure and pair over all levels: whether the two differ anywhere.

    A difference at a single level must also be significant by that level's own spread, because levels with
    less spread would make it look too precise.
    """
    if len(own) == 1:
        return min(_p(one) for one in own.values())
    alone = min(max(len(own) * _p(tested[load]) / (1 - FISHER_SHARE), _p(one)) for load, one in own.items())
    return min(1.0, combined_p([_p(one) for one in own.values()]) / FISHER_SHARE, alone)


def _proven(levels: Mapping[Load, Ratio], found: Collection[Load]) -> dict[Load, Proven]:
    return {load: Proven(one, load in found) for load, one in levels.items()}


def _p(ratio: Ratio) -> float:
    return 1.0 if ratio.p is None else ratio.p
