"""Means of a series in equal time slots, for graphs: optimized for thousands of samples per drawing."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

from sparktop.model.series import LATE, Series

_BEFORE = 8
"""Number of slots read before the first one, to learn how far apart samples usually are."""

Fills = Callable[[Sequence[float], int], bool]
"""Type of a function (times of all samples, index of the sample after a gap) that returns whether the gap
lacks no sample."""


Slots = list[float | None]


def slot_means(
    table: Sequence[Series], first: int, step: float, count: int, fills: Fills
) -> list[list[float | None]]:
    """Return for each series its means in `count` time slots of `step` seconds, from slot number `first` on.

    All series must have samples at the same times, as those of a `HistoryTable` do. The mean of a slot
    without a sample is None, or the mean of the slot before if the function `fills` returns True, which says
    that no sample was lost in the gap. Slots begin at multiples of `step`, so that series
    share a time axis. Slot edges are computed once for all series; these and means are kept for the next
    drawing, which shows mostly the same slots.
    """
    places = _places(table[0], first, step, count)
    found: list[list[float | None]] = []
    for series in table:
        means = _means(series, places, first, step)
        if None in means:
            _fill(means, places, series, (first - _BEFORE) * step, fills)
        found.append(means)
    return found


_known: dict[tuple[int, int, float, int], tuple[object, int, Sequence[int], Sequence[float | None]]] = {}
"""Results of `_means`: (pages, number of the first slot, places of the slots, means). A key names the pages
by their id only, with the column, the step and the number of slots."""
_MOST_KNOWN = 128


def _means(series: Series, places: Sequence[int], first: int, step: float) -> list[float | None]:
    """Return the mean of `series` in each slot, from slot number `first` on; slots begin at `places`.

    Points of pages never change, so that a slot that has the same points as in the last drawing has the
    same mean. Only the newest slots get points.
    """
    pages, column = series.clock[0], series.column
    key = (id(pages), column, step, len(places))
    means: list[float | None] = []
    kept = _known.get(key)
    if kept is not None and kept[0] is pages:
        _, kept_first, kept_places, kept_means = kept
        shift, end = first - kept_first, bisect_left(kept_places, kept_places[-1])
        if 0 <= shift < end and kept_places[shift:end] == places[: end - shift]:
            means += kept_means[shift : end - 1]
    done = len(means)
    values, begin = series.values((first + done) * step), places[done]
    means += [_mean(values[a - begin : b - begin]) for a, b in pairwise(places[done:])]
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    _known[key] = (pages, first, places, tuple(means))
    return means


def _mean(values: Sequence[float]) -> float | None:
    """Return the mean of those values that are known; None if none is."""
    total = sum(values)
    if not math.isfinite(total):
        values = [value for value in values if math.isfinite(value)]
        total = sum(values)
    return total / len(values) if values else None


_kept: dict[tuple[int, float, int], tuple[object, int, int, int, list[int]]] = {}
"""Results of `_places`: (pages, place of their first point, place after the last point, number of the first
slot, result). A key names the pages by their id only, with the step and the number of slots."""
_MOST_KEPT = 64


def _places(series: Series, first: int, step: float, count: int) -> list[int]:
    """Return the place in the pages of the first point of each time slot, and of the slot after the last.

    The result is kept, because the graphs of a panel mostly show series with the same times, and because the
    next drawing shows most of the same slots: points are only added at the end of pages.
    """
    pages, start, stop = series.clock
    key = (id(pages), step, count)
    places: list[int] = []
    kept = _kept.get(key)
    if kept is not None and kept[0] is pages:
        _, kept_start, kept_stop, kept_first, places = kept
        shift = first - kept_first
        if shift == 0 and (start, stop) == (kept_start, kept_stop):
            return places
        # A slot that began after the last point then may have points now.
        places = places[shift : bisect_left(places, kept_stop)] if shift >= 0 and stop >= kept_stop else []
        if places and start != kept_start and places[0] <= max(start, kept_start):
            places = []
    missing = range(first + len(places), first + count + 1)
    if missing:
        begin = series.since(missing[0] * step)
        times, at = begin.arrays()[0], begin.clock[1]
        places += [at + bisect_left(times, slot * step) for slot in missing]
    if len(_kept) >= _MOST_KEPT:
        _kept.clear()
    _kept[key] = (pages, start, stop, first, places)
    return places


def _fill(
    means: list[float | None], places: Sequence[int], series: Series, since: float, fills: Fills
) -> None:
    """Fill empty time slots in the list `means` with the value of the slot before.

    The slots begin at `places` in the pages of `series`, of which points from the time `since` on are read.
    A gap of empty slots is filled only if the function `fills` returns True: no sample was lost in the gap.
    """
    begin, stop = series.since(since).clock[1:]
    for place in {a for a, b in pairwise(places) if a == b}:
        slot, end = bisect_left(places, place), bisect_right(places, place) - 1
        # At the left edge the sample before the gap may lie off the graph, so the gap may start in slot 0.
        if not begin < place < stop or end == len(means):
            continue
        times, values = series.arrays(since)
        after = place - begin
        both = math.isfinite(values[after - 1]) and math.isfinite(values[after])
        if both and fills(times, after):
            held = means[slot - 1] if slot else values[after - 1]
            means[slot:end] = [held] * (end - slot)


def held_slots(table: Sequence[Series], end_slot: int, step: float, count: int) -> list[list[float | None]]:
    """Return the means by time slot of several series whose polling interval may have changed over time.

    An empty slot between two samples gets the value of the slot before, unless these samples are much further
    apart than each of them is from its other neighbour: then a poll was missed.
    """
    return slot_means(table, end_slot - count + 1, step, count, _as_usual)


def _as_usual(times: Sequence[float], after: int) -> bool:
    apart = times[after] - times[after - 1]
    before = times[after - 1] - times[after - 2] if after > 1 else 0.0
    behind = times[after + 1] - times[after] if after + 1 < len(times) else 0.0
    return apart < LATE * max(before, behind)


def hold_last(means: Slots, series: Series, end_slot: int, step: float, held_s: float | None = None) -> None:
    """Fill the empty time slots at the end of `means` with the newest value until its next sample is due.

    `means` has the values of `series` by time slot, up to slot number `end_slot`. Slots that begin after the
    next sample is overdue, or `held_s` seconds after the newest, stay empty. Without this, series with long
    intervals would flicker at their end.
    """
    last_at, value, usual = series.last_at, series.last, series.interval_s
    if last_at is None or value is None or usual is None:
        return
    due_at = last_at + (LATE * usual if held_s is None else held_s)
    for age, mean in enumerate(reversed(means)):
        if mean is not None:
            return
        if (end_slot - age) * step < due_at:
            means[-1 - age] = value
