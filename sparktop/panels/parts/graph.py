"""Graphs over time as rows of text: means by time slot, one graph, a grid of them, a full-screen view."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

from msgspec import Struct

from sparktop.colors.palette import LEVELS
from sparktop.graphics import numbers
from sparktop.graphics.axes import NOW, ScaleTop, nice_ceiling, time_axis
from sparktop.graphics.braille import area, clipped_cells, draw_mirrored, draw_stacked
from sparktop.graphics.cells import cell_width, fit
from sparktop.model.series import LATE, Series
from sparktop.panels.parts.figures import ViewSection, label, stack
from sparktop.panels.parts.text import (
    Row,
    Run,
    fit_row,
    graph_columns,
    graph_starts,
    merge_runs,
    row_text,
    row_width,
    shorten_piece,
    side_by_side,
    spread_row,
)

_BEFORE = 8
"""Number of slots read before the first one, to learn how far apart samples usually are."""

Slots = list[float | None]


def held_slots(table: Sequence[Series], end_slot: int, step: float, count: int) -> list[Slots]:
    """Return for each series its means in `count` time slots of `step` seconds, up to slot number `end_slot`.

    All series must have samples at the same times, as those of a `HistoryTable` do. Slots begin at multiples
    of `step`, so that series share a time axis. The polling interval may have changed over time: an empty
    slot between two samples gets the value of the slot before, unless these samples are much further apart
    than each of them is from its other neighbour: then a poll was missed.
    """
    first_slot = end_slot - count + 1
    arrays = [series.arrays((first_slot - _BEFORE) * step) for series in table]
    times, _ = arrays[0]
    filled, gaps = _filled_and_gaps(tuple(times), first_slot, end_slot, step)
    slots_of_all: list[Slots] = []
    for _, values in arrays:
        # Most slots have one sample or none, so that their mean needs no sum.
        is_known = math.isfinite(sum(values))
        finite = values if is_known else [value if math.isfinite(value) else None for value in values]
        means: Slots = [None] * count
        for slot, start, end in filled:
            means[slot] = finite[start] if end - start == 1 else _mean_of_finite(values[start:end])
        for slot, end, column in gaps:
            if math.isfinite(values[column - 1]) and math.isfinite(values[column]):
                means[slot:end] = [means[slot - 1] if slot else values[column - 1]] * (end - slot)
        slots_of_all.append(means)
    return slots_of_all


@lru_cache(maxsize=32)  # most series of a picture share their times with others
def _filled_and_gaps(
    times: tuple[float, ...], first_slot: int, end_slot: int, step: float
) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
    """Return (slot, first sample, sample after it) of each slot that has samples, and the gaps between them.

    A gap is (first slot, slot after, next sample).
    """
    places = [bisect_left(times, slot * step) for slot in range(first_slot, end_slot + 2)]
    # At the left edge the sample before a gap may lie off the graph, so the gap may start in slot 0.
    gaps = [
        (bisect_left(places, column), bisect_right(places, column) - 1, column)
        for column in {a for a, b in pairwise(places) if a == b}
        if 0 < column < len(times) and column < places[-1] and _is_usual_gap(times, column)
    ]
    filled = [(slot, start, end) for slot, (start, end) in enumerate(pairwise(places)) if start < end]
    return filled, gaps


def _mean_of_finite(values: Sequence[float]) -> float | None:
    """Return the mean of those values that are known; None if none is."""
    total = sum(values)
    if not math.isfinite(total):
        values = [value for value in values if math.isfinite(value)]
        total = sum(values)
    return total / len(values) if values else None


def _is_usual_gap(times: Sequence[float], after: int) -> bool:
    gap_s = times[after] - times[after - 1]
    before = times[after - 1] - times[after - 2] if after > 1 else 0.0
    behind = times[after + 1] - times[after] if after + 1 < len(times) else 0.0
    return gap_s < LATE * max(before, behind)


def hold_last(means: Slots, series: Series, end_slot: int, step: float, held_s: float | None = None) -> None:
    """Fill the empty time slots at the end of `means` with the newest value until its next sample is due.

    `means` has the values of `series` by time slot, up to slot number `end_slot`. Slots that begin after the
    next sample is overdue, or `held_s` seconds after the newest, stay empty. Without this, series with long
    intervals would flicker at their end.
    """
    last_at, value, usual_interval_s = series.last_at, series.last, series.interval_s
    if last_at is None or value is None or usual_interval_s is None:
        return
    due_at = last_at + (LATE * usual_interval_s if held_s is None else held_s)
    for age, mean in enumerate(reversed(means)):
        if mean is not None:
            return
        if (end_slot - age) * step < due_at:
            means[-1 - age] = value


_SELDOM = 1.9
"""Least number of time slots between the samples of a series that is computed for pairs of slots."""


_DOT_ROWS = (0xC0, 0x24, 0x12, 0x09)
"""Bits of the dots in each row of a braille cell, from the bottom up."""


def _chars_with_top_dot(row: int) -> str:
    """Return the braille characters whose highest dot is in the row of dots `row`; 0 is the lowest."""
    above = sum(_DOT_ROWS[row + 1 :])
    return "".join(chr(0x2800 + bits) for bits in range(256) if bits & _DOT_ROWS[row] and not bits & above)


LEAST_TPS = 10.0
LEAST_LOAD = 4.0
"""Least tops of the scales of token rates and of requests: noise of an idle server stays low."""
CLIPPED = "↑"
"""Highest cell of a column of a graph with a value above the end of the scale."""
_BY_HEIGHT = re.compile(
    "|".join(f"([{' ' if row == 0 else ''}{_chars_with_top_dot(row)}]+)" for row in range(4))
)
"""Matches cells of one height; the number of the group is the row of their highest dot, from the bottom."""


class TimeAxis:
    """The time axis of several graphs: the time at the right edge, and the seconds per dot column."""

    __slots__ = ("_read", "end", "end_label", "step")

    def __init__(self, end: float, step: float, end_label: str = NOW) -> None:
        """End at `end`, in monotonic seconds, with time slots of `step` seconds, one per dot column.

        A cell is two dot columns wide. `end_label` names the end below graphs.
        """
        self.end, self.step, self.end_label = end, step, end_label
        self._read: dict[tuple[Series, int], list[float | None]] = {}
        """Values by series and width: scales and graphs of the same series are computed only once."""

    @property
    def end_slot(self) -> int:
        """Number of the newest time slot; slot 0 begins at time 0 of the monotonic clock."""
        return int(self.end // self.step)

    def slots_in(self, width: int) -> int:
        """Return how many time slots `width` cells show.

        A cell shows two slots, an even one and the next, so the newest cell may show only one slot.
        """
        return 2 * width - (1 - self.end_slot % 2)

    def values(self, series: Series, width: int) -> list[float | None]:
        """Return the means of `series` in the time slots that `width` cells show; None where unknown.

        A value holds until the next sample is due.
        """
        cached = self._read.get((series, width))
        if cached is None:
            cached = _slot_means(series, self.end_slot, self.step, self.slots_in(width))
            self._read[series, width] = cached
        return cached

    def span_s(self, width: int) -> float:
        """Return the seconds that `width` cells show."""
        return 2 * width * self.step


def newest_axis(now: float, step: float, series: Sequence[Series], end_label: str = NOW) -> TimeAxis:
    """Return a time axis that ends at the newest sample of any of `series`; `step` is in s per dot column.

    If it ended at the present, the newest column would be empty and flicker until a poll is answered. It
    ends at the present only if samples have been missing for long.
    """
    newest = max((s.last_at for s in series if s.last_at is not None), default=now)
    return TimeAxis(newest if now - newest < 3 * step else now, step, end_label)


def _slot_means(series: Series, end_slot: int, step: float, count: int) -> list[float | None]:
    """Return the means of `series` in `count` time slots of `step` seconds, up to slot number `end_slot`."""
    usual_interval_s = series.interval_s
    if usual_interval_s is not None and usual_interval_s >= _SELDOM * step:
        # Most single slots of such a series are empty: pairs of slots cost half as much to compute.
        odd = end_slot % 2
        pairs = _slot_means(series, end_slot // 2, 2 * step, count // 2 + 1)
        slots = [value for value in pairs for _ in range(2)]
        return slots[len(slots) - count - 1 + odd : len(slots) - 1 + odd]
    means = held_slots((series,), end_slot, step, count)[0]
    hold_last(means, series, end_slot, step)
    return means


class TimeWindow:
    """The time that all graphs of the board show, however wide they are: narrow graphs have longer slots."""

    __slots__ = ("_axes", "end", "end_label", "span_s")

    def __init__(self, end: float, span_s: float, end_label: str = NOW) -> None:
        """End at `end`, in monotonic seconds, `span_s` seconds from the left to the right edge of a graph.

        `end_label` names the end below graphs.
        """
        self.end, self.span_s, self.end_label = end, span_s, end_label
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
        rows = [_row_by_height(lines[0], gradient)]
    else:
        rows = [[(line, row_role(gradient, index, height))] for index, line in enumerate(lines)]
    return clip_marked(rows, clipped_cells(values, width, top, end_slot=end_slot))


def clip_marked(rows: list[Row], cells: Sequence[int]) -> list[Row]:
    """Return the rows of a graph with the mark of a clipped value in `cells` of the first row."""
    if not cells or not rows:
        return rows
    before_mark: Row = []
    position = 0
    for text, role in rows[0]:
        chars = list(text)
        for cell in cells:
            if position <= cell < position + len(chars):
                chars[cell - position] = CLIPPED
        before_mark.append(("".join(chars), role))
        position += len(chars)
    return [before_mark, *rows[1:]]


def _row_by_height(line: str, gradient: str) -> Row:
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
    by_height: bool = True,
) -> list[Row]:
    """Draw the curve `upper` stacked on the curve `lower`, as `height` rows of `width` cells.

    The scale goes from 0 to `top`. The upper curve has sparser dots, so that the curves differ in more
    than colour. `end_slot` is the number of the newest value's time slot. `by_height` is whether the colour
    of a cell in a single row depends on its height.
    """
    rows: list[Row] = []
    drawn = draw_stacked(lower, upper, width, height, top, end_slot=end_slot)
    if height == 1 and by_height:
        band_gradients = (*gradients, gradients[0])
        rows = [[run for text, layer in drawn[0] for run in _row_by_height(text, band_gradients[layer])]]
    for index, runs in enumerate(() if rows else drawn):
        roles = (row_role(gradients[0], index, height), row_role(gradients[1], index, height), "text")
        rows.append(merge_runs((text, roles[layer]) for text, layer in runs))
    totals = [(a or 0.0) + (b or 0.0) for a, b in zip(lower, upper, strict=True)]
    return clip_marked(rows, clipped_cells(totals, width, top, end_slot=end_slot))


def top_words(top: ScaleTop) -> str:
    """Return the label of a graph's scale: "0–40", or "0–40, peak 250" if it clips a spike."""
    end = scale_words(numbers.tick(top.end))
    return end if top.highest is None else f"{end}, peak {numbers.tick(top.highest)}"


