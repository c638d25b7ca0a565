"""Operations on latency histograms: difference of two samples, sum over engine cores (lanes), quantiles."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from operator import add, sub

from sparktop.model.engine import Histogram
from sparktop.model.snapshot import Latency, Quantile

LEAST_OBSERVATIONS = 5
"""With fewer observations in a window, no quantile is reported."""
_WIDE = 2.0
"""Least ratio of the edges of a wide bucket: too wide for an interpolated value alone."""
_SHOWN = (0.5, 0.9, 0.95, 0.99)
"""The quantiles of a `Latency`."""


def difference(newer: Histogram, older: Histogram) -> Histogram | None:
    """Return the histogram of the observations made between two samples of one histogram.

    `newer` and `older` are the samples. None if they cannot be subtracted: because their bounds differ, a
    bucket's count fell, or a value is not finite.
    """
    bounds = newer.bounds
    if (bounds is not older.bounds and bounds != older.bounds) or len(newer.cumulative) != len(
        older.cumulative
    ):
        return None
    counts = tuple(map(sub, newer.cumulative, older.cumulative))
    total = newer.sum - older.sum
    # A sum is finite only if all of its terms are.
    if not math.isfinite(total + sum(counts)) or min(counts, default=0.0) < 0:
        return None
    return Histogram(newer.bounds, counts, total)


def merge(histograms: Sequence[Histogram]) -> Histogram | None:
    """Return the sum of histograms, over the bucket bounds that all of them have; None for an empty sequence.

    Only at common bounds is the summed cumulative count known exactly. If `inf` is the only common bound, the
    result has a count and a sum, but no quantile can be computed from it.
    """
    if not histograms:
        return None
    first = histograms[0]
    if len(histograms) == 1:
        return first
    total = math.fsum(histogram.sum for histogram in histograms)
    if all(histogram.bounds == first.bounds for histogram in histograms):
        counts = first.cumulative
        for histogram in histograms[1:]:
            counts = tuple(map(add, counts, histogram.cumulative))
        return Histogram(first.bounds, counts, total)
    shared = set(first.bounds).intersection(*(histogram.bounds for histogram in histograms))
    bounds = tuple(sorted(shared | {math.inf}))
    sums = [0.0] * len(bounds)
    for histogram in histograms:
        at_bound = dict(zip(histogram.bounds, histogram.cumulative, strict=True))
        at_bound.setdefault(math.inf, histogram.count)
        for index, bound in enumerate(bounds):
            sums[index] += at_bound[bound]
    return Histogram(bounds, tuple(sums), total)


def histogram_quantile(histogram: Histogram, share: float) -> Quantile | None:
    """Return the quantile at `share` (0 to 1), computed like Prometheus' `histogram_quantile`.

    The value is interpolated linearly inside a bucket. If the quantile is in the first bucket, return this
    bucket's upper bound, marked `below`. If it is in the `inf` bucket, return the last finite bound, marked
    `above`. In a wide bucket the result also has the bucket's edges. None without observations or without a
    finite bound.
    """
    return _quantiles(histogram.bounds, histogram.cumulative, histogram.count, (share,))[0]


def _quantiles(
    bounds: Sequence[float], cumulative: Sequence[float], count: float, shares: Sequence[float]
) -> Sequence[Quantile | None]:
    """Return `histogram_quantile` of a histogram with `count` observations at each of `shares`."""
    finite = len(bounds) - (1 if bounds and math.isinf(bounds[-1]) else 0)
    if finite == 0 or not count > 0:
        return [None] * len(shares)
    found = []
    for share in shares:
        rank = share * count
        index = bisect_left(cumulative, rank, 0, finite)
        if index == finite:
            found.append(Quantile(bounds[finite - 1], above=True))
        elif index == 0:
            found.append(Quantile(bounds[0], below=True))
        else:
            low, high, before = bounds[index - 1], bounds[index], cumulative[index - 1]
            inside = cumulative[index] - before
            edges = (low, high) if high >= _WIDE * low else None
            found.append(Quantile(low + (high - low) * (rank - before) / inside, bucket_s=edges))
    return found


def histogram_latency(observed: Histogram, window_s: float) -> Latency:
    """Return mean and quantiles (seconds) of the observations in the histogram `observed`.

    `window_s` is the time in seconds over which they were made. Without observations, mean and quantiles are
    None. With fewer than `LEAST_OBSERVATIONS`, only the quantiles are None.
    """
    count = observed.count
    if not count > 0:
        return Latency(count=0.0, window_s=window_s)
    mean = observed.sum / count
    if count < LEAST_OBSERVATIONS:
        return Latency(mean_s=mean, count=count, window_s=window_s)
    p50, p90, p95, p99 = _quantiles(observed.bounds, observed.cumulative, count, _SHOWN)
    note = "lanes share no bucket bound, or only a mean is reported: no quantile" if p50 is None else None
    return Latency(mean, p50, p90, p95, p99, count, window_s, note)
