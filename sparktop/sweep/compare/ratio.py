"""Ratios of two targets' values, and which of a table's differences are significant.

Tests use the logarithms of the runs' values, so that a ratio and its inverse are equally significant: the
difference of two logarithms is the logarithm of the ratio. The test of one ratio is Welch's, which does not
assume equal variances.

Tests are corrected by family. Pairs of targets with other levels in common are other families, so that a file
without a level changes no verdict there. Of each, the metrics that judge targets (`judging_metrics`) are
apart from all others, which most often repeat them: those name a difference only where one of these does. If
all targets are equal, the probability that a family names any difference is at most 5 %:

1. For each metric and each pair of targets there is one p-value over all levels: twice the smaller of two,
of Fisher's combination of the levels' p-values (R. A. Fisher, Statistical methods for research workers, 1932)
and of the smallest p-value of a single level times their number. Holm's procedure tests these p-values at 5 %
for the complete family.

2. Where that finds a difference, Holm's procedure tests the levels of this metric and pair at 5 %. Two or
three runs say little about the variance of a level, so all levels of a pair have the mean of their variances,
with Satterthwaite's degrees of freedom. One level that varies much more than the others widens the intervals
of all and can hide what they show; its own interval is then too narrow. The first step also needs its own
variance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from statistics import fmean, variance
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.judgement import is_too_scattered
from sparktop.model.load import Level
from sparktop.model.statistics import CONFIDENCE, combined_p, student_t, two_sided_t
from sparktop.model.sweep import Value
from sparktop.sweep.result.results import LARGEST, LevelResult
from sparktop.sweep.terms.definitions import MAIN_RATES, judging_metrics, main_rate_of

ERROR_RATE = 1 - CONFIDENCE
"""Probability at which a table of equal targets may name a difference: 5 %."""
NOISE_FLOOR_PERCENT = 3.0
"""Noise floor in percent if no server was measured twice."""
LEAST_RUNS = 2
"""Minimum number of runs of each of the two values for a test."""
_FREEDOM_STEP = 10
"""For confidence intervals, degrees of freedom are rounded down to tenths: fewer quantiles are computed."""
Pair = tuple[str, str]
"""Names of two targets."""
_Hypothesis = tuple[str, Pair]
"""That two targets do not differ in a metric."""
_Key = TypeVar("_Key", bound=Hashable)
Variance = tuple[float, float]
"""A variance between runs on a log scale, and the degrees of freedom of its estimate."""


class Ratio(Struct, frozen=True):
    """The ratio of two values of a metric, first / second, and its test."""

    ratio: float
    """Ratio of the means; for two ranges that do not overlap, the ratio of their nearest ends."""
    log_ratio: float = 0.0
    """Mean of the first value's logarithms over runs, minus that of the second."""
    variance: Variance | None = None
    """Between runs; None if a value has a single run: no test."""
    weight: float = 1.0
    """1 / (1 / runs of the first + 1 / runs of the second)."""
    proven: bool = False
    """Whether it is significant among all differences of its table, whatever the noise floor."""

    @property
    def percent(self) -> float:
        """Difference of the first value from the second, in percent of the second."""
        return 100 * (self.ratio - 1)

    @property
    def p(self) -> float | None:
        """The test's p-value: probability of at least this difference if the two do not differ."""
        if self.variance is None:
            return None
        variance, freedom = self.variance
        if variance == 0:
            return 1.0 if self.log_ratio == 0 else 0.0
        return two_sided_t(self.log_ratio / math.sqrt(variance / self.weight), freedom)

    @property
    def p_or_1(self) -> float:
        """The p-value; 1 without a test."""
        return 1.0 if self.p is None else self.p

    @property
    def ci95(self) -> tuple[float, float] | None:
        """(low, high) of the ratio's 95 % confidence interval; None without a test."""
        if self.variance is None:
            return None
        variance, freedom = self.variance
        if variance == 0:
            return (math.exp(self.log_ratio),) * 2
        steps = max(1.0, math.floor(freedom * _FREEDOM_STEP + 1e-6) / _FREEDOM_STEP)
        half_width = student_t((1 + CONFIDENCE) / 2, steps) * math.sqrt(variance / self.weight)
        try:
            return math.exp(self.log_ratio - half_width), min(math.exp(self.log_ratio + half_width), LARGEST)
        except OverflowError:  # the values of the runs differ too much for any conclusion
            return 0.0, LARGEST

    def is_beyond(self, floor_percent: float) -> bool:
        """Return whether the larger of the two values exceeds the smaller by more than the noise floor."""
        return abs(math.log(self.ratio)) > math.log1p(floor_percent / 100)

    def is_significant(self) -> bool | None:
        """Return whether the two values differ at p < 0.05 and beyond `NOISE_FLOOR_PERCENT`.

        The p-value is not corrected for other tests. Return None if no test is possible.
        """
        return None if self.p is None else self.p < ERROR_RATE and self.is_beyond(NOISE_FLOOR_PERCENT)

    def inverse(self) -> Ratio:
        """Return the ratio of the second value to the first."""
        return replace(self, ratio=1 / self.ratio, log_ratio=-self.log_ratio)