def scale_words(end: str) -> str:
    """Return the label of a scale from 0 to `end`; `end` alone would read as a value."""
    return f"0–{end}"


def caption(label: Sequence[Run], top: str, width: int, *shorter: Sequence[Run]) -> Row:
    """Return the row above a graph: `label` at the left, and its scale `top` at the right.

    Where both do not fit, the first of the labels `shorter` that fits replaces `label`. If none fits, the
    peak is left out, then the last parts of the last label, then the scale's lower end.
    """
    for scale in (top, top.partition(", ")[0]):
        for words in (label, *shorter):
            if row_width(words) + 1 + cell_width(scale) <= width:
                return spread_row(words, [(scale, "muted")], width)
    top = top.partition(", ")[0]
    words = list((shorter or (label,))[-1])
    while len(words) > 1 and row_width(words) + 1 + cell_width(top) > width:
        words.pop()
    end = top if row_width(words) + 1 + cell_width(top) <= width else top.removeprefix(scale_words(""))
    return spread_row(words, [(end, "muted")], width)


def with_time_axis(
    rows: list[Row], width: int, window: TimeWindow, role: str, text: Sequence[Run] = ()
) -> list[Row]:
    """Return a framed panel whose lower edge has the labels of the time axis below each graph.

    `rows` are the rows of the panel, `width` cells wide, and `role` is the colour of the edge. `text` stands
    at the left of the edge, as it does in `rows`, and may be shortened (`beside_time_axis`). Where there is
    no room for the labels, the rows stay as they are.
    """
    edge_parts = beside_time_axis(width, text)
    if edge_parts is None:
        return rows
    starts, shown_text = edge_parts
    graph_width, left = graph_columns(width)[1], starts[0] - 1
    edge: Row = [("╰─", role), *shown_text]
    edge.append(("─" * (left - row_width(edge)), role))
    for start, end in zip(starts, (*starts[1:], width), strict=True):
        edge.append(("─", role))
        edge += _axis_runs(time_axis(graph_width, window.span_s / (2 * graph_width), window.end_label), role)
        edge.append(("─" * (end - start - graph_width - 1) if end < width else "─╯", role))
    return [*rows[:-1], edge]


