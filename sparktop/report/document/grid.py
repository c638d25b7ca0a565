"""Tables whose cells may contain untrusted names, and their conversion to safe Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from sparktop.graphics.cells import cell_width, fit
from sparktop.graphics.numbers import UNKNOWN
from sparktop.report.document.prose import paragraph
from sparktop.report.markdown import code
from sparktop.report.narrow import split_table
from sparktop.report.table import Kind, Table

_NARROWEST = 24
"""A column of names is not cut below this width: the table is split in two instead."""


class Outside(Struct, frozen=True):
    """A table cell that begins with an untrusted name, which is escaped; `after` is trusted text."""

    name: str
    after: str = ""


Cell = str | Outside


class Grid(Struct, frozen=True):
    """A table of text cells with a title, column headings and notes."""

    title: str
    heads: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left: frozenset[int] = frozenset({0})
    """Indices of the left-aligned columns; all others are right-aligned."""
    notes: tuple[str, ...] = ()
    """Lines of text below the table."""
    width: int | None = None
    """Greatest width in Markdown, in cells: a wider table is split into several; None: any width."""


def in_markdown(grid: Grid) -> str:
    """Return a table as Markdown: its title as a heading, the table, and its notes in italics."""
    notes = (f"\n_{paragraph(note)}_" for note in grid.notes)
    return "\n".join([f"### {grid.title}", "", rows_in_markdown(grid), *notes])


def rows_in_markdown(grid: Grid) -> str:
    """Return the headings and rows of a table as Markdown."""
    lines = [[escaped(cell) for cell in row] for row in (grid.heads, *grid.rows)]
    widths = [max(3, *(cell_width(row[number]) for row in lines)) for number in range(len(grid.heads))]
    rules = [
        "-" * width if number in grid.left else "-" * (width - 1) + ":" for number, width in enumerate(widths)
    ]
    table = [_row(lines[0], widths, grid.left), f"| {' | '.join(rules)} |"]
    table += [_row(row, widths, grid.left) for row in lines[1:]]
    if grid.width is not None:
        table = list(split_table(table, grid.width))
    return "\n".join(table)


def escaped(cell: Cell) -> str:
    """Return a cell as Markdown; an untrusted name becomes a code span, so that it cannot act as markup."""
    return cell if isinstance(cell, str) else f"{code(cell.name)}{cell.after}"


def _row(cells: Sequence[str], widths: Sequence[int], left: frozenset[int]) -> str:
    padded = (
        fit(cell, width, "left" if number in left else "right")
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return f"| {' | '.join(padded)} |"


def grid_of(table: Table, width: int | None = None) -> Grid:
    """Return a table of names, words and figures as a grid of at most `width` cells; long names are cut.

    With None for `width`, names have any length.
    """
    columns = [
        [column.title, *(row[number] for row in table.rows)] for number, column in enumerate(table.columns)
    ]
    widths = [max(3, *map(cell_width, column)) for column in columns]
    names = [number for number, column in enumerate(table.columns) if column.kind is Kind.NAME]
    while width is not None and names and sum(widths) + 3 * len(widths) + 2 * len(names) + 1 > width:
        widest = max(names, key=lambda number: widths[number])
        if widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
    rows = tuple(
        tuple(
            Outside(_cut(text, widths[number])) if number in names and text != UNKNOWN else text
            for number, text in enumerate(row)
        )
        for row in table.rows
    )
    left = (number for number, column in enumerate(table.columns) if column.kind is not Kind.FIGURE)
    heads = tuple(column.title for column in table.columns)
    return Grid(table.title, heads, rows, frozenset(left), width=width)


def _cut(text: str, width: int) -> str:
    return text if cell_width(text) <= width else fit(text, width)