def ratio_of(first: Value, second: Value) -> Ratio | None:
    """Return the ratio `first` / `second`, tested if both have at least two runs.

    Return None if a mean is not positive, or if one of the values is a range and the two overlap.
    """
    if first.mean <= 0 or second.mean <= 0:
        return None
    if first.span is not None or second.span is not None:
        return _ratio_of_ranges(first, second)
    ratio = first.mean / second.mean
    if not is_testable(first) or not is_testable(second):
        return Ratio(ratio)
    (log, of_first), (other_log, of_second) = _mean_of_logs(first.runs), _mean_of_logs(second.runs)
    weight = 1 / (1 / len(first.runs) + 1 / len(second.runs))
    of_difference = (of_first[0] + of_second[0]) * weight, _freedom((of_first, of_second))
    return Ratio(ratio, log - other_log, of_difference, weight)


def is_testable(value: Value) -> bool:
    """Return whether a value can be tested against another one: it has positive runs, and is no range."""
    return value.mean > 0 and value.span is None and len(value.runs) >= LEAST_RUNS and min(value.runs) > 0


@lru_cache(1 << 16)  # each value is compared with many others
def _mean_of_logs(runs: tuple[float, ...]) -> tuple[float, Variance]:
    """Return (mean of the runs' logarithms, its variance: that between runs / their number)."""
    logs = [math.log(value) for value in runs]
    return fmean(logs), (variance(logs) / len(logs), float(len(logs) - 1))


def proofs(
    hypotheses: Mapping[_Hypothesis, frozenset[Level]],
    tests: Mapping[_Hypothesis, Mapping[Level, Ratio]],
) -> dict[_Hypothesis, dict[Level, Ratio]]:
    """Test the differences of a table, and return which are proven: by (metric, pair of targets), then load.

    `hypotheses` has, by the same keys, the loads under which the two targets can be tested; `tests` has the
    ratios of those that are asked for: the others are counted. Ratios that are returned have the mean of the
    variances of all levels of the two targets. The noise floor is not considered.
    """
    common: dict[Pair, frozenset[Level]] = {}
    for (_, pair), loads in hypotheses.items():
        common[pair] = common.get(pair, loads) | loads
    families: dict[frozenset[Level], list[_Hypothesis]] = {}
    for key in hypotheses:
        families.setdefault(common[key[1]], []).append(key)
    proven: dict[_Hypothesis, dict[Level, Ratio]] = {}
    for family in families.values():
        judging = judging_metrics(
            Counter(metric for metric, pair in family for _ in hypotheses[metric, pair])
        )
        first = _proofs_of([(metric, pair) for metric, pair in family if metric in judging], tests)
        others = [(metric, pair) for metric, pair in family if metric not in judging]
        proven |= first
        for (metric, pair), levels in _proofs_of(others, tests).items():
            judges = [first[judge, pair] for judge in judging if (judge, pair) in first]
            proven[metric, pair] = {}
            for load, ratio in levels.items():
                differs = [judge[load].proven for judge in judges if load in judge]
                is_proven = ratio.proven and (any(differs) or not differs)
                proven[metric, pair][load] = replace(ratio, proven=is_proven)
    return proven