_WITHIN_SENTENCE = re.compile(r" [^·(]")
"""Matches what follows the beginning of a sentence, but not a further piece or brackets."""


def beside_time_axis(width: int, text: Sequence[Run]) -> tuple[tuple[int, ...], Row] | None:
    """Return (first cells of the graphs with labels, `text`) for the lower edge of a panel with a time axis.

    If the text is longer than the part before the graphs, it takes the place of the first graph's labels:
    those of the second are the same. Return None without a graph, or if the text would still be cut within a
    sentence.
    """
    starts = graph_starts(width)
    if len(starts) > 1 and row_width(text) > starts[0] - 4:
        starts = starts[1:]
    shortened = shorten_piece(text, starts[0] - 4) if text and starts else []
    kept, whole = row_text(shortened).rstrip(), row_text(text).rstrip()
    rest = whole.removeprefix(kept) if whole.startswith(kept) else ""
    is_cut = ("…" in kept and "…" not in whole) or _WITHIN_SENTENCE.match(rest)
    return None if is_cut or not starts else (starts, shortened)


def _axis_runs(labels: str, role: str) -> Row:
    """Return the labels of a time axis as styled text, with a line in the colour `role` between them."""
    return [
        (text if text.strip() else "─" * len(text), "muted" if text.strip() else role)
        for text in re.findall(r"\S+(?: \S+)*|\s+", labels)
    ]


