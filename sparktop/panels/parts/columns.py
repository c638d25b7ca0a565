"""The columns of panels and lists, the same in all of them, so that their graphs stand below one another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sparktop.panels.parts.rows import Row, Run, fit_row

FIGURES_WIDTH = 38
"""Width in cells of the column of values, without the mean latencies."""
WIDE_FIGURES_WIDTH = 54
"""Width in cells of the column of values with the mean latencies."""
MIN_GRAPH_WIDTH = 12
_MOST_GRAPHS = 2


def figures_width(width: int) -> int:
    """Return the width in cells of the column of values in a panel of `width` cells."""
    if width >= 180:
        return WIDE_FIGURES_WIDTH
    return min(FIGURES_WIDTH, width - 4)


@lru_cache(maxsize=64)
def graph_columns(width: int) -> tuple[int, int]:
    """Return (number of graphs side by side, width in cells of each) for a panel of `width` cells.

    There are two graphs if both get at least `MIN_GRAPH_WIDTH` cells, else one or none.
    """
    # A blank cell stands inside each side of the frame, and one before each graph.
    room = width - 2 - 2 - figures_width(width)
    for count in range(_MOST_GRAPHS, 0, -1):
        each = room // count - 1
        if each >= MIN_GRAPH_WIDTH:
            return count, each
    return 0, 0


@lru_cache(maxsize=64)
def graph_starts(width: int) -> tuple[int, ...]:
    """Return the first cell of each graph in a panel of `width` cells; cell 0 is the side of its frame."""
    count, each = graph_columns(width)
    return tuple(width - 2 - (count - index) * (each + 1) + 1 for index in range(count))


def panel_row(figures: Row, graphs: Sequence[Row], width: int, *, lead: Run = (" ", "text")) -> Row:
    """Return the inside of a panel's row: `figures` at the left, and a row of each graph at the right.

    The result is two cells narrower than `width`, the panel's width. Without graphs, the figures may fill it.
    `lead` is the first cell, such as a mark of the selected entry of a list.
    """
    if not graphs:
        return fit_row([lead, *figures], width - 2)
    cells, each = figures_width(width), graph_columns(width)[1]
    row = fit_row([lead, *figures], 1 + cells)
    at = 2 + cells
    for start, graph in zip(graph_starts(width), graphs, strict=True):
        row += [(" " * (start - at), "text"), *graph]
        at = start + each
    return [*row, (" ", "text")]


def mark(*, selected: bool) -> Run:
    """Return the first cell of a list's entry: an arrow if the entry is selected, else a blank."""
    return ("▶" if selected else " ", "selected")
