"""Time series with gaps: `HistoryTable` stores points, and `Series` is an immutable part of a series.

Points are stored once, in pages that all snapshots share, so that a snapshot kept for half an hour costs few
bytes for its histories.

Also means, sums and extremes of values of which some are unknown.
"""

from __future__ import annotations

import math
import zlib
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from statistics import median
from typing import Any, TypeVar

from msgspec import Struct

Number = TypeVar("Number", int, float)
Timed = TypeVar("Timed", bound=tuple[Any, ...])
_FLOAT_BYTES = 8
"""Bytes of a number of double precision."""
_UNPACKED = 512
"""Packed columns that are kept unpacked after they were read: those that a screen shows."""
_REPEATED = 0.6
"""A column is compressed if at most this share of its values differ: others would hardly take less."""


class Block:
    """Successive points of all series of a table: an array of times, and an array of values per series.

    Only the newest page of a table grows. All others are packed without loss.
    """

    __slots__ = ("_columns",)

    def __init__(self, arrays: Sequence[array[float]]) -> None:
        """Use these arrays, first the times in monotonic seconds; all have equal lengths."""
        self._columns: list[array[float] | bytes] = [*arrays]

    def __len__(self) -> int:
        return len(self._columns[0])

    def column(self, index: int) -> array[float]:
        """Return the times (place 0), or the values of the series with this place in the table."""
        column = self._columns[index]
        return _unpack(column) if isinstance(column, bytes) else column

    @property
    def arrays(self) -> list[array[float]]:
        """The array of times and the arrays of values, in the order of the table's names."""
        return [self.column(index) for index in range(len(self._columns))]

    @property
    def times(self) -> array[float]:
        """The times of the points in monotonic seconds, ascending."""
        return self.column(0)

    def is_gap(self, row: int) -> bool:
        """Return whether every series has a gap at this point."""
        return all(math.isnan(column[row]) for column in self.arrays[1:])

    def pack(self) -> None:
        """Store the values in fewer bytes, about a third; no point may be appended any more.

        The times stay as they are, because every reader searches in them.
        """
        times, *values = self._columns
        self._columns = [times[:], *map(_pack_column, values)]


def _pack_column(column: array[float] | bytes) -> array[float] | bytes:
    """Return a column in fewer bytes: shared if constant, in single precision if exact, or compressed."""
    if isinstance(column, bytes) or column.typecode != "d":
        return column  # packed before
    raw = column.tobytes()
    if raw == raw[:_FLOAT_BYTES] * len(column):
        return _constant_column(raw[:_FLOAT_BYTES], len(column))
    single = array("f", column)
    if array("d", single).tobytes() == raw:
        return single
    if len(set(array("q", raw))) > _REPEATED * len(column):
        return column[:]
    return _compress(raw)


def _compress(raw: bytes) -> bytes:
    # Equal bytes of neighbouring numbers side by side compress to half of what whole numbers do.
    return zlib.compress(b"".join(raw[offset::_FLOAT_BYTES] for offset in range(_FLOAT_BYTES)), 1)


@lru_cache(_UNPACKED)
def _constant_column(raw: bytes, length: int) -> array[float]:
    return array("d", raw * length)


@lru_cache(_UNPACKED)
def _unpack(data: bytes) -> array[float]:
    """Return a compressed column."""
    shuffled = zlib.decompress(data)
    raw, length = bytearray(len(shuffled)), len(shuffled) // _FLOAT_BYTES
    for offset in range(_FLOAT_BYTES):
        raw[offset::_FLOAT_BYTES] = shuffled[offset * length : (offset + 1) * length]
    return array("d", bytes(raw))


LATE = 1.75
"""While a gap is shorter than this multiple of the usual interval, its sample is late, not missing."""
_PAGES = 4
"""A full history has this many pages, and up to one more."""


