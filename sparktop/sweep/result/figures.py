"""The figures of a level as its result keeps them: a rate over runs, a latency over requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Self

from sparktop.sweep.result.parts import Count, Number, Part, Value
from sparktop.sweep.terms.statistics import CONFIDENCE, P90_FROM, P95_FROM, P99_FROM, quantile, student_t


class Rate(Part):
    """A rate with one value per run."""

    mean: Value
    std: Number = None
    """Sample standard deviation (n - 1); None for a single run."""
    values: tuple[Value, ...] = ()
    ci95: tuple[Value, Value] | None = None
    """95 % confidence interval of the mean (Student's t, runs as replicates); None for a single run."""

    @classmethod
    def of_runs(cls, values: Sequence[float | None]) -> Self | None:
        """Return mean, spread and interval of one value per run, ignoring None; None without any value."""
        known = tuple(value for value in values if value is not None)
        if not known:
            return None
        mean = fmean(known)
        if len(known) == 1:
            return cls(mean=mean, values=known)
        std = stdev(known)
        half = student_t((1 + CONFIDENCE) / 2, len(known) - 1) * std / math.sqrt(len(known))
        return cls(mean=mean, std=std, values=known, ci95=(mean - half, mean + half))


class Latency(Part):
    """A latency in milliseconds, over the requests of a level.

    Requests are not independent replicates, so it has no confidence interval.
    """

    mean: Value
    std: Number = None
    p50: Number = None
    p90: Number = None
    """None for fewer than 36 values (p95: 72, p99: 368)."""
    p95: Number = None
    p99: Number = None
    max: Number = None
    count: Count | None = None
    run_means: tuple[Value, ...] = ()
    """Mean of each run: a comparison uses runs as replicates, because requests are not independent."""

    @classmethod
    def of_values(cls, values: Sequence[float], run_means: Sequence[float] = ()) -> Self | None:
        """Return mean, spread and quantiles of values; None without values. Quantiles need enough values."""
        if not values:
            return None
        ordered = sorted(values)
        count = len(ordered)
        return cls(
            mean=fmean(ordered),
            std=stdev(ordered) if count > 1 else None,
            p50=quantile(ordered, 0.5),
            p90=quantile(ordered, 0.9) if count >= P90_FROM else None,
            p95=quantile(ordered, 0.95) if count >= P95_FROM else None,
            p99=quantile(ordered, 0.99) if count >= P99_FROM else None,
            max=ordered[-1],
            count=count,
            run_means=tuple(run_means),
        )


class StreamRates(Part):
    """Tokens per second of single streams, as quantiles over the requests of a level."""

    p10: Number = None
    p50: Number = None
