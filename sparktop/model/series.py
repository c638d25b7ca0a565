"""A history of one quantity: times and values, gaps kept as gaps."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

_EMPTY: array[float] = array("d")
_LATE = 1.75
"""Steps between two points up to which no point can be missing between them."""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """An immutable window on a history: seconds (monotonic) and values, ascending in time.

    It shares its arrays with the history that made it: those are only ever appended to, beyond `stop`, so
    taking a window costs nothing and nobody sees it change. A missing value is NaN inside and None outside.
    """

    _times: array[float] = field(default_factory=lambda: _EMPTY, repr=False)
    _values: array[float] = field(default_factory=lambda: _EMPTY, repr=False)
    _start: int = 0
    _stop: int = 0

    def __len__(self) -> int:
        return self._stop - self._start

    def __iter__(self) -> Iterator[tuple[float, float | None]]:
        for index in range(self._start, self._stop):
            value = self._values[index]
            yield self._times[index], None if math.isnan(value) else value

    @property
    def last(self) -> float | None:
        """The newest value; None when empty or missing."""
        if self._stop == self._start:
            return None
        value = self._values[self._stop - 1]
        return None if math.isnan(value) else value

    @property
    def last_at(self) -> float | None:
        """The time of the newest point, missing or not."""
        return self._times[self._stop - 1] if self._stop > self._start else None

    def since(self, time: float) -> Series:
        """The part at or after `time`."""
        index = bisect_left(self._times, time, self._start, self._stop)
        return Series(self._times, self._values, index, self._stop)

    def peak(self, since: float = -math.inf) -> float | None:
        """The largest value at or after `since`; None when there is none."""
        index = bisect_left(self._times, since, self._start, self._stop)
        best: float | None = None
        for value in self._values[index : self._stop]:
            if not math.isnan(value) and (best is None or value > best):
                best = value
        return best

    def slots(self, end: float, step: float, count: int) -> list[float | None]:
        """The mean value in each of `count` time slots of `step` seconds; the last one holds `end`.

        Slots lie on absolute multiples of `step`, so a point never moves to another slot as time goes on, and
        two series asked with the same arguments lie on one axis. A slot without a value is None, except
        where two values less than 1.75 steps apart fell left and right of it: then no sample is missing, one
        of them only came late, and the slot shows the value before it.
        """
        first_slot = math.floor(end / step) - count + 1
        sums = [0.0] * count
        hits = [0] * count
        low = bisect_left(self._times, first_slot * step, self._start, self._stop)
        high = bisect_right(self._times, (first_slot + count) * step, low, self._stop)
        before = -math.inf
        for index in range(low, high):
            time, value = self._times[index], self._values[index]
            slot = math.floor(time / step) - first_slot
            if 0 <= slot < count and not math.isnan(value):
                sums[slot] += value
                hits[slot] += 1
                if slot > 1 and not hits[slot - 1] and hits[slot - 2] and time - before < _LATE * step:
                    sums[slot - 1], hits[slot - 1] = sums[slot - 2], hits[slot - 2]
            before = -math.inf if math.isnan(value) else time
        return [total / n if n else None for total, n in zip(sums, hits, strict=True)]


class History:
    """The growing side of a `Series`: holds the newest `capacity` points."""

    def __init__(self, capacity: int = 900) -> None:
        """Make an empty history that keeps at least `capacity` points.

        900 points are 15 minutes at 1 Hz: more than the widest graph of a 200-column terminal shows.
        """
        self.capacity = capacity
        self._times: array[float] = array("d")
        self._values: array[float] = array("d")

    def append(self, time: float, value: float | None) -> None:
        """Add a point; None is a gap. A point not newer than the last one is dropped."""
        if self._times and time <= self._times[-1]:
            return
        if len(self._times) >= 2 * self.capacity:
            # New arrays instead of deleting in place: snapshots still look at the old ones.
            self._times = self._times[-self.capacity :]
            self._values = self._values[-self.capacity :]
        self._times.append(time)
        self._values.append(math.nan if value is None else value)

    def view(self) -> Series:
        """The newest `capacity` points as they stand now."""
        stop = len(self._times)
        return Series(self._times, self._values, max(0, stop - self.capacity), stop)


class HistoryTable:
    """Several histories that always get their points together: one array of times for all of them."""

    def __init__(self, names: Iterable[str], capacity: int = 900) -> None:
        """Make empty histories that keep at least `capacity` points each."""
        self.capacity = capacity
        self._times: array[float] = array("d")
        self._values: dict[str, array[float]] = {name: array("d") for name in names}

    def append(self, time: float, values: Mapping[str, float | None]) -> None:
        """Add one point to each; what `values` lacks is a gap. A time not newer than the last is dropped."""
        if self._times and time <= self._times[-1]:
            return
        if len(self._times) >= 2 * self.capacity:
            # New arrays instead of deleting in place: snapshots still look at the old ones.
            self._times = self._times[-self.capacity :]
            self._values = {name: column[-self.capacity :] for name, column in self._values.items()}
        self._times.append(time)
        for name, column in self._values.items():
            value = values.get(name)
            column.append(math.nan if value is None else value)

    def series(self) -> dict[str, Series]:
        """The newest `capacity` points of each as they stand now, by name."""
        stop = len(self._times)
        start = max(0, stop - self.capacity)
        return {name: Series(self._times, column, start, stop) for name, column in self._values.items()}