class Series(Struct, frozen=True, eq=False):
    """An immutable part of a time series: times in monotonic seconds, ascending, and values.

    It shares the pages of the `HistoryTable` that made it. The table only appends to the newest page, or
    replaces pages by new ones, so that a `Series` costs no copy and never changes. A missing value is NaN in
    the pages, and None in what the methods return unless stated otherwise.
    """

    _pages: tuple[Block, ...] = ()
    column: int = 1
    """Place of the values in the arrays of a page: the identity of the series in its pages."""
    _start: int = 0
    """Place of the first point, counted from the begin of the first page."""
    _stop: int = 0

    def __len__(self) -> int:
        return self._stop - self._start

    def __iter__(self) -> Iterator[tuple[float, float | None]]:
        times, values = self.arrays()
        for time, value in zip(times, values, strict=True):
            yield time, None if math.isnan(value) else value

    @property
    def last(self) -> float | None:
        """The newest value; None if it is missing or the series is empty."""
        if self._stop == self._start:
            return None
        value = self._value_at(self._stop - 1, self.column)
        return None if math.isnan(value) else value

    @property
    def first_at(self) -> float | None:
        """Time of the oldest point, even if its value is missing; None if the series is empty."""
        return self._value_at(self._start, 0) if self._stop > self._start else None

    @property
    def last_at(self) -> float | None:
        """Time of the newest point, even if its value is missing; None if the series is empty."""
        return self._value_at(self._stop - 1, 0) if self._stop > self._start else None

    @property
    def interval_s(self) -> float | None:
        """Seconds between the two newest points; None with fewer than two points."""
        if self._stop - self._start < 2:  # noqa: PLR2004 - an interval has two ends
            return None
        return self._value_at(self._stop - 1, 0) - self._value_at(self._stop - 2, 0)

    def since(self, time: float) -> Series:
        """Return a series of those points that are at or after `time`."""
        return Series(self._pages, self.column, self._index(time), self._stop)

    @property
    def clock(self) -> tuple[object, int, int]:
        """(Identity of the pages, place in them of the first point, place after the last point).

        Series with equal clocks have the same times.
        """
        return self._pages, self._start, self._stop

    def values(self, since: float = -math.inf) -> list[float]:
        """Return the values at or after `since` as a list; a missing value is NaN."""
        return self._values_from(self.column, self._index(since))

    def arrays(self, since: float = -math.inf) -> tuple[list[float], list[float]]:
        """Return (times, values) at or after `since` as two lists of equal length; a missing value is NaN.

        For computations over thousands of points: 30 times as fast as iterating over the series.
        """
        index = self._index(since)
        return self._values_from(0, index), self._values_from(self.column, index)

    def ends(self, since: float = -math.inf) -> tuple[float, float] | None:
        """Return (first value, last value) known at or after `since`; None if no value is known there."""
        index = self._index(since)
        if index >= self._stop:
            return None
        first, last = self._value_at(index, self.column), self._value_at(self._stop - 1, self.column)
        if math.isnan(first) or math.isnan(last):
            values = [value for value in self._values_from(self.column, index) if not math.isnan(value)]
            return (values[0], values[-1]) if values else None
        return first, last

    def peak(self, since: float = -math.inf) -> float | None:
        """Return the largest known value at or after `since`; None if no value is known there."""
        values = self.values(since)
        if math.isnan(sum(values)):
            values = [value for value in values if not math.isnan(value)]
        return max(values, default=None)

    def _value_at(self, index: int, column: int) -> float:
        for page in self._pages[:-1]:
            if index < len(page):
                return page.column(column)[index]
            index -= len(page)
        return self._pages[-1].column(column)[index]

    def _index(self, since: float) -> int:
        """Return the place of the first point at or after `since`."""
        if since == -math.inf:
            return self._start
        start = 0
        for page in self._pages:
            times = page.times
            if times and times[-1] >= since:
                return max(self._start, min(self._stop, start + bisect_left(times, since)))
            start += len(times)
        return self._stop

    def _values_from(self, column: int, start: int) -> list[float]:
        """Return the numbers of a column from the place `start` on."""
        result: list[float] = []
        stop = self._stop
        for page in self._pages:
            if start < len(page) and start < stop:
                result += page.column(column)[start:stop].tolist()
            start, stop = max(0, start - len(page)), stop - len(page)
            if stop <= 0:
                break
        return result


