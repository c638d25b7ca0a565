"""A history read into the equal time slots of a graph, quickly: figures of thousands of samples a drawing."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

from sparktop.model.series import Series

LATE = 1.75
"""Usual distances that two samples may be apart with nothing missing between them."""
_BEFORE = 8
"""Slots before the first one that are looked at too: they tell how far apart samples usually are."""

Fills = Callable[[Sequence[float], int], bool]
"""Says of the times and the index of the sample after an empty slot whether nothing is missing there."""


def slot_means(
    table: Sequence[Series], first: int, step: float, count: int, fills: Fills
) -> list[list[float | None]]:
    """Give the mean in each of `count` slots of `step` seconds, the first one being slot `first`, by history.

    The histories have one time axis, as those of a `HistoryTable` do. A slot without a sample is None; where
    `fills` says that nothing was missed it holds what was before it.
    Slots lie on absolute multiples of `step`, as `Series.slots` has them; sums from the beginning and edges
    found once make this 5 times as fast.
    """
    since = (first - _BEFORE) * step
    times, _ = table[0].arrays(since)
    edges = [bisect_left(times, slot * step) for slot in range(first, first + count + 1)]
    result: list[list[float | None]] = []
    for series in table:
        values = series.arrays(since)[1]
        means = _means(values, edges)
        if None in means:
            _fill(means, edges, times, values, fills)
        result.append(means)
    return result


def _means(values: Sequence[float], edges: Sequence[int]) -> list[float | None]:
    if math.isfinite(sum(values)):
        sums = list(accumulate(values, initial=0.0))
        return [(sums[b] - sums[a]) / (b - a) if b > a else None for a, b in pairwise(edges)]
    known = [[value for value in values[a:b] if math.isfinite(value)] for a, b in pairwise(edges)]
    return [sum(some) / len(some) if some else None for some in known]


def _fill(
    means: list[float | None],
    edges: Sequence[int],
    times: Sequence[float],
    values: Sequence[float],
    fills: Fills,
) -> None:
    """Let empty slots between two samples hold the earlier one, where nothing is missing."""
    slot, count = 0, len(means)
    while slot < count:
        if edges[slot] != edges[slot + 1]:
            slot += 1
            continue
        end = slot + 1
        while end < count and edges[end] == edges[end + 1]:
            end += 1
        after = edges[slot]
        # At the left edge what was before it may be off the graph.
        if 0 < after < len(times) and end < count:
            both = math.isfinite(values[after - 1]) and math.isfinite(values[after])
            if both and fills(times, after):
                held = means[slot - 1] if slot else values[after - 1]
                means[slot:end] = [held] * (end - slot)
        slot = end


def slots_of(series: Series, end_slot: int, step: float, count: int) -> list[float | None]:
    """Give what `Series.slots` gives: an empty slot is held where a sample only came late."""

    def late(times: Sequence[float], after: int) -> bool:
        return times[after] - times[after - 1] < LATE * step

    return slot_means((series,), end_slot - count + 1, step, count, late)[0]


def held_slots(table: Sequence[Series], end_slot: int, step: float, count: int) -> list[list[float | None]]:
    """Give the slots of histories that are looked at faster at some times than at others.

    A slot between two samples that are no further apart than those around them holds the earlier one: there
    nothing was missed, it was looked at less often.
    """
    return slot_means(table, end_slot - count + 1, step, count, _as_usual)


def _as_usual(times: Sequence[float], after: int) -> bool:
    apart = times[after] - times[after - 1]
    before = times[after - 1] - times[after - 2] if after > 1 else 0.0
    behind = times[after + 1] - times[after] if after + 1 < len(times) else 0.0
    return apart < LATE * max(before, behind)
