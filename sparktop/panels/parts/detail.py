"""The layout of a full-screen view of a node or backend: values beside graphs of their history."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from msgspec import Struct

from sparktop.panels.parts.graph import TimeAxis
from sparktop.panels.parts.graph_grid import GRAPH_HEIGHT, GRAPH_WIDTH, Graph, grid_columns, grid_rows
from sparktop.panels.parts.rows import Row, fit_row
from sparktop.panels.parts.sections import Section, stack

NARROW_COLUMN = 46
WIDE_COLUMN = 54
"""Width in cells of the column of values beside graphs, on a wide screen."""
ASIDE_WIDTH = 60
"""Least width in cells of each section, where several stand side by side below the graphs."""
_WIDE_FROM = 100
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


class Detail(Struct, frozen=True):
    """The content of the full-screen view of a node or backend, the most important entries first."""

    lead: Sequence[Row]
    """Rows above everything, as wide as the frame."""
    sections: Sequence[Section]
    graphs: Sequence[Graph]
    aside: Sequence[Section] = ()
    """Sections below the graphs where these are wide enough, else after `sections`."""
    graphs_after: int = 2
    """Number of sections above the graphs, where graphs have no column of their own."""
    foot: Sequence[Row] = ()
    """Rows below everything, as wide as the frame."""


def aside_width(width: int, sections: int = 1) -> int:
    """Return the width in cells of each of the `sections` that stand below the graphs of a full-screen view.

    `width` is the width of the view's frame, `sections` the number of these sections.
    """
    beside = width - 3 - WIDE_COLUMN - 2
    if width < _WIDE_FROM or beside < NARROW_COLUMN:
        return column_width(width)
    columns = _aside_columns(beside, sections)
    return (beside - 2 * (columns - 1)) // columns


def _aside_columns(beside: int, sections: int) -> int:
    return max(1, min(sections, (beside + 2) // (ASIDE_WIDTH + 2)))


def _aside_rows(sections: Sequence[Section], beside: int) -> list[Row]:
    """Return rows with the sections that stand below the graphs, side by side where there is room.

    `beside` is the width of the rows in cells.
    """
    if not sections:
        return []
    columns = _aside_columns(beside, len(sections))
    each = (beside - 2 * (columns - 1)) // columns
    stacks = [stack(sections[start::columns], each, 0) for start in range(columns)]
    blank = fit_row((), each)
    rows: list[Row] = []
    for cells in zip_longest(*stacks, fillvalue=blank):
        row: Row = [run for cell in cells for run in (("  ", "text"), *cell)][1:]
        rows.append(fit_row(row, beside))
    return rows


def detail_rows(detail: Detail, width: int, height: int, axis: TimeAxis) -> list[Row]:
    """Return the rows inside the frame of a full-screen view, which is `width` x `height` cells in size.

    There are more rows if the content needs them.
    """
    inner = width - 3
    lead = [fit_row(row, inner) for row in detail.lead]
    foot = [fit_row(row, inner) for row in detail.foot]
    room = height - 2 - len(lead) - len(foot)
    column = column_width(width)
    if column == inner:
        body = _one_column(detail, inner, axis)
    else:
        body = _two_columns(detail, column, inner - column - 2, room, axis)
    return [[(" ", "text"), *row] for row in [*lead, *body, *foot]]


def _one_column(detail: Detail, width: int, axis: TimeAxis) -> list[Row]:
    """Return the content of a narrow full-screen view: first sections, then graphs, then other sections."""
    bands = -(-min(4, len(detail.graphs)) // grid_columns(width))
    graphs = grid_rows(detail.graphs, width, bands * GRAPH_HEIGHT + 1, axis)
    first, rest = detail.sections[: detail.graphs_after], detail.sections[detail.graphs_after :]
    return [*stack(first, width, 0), *graphs, *stack([*rest, *detail.aside], width, 0)]


def _two_columns(detail: Detail, column: int, beside: int, room: int, axis: TimeAxis) -> list[Row]:
    below = beside >= NARROW_COLUMN and column == WIDE_COLUMN
    aside = _aside_rows(detail.aside, beside) if below else []
    left = stack([*detail.sections, *(() if below else detail.aside)], column, room)
    tall = max(room, len(left), len(aside) + _LEAST_GRAPHS)
    left += [fit_row((), column) for _ in range(tall - len(left))]
    right = [*grid_rows(detail.graphs, beside, tall - len(aside), axis), *aside]
    return [[*a, ("  ", "text"), *b] for a, b in zip(left, right, strict=True)]