class HistoryTable:
    """Several time series, by name, that share one array of times.

    Each point has a value or a gap for every name.
    """

    def __init__(self, names: Iterable[str], capacity: int = 900, span_s: float = math.inf) -> None:
        """Create an empty series for each name; each keeps at least the newest `capacity` points.

        900 points are 15 minutes at 1 Hz, more than the widest graph of a 200-column terminal shows. Points
        older than `span_s` seconds need not be kept.
        """
        self.capacity = capacity
        self._span_s = span_s
        self._columns = {name: place for place, name in enumerate(dict.fromkeys(names), start=1)}
        self._page_points = max(1, capacity // _PAGES)
        self._pages: tuple[Block, ...] = (self._new_page(),)
        self._count = 0

    def __len__(self) -> int:
        """Return the number of points that are kept: `capacity` and up to a quarter more."""
        return self._count

    def append(self, time: float, values: Mapping[str, float | None]) -> None:
        """Append a point at `time` to every series; a name that is missing in `values` gets a gap.

        Do nothing if `time` is not newer than the last point.
        """
        arrays = self._pages[-1].arrays
        times = arrays[0]
        if times and time <= times[-1]:
            return
        if len(times) >= self._page_points or (times and time - times[0] > self._span_s / _PAGES):
            self._pages[-1].pack()
            page = self._new_page()
            self._pages = (*self._pages, page)
            arrays = page.arrays
        arrays[0].append(time)
        for name, index in self._columns.items():
            value = values.get(name)
            arrays[index].append(math.nan if value is None else value)
        self._count += 1
        self._trim()

    def insert(self, points: Sequence[tuple[float, Mapping[str, float | None]]], apart_s: float) -> None:
        """Insert points at their places in time, also between or before existing points.

        The points must be in ascending order. An existing point that has a value stays as it is, and points
        older than a full history are dropped. A gap is removed where the points on both sides of it are now
        at most `apart_s` seconds apart.
        """
        newest = self._pages[-1]
        first_at = points[0][0] if points else -math.inf
        if len(newest) and first_at > newest.times[-1] and not newest.is_gap(-1):
            for point in points:  # pictures share the newest page only as long as it is not replaced
                self.append(*point)
            return
        oldest = self._oldest_kept_at()
        late = [point for point in points if point[0] >= oldest]
        if late:
            self._insert_late(late, apart_s)

    def _insert_late(self, late: Sequence[tuple[float, Mapping[str, float | None]]], apart_s: float) -> None:
        """Insert points as `insert` does, one of which is not newer than all existing ones, or ends a gap.

        All pages from the first that changes are new ones, because snapshots still use the old ones.
        """
        late_at, _ = late[0]
        changed = self._first_changed_page(late_at)
        kept, rest = self._pages[:changed], self._join_pages(self._pages[changed:])
        before = kept[-1].times[-1] if kept else -math.inf
        start = bisect_left(rest.times, late_at)
        while start and rest.is_gap(start - 1):
            start -= 1
        rows = _merge_points(rest, start, late, apart_s, before)
        merged = [column[:start] for column in rest.arrays]
        merged[0].extend(time for time, _ in rows)
        for name, index in self._columns.items():
            old = rest.arrays[index]
            for _, row in rows:
                value = old[row] if isinstance(row, int) else row.get(name)
                merged[index].append(math.nan if value is None else value)
        size, length = self._page_points, len(merged[0])
        cuts = [[column[at : at + size] for column in merged] for at in range(0, length, size)]
        self._pages = (*kept, *(Block(arrays) for arrays in cuts))
        self._count = sum(len(page) for page in self._pages)
        self._trim()

    def series(self, *names: str) -> dict[str, Series]:
        """Return the newest points of each series, at most `capacity`, by name.

        Without `names`, return all series.
        """
        pages, stop = self._pages, self._count
        start = max(0, stop - self.capacity)
        return {name: Series(pages, self._columns[name], start, stop) for name in names or self._columns}

    def _new_page(self) -> Block:
        return Block([array("d") for _ in range(1 + len(self._columns))])

    def _oldest_kept_at(self) -> float:
        """Return the time of the oldest of the newest `capacity` points; -infinity if there are fewer."""
        if self._count < self.capacity:
            return -math.inf
        first_at = Series(self._pages, 1, self._count - self.capacity, self._count).first_at
        return -math.inf if first_at is None else first_at

    def _first_changed_page(self, since: float) -> int:
        """Return the place of the first page that changes if points from `since` on are inserted.

        A gap just before these points may end, so that the pages that it is in change too.
        """
        first = 0
        while first < len(self._pages) - 1 and self._pages[first].times[-1] < since:
            first += 1
        while first and self._pages[first - 1].is_gap(-1):
            first -= 1
        return first

    def _join_pages(self, pages: Sequence[Block]) -> Block:
        joined = self._new_page()
        for page in pages:
            for whole, part in zip(joined.arrays, page.arrays, strict=True):
                whole.extend(part.tolist())
        return joined

    def _trim(self) -> None:
        """Drop the oldest pages without which the history is complete."""
        dropped = 0
        while dropped < len(self._pages) - 1:
            page = self._pages[dropped]
            is_old = self._pages[-1].times[-1] - page.times[-1] > self._span_s
            if self._count - len(page) < self.capacity and not is_old:
                break
            self._count -= len(page)
            dropped += 1
        self._pages = self._pages[dropped:]


def _merge_points(
    page: Block,
    start: int,
    late: Sequence[tuple[float, Mapping[str, float | None]]],
    apart_s: float,
    before: float,
) -> list[tuple[float, int | Mapping[str, float | None]]]:
    """Return the points of a page from `start` on, merged with the points `late`, ascending in time.

    A point is (time, place of the existing point or values of the new point). Gaps between points that are at
    most `apart_s` seconds apart are left out. `before` is the time of the last point before the page.
    """
    times = page.times
    merged: dict[float, int | Mapping[str, float | None]] = dict(late)
    gaps: set[float] = set()
    for row in range(start, len(times)):
        time = times[row]
        if not page.is_gap(row):
            merged[time] = row
        elif time not in merged:
            merged[time] = row
            gaps.add(time)
    kept: list[tuple[float, int | Mapping[str, float | None]]] = []
    waiting: list[tuple[float, int | Mapping[str, float | None]]] = []
    before = times[start - 1] if start else before
    for time in sorted(merged):
        if time in gaps:
            waiting.append((time, merged[time]))
            continue
        if time - before > apart_s:
            kept += waiting
        waiting.clear()
        kept.append((time, merged[time]))
        before = time
    return kept + waiting


# Several series together. Their points lie at different times: they are compared in slots of equal length.


def _slot_means(series: Series, slots: range, step_s: float) -> dict[int, float]:
    by_slot: dict[int, list[float]] = {}
    for time, value in zip(*series.arrays((slots[0] - 1) * step_s), strict=True):
        slot = int(time // step_s)
        if slot > slots[-1]:
            break
        if not math.isnan(value):
            by_slot.setdefault(slot, []).append(value)
    values_of = {slot: by_slot.get(slot) or by_slot.get(slot - 1) for slot in slots}
    return {slot: sum(values) / len(values) for slot, values in values_of.items() if values}


def slot_values(
    each: Iterable[Series],
    slots: range,
    step_s: float,
    joined: Callable[[Iterable[float | None]], float | None],
) -> list[float | None]:
    """Return for each of `slots` what `joined` (such as `known_sum`) makes of the means of each series there.

    Slot n begins at n * `step_s` seconds. A series without a value in a slot counts with its mean of the slot
    before: its poll was late. It is left out of further slots, as servers that do not answer are.
    """
    means = [_slot_means(series, slots, step_s) for series in each]
    return [joined(by_slot.get(slot) for by_slot in means) for slot in slots]


# Means, sums and extremes of values of which some are unknown (None): None only where all are.


def known_values(values: Iterable[float | None]) -> list[float]:
    """Return the values that are known, in their order."""
    return [value for value in values if value is not None]


def known_mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values."""
    numbers = known_values(values)
    return sum(numbers) / len(numbers) if numbers else None


def known_sum(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values."""
    numbers = known_values(values)
    return sum(numbers) if numbers else None


def drop_older(samples: deque[Timed], at: float) -> None:
    """Remove the samples before the time `at` from the left; a sample is a tuple that begins with its own."""
    while samples:
        sample_at, *_ = samples[0]
        if sample_at >= at:
            return
        samples.popleft()


def sum_if_all_known(values: Iterable[Number | None]) -> Number | None:
    """Return the sum of the values; None where one is unknown, or there is none."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return sum(known) if known and len(known) == len(listed) else None


def known_median(values: Iterable[float | None]) -> float | None:
    """Return the median of the known values; None if there is none."""
    known = known_values(values)
    return median(known) if known else None


def known_max(values: Iterable[float | None]) -> float | None:
    """Return the highest of the known values."""
    return max(known_values(values), default=None)


def known_min(values: Iterable[float | None]) -> float | None:
    """Return the lowest of the known values."""
    return min(known_values(values), default=None)
