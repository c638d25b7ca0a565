"""GitHub-flavoured Markdown for forum posts: text from outside as code, tables split to a width.

Names and messages come from outside and are put into code spans, in which no forum interprets markup, links,
mentions or emoji. A pipe would end a table cell even in a code span, so it becomes an entity between two
spans.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from sparktop.graphics.cells import cell_width

WIDTH = 100
"""The greatest width of a table, in characters."""
_BACKTICKS = re.compile("`+")


def code(text: str) -> str:
    """Quote text from outside so that Markdown shows it literally, in a table cell too."""
    return "&#124;".join(_code_span(part) if part else "" for part in text.split("|"))


def _code_span(text: str) -> str:
    fence = "`" * (1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def narrow_tables(text: str, width: int) -> str:
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
    for number, columns in enumerate(_column_groups([cell_width(cell) for cell in rows[0]], width)):
        if number:
            yield ""
        for row in rows:
            yield f"|{'|'.join(row[column] for column in columns)}|"


def _column_groups(widths: Sequence[int], width: int) -> Iterator[list[int]]:
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
