"""Axes of graphs: labels over time, positions of other quantities, and round upper ends."""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from msgspec import Struct

from sparktop.graphics.numbers import tick

_STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
_APART = 14
"""Least distance between the starts of two labels, in terminal cells."""
NOW = "now"
"""Label of the present on a time axis."""
_MINUTES_FROM_S = 120
_HOURS_FROM_S = 7200


def _label_step_s(cell_s: float) -> float:
    for step in _STEPS_S:
        if step >= _APART * cell_s:
            return step
    days = -(-_APART * cell_s // 86_400)
    return days * 86_400


def _ago_text(seconds: float, step_s: float) -> str:
    if step_s >= _HOURS_FROM_S:
        return f"−{seconds / 3600:g} h"
    if step_s >= _MINUTES_FROM_S:
        return f"−{seconds / 60:g} min"
    return f"−{seconds:g} s"


def time_axis(width_cells: int, seconds_per_slot: float, end: str = NOW) -> str:
    """Return the row of labels below a graph over time, such as "−120 s −60 s now"; `end` is the last one.

    The row has `width_cells` cells; each cell of the graph shows two time slots of `seconds_per_slot`. Each
    label is centred on the cell of its time. A label that would cross the left edge starts at that edge.
    """
    if width_cells < len(end):
        return " " * max(0, width_cells)
    cell_s = 2 * seconds_per_slot
    row = list(" " * (width_cells - len(end)) + end)
    if not cell_s > 0:
        return "".join(row)
    step = _label_step_s(cell_s)
    free_cells = width_cells - len(end) - 1
    ago = step
    while ago <= width_cells * cell_s:
        label = _ago_text(ago, step)
        # Not `round`: it rounds halves to even, so that equal distances would alternate.
        start = max(0, int(width_cells - ago / cell_s - len(label) / 2 + 0.5))
        if start + len(label) <= free_cells:
            row[start : start + len(label)] = label
            free_cells = start - 1
        ago += step
    return "".join(row)


_STEPS = (1.0, 2.0, 5.0)
"""Round steps within a power of ten."""


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

    def value(self, position: float) -> float:
        """Return the value at a horizontal position between 0 (left edge) and 1 (right edge)."""
        if self.ratios:
            return self.low * math.exp(position * math.log(self.high / self.low))
        return self.low + (self.high - self.low) * position

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
            for column, value_there in enumerate(result):
                if value_there is None:
                    result[column] = self._nearest_value(points, values, (column + 0.5) / count)
        return result

    def _nearest_value(
        self, points: Sequence[float], values: Sequence[float], position: float
    ) -> float | None:
        wanted_value = self.value(position)
        if wanted_value < points[0] or wanted_value > points[-1]:
            return None
        index_after = bisect_left(points, wanted_value)
        before = max(0, index_after - 1)
        nearer = before if wanted_value - points[before] < points[index_after] - wanted_value else index_after
        return values[nearer]

    def labels(self) -> str:
        """Return the row of labels below the plot: round numbers, `width` cells."""
        return centred_labels([(value, tick(value)) for value in self._round_numbers()], self)

    def _round_numbers(self) -> list[float]:
        """Return round numbers on the axis, about eight cells apart; on an axis of ratios 1, 2, 5, 10, ….."""
        if not self.high > self.low:
            return [self.low]
        if self.ratios:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            candidates = [step * 10.0**power for power in range(first, last + 1) for step in _STEPS]
            return [value for value in candidates if self.low <= value <= self.high]
        wanted_step = (self.high - self.low) / max(1, self.width // 8)
        power = math.floor(math.log10(wanted_step))
        step = next(
            factor * 10.0**exponent
            for exponent in (power, power + 1)
            for factor in _STEPS
            if factor * 10.0**exponent >= wanted_step
        )
        first = math.ceil(self.low / step)
        return [step * index for index in range(first, math.floor(self.high / step) + 1)]


def centred_labels(places: Sequence[tuple[float, str]], axis: PlotAxis) -> str:
    """Return a row of text with each label of `places`, (value, label), centred on the cell of its value.

    A label that would touch an earlier label is omitted.
    """
    return _labels_row(
        [(axis.cell(value) - (len(word) - 1) // 2, word) for value, word in places], axis.width
    )


def labels_from_cells(places: Sequence[tuple[float, str]], axis: PlotAxis) -> str:
    """Return a row of text with each label of `places`, (value, label), starting in the cell of its value.

    A label that would touch an earlier label is omitted.
    """
    return _labels_row([(axis.cell(value), word) for value, word in places], axis.width)


def _labels_row(words: Sequence[tuple[int, str]], width: int) -> str:
    row = " " * width
    for wanted_column, word in words:
        start = min(width - len(word), max(0, wanted_column))
        end = start + len(word)
        if start >= 0 and not row[max(0, start - 1) : end + 1].strip():
            row = row[:start] + word + row[end:]
    return row


_ROUND_STEPS = ("1", "1.5", "2", "2.5", "3", "4", "5", "6", "8", "10")
_MOST_TEXT = "1e308"
CLIPPED = 1.2
"""A value above this many times the upper end of its scale is marked as clipped."""
_SPIKE_SHARE = 0.02
"""Largest share of a graph's time slots that a spike takes: the scale follows the 98th percentile."""
_SPIKE_FROM = 20
"""Least number of known values of which one can be called a spike."""
_SPIKE_HEIGHT = 1.5
"""A spike is at least this many times as high as everything else."""


class ScaleTop(Struct, frozen=True):
    """The upper end of a scale, and the highest value where it lies above that end."""

    end: float
    highest: float | None = None
    """None unless graphs on this scale clip a spike."""


def nice_ceiling(value: float | None, minimum: float = 1.0) -> float:
    """Return the smallest round number that is at least `value` and at least `minimum`.

    Round numbers are 1, 1.5, 2, 2.5, 3, 4, 5, 6 or 8 times a power of ten. If `value` is None or NaN, only
    `minimum` counts. The result never exceeds the largest float.
    """
    least = minimum if math.isfinite(minimum) and minimum > 0 else 1.0
    least_top = least if value is None or math.isnan(value) else max(value, least)
    if least_top > float(_MOST_TEXT):
        return sys.float_info.max
    exponent = math.floor(math.log10(least_top))
    # Parsed from text, because products such as 10.0 ** -1 * 2.5 miss the nearest float.
    tops = (
        float(f"{step}e{power}") for power in (exponent - 1, exponent, exponent + 1) for step in _ROUND_STEPS
    )
    return next(top for top in tops if top >= least_top)


def top_without_spikes(lines: Iterable[Sequence[float | None]], minimum: float = 1.0) -> ScaleTop:
    """Return the common upper end of the scale of several graphs, each given by its values by time slot.

    A graph's highest 2 % of slots, and one more for a spike that lies across the edge of two slots, do not
    raise the scale if everything else is much lower. The two newest slots always count: what they show may
    last.
    """
    highest = lasting = 0.0
    for values in lines:
        positive = sorted([value for value in values if value is not None and value > 0])
        if not positive:
            continue
        filled = len(values) - values.count(None)
        spike = max(2, int(_SPIKE_SHARE * filled) + 1) if filled >= _SPIKE_FROM else 0
        usual_values = positive[: len(positive) - spike]
        newest = (value for value in values[-2:] if value is not None)
        lasting = max((lasting, *usual_values[-1:], *newest))
        highest = max(highest, positive[-1])
    if highest <= _SPIKE_HEIGHT * max(lasting, minimum):
        return ScaleTop(nice_ceiling(highest, minimum))
    end = nice_ceiling(lasting, minimum)
    return ScaleTop(end, highest) if highest > CLIPPED * end else ScaleTop(nice_ceiling(highest, minimum))


def widest_top(tops: Sequence[ScaleTop], minimum: float) -> ScaleTop:
    """Return the largest of several upper ends, and the highest value above it, if any."""
    end = max((top.end for top in tops), default=minimum)
    tops_above = [top.highest for top in tops if top.highest is not None and top.highest > end]
    return ScaleTop(end, max(tops_above, default=None))