def _proofs_of(
    family: Sequence[_Hypothesis], tests: Mapping[_Hypothesis, Mapping[Level, Ratio]]
) -> dict[_Hypothesis, dict[Level, Ratio]]:
    """Return the tests of a family, and which are proven in it."""
    tested_ratios = {key: _with_mean_variance(tests[key]) for key in family if key in tests}
    values = {key: _p_of_levels(tests[key], levels) for key, levels in tested_ratios.items()}
    differing, proven = holm(values, len(family)), {}
    for key, levels in tested_ratios.items():
        of_levels = {load: ratio.p_or_1 for load, ratio in levels.items()}
        are_proven = holm(of_levels, len(levels)) if key in differing else ()
        proven[key] = {load: replace(ratio, proven=load in are_proven) for load, ratio in levels.items()}
    return proven


def holm(values: Mapping[_Key, float], count: int) -> set[_Key]:
    """Return the keys whose p-values are significant by Holm's procedure at a common error rate of 5 %.

    `count` is the number of tests, at least that of `values`: others are taken for not significant.
    """
    rejected: set[_Key] = set()
    for tests_left, key in zip(range(count, 0, -1), sorted(values, key=values.__getitem__), strict=False):
        if values[key] > ERROR_RATE / tests_left:
            break
        rejected.add(key)
    return rejected


def _with_mean_variance(levels: Mapping[Level, Ratio]) -> dict[Level, Ratio]:
    """Return the ratios of two targets' levels, each with the mean of their variances."""
    variances = [ratio.variance for ratio in levels.values() if ratio.variance is not None]
    mean = fmean(variance for variance, _ in variances), _freedom(variances)
    return {load: replace(ratio, variance=mean) for load, ratio in levels.items()}


def _p_of_levels(ratios: Mapping[Level, Ratio], tested: Mapping[Level, Ratio]) -> float:
    """Return the p-value of the hypothesis that two targets are equal in a metric at all levels.

    `ratios` has each level's ratio with the variance of that level, `tested` with the mean variance. A
    difference at a single level must be significant in both tests, because the mean variance may be too
    small for that level.
    """
    values = {load: ratio.p_or_1 for load, ratio in ratios.items()}
    if len(ratios) == 1:
        return min(values.values())
    single = min(max(len(ratios) * tested[load].p_or_1, p) for load, p in values.items())
    return min(1.0, 2 * min(combined_p(list(values.values())), single))


def _freedom(parts: Sequence[Variance]) -> float:
    """Return the degrees of freedom of a sum of variances: (Σ v)² / Σ (v² / n) (Satterthwaite 1946)."""
    total = sum(variance for variance, _ in parts)
    if total == 0:
        return sum(freedom for _, freedom in parts)
    return total**2 / sum(variance**2 / freedom for variance, freedom in parts)


def _ratio_of_ranges(first: Value, second: Value) -> Ratio | None:
    """Return the ratio of the nearest ends of two ranges, without a test; None if the ranges overlap.

    A value that is not a range counts as a range of zero length.
    """
    low, high = first.span or (first.mean, first.mean)
    other_low, other_high = second.span or (second.mean, second.mean)
    if low > other_high > 0:
        return Ratio(low / other_high)
    if other_low > high > 0:
        return Ratio(high / other_low)
    return None


