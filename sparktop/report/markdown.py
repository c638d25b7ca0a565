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
    """Yield the lines of a Markdown table, split into several tables if it is wider than `width` cells.

    Each part begins with the columns that tell the rows apart, such as server and latency.
    """
    if max(map(cell_width, lines)) <= width:
        yield from lines
        return
    rows = [line.split("|")[1:-1] for line in lines]  # safe: a pipe inside a cell is an entity
    widths, keys = [cell_width(cell) for cell in rows[0]], _key_columns(rows)
    for number, columns in enumerate(_column_groups(widths, keys, width)):
        if number:
            yield ""
        for row in rows:
            yield f"|{'|'.join(row[column] for column in columns)}|"


def _key_columns(rows: Sequence[Sequence[str]]) -> int:
    """Return how many first columns of a table tell its rows apart: columns of text, at least one."""
    _, rules, *cells = rows
    for keys in range(1, len(rules)):
        if len({tuple(row[:keys]) for row in cells}) == len(cells):
            return keys
        if rules[keys].strip().endswith(":"):
            break
    return 1


def _column_groups(widths: Sequence[int], keys: int, width: int) -> Iterator[list[int]]:
    """Yield the column indices of each part of a split table: the first `keys`, and at least one more.

    `widths` has the width of each column; the columns of a part fit into `width` cells if possible.
    """
    key_columns = list(range(keys))
    least = sum(widths[:keys]) + keys + 1
    group, used_cells = [*key_columns], least
    for column, cells in enumerate(widths[keys:], start=keys):
        if len(group) > keys and used_cells + cells + 1 > width:
            yield group
            group, used_cells = [*key_columns], least
        group.append(column)
        used_cells += cells + 1
    yield group