GRAPH_HEIGHT = 6
"""Least height in rows of a graph with its caption, where there is room for more than one."""
GRAPH_WIDTH = 26
"""Least width in cells of a graph, where there is room for more than one."""
WIDE_GRAPH = 34
"""Least width in cells of each of three or more graphs side by side."""


class Graph(Struct, frozen=True):
    """A graph of one or two time series: its caption, its scale and its colours."""

    words: Sequence[Run]
    series: Series
    gradient: str
    edge: Callable[[float], str] = lambda top: numbers.count(top, 5).strip()
    """Formats the value of the graph's upper edge, with its unit if the caption has none."""
    least: float = 1.0
    """The lowest value that the upper edge may have; with `fixed`, the upper edge itself."""
    fixed: bool = False
    over: Series | None = None
    """A second series: above the first one in sparser dots, or below the centre line with `mirror`."""
    over_gradient: str = ""
    over_holds_both: bool = False
    """True if values of `over` include those of the first series (p95 over p50), so only the excess is
    stacked."""
    mirror: bool = False
    empty: str = "–"
    """Text shown in the middle while no value is known."""

    def rows(self, width: int, height: int, axis: TimeAxis) -> list[Row]:
        """Draw the graph and its caption as exactly `height` rows of `width` cells."""
        values = axis.values(self.series, width)
        over = axis.values(self.over, width) if self.over is not None else [None] * len(values)
        if self.over_holds_both:
            over = [
                None if b is None else max(0.0, b - (a or 0.0)) for a, b in zip(values, over, strict=True)
            ]
        top = self._scale_top(values, over)
        is_known = any(value is not None for value in (*values, *over))
        head = caption(self.words, scale_words(self.edge(top)) if is_known else "", width)
        tall = height - 1
        if not is_known:
            return [head, *empty_rows(self.empty, width, tall)]
        roles = (self.gradient, self.over_gradient)
        if self.mirror:
            lines = draw_mirrored(values, over, width, tall, top, end_slot=axis.end_slot)
            return [head, *([(line, mirror_role(roles, row, tall))] for row, line in enumerate(lines))]
        if self.over is None:
            return [head, *area_rows(values, width, tall, top, self.gradient, end_slot=axis.end_slot)]
        return [head, *stacked_rows(values, over, width, tall, top, roles, end_slot=axis.end_slot)]

    def _scale_top(self, values: Sequence[float | None], over: Sequence[float | None]) -> float:
        if self.fixed:
            return self.least
        if self.mirror:
            peak = max((value for value in (*values, *over) if value), default=0.0)
        else:
            peak = max(((a or 0.0) + (b or 0.0) for a, b in zip(values, over, strict=True)), default=0.0)
        return nice_ceiling(peak, self.least)