def is_rising(levels: Sequence[LevelResult], metric: str) -> bool:
    """Return whether the rate `metric` still rises at the last of `levels`, which ascend.

    The last one must be the best, and better than the one before it beyond the noise and, unless these are
    single runs, clearly.
    """
    best = best_level(levels, metric)
    if len(levels) == 1 or best.best is not levels[-1]:
        return False
    ratio, open_levels = rate_ratio(best.best, levels[-2], metric), (*best.alike, *best.scattered)
    return ratio is not None and ratio.is_beyond(NOISE_FLOOR_PERCENT) and levels[-2] not in open_levels


def main_rate(levels: Sequence[LevelResult]) -> str | None:
    """Return the name of the main token rate that most of `levels` have; None if none has any."""
    return main_rate_of([[name for name in MAIN_RATES if level.rate(name) is not None] for level in levels])


def rate_ratio(level: LevelResult, other: LevelResult, metric: str) -> Ratio | None:
    """Return the ratio `one` / `other` of the rates `metric` of two levels, tested if both have several runs.

    None if a rate is unknown or 0.
    """
    value, other_value = level.figure(metric), other.figure(metric)
    return None if value is None or other_value is None else ratio_of(value, other_value)


def clearly_best(best: Value, other: Value) -> bool | None:
    """Return whether the highest or lowest value is clearly apart from another; None if not testable.

    Their difference must be significant and beyond the noise floor, and the 95 % interval of the best must
    not contain the other: a reader who sees the interval would not believe it.
    """
    ratio = ratio_of(best, other)
    clear = None if ratio is None else ratio.is_significant()
    if clear and best.low is not None and best.high is not None:
        return not best.low <= other.mean <= best.high
    return clear


def is_scattered(best: Value, other: Value) -> bool:
    """Return whether two values that are not clearly apart are too scattered to be called alike."""
    ratio = ratio_of(best, other)
    return ratio is not None and clearly_best(best, other) is False and is_too_scattered(ratio.ci95)


class BestLevel(Struct, frozen=True):
    """The best of levels, and what the others are beside it."""

    best: LevelResult
    alike: tuple[LevelResult, ...]
    """Those not clearly below it."""
    scattered: tuple[LevelResult, ...]
    """Those too scattered to be compared with it."""
    is_untested: bool
    """Whether one of the others is beyond the noise below it, and too few runs test that."""

    @property
    def enough(self) -> list[LevelResult]:
        """The best level and those alike, ascending by concurrency: the first one is enough."""
        return sorted((self.best, *self.alike), key=lambda level: level.concurrency)


def contenders(levels: Sequence[LevelResult]) -> Sequence[LevelResult]:
    """Return those of the measured levels that may be the best.

    They have the prompt length that was asked for, and were not cut short; where there is no such level, the
    others are compared among themselves.
    """
    measured = [level for level in levels if level.is_measured]
    as_asked = [level for level in measured if not level.has_other_prompt] or measured
    return [level for level in as_asked if not level.is_cut_short] or as_asked


def best_level(levels: Sequence[LevelResult], metric: str) -> BestLevel:
    """Return the best of `levels`, at least one, which have the rate `metric`; of equals it is the first.

    The other `contenders` are compared with it as in the table of levels.
    """
    levels = contenders(levels)
    means = [rate.mean if rate is not None else 0.0 for rate in (level.rate(metric) for level in levels)]
    best = levels[means.index(max(means))]
    best_value = best.figure(metric)
    alike: list[LevelResult] = []
    scattered: list[LevelResult] = []
    is_untested = False
    for level in levels:
        value = level.figure(metric)
        if level is best or best_value is None or value is None:
            continue
        ratio, is_clear = ratio_of(best_value, value), clearly_best(best_value, value)
        if ratio is not None and is_clear is False:
            (scattered if is_scattered(best_value, value) else alike).append(level)
        is_untested |= ratio is not None and is_clear is None and ratio.is_beyond(NOISE_FLOOR_PERCENT)
    return BestLevel(best, tuple(alike), tuple(scattered), is_untested)
