"""Statistics of small samples: quantiles, and Student's t without a numerical library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

CONFIDENCE = 0.95
P90_FROM, P95_FROM, P99_FROM = 36, 72, 368
"""Minimum sample sizes at which the distribution-free 95 % interval of the quantile is bounded on both sides.
"""
_THIRD = 1 / 3
_LEAST_OF_A_MEDIAN = 4
_FRACTION_STEPS = 300
_TINY = 1e-300


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of ascending values by linear interpolation, as numpy does by default."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def unbiased_quantile(ordered: Sequence[float], share: float) -> float:
    """Return the median-unbiased quantile of ascending values (Hyndman and Fan's type 8).

    With a dozen values, `quantile` lies too close to the middle: its p90 of 12 is their 84th percentile.
    """
    count = len(ordered)
    place = min(max(share * (count + _THIRD) + _THIRD, 1.0), float(count))
    below = math.floor(place)
    low, high = ordered[below - 1], ordered[min(below, count - 1)]
    return low + (high - low) * (place - below)


def least_values(share: float) -> int:
    """Return the least sample size at which the median-unbiased quantile lies between two values."""
    tail = min(share, 1 - share)
    return max(_LEAST_OF_A_MEDIAN, math.ceil((2 - tail) * _THIRD / tail - 1e-9))


@cache
def student_t(share: float, freedom: float) -> float:
    """Return the quantile of Student's t distribution with `freedom` degrees of freedom, by bisection."""
    if not 0 < share < 1 or freedom < 1:
        raise ValueError("a share between 0 and 1 and at least one degree of freedom")
    if share < 1 / 2:
        return -student_t(1 - share, freedom)
    low, high = 0.0, 1.0
    while student_t_share(high, freedom) < share:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in {low, high}:
            break
        if student_t_share(middle, freedom) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def student_t_share(value: float, freedom: float) -> float:
    """Return the share of Student's t distribution below `value`, 0 to 1."""
    tail = two_sided_t(value, freedom) / 2
    return 1 - tail if value > 0 else tail


def two_sided_t(value: float, freedom: float) -> float:
    """Return the share of Student's t distribution farther from 0 than `value`: the p-value of a t test.

    Computed from the incomplete beta function; `freedom` need not be an integer.
    """
    return _incomplete_beta(freedom / (freedom + value * value), freedom / 2, 0.5)


def combined_p(values: Sequence[float]) -> float:
    """Return the combined p-value of independent tests by Fisher's method: -2 Σ ln p as chi squared.

    With an even number of degrees of freedom, the tail of chi squared is a finite sum.
    """
    half = -sum(math.log(max(value, _TINY)) for value in values)
    term = total = 1.0
    for count in range(1, len(values)):
        term *= half / count
        total += term
    return min(1.0, math.exp(-half) * total)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function by its continued fraction (DLMF 8.17.22).

    Reflects where needed to evaluate it on the side on which the fraction converges fast.
    """
    if x in {0.0, 1.0}:
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log_front + a * math.log(x) + b * math.log1p(-x)) / a
    # Lentz's method for the continued fraction.
    numerator, denominator = 1.0, 0.0
    value = 1.0
    for step in range(_FRACTION_STEPS):
        half = step // 2
        if step == 0:
            term = 1.0
        elif step % 2:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        denominator = 1 / ((1 + term * denominator) or _TINY)
        numerator = (1 + term / numerator) or _TINY
        factor = numerator * denominator
        value *= factor
        if abs(factor - 1) < 1e-15:  # noqa: PLR2004 - the last bit of a float
            break
    return front * (value - 1)
