"""Draws live graphs as rows of text: a caption with the scale above braille dots, with a colour per row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

from sparktop.colors.palette import LEVELS
from sparktop.graphics import numbers
from sparktop.graphics.axes import Top, time_axis
from sparktop.graphics.braille import area, clipped_cells, stacked
from sparktop.graphics.cells import cell_width
from sparktop.model.series import Series
from sparktop.panels.parts.columns import graph_columns, graph_starts
from sparktop.panels.parts.frame import shortened
from sparktop.panels.parts.rows import Row, Run, merged, row_width, spread_row
from sparktop.panels.parts.slots import held_slots, hold_last

_SELDOM = 1.9
"""Least number of time slots between the samples of a series that is computed for pairs of slots."""


_DOT_ROWS = (0xC0, 0x24, 0x12, 0x09)
"""Bits of the dots in each row of a braille cell, from the bottom up."""


def _topmost(row: int) -> str:
    """Return the braille characters whose highest dot is in the row of dots `row`; 0 is the lowest."""
    above = sum(_DOT_ROWS[row + 1 :])
    return "".join(chr(0x2800 + bits) for bits in range(256) if bits & _DOT_ROWS[row] and not bits & above)


CLIPPED = "↑"
"""Highest cell of a column of a graph with a value above the end of the scale."""
_BY_HEIGHT = re.compile(f"([ {_topmost(0)}]+)|([{_topmost(1)}]+)|([{_topmost(2)}]+)|([{_topmost(3)}]+)")


class TimeAxis:
    """The time axis of several graphs: the time at the right edge, and the seconds per dot column."""

    __slots__ = ("_read", "end", "step")

    def __init__(self, end: float, step: float) -> None:
        """End at `end`, in monotonic seconds, with time slots of `step` seconds, one per dot column.

        A cell is two dot columns wide.
        """
        self.end, self.step = end, step
        self._read: dict[tuple[Series, int], list[float | None]] = {}
        """Values by series and width: scales and graphs of the same series are computed only once."""

    @property
    def end_slot(self) -> int:
        """Number of the newest time slot; slot 0 begins at time 0 of the monotonic clock."""
        return int(self.end // self.step)

    def values(self, series: Series, width: int) -> list[float | None]:
        """Return the means of `series` in the time slots that `width` cells show; None where unknown.

        A cell shows two slots, an even one and the next, so the newest cell may show only one slot. A value
        holds until the next sample is due.
        """
        cached = self._read.get((series, width))
        if cached is None:
            cached = _slots(series, self.end_slot, self.step, 2 * width - (1 - self.end_slot % 2))
            self._read[series, width] = cached
        return cached

    def span_s(self, width: int) -> float:
        """Return the seconds that `width` cells show."""
        return 2 * width * self.step


def newest_axis(now: float, step: float, series: Sequence[Series]) -> TimeAxis:
    """Return a time axis that ends at the newest sample of any of `series`; `step` is in s per dot column.

    If it ended at the present, the newest column would be empty and flicker until a poll is answered. It
    ends at the present only if samples have been missing for long.
    """
    newest = max((s.last_at for s in series if s.last_at is not None), default=now)
    return TimeAxis(newest if now - newest < 3 * step else now, step)


def _slots(series: Series, end_slot: int, step: float, count: int) -> list[float | None]:
    """Return the means of `series` in `count` time slots of `step` seconds, up to slot number `end_slot`."""
    usual = series.interval_s
    if usual is not None and usual >= _SELDOM * step:
        # Most single slots of such a series are empty: pairs of slots cost half as much to compute.
        odd = end_slot % 2
        pairs = _slots(series, end_slot // 2, 2 * step, count // 2 + 1)
        slots = [value for value in pairs for _ in range(2)]
        return slots[len(slots) - count - 1 + odd : len(slots) - 1 + odd]
    means = held_slots((series,), end_slot, step, count)[0]
    hold_last(means, series, end_slot, step)
    return means


class TimeWindow:
    """The time that all graphs of the board show, however wide they are: narrow graphs have longer slots."""

    __slots__ = ("_axes", "end", "span_s")

    def __init__(self, end: float, span_s: float) -> None:
        """End at `end`, in monotonic seconds, `span_s` seconds from the left to the right edge of a graph."""
        self.end, self.span_s = end, span_s
        self._axes: dict[int, TimeAxis] = {}

    def axis(self, width: int) -> TimeAxis:
        """Return the time axis of a graph of `width` cells, always the same object for a width."""
        if width not in self._axes:
            self._axes[width] = TimeAxis(self.end, self.span_s / (2 * width))
        return self._axes[width]


def row_role(gradient: str, row: int, height: int) -> str:
    """Return the role (colour name) of a graph's row, from the position of the row in `gradient`.

    Row 0 is at the top and has the last colour of the gradient.
    """
    if height < 2:
        return f"{gradient}/{LEVELS - 1}"
    return f"{gradient}/{round((LEVELS - 1) * (height - 1 - row) / (height - 1))}"


def area_rows(
    values: Sequence[float | None], width: int, height: int, top: float, gradient: str, *, end_slot: int
) -> list[Row]:
    """Draw `values` as a filled curve of `height` rows and `width` cells, on a scale from 0 to `top`.

    `end_slot` is the number of the newest value's time slot: two slots share a cell.
    """
    lines = area(values, width, height, top, end_slot=end_slot)
    if height == 1:
        rows = [_by_height(lines[0], gradient)]
    else:
        rows = [[(line, row_role(gradient, index, height))] for index, line in enumerate(lines)]
    return clip_marked(rows, clipped_cells(values, width, top, end_slot=end_slot))


def clip_marked(rows: list[Row], cells: Sequence[int], mark: str = CLIPPED) -> list[Row]:
    """Return the rows of a graph with the mark of a clipped value in `cells` of the first row."""
    if not cells or not rows:
        return rows
    first: Row = []
    at = 0
    for text, role in rows[0]:
        chars = list(text)
        for cell in cells:
            if at <= cell < at + len(chars):
                chars[cell - at] = mark
        first.append(("".join(chars), role))
        at += len(chars)
    return [first, *rows[1:]]


def _by_height(line: str, gradient: str) -> Row:
    """Return a graph of one row as styled text: the colour of a cell depends on its height, as in a bar."""
    return [
        (match.group(), f"{gradient}/{round((LEVELS - 1) * ((match.lastindex or 1) - 1) / 3)}")
        for match in _BY_HEIGHT.finditer(line)
    ]


def stacked_rows(
    lower: Sequence[float | None],
    upper: Sequence[float | None],
    width: int,
    height: int,
    top: float,
    gradients: tuple[str, str],
    *,
    end_slot: int,
) -> list[Row]:
    """Draw the curve `upper` stacked on the curve `lower`, as `height` rows of `width` cells.

    The scale goes from 0 to `top`. The upper curve has sparser dots, so that the curves differ in more
    than colour. `end_slot` is the number of the newest value's time slot.
    """
    rows: list[Row] = []
    drawn = stacked(lower, upper, width, height, top, end_slot=end_slot)
    if height == 1:
        named = (*gradients, gradients[0])
        rows = [[run for text, layer in drawn[0] for run in _by_height(text, named[layer])]]
    for index, runs in enumerate(drawn if height > 1 else ()):
        roles = (row_role(gradients[0], index, height), row_role(gradients[1], index, height), "text")
        rows.append(merged((text, roles[layer]) for text, layer in runs))
    totals = [(a or 0.0) + (b or 0.0) for a, b in zip(lower, upper, strict=True)]
    return clip_marked(rows, clipped_cells(totals, width, top, end_slot=end_slot))


def top_words(top: Top) -> str:
    """Return the label of the upper end of a graph's scale: "max 40", or "40 ↑ 250" if it clips a spike."""
    end = numbers.tick(top.end)
    return f"max {end}" if top.highest is None else f"{end} {CLIPPED} {numbers.tick(top.highest)}"


