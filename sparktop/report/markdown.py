"""A snapshot as GitHub-flavoured Markdown for a forum post: tables of at most 100 columns of text.

Names and messages come from outside and are put into code spans, in which no forum interprets markup, links,
mentions or emoji. A pipe would end a table cell even in a code span, so it becomes an entity between two
spans.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from sparktop.graphics.cells import cell_width, fit
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.snapshot import Snapshot
from sparktop.report import tables
from sparktop.report.tables import Column, Kind, Table, ranks_table, without_stale


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


WIDTH = 100
"""The greatest width of a table, in characters."""
_LONGEST = 44
"""A longer name in a table is cut; shorter ones are whole, and a table that is too wide for them is split."""
_EVENTS = 10
"""Events that are listed."""
_LATENCIES, _QUANTILES = ("TTFT", "ITL", "E2E", "queue"), ("p50", "p95", "p99")
_NAMED = frozenset({"since", "last seen", "failing since"})
"""Columns whose title is written beside the value where a table is written as a list."""
_BACKTICKS = re.compile("`+")
_LEGEND = "latencies of the time in column 'last'; – is unknown, <, > and \"to\" are bounds."


def render(snapshot: Snapshot) -> str:
    """Return a snapshot as Markdown, without the addresses of the servers."""
    snapshot = without_stale(snapshot)
    head, first = _head_lines(snapshot), (tables.groups_table(snapshot), tables.worst_table(snapshot))
    omission, snapshot = tables.omission(snapshot), tables.keep_worst(snapshot)
    backends, nodes = snapshot.backends, snapshot.nodes
    wrong = (
        tables.alerts(snapshot),
        tables.troubles(snapshot),
        tables.standstills(snapshot),
        tables.findings(snapshot),
        ranks_table(backends),
        tables.speeds(nodes, only_slow=True),
    )
    figures = (
        tables.backend_load(backends),
        tables.backend_servers(backends, detailed=False),
        tables.latencies(backends, _LATENCIES, _QUANTILES),
        tables.also_reported(backends),
        tables.routers(snapshot),
        tables.fleets_table(snapshot.fleets),
        tables.scraped_groups_table(snapshot.fleets),
        tables.balances(snapshot),
        tables.shares(snapshot),
        tables.machines(nodes),
        tables.gpus(nodes),
        tables.trends(nodes),
    )
    limits = tables.limits(backends)
    why = tables.reasons(snapshot)
    happened = tables.events(snapshot, _EVENTS)
    blocks = [
        "\n".join(head),
        *("\n".join(_table_lines(table)) for table in first if table.rows),
        *([omission] if omission else []),
        *("\n".join(_list_lines(table)) for table in wrong if table.rows),
        *("\n".join(_table_lines(table)) for table in figures if table.rows),
        *("\n".join(_list_lines(table)) for table in (limits, why, happened) if table.rows),
    ]
    if not (backends or nodes or snapshot.routers or snapshot.fleets):
        blocks.append("Nothing is watched.")
    legend = f"_Token rates {tables.rate_windows(backends)}, {_LEGEND}_"
    return "\n\n".join([*blocks, legend]) + "\n"


def _head_lines(snapshot: Snapshot) -> Iterator[str]:
    yield "## sparktop snapshot (simulated)" if snapshot.simulated else "## sparktop snapshot"
    yield ""
    yield tables.headline(snapshot)
    yield ""
    yield " · ".join(f"{title} **{figure}**" for title, figure in tables.totals(snapshot))


def _table_lines(table: Table) -> Iterator[str]:
    columns, widths = table.columns, _column_widths(table)
    yield f"### {table.title}"
    yield ""
    lines = [_row_line(columns, widths, [column.title for column in columns])]
    rules = (
        "-" * (width - 1) + ":" if column.kind is Kind.FIGURE else "-" * width
        for column, width in zip(columns, widths, strict=True)
    )
    lines.append(f"| {' | '.join(rules)} |")
    for row in table.rows:
        cells = (
            _cell_markdown(column, text, width)
            for column, text, width in zip(columns, row, widths, strict=True)
        )
        lines.append(_row_line(columns, widths, list(cells)))
    yield from split_table(lines, WIDTH)


def _row_line(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> str:
    padded = (
        fit(cell, width, "right" if column.kind is Kind.FIGURE else "left")
        for column, width, cell in zip(columns, widths, cells, strict=True)
    )
    return f"| {' | '.join(padded)} |"


def _column_widths(table: Table) -> list[int]:
    """Return the width of each column in cells: that of its widest cell, for names at most `_LONGEST`."""
    widths = []
    for number, column in enumerate(table.columns):
        widest = max(
            cell_width(column.title),
            3,
            *(cell_width(_cell_markdown(column, row[number])) for row in table.rows),
        )
        widths.append(min(widest, _LONGEST) if column.kind is Kind.NAME else widest)
    return widths


def _cell_markdown(column: Column, text: str, width: int | None = None) -> str:
    """Return a table cell as Markdown; a name is quoted.

    A name that is wider than `width` cells is cut; None means no limit.
    """
    if column.kind is not Kind.NAME or text == UNKNOWN:
        return text
    shown = code(text)
    length = len(text)
    while width is not None and cell_width(shown) > width and length > 0:
        length -= 1
        shown = code(f"{text[:length].rstrip()}…")
    return shown


def _list_lines(table: Table) -> Iterator[str]:
    yield f"### {table.title}"
    yield ""
    for row in table.rows:
        words = (
            f"{column.title} {text}"
            if column.kind is Kind.FIGURE and column.title != "time"
            else _cell_markdown(column, text)
            for column, text in zip(table.columns, row, strict=True)
            if text != UNKNOWN or column.kind is Kind.FIGURE
        )
        yield f"- {', '.join(words)}"


def code(text: str) -> str:
    """Quote text from outside so that Markdown shows it literally, in a table cell too."""
    return "&#124;".join(_code_span(part) if part else "" for part in text.split("|"))


def _code_span(text: str) -> str:
    fence = "`" * (1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{pad}{text}{pad}{fence}"
