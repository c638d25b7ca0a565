"""Builds histograms from the samples of their buckets, sums and counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import add, itemgetter, le

from sparktop.engines.exposition import Labels, Places, number
from sparktop.model.engine import Histogram

MOST_BUCKETS = 512
"""A histogram with more is unknown: no engine has as many, and each is kept for every sample of a window."""
_KEPT_LABELS = 4096
"""Labels of buckets whose bounds are cached between pages, because the next page of a server has the same."""


class HistogramReader:
    """Reads one histogram from a page's values: the sum of all series of a metric (one per model or process).

    Where its samples stand, and whether their bounds fit together, follows from their labels and is found
    once.
    """

    def __init__(self, buckets: Places, sums: Places, counts: Places) -> None:
        """Prepare to read the samples with these indices in the page's values."""
        self._bounds: tuple[float, ...] = ()
        self._series: list[tuple[Callable[[Sequence[float]], tuple[float, ...]], int]] = []
        """For each series: a function that returns its cumulative counts, and the index of its sum."""
        for labels, found in (_by_series(buckets) or {}).items():
            if math.inf not in found and labels in counts:
                found[math.inf] = counts[labels]
            own = tuple(sorted(found))
            fits = (
                len(own) <= MOST_BUCKETS
                and own[-1] == math.inf
                and labels in sums
                and own == (self._bounds or own)
            )
            if not fits:
                self._series.clear()
                return
            self._bounds = own
            self._series.append((_getter([found[bound] for bound in own]), sums[labels]))

    def read(self, values: Sequence[float]) -> Histogram | None:
        """Return the histogram at these values of the page.

        Return None if it would be wrong: if bounds are missing, not numbers or repeated; if cumulative counts
        are negative, infinite or falling; if a sum is missing or negative; or if the series have different
        bounds, or too many. A missing `+Inf` bucket is filled from the count.
        """
        totals: tuple[float, ...] | None = None
        total = 0.0
        for counts_in, sum_at in self._series:
            cumulative, added = counts_in(values), values[sum_at]
            if not (_rises(cumulative) and 0 <= added < math.inf):
                return None
            totals = cumulative if totals is None else tuple(map(add, totals, cumulative))
            total += added
        return None if totals is None else Histogram(self._bounds, totals, total)


def _getter(indices: Sequence[int]) -> Callable[[Sequence[float]], tuple[float, ...]]:
    """Return a function that returns the values with these indices as a tuple, also of a single one."""
    first = indices[0]
    return itemgetter(*indices) if len(indices) > 1 else lambda values: (values[first],)


def _by_series(buckets: Places) -> dict[Labels, dict[float, int]] | None:
    """Group buckets by their labels without `le`; return {other labels: {bound: index of the value}}.

    None if a bound is not a number or is repeated.
    """
    series: dict[Labels, dict[float, int]] = {}
    for labels, index in buckets.items():
        others, bound = _kept_split(labels)
        found = series.setdefault(others, {})
        if not bound > -math.inf or bound in found:
            return None
        found[bound] = index
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


def _rises(cumulative: Sequence[float]) -> bool:
    """Return whether the counts are cumulative: finite, at least 0, never falling (False for NaN)."""
    following = iter(cumulative)
    next(following)
    return cumulative[0] >= 0 and cumulative[-1] < math.inf and all(map(le, cumulative, following))