def caption(label: Sequence[Run], top: str, width: int, *shorter: Sequence[Run]) -> Row:
    """Return the row above a graph: `label` at the left, and `top`, the scale's upper end, at the right.

    Where both do not fit, the first of the labels `shorter` that fits replaces `label`, and the word "max" is
    left out of `top`. If none fits, the last parts of the last label are left out.
    """
    ends = (top, top.removeprefix("max "))
    for words, end in product((label, *shorter), ends):
        if row_width(words) + 1 + cell_width(end) <= width:
            return spread_row(words, [(end, "muted")], width)
    words = list((shorter or (label,))[-1])
    while len(words) > 1 and row_width(words) + 1 + cell_width(ends[-1]) > width:
        words.pop()
    return spread_row(words, [(ends[-1], "muted")], width)


def with_time_axis(
    rows: list[Row], width: int, window: TimeWindow, role: str, text: Sequence[Run] = ()
) -> list[Row]:
    """Return a framed panel whose lower edge has the labels of the time axis below each graph.

    `rows` are the rows of the panel, `width` cells wide, and `role` is the colour of the edge. `text` stands
    at the left of the edge. If it is longer than the part before the graphs, it takes the place of the first
    graph's labels: those of the second are the same.
    """
    starts = graph_starts(width)
    if not starts:
        return rows
    each = graph_columns(width)[1]
    if len(starts) > 1 and row_width(text) > starts[0] - 4:
        starts = starts[1:]
    left = starts[0] - 1
    edge: Row = [("╰─", role), *(shortened(text, left - 3) if text else ())]
    edge.append(("─" * (left - row_width(edge)), role))
    for start, end in zip(starts, (*starts[1:], width), strict=True):
        edge.append(("─", role))
        edge += _axis_runs(time_axis(each, window.span_s / (2 * each)), role)
        edge.append(("─" * (end - start - each - 1) if end < width else "─╯", role))
    return [*rows[:-1], edge]


def _axis_runs(labels: str, role: str) -> Row:
    """Return the labels of a time axis as styled text, with a line in the colour `role` between them."""
    return [
        (text if text.strip() else "─" * len(text), "muted" if text.strip() else role)
        for text in re.findall(r"\S+(?: \S+)*|\s+", labels)
    ]
