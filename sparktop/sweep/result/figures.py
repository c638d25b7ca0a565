"""Metrics of a level in the result file: rates with one value per run, latencies as statistics of values."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Self

from sparktop.sweep.result.parts import Count, Finite, Number, Part
from sparktop.sweep.terms.statistics import P90_FROM, P95_FROM, P99_FROM, quantile, value_of


class Rate(Part):
    """A rate of a level (tokens/s or requests/s): the value of each run, and their mean."""

    mean: Finite
    std: Number = None
    """Sample standard deviation (n - 1); None for a single run."""
    values: tuple[Finite, ...] = ()
    ci95: tuple[Finite, Finite] | None = None
    """(low, high) of the mean's 95 % confidence interval (Student's t over runs); None for a single run."""

    @classmethod
    def of_runs(cls, values: Sequence[float | None]) -> Self | None:
        """Return the rate whose values per run are `values`, with mean and 95 % confidence interval.

        Runs whose value is None are left out. Return None if no run has a value.
        """
        known = tuple(value for value in values if value is not None)
        if not known:
            return None
        found = value_of(fmean(known), known)
        ends = None if found.low is None or found.high is None else (found.low, found.high)
        return cls(mean=found.mean, std=found.std, values=known, ci95=ends)


class Latency(Part):
    """A latency of a level in milliseconds: mean and quantiles over its requests (ITL: over token gaps).

    There is no confidence interval, because requests of a run are not independent of each other.
    """

    mean: Finite
    std: Number = None
    p50: Number = None
    p90: Number = None
    """None for fewer than 36 values."""
    p95: Number = None
    """None for fewer than 72 values."""
    p99: Number = None
    """None for fewer than 368 values."""
    max: Number = None
    count: Count | None = None
    """Number of values."""
    run_means: tuple[Finite, ...] = ()
    """Mean of each run in milliseconds; comparisons test these, because runs are independent."""

    @classmethod
    def of_values(cls, values: Sequence[float], run_means: Sequence[float] = ()) -> Self | None:
        """Return the latency with the given values in milliseconds, in any order; None without values.

        `run_means`, the mean of each run in milliseconds, are stored unchanged. A quantile is None if there
        are too few values for it.
        """
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
    """Tokens/s of single requests: 10th percentile and median over the requests of a level."""

    p10: Number = None
    p50: Number = None