def percent_graph(words: Sequence[Run], series: Series, gradient: str, edge: str = "100 %") -> Graph:
    """Return a graph with a fixed scale from 0 to 100; `edge` is the text for its upper edge."""
    return Graph(words, series, gradient, lambda _: edge, 100.0, fixed=True)


def mirror_role(gradients: tuple[str, str], row: int, height: int) -> str:
    """Return the role (colour name) of a row of a mirrored graph, by its distance from the centre line.

    `gradients` are those of the rows above and below the line.
    """
    far = abs(2 * row + 1 - height) / max(1, height - 1)
    above, below = gradients
    return f"{below if 2 * row >= height else above}/{round(far * (LEVELS - 1))}"


def empty_rows(word: str, width: int, height: int) -> list[Row]:
    """Return `height` rows of `width` cells with `word` in the middle."""
    rows: list[Row] = [fit_row((), width) for _ in range(height)]
    if rows:
        rows[len(rows) // 2] = [(fit(word, width, "center"), "muted")]
    return rows


def grid_columns(width: int) -> int:
    """Return how many graphs fit side by side into `width` cells."""
    for count in (4, 3):
        if width >= count * WIDE_GRAPH + count - 1:
            return count
    return 2 if width >= 2 * GRAPH_WIDTH + 1 else 1


def grid_rows(graphs: Sequence[Graph], width: int, height: int, axis: TimeAxis) -> list[Row]:
    """Draw the graphs in a grid of exactly `height` rows of `width` cells, the most important graph first.

    Graphs are left out if they would make the other graphs lower than `GRAPH_HEIGHT`, or would fill less
    than half of the grid's last row.
    """
    if height < 2 or not graphs:
        return [fit_row((), width) for _ in range(height)]
    columns = min(grid_columns(width), len(graphs))
    full, left_over = divmod(len(graphs), columns)
    bands = max(1, min(full + (1 if 2 * left_over >= columns else 0), (height - 1) // GRAPH_HEIGHT))
    rows_each, low = divmod(height - 1, bands)
    cells = (width - columns + 1) // columns
    rows: list[Row] = []
    for band in range(bands):
        band_height = rows_each + (1 if band < low else 0)
        drawn = [
            graph.rows(cells, band_height, axis) for graph in graphs[band * columns : (band + 1) * columns]
        ]
        rows += side_by_side(drawn, [cells] * len(drawn), 1)
    labels: list[Row] = [[label(time_axis(cells, axis.step, axis.end_label))]]
    rows += side_by_side([labels] * columns, [cells] * columns, 1)
    return [fit_row(row, width) for row in rows]


NARROW_COLUMN = 46
WIDE_COLUMN = 54
"""Width in cells of the column of values beside graphs, on a wide screen."""
ASIDE_WIDTH = 60
"""Least width in cells of each section, where several stand side by side below the graphs."""
_WIDE_FROM = 100
_ABOVE_GRAPHS = 2
"""Number of sections above the graphs, where graphs have no column of their own."""
_LEAST_GRAPHS = 2 * GRAPH_HEIGHT + 1
"""Least height in rows of the graphs where sections stand below them."""


def column_width(width: int) -> int:
    """Return the width in cells of the column of values on a full-screen view of `width` cells.

    If no graph fits beside the column, it is as wide as the frame's inside.
    """
    inner = width - 3
    if width >= _WIDE_FROM:
        return WIDE_COLUMN
    return NARROW_COLUMN if inner - NARROW_COLUMN - 2 >= GRAPH_WIDTH else inner


Aside = Callable[[int], Sequence[ViewSection]]
"""Returns the sections that stand below the graphs, each for a width in cells."""


def _aside_rows(aside: Aside, beside: int) -> list[Row]:
    """Return rows with the sections of `aside`, side by side where there is room.

    `beside` is the width of the rows in cells.
    """
    columns = max(1, min(len(aside(beside)), (beside + 2) // (ASIDE_WIDTH + 2)))
    column_width = (beside - 2 * (columns - 1)) // columns
    sections = aside(column_width)
    stacks = [stack(sections[start::columns], column_width, 0) for start in range(columns)]
    return [fit_row(row, beside) for row in side_by_side(stacks, [column_width] * columns)]


def detail_rows(
    lead: Sequence[Row],
    sections: Sequence[ViewSection],
    graphs: Sequence[Graph],
    width: int,
    height: int,
    axis: TimeAxis,
    *,
    aside: Aside = lambda _: (),
    foot: Sequence[Row] = (),
) -> list[Row]:
    """Return the rows inside the frame of a full-screen view, which is `width` x `height` cells in size.

    The most important sections and graphs come first. `lead` and `foot` stand above and below everything, as
    wide as the frame; `aside` below the graphs where these are wide enough, else after `sections`. There are
    more rows if the content needs them.
    """
    inner = width - 3
    room, column = height - 2 - len(lead) - len(foot), column_width(width)
    if column == inner:
        bands = -(-min(4, len(graphs)) // grid_columns(inner))
        drawn = grid_rows(graphs, inner, bands * GRAPH_HEIGHT + 1, axis)
        first, rest = sections[:_ABOVE_GRAPHS], sections[_ABOVE_GRAPHS:]
        body = [*stack(first, inner, 0), *drawn, *stack([*rest, *aside(inner)], inner, 0)]
    else:
        beside = inner - column - 2
        below = beside >= NARROW_COLUMN and column == WIDE_COLUMN
        under = _aside_rows(aside, beside) if below else []
        left = stack([*sections, *(() if below else aside(column))], column, room)
        body_height = max(room, len(left), len(under) + _LEAST_GRAPHS)
        right = [*grid_rows(graphs, beside, body_height - len(under), axis), *under]
        body = side_by_side([left, right], [column, beside])
    fitted = [*(fit_row(row, inner) for row in lead), *body, *(fit_row(row, inner) for row in foot)]
    return [[(" ", "text"), *row] for row in fitted]
