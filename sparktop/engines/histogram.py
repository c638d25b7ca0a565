"""Builds histograms from the samples of their buckets, sums and counts."""

from __future__ import annotations

import math
from functools import lru_cache

from sparktop.engines.exposition import Family, Labels, number
from sparktop.model.engine import Histogram

_KEPT_LABELS = 4096
"""Labels of buckets whose bounds are cached between pages, because the next page of a server has the same."""
_Series = dict[Labels, dict[float, float]]


def read_histogram(buckets: Family, sums: Family, counts: Family) -> Histogram | None:
    """Build one histogram, the sum of all series of a metric (one series per model or process).

    Return None if the histogram would be wrong: if bounds are missing, not numbers or repeated; if cumulative
    counts are negative, infinite or falling; if a sum is missing or negative; or if the series have different
    bounds. A missing `+Inf` bucket is filled from the count.
    """
    series = _by_series(buckets)
    if not series:
        return None
    bounds: tuple[float, ...] | None = None
    totals: list[float] = []
    total = 0.0
    for labels, found in series.items():
        if math.inf not in found and labels in counts:
            found[math.inf] = counts[labels]
        own = tuple(sorted(found))
        cumulative = [found[bound] for bound in own]
        added = sums.get(labels, math.nan)
        if not (_rises(cumulative) and own[-1] == math.inf and 0 <= added < math.inf):
            return None
        if bounds is None:
            bounds, totals = own, cumulative
        elif own == bounds:
            totals = [left + right for left, right in zip(totals, cumulative, strict=True)]
        else:
            return None
        total += added
    return Histogram(bounds or (), tuple(totals), total)


def _by_series(buckets: Family) -> _Series | None:
    """Group buckets by their labels without `le`; return {other labels: {bound: count}}.

    None if a bound is not a number or is repeated.
    """
    series: _Series = {}
    for labels, value in buckets.items():
        others, bound = _kept_split(labels)
        found = series.setdefault(others, {})
        if not bound > -math.inf or bound in found:
            return None
        found[bound] = value
    return series


def _split(labels: Labels) -> tuple[Labels, float]:
    """Return (labels without `le`, bound in `le`); the bound is NaN if it is missing or not a number."""
    bound = math.nan
    others = []
    for label in labels:
        if label[0] == "le":
            bound = number(label[1])
        else:
            others.append(label)
    return tuple(others), bound


_kept_split = lru_cache(_KEPT_LABELS)(_split)


def _rises(cumulative: list[float]) -> bool:
    """Return whether the counts are cumulative: finite, at least 0, never falling (False for NaN)."""
    last = 0.0
    for value in cumulative:
        if not last <= value < math.inf:
            return False
        last = value
    return True
