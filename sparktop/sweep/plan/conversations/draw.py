"""A random quantity of a conversation: fixed, log-normal, or a mixture of both."""

from __future__ import annotations

import math
from random import Random

from msgspec import Struct


class Draw(Struct, frozen=True):
    """Distribution of a length, a count or a pause: log-normal, with an optional fixed value beside it."""

    median: float
    """Of the log-normal part; with `sigma` 0, its only value."""
    sigma: float = 0.0
    """Standard deviation of the logarithm: the 90th percentile is median × e^(1.28 sigma)."""
    most: float | None = None
    """Larger values are drawn as this one; None for no limit."""
    fixed: float | None = None
    """A value that is drawn instead with the chance `fixed_share`; None for none."""
    fixed_share: float = 0.0
    """From 0 to 1."""

    def value(self, random: Random) -> float:
        """Return a random value of the distribution."""
        if self.fixed is not None and random.random() < self.fixed_share:
            return self.fixed
        value = self.median
        if self.sigma and value > 0:
            value = random.lognormvariate(math.log(value), self.sigma)
        return value if self.most is None else min(value, self.most)

    def count(self, random: Random, least: int = 0) -> int:
        """Return a random value as an integer, at least `least`."""
        return max(least, round(self.value(random)))

    @property
    def typical(self) -> float:
        """The mean of the distribution, with values above `most` cut to it."""
        mean = self._log_normal_mean()
        if self.fixed is None:
            return mean
        return self.fixed_share * self.fixed + (1 - self.fixed_share) * mean

    def _log_normal_mean(self) -> float:
        median, sigma, most = self.median, self.sigma, self.most
        if not sigma or median <= 0:
            return median if most is None else min(median, most)
        mean = median * math.exp(sigma * sigma / 2)
        if most is None:
            return mean
        at = math.log(most / median) / sigma
        return mean * _normal(at - sigma) + most * (1 - _normal(at))

    @property
    def largest(self) -> float:
        """The largest value that can be drawn; infinite for a log-normal without limit."""
        free = math.inf if self.sigma and self.median > 0 else self.median
        largest = free if self.most is None else min(free, self.most)
        return largest if self.fixed is None else max(largest, self.fixed)


def _normal(at: float) -> float:
    """Return the standard normal distribution function at `at`."""
    return 0.5 * (1 + math.erf(at / math.sqrt(2)))
