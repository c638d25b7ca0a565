"""Fits Markdown to a terminal: a table that is too wide is split into parts with the same first column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from sparktop.graphics.cells import cell_width


def narrowed(text: str, width: int) -> str:
    """Return Markdown whose tables are at most `width` cells wide, as far as possible.

    Each part of a split table has at least two columns, even if these are wider.
    """
    parts: list[str] = []
    for is_table, group in groupby(text.splitlines(), lambda line: line.startswith("|")):
        lines = list(group)
        parts += split_table(lines, width) if is_table else lines
    return "\n".join(parts) + "\n"


def split_table(lines: Sequence[str], width: int) -> Iterator[str]:
    """Yield the lines of a Markdown table, split into several tables if it is wider than `width` cells."""
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
    """Yield the column indices of each part of a split table: the first column, and at least one more.

    `widths` has the width of each column; the columns of a part fit into `width` cells if possible.
    """
    group, used = [0], widths[0] + 2
    for column, cells in enumerate(widths[1:], start=1):
        if len(group) > 1 and used + cells + 1 > width:
            yield group
            group, used = [0], widths[0] + 2
        group.append(column)
        used += cells + 1
    yield group
