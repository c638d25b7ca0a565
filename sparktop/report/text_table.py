"""Tables of a plain-text report: aligned columns; what has no room in a row is on lines below, never cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from msgspec import Struct

from sparktop.graphics.cells import cell_width, fit
from sparktop.model.text import clean
from sparktop.report.table import Column, Kind

_WIDEST_NAME = 24
"""Cells of the first column at most; a longer name is cut."""

_LONG = 2000
"""Characters of a cell or a sentence at most."""


class TextRow(Struct, frozen=True):
    """The cells of a row of text, and the sentences that belong below it."""

    cells: tuple[str, ...]
    below: tuple[str, ...] = ()


def table_lines(columns: Sequence[Column], rows: Iterable[TextRow], width: int) -> Iterator[str]:
    """Yield the titles and rows of a table as lines of at most `width` cells.

    Columns that have no room beside the others are written below each row, as "title cell · title cell";
    where they are only names and equal in all rows, once below the table.
    """
    cleaned = [TextRow(tuple(clean(text, _LONG) for text in row.cells), row.below) for row in rows]
    widths = [
        max(cell_width(text) for text in (column.title, *(row.cells[number] for row in cleaned)))
        for number, column in enumerate(columns)
    ]
    widths[0] = min(widths[0], _WIDEST_NAME, width)
    count = _fitting(widths, width)
    yield _line(columns[:count], widths, [column.title for column in columns[:count]])
    rests = [_rest(columns[count:], row.cells[count:]) for row in cleaned]
    names = all(column.kind is Kind.NAME for column in columns[count:])
    same = names and len(rests) > 1 and len(set(rests)) == 1
    for row, rest in zip(cleaned, rests, strict=True):
        yield _line(columns[:count], widths, row.cells)
        for sentence in filter(None, ("" if same else rest, *row.below)):
            yield from _below(sentence, width)
    if same and rests[0]:
        yield from _below(f"each: {rests[0]}", width)


def _rest(columns: Sequence[Column], cells: Sequence[str]) -> str:
    return " · ".join(f"{column.title} {text}" for column, text in zip(columns, cells, strict=True))


def _below(sentence: str, width: int) -> Iterator[str]:
    yield from wrap(clean(sentence, _LONG), width, initial_indent="  ", subsequent_indent="    ")


def _fitting(widths: Sequence[int], width: int) -> int:
    """Return how many columns from the left fit side by side, with a space between them."""
    count, used = 1, widths[0]
    while count < len(widths) and used + 1 + widths[count] <= width:
        used += 1 + widths[count]
        count += 1
    return count


def _line(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> str:
    return " ".join(
        fit(text, width, "right" if column.kind is Kind.FIGURE else "left")
        for column, width, text in zip(columns, widths, cells, strict=False)
    )
