"""Markdown on a terminal: a table wider than the terminal is split, each part with the first column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from sparktop.graphics.cells import cell_width


def narrowed(text: str, width: int) -> str:
    """Return Markdown with tables of at most `width` cells.

    A part has two columns at least, even if wider.
    """
    parts: list[str] = []
    for is_table, group in groupby(text.splitlines(), lambda line: line.startswith("|")):
        lines = list(group)
        parts += _table(lines, width) if is_table else lines
    return "\n".join(parts) + "\n"


def _table(lines: Sequence[str], width: int) -> Iterator[str]:
    """Yield the lines of a table; a table that is too wide is split into groups of columns."""
    if max(map(cell_width, lines)) <= width:
        yield from lines
        return
    rows = [line.split("|")[1:-1] for line in lines]  # safe: a pipe inside a cell is an entity
    for number, columns in enumerate(_groups([cell_width(cell) for cell in rows[0]], width)):
        if number:
            yield ""
        for row in rows:
            yield f"|{'|'.join(row[column] for column in columns)}|"


def _groups(widths: Sequence[int], width: int) -> Iterator[list[int]]:
    """Yield groups of column indices that fit into `width`: the first column, and at least another."""
    group, used = [0], widths[0] + 2
    for column, cells in enumerate(widths[1:], start=1):
        if len(group) > 1 and used + cells + 1 > width:
            yield group
            group, used = [0], widths[0] + 2
        group.append(column)
        used += cells + 1
    yield group
