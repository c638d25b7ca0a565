"""Statistics of small samples without a numerical library: quantiles, Student's t, χ², F, joint p-values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from statistics import NormalDist

CONFIDENCE = 0.95
"""Confidence level of all intervals."""
P90_FROM, P95_FROM, P99_FROM = 36, 72, 368
"""Minimum sample sizes for p90, p95 and p99: with fewer values, the distribution-free 95 % confidence
interval of the quantile has no bound on one side."""
_THIRD = 1 / 3
_LEAST_OF_A_MEDIAN = 4
"""Least values for a median: with fewer, its interval is the whole sample."""
_FRACTION_STEPS = 300
"""Most steps of the continued fraction, which converges in far fewer."""
_TINY = 1e-300
"""In place of 0 where it would be divided by, or its logarithm taken."""


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the quantile `share` (0 to 1) of ascending values by linear interpolation (numpy's default)."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def unbiased_quantile(ordered: Sequence[float], share: float) -> float:
    """Return the median-unbiased quantile `share` (0 to 1) of ascending values (Hyndman and Fan's type 8).

    For few values, `quantile` lies too close to the median: its p90 of 12 values is about the 84th
    percentile.
    """
    count = len(ordered)
    position = min(max(share * (count + _THIRD) + _THIRD, 1.0), float(count))
    below = math.floor(position)
    low, high = ordered[below - 1], ordered[min(below, count - 1)]
    return low + (high - low) * (position - below)


def least_values(share: float) -> int:
    """Return the minimum sample size for the quantile `share` (0 to 1) by `unbiased_quantile`.

    With fewer values the quantile would lie outside of the sample, and always be its largest or smallest
    value.
    """
    tail = min(share, 1 - share)
    return max(_LEAST_OF_A_MEDIAN, math.ceil((2 - tail) * _THIRD / tail - 1e-9))


def wilson(met: float, count: float) -> tuple[float, float]:
    """Return Wilson's 95 % confidence interval of a share (0 to 1), estimated by `met` of `count` cases.

    E. B. Wilson, Probable inference, the law of succession, and statistical inference, Journal of the
    American Statistical Association 22 (1927), 209 to 212. Neither needs to be an integer. Without cases, it
    is 0 to 1.
    """
    if count <= 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    share, scaled = met / count, z * z / count
    middle = (share + scaled / 2) / (1 + scaled)
    half = z / (1 + scaled) * math.sqrt(share * (1 - share) / count + scaled / (4 * count))
    return max(0.0, middle - half), min(1.0, middle + half)


@cache
def student_t(share: float, freedom: float) -> float:
    """Return the quantile `share` (0 to 1) of Student's t distribution with `freedom` degrees of freedom.

    Raises:
        ValueError: `share` is not between 0 and 1, or `freedom` is below 1.
    """
    if not 0 < share < 1 or freedom < 1:
        raise ValueError("a share between 0 and 1 and at least one degree of freedom")
    if share < 1 / 2:
        return -student_t(1 - share, freedom)
    low, high = 0.0, 1.0
    while 1 - two_sided_t(high, freedom) / 2 < share:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in {low, high}:
            break
        if 1 - two_sided_t(middle, freedom) / 2 < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@lru_cache(4096)  # a comparison asks for each of its tests several times
def two_sided_t(value: float, freedom: float) -> float:
    """Return the two-sided p-value (0 to 1) of a t test with the statistic `value`.

    `freedom` is the number of degrees of freedom, not necessarily an integer.
    """
    return incomplete_beta(freedom / (freedom + value * value), freedom / 2, 0.5)


def combined_p(values: Sequence[float]) -> float:
    """Return the combined p-value of independent tests from their p-values, by Fisher's method.

    -2 Σ ln p has a chi-squared distribution whose degrees of freedom are even, so its tail is a finite sum.
    """
    half = -sum(math.log(max(value, _TINY)) for value in values)
    term = total = 1.0
    for count in range(1, len(values)):
        term *= half / count
        total += term
    return min(1.0, math.exp(-half) * total)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b) by its continued fraction (DLMF 8.17.22).

    Where the fraction converges slowly, 1 - I_(1-x)(b, a) is computed instead.
    """
    if x in {0.0, 1.0}:
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(1 - x, b, a)
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


def chi_squared_tail(value: float, freedom: int) -> float:
    """Return the probability that a χ² variable with `freedom` degrees of freedom is at least `value`.

    Uses the approximation of Wilson and Hilferty (1931).
    """
    width = 2 / (9 * freedom)
    return math.erfc(((value / freedom) ** (1 / 3) - 1 + width) / math.sqrt(2 * width)) / 2


def f_tail(ratio: float, above: int, below: int) -> float:
    """Return the probability that an F-distributed variable is at least `ratio`.

    `above` and `below` are the degrees of freedom of numerator and denominator. The probability is the
    regularised incomplete beta function I(x; below / 2, above / 2) with x = below / (below + above · ratio).
    """
    if ratio <= 0:
        return 1.0
    return incomplete_beta(below / (below + above * ratio), below / 2, above / 2)
