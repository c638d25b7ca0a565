"""The ratio of two values of a metric, with 95 % confidence interval and p-value if both have several runs.

Tests use the logarithms of the runs' values, so that a ratio and its inverse are equally significant. The
difference of two logarithms is the logarithm of the ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from sparktop.sweep.compare.series import Figure
from sparktop.sweep.result.parts import LARGEST
from sparktop.sweep.terms.statistics import CONFIDENCE, student_t, two_sided_t, variance
from sparktop.values import dataclass

LEAST_RUNS = 2
"""Minimum number of runs of each of the two values for a test."""
_FREEDOM_STEP = 10
"""For confidence intervals, degrees of freedom are rounded down to tenths: fewer quantiles are computed."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The variance between runs on a log scale, and the degrees of freedom of its estimate."""

    variance: float
    freedom: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratio of two values of a metric, first / second, and its test."""

    ratio: float
    """Ratio of the means; for two ranges that do not overlap, the ratio of their nearest ends."""
    ci95: tuple[float, float] | None = None
    """(low, high) of the ratio's 95 % confidence interval; None if a value has a single run: no test."""
    p: float | None = None
    """The test's p-value: probability of at least this difference if the two do not differ; None: no test."""
    spread: Spread | None = None
    """Variance between runs that the test used; None without a test."""
    weight: float = 1.0
    """1 / (1 / runs of the first + 1 / runs of the second)."""
    freedom: int = 0
    """Total number of runs of the two values, minus 2."""
    log_difference: float = 0.0
    """Mean of the first value's logarithms over runs, minus that of the second."""

    @property
    def percent(self) -> float:
        """Difference of the first value from the second, in percent of the second."""
        return 100 * (self.ratio - 1)

    def beyond(self, floor_percent: float) -> bool:
        """Return whether the larger of the two values exceeds the smaller by more than the noise floor."""
        return abs(math.log(self.ratio)) > math.log1p(floor_percent / 100)

    def significant(self, floor_percent: float) -> bool | None:
        """Return whether the two values differ at p < 0.05 and beyond the noise floor in percent.

        The p-value is not corrected for other tests. Return None if no test is possible.
        """
        if self.p is None:
            return None
        return self.p < 1 - CONFIDENCE and self.beyond(floor_percent)

    def inverse(self) -> Ratio:
        """Return the ratio of the second value to the first, with inverted confidence interval."""
        ends = None if self.ci95 is None else (1 / max(self.ci95[1], 1 / LARGEST), _over_one(self.ci95[0]))
        return replace(self, ratio=1 / self.ratio, ci95=ends, log_difference=-self.log_difference)

    def with_spread(self, spread: Spread) -> Ratio:
        """Return a copy whose p-value and confidence interval use another estimate of the variance."""
        error = math.sqrt(spread.variance / self.weight)
        freedom = spread.freedom
        if error == 0:
            centre = math.exp(self.log_difference)
            p = 1.0 if self.log_difference == 0 else 0.0
            return replace(self, ci95=(centre, centre), p=p, spread=spread)
        p = two_sided_t(self.log_difference / error, freedom)
        steps = max(1.0, math.floor(freedom * _FREEDOM_STEP + 1e-6) / _FREEDOM_STEP)
        half = student_t((1 + CONFIDENCE) / 2, steps) * error
        return replace(self, ci95=_interval(self.log_difference, half), p=p, spread=spread)


def ratio_of(first: Figure, second: Figure) -> Ratio | None:
    """Return the ratio `first` / `second`, tested if both have at least two runs.

    The test is Welch's, which does not assume equal variances. Return None if a mean is not positive, or if
    one of the values is a range and the two overlap.
    """
    if first.mean <= 0 or second.mean <= 0:
        return None
    if first.span is not None or second.span is not None:
        return _ratio_of_ranges(first, second)
    ratio = first.mean / second.mean
    one, other = first.values, second.values
    if min(len(one), len(other)) < LEAST_RUNS or min(*one, *other) <= 0:
        return Ratio(ratio)
    logs, other_logs = [math.log(value) for value in one], [math.log(value) for value in other]
    bare = Ratio(
        ratio,
        weight=1 / (1 / len(logs) + 1 / len(other_logs)),
        freedom=len(logs) + len(other_logs) - 2,
        log_difference=fmean(logs) - fmean(other_logs),
    )
    return bare.with_spread(_welch(logs, other_logs, bare.weight))


def _welch(first: Sequence[float], second: Sequence[float], weight: float) -> Spread:
    parts = [(variance(values) / len(values), len(values) - 1) for values in (first, second)]
    squared = sum(part for part, _ in parts)
    if squared == 0:
        return Spread(0.0, float(sum(free for _, free in parts)))
    return Spread(squared * weight, squared**2 / sum(part**2 / free for part, free in parts))


def _ratio_of_ranges(first: Figure, second: Figure) -> Ratio | None:
    """Return the ratio of the nearest ends of two ranges, without a test; None if the ranges overlap.

    A value that is not a range counts as a range of zero length.
    """
    (low, high), (other_low, other_high) = _ends(first), _ends(second)
    if low > other_high > 0:
        return Ratio(low / other_high)
    if other_low > high > 0:
        return Ratio(high / other_low)
    return None


def _ends(figure: Figure) -> tuple[float, float]:
    return figure.span or (figure.mean, figure.mean)


def _over_one(value: float) -> float:
    return LARGEST if value * LARGEST < 1 else min(LARGEST, 1 / value)


def _interval(difference: float, half: float) -> tuple[float, float]:
    try:
        return math.exp(difference - half), min(math.exp(difference + half), LARGEST)
    except OverflowError:  # the values of the runs differ too much for any conclusion
        return 0.0, LARGEST
