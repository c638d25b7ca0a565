"""Horizontal axes of plots over a quantity other than time: positions of values, labels below the plot."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from msgspec import Struct

from sparktop.graphics.numbers import tick

_STEPS = (1.0, 2.0, 5.0)


class PlotAxis(Struct, frozen=True):
    """The horizontal axis of a plot that is `width` cells wide, from the value `low` to the value `high`."""

    low: float
    high: float
    width: int
    ratios: bool = False
    """Whether the axis is logarithmic: equal ratios of values have equal distances."""

    def place(self, value: float) -> float:
        """Return the horizontal position of `value`: 0 at the left edge, 1 at the right edge.

        Return 0 if the position cannot be computed, as for values up to 0 on a logarithmic axis.
        """
        if not self.high > self.low or (self.ratios and (value <= 0 or self.low <= 0)):
            return 0.0
        if self.ratios:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def cell(self, value: float) -> int:
        """Return the index of the cell that shows `value`.

        A value beyond an edge of the plot is shown in the cell at this edge.
        """
        return min(self.width - 1, max(0, math.floor(self.place(value) * self.width)))

    def value(self, place: float) -> float:
        """Return the value at a horizontal position between 0 (left edge) and 1 (right edge)."""
        if self.ratios:
            return self.low * math.exp(place * math.log(self.high / self.low))
        return self.low + (self.high - self.low) * place

    def columns(self, points: Sequence[float], values: Sequence[float]) -> list[float | None]:
        """Return a value for each of the 2 * `width` dot columns of a plot of `values` at `points`.

        A column with several points has the value that is furthest from 0. A column between two points has
        the value of the nearer point, which may lie beyond the edge of the axis. A column before the first or
        after the last point has None. `points` ascend.
        """
        count = 2 * self.width
        result: list[float | None] = [None] * count
        for point, value in zip(points, values, strict=True):
            column = math.floor(self.place(point) * count)
            if point == self.high:
                column = count - 1
            if 0 <= column < count:
                before = result[column]
                result[column] = value if before is None or abs(value) > abs(before) else before
        if len(points):
            for column, there in enumerate(result):
                if there is None:
                    result[column] = self._nearest(points, values, (column + 0.5) / count)
        return result

    def _nearest(self, points: Sequence[float], values: Sequence[float], place: float) -> float | None:
        wanted = self.value(place)
        if wanted < points[0] or wanted > points[-1]:
            return None
        after = bisect_left(points, wanted)
        before = max(0, after - 1)
        nearer = before if wanted - points[before] < points[after] - wanted else after
        return values[nearer]

    def labels(self) -> str:
        """Return the row of labels below the plot: round numbers, `width` cells."""
        return labelled([(value, tick(value)) for value in self._round_numbers()], self)

    def _round_numbers(self) -> list[float]:
        if not self.high > self.low:
            return [self.low]
        if self.ratios:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            found = [step * 10.0**power for power in range(first, last + 1) for step in _STEPS]
            return [value for value in found if self.low <= value <= self.high]
        wanted = (self.high - self.low) / max(1, self.width // 8)
        power = math.floor(math.log10(wanted))
        step = next(
            factor * 10.0**exponent
            for exponent in (power, power + 1)
            for factor in _STEPS
            if factor * 10.0**exponent >= wanted
        )
        first = math.ceil(self.low / step)
        return [step * index for index in range(first, math.floor(self.high / step) + 1)]


def labelled(places: Sequence[tuple[float, str]], axis: PlotAxis) -> str:
    """Return a row of text with each label of `places`, (value, label), centred on the cell of its value.

    A label that would touch an earlier label is omitted.
    """
    return _row([(axis.cell(value) - (len(word) - 1) // 2, word) for value, word in places], axis.width)


def pointed(places: Sequence[tuple[float, str]], axis: PlotAxis) -> str:
    """Return a row of text with each label of `places`, (value, label), starting in the cell of its value.

    A label that would touch an earlier label is omitted.
    """
    return _row([(axis.cell(value), word) for value, word in places], axis.width)


def _row(words: Sequence[tuple[int, str]], width: int) -> str:
    row = " " * width
    for wanted, word in words:
        start = min(width - len(word), max(0, wanted))
        end = start + len(word)
        if start >= 0 and not row[max(0, start - 1) : end + 1].strip():
            row = row[:start] + word + row[end:]
    return row
