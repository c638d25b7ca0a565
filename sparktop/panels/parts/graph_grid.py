"""Draws a grid of small graphs on one time axis: a caption above each graph, the axis below each column."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from sparktop.colors.palette import LEVELS
from sparktop.graphics.axes import nice_ceiling, time_axis
from sparktop.graphics.braille import mirrored
from sparktop.graphics.cells import fit
from sparktop.model.series import Series
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.graph import TimeAxis, area_rows, caption, stacked_rows
from sparktop.panels.parts.rows import Row, Run, fit_row, row_width

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
    edge: Callable[[float], str]
    """Formats the value of the graph's upper edge with its unit."""
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
        top = self._top(values, over)
        known = any(value is not None for value in (*values, *over))
        head = caption(self.words, self._edge_words(top, width) if known else "", width)
        tall = height - 1
        if not known:
            return [head, *_empty_rows(self.empty, width, tall)]
        if self.mirror:
            lines = mirrored(values, over, width, tall, top, end_slot=axis.end_slot)
            return [head, *([(line, _mirror_role(self, row, tall))] for row, line in enumerate(lines))]
        if self.over is None:
            return [head, *area_rows(values, width, tall, top, self.gradient, end_slot=axis.end_slot)]
        roles = (self.gradient, self.over_gradient)
        return [head, *stacked_rows(values, over, width, tall, top, roles, end_slot=axis.end_slot)]

    def _edge_words(self, top: float, width: int) -> str:
        """Return the text of the scale's upper end, with "max" before it unless the scale is fixed.

        If "max" does not fit into the caption of `width` cells, it is left out.
        """
        edge = self.edge(top)
        full = edge if self.fixed else f"max {edge}"
        return full if row_width(self.words) + 1 + len(full) <= width else edge

    def _top(self, values: Sequence[float | None], over: Sequence[float | None]) -> float:
        if self.fixed:
            return self.least
        if self.mirror:
            peak = max((value for value in (*values, *over) if value), default=0.0)
        else:
            peak = max(((a or 0.0) + (b or 0.0) for a, b in zip(values, over, strict=True)), default=0.0)
        return nice_ceiling(peak, self.least)


def _mirror_role(graph: Graph, row: int, height: int) -> str:
    """Return the role (colour name) of a row of a mirrored graph, by its distance from the centre line."""
    far = abs(2 * row + 1 - height) / max(1, height - 1)
    gradient = graph.gradient if 2 * row < height else graph.over_gradient or graph.gradient
    return f"{gradient}/{round(far * (LEVELS - 1))}"


def _empty_rows(word: str, width: int, height: int) -> list[Row]:
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
    full, over = divmod(len(graphs), columns)
    bands = max(1, min(full + (1 if 2 * over >= columns else 0), (height - 1) // GRAPH_HEIGHT))
    each, low = divmod(height - 1, bands)
    cells = (width - columns + 1) // columns
    rows: list[Row] = []
    for band in range(bands):
        tall = each + (1 if band < low else 0)
        drawn = [graph.rows(cells, tall, axis) for graph in graphs[band * columns : (band + 1) * columns]]
        rows += [_beside([column[row] for column in drawn], width) for row in range(tall)]
    rows.append(_beside([[label(time_axis(cells, axis.step))] for _ in range(columns)], width))
    return rows


def _beside(cells: Sequence[Row], width: int) -> Row:
    row: Row = []
    for index, cell in enumerate(cells):
        row += [(" ", "text"), *cell] if index else cell
    return fit_row(row, width)
