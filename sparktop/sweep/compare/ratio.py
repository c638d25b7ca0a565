"""The ratio of two figures, with its 95 % interval and p-value if both have runs.

Tests use the logarithms of the runs' values, with runs as replicates. So both directions of a change have the
same limit: a server that takes a third less time differs as much as one that takes half more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance

from sparktop.sweep.compare.series import Figure
from sparktop.sweep.result.parts import LARGEST
from sparktop.sweep.terms.statistics import CONFIDENCE, student_t, two_sided_t

LEAST_RUNS = 2
"""Minimum runs of each figure for a test."""
_FREEDOM_STEP = 10
"""Degrees of freedom are rounded down to tenths for intervals, so that few quantiles have to be computed."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of runs: the variance of logarithms, and the degrees of freedom of that estimate."""

    variance: float
    freedom: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratio of two figures."""

    ratio: float
    """Ratio of the means; for disjoint ranges that of their nearest ends."""
    ci95: tuple[float, float] | None = None
    """None if one of them has a single value, so that no test is possible."""
    p: float | None = None
    """Probability of a difference at least this large between runs of the same thing."""
    spread: Spread | None = None
    """Spread of the runs of both figures."""
    weight: float = 1.0
    """1 / (1 / runs of the first + 1 / runs of the second)."""
    freedom: int = 0
    """Number of runs of both figures, minus 2."""
    log_difference: float = 0.0
    """Difference between the means of logarithms."""

    @property
    def percent(self) -> float:
        """By how many percent the first exceeds the second."""
        return 100 * (self.ratio - 1)

    def beyond(self, floor_percent: float) -> bool:
        """Return whether the larger figure exceeds the smaller one by more than the noise floor."""
        return abs(math.log(self.ratio)) > math.log1p(floor_percent / 100)

    def significant(self, floor_percent: float) -> bool | None:
        """Return whether this ratio, tested alone, shows a difference; None if no test is possible."""
        if self.p is None:
            return None
        return self.p < 1 - CONFIDENCE and self.beyond(floor_percent)

    def inverse(self) -> Ratio:
        """Return the ratio of the second figure to the first."""
        ends = None if self.ci95 is None else (1 / max(self.ci95[1], 1 / LARGEST), _over_one(self.ci95[0]))
        return replace(self, ratio=1 / self.ratio, ci95=ends, log_difference=-self.log_difference)

    def with_spread(self, spread: Spread) -> Ratio:
        """Return the same ratio, tested with another estimate of the spread of runs."""
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
    """Return the ratio of two figures; None if a mean is not positive, or if ranges overlap.

    The test is Welch's, for variances that need not be equal, with Satterthwaite's degrees of freedom.
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
    """Return the ratio of the nearest ends of two ranges; None if they overlap."""
    (low, high), (other_low, other_high) = _ends(first), _ends(second)
    if low > other_high > 0:
        return Ratio(low / other_high)
    if other_low > high > 0:
        return Ratio(high / other_low)
    return None


def _ends(figure: Figure) -> tuple[float, float]:
    return figure.span or (figure.mean, figure.mean)


def _over_one(value: float) -> float:
    return LARGEST if value * LARGEST < 1 else 1 / value


def _interval(difference: float, half: float) -> tuple[float, float]:
    try:
        return math.exp(difference - half), math.exp(difference + half)
    except OverflowError:  # runs so far apart that nothing follows from them
        return 0.0, LARGEST
