"""A snapshot as GitHub-flavoured Markdown for a forum post: tables of at most 100 columns of text.

Names and messages come from outside and are put into code spans, in which no forum interprets markup, links,
mentions or emoji. A pipe would end a table cell even in a code span, so it becomes an entity between two
spans.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sparktop.graphics.cells import cell_width, fit
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.snapshot import Snapshot
from sparktop.report import backend_tables, balance_tables, fleet_tables, fleets, large, node_tables
from sparktop.report.current import current
from sparktop.report.narrow import split_table
from sparktop.report.ranks import ranks_table
from sparktop.report.table import Column, Kind, Table

WIDTH = 100
"""The greatest width of a table, in characters."""
_LONGEST = 44
"""A longer name in a table is cut; shorter ones are whole, and a table that is too wide for them is split."""
_EVENTS = 10
_LATENCIES, _QUANTILES = ("TTFT", "ITL", "E2E", "queue"), ("p50", "p95", "p99")
_NAMED = frozenset({"since", "last seen", "failing since"})
"""Columns whose title is written beside the value where a table is written as a list."""
_BACKTICKS = re.compile("`+")
_LEGEND = "latencies of the time in column 'last'; – is unknown, <, > and \"to\" are bounds."


def render(snapshot: Snapshot) -> str:
    """Return a snapshot as Markdown, without the addresses of the servers."""
    snapshot = current(snapshot)
    head, first = _head(snapshot), (large.groups_table(snapshot), large.worst_table(snapshot))
    omission, snapshot = large.omission(snapshot), large.narrowed(snapshot)
    backends, nodes = snapshot.backends, snapshot.nodes
    wrong = (
        fleet_tables.alerts(snapshot),
        fleet_tables.troubles(snapshot),
        fleet_tables.standstills(snapshot),
        ranks_table(backends),
        node_tables.speeds(nodes, only_slow=True),
    )
    figures = (
        backend_tables.backend_load(backends),
        backend_tables.backend_servers(backends, detailed=False),
        backend_tables.latencies(backends, _LATENCIES, _QUANTILES),
        backend_tables.also_reported(backends),
        fleet_tables.routers(snapshot),
        fleets.fleets_table(snapshot.fleets),
        fleets.groups_table(snapshot.fleets),
        balance_tables.balances(snapshot),
        balance_tables.shares(snapshot),
        node_tables.machines(nodes),
        node_tables.gpus(nodes),
        node_tables.trends(nodes),
    )
    limits = backend_tables.limits(backends)
    why = balance_tables.reasons(snapshot)
    happened = fleet_tables.events(snapshot, _EVENTS)
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
    legend = f"_Token rates {backend_tables.rate_windows(backends)}, {_LEGEND}_"
    return "\n\n".join([*blocks, legend]) + "\n"


def _head(snapshot: Snapshot) -> Iterator[str]:
    yield "## sparktop snapshot (simulated)" if snapshot.simulated else "## sparktop snapshot"
    yield ""
    yield fleet_tables.headline(snapshot)
    yield ""
    yield " · ".join(f"{title} **{figure}**" for title, figure in fleet_tables.totals(snapshot))


def _table_lines(table: Table) -> Iterator[str]:
    columns, widths = table.columns, _widths(table)
    yield f"### {table.title}"
    yield ""
    lines = [_row(columns, widths, [column.title for column in columns])]
    rules = (
        "-" * (width - 1) + ":" if column.kind is Kind.FIGURE else "-" * width
        for column, width in zip(columns, widths, strict=True)
    )
    lines.append(f"| {' | '.join(rules)} |")
    for row in table.rows:
        cells = (_cell(column, text, width) for column, text, width in zip(columns, row, widths, strict=True))
        lines.append(_row(columns, widths, list(cells)))
    yield from split_table(lines, WIDTH)


def _row(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> str:
    padded = (
        fit(cell, width, "right" if column.kind is Kind.FIGURE else "left")
        for column, width, cell in zip(columns, widths, cells, strict=True)
    )
    return f"| {' | '.join(padded)} |"


def _widths(table: Table) -> list[int]:
    """Return the width of each column in cells: that of its widest cell, for names at most `_LONGEST`."""
    widths = []
    for number, column in enumerate(table.columns):
        widest = max(
            cell_width(column.title), 3, *(cell_width(_cell(column, row[number])) for row in table.rows)
        )
        widths.append(min(widest, _LONGEST) if column.kind is Kind.NAME else widest)
    return widths


def _cell(column: Column, text: str, width: int | None = None) -> str:
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
            else _cell(column, text)
            for column, text in zip(table.columns, row, strict=True)
        )
        yield f"- {', '.join(words)}"


def code(text: str) -> str:
    """Quote text from outside so that Markdown shows it literally, in a table cell too."""
    return "&#124;".join(_span(part) if part else "" for part in text.split("|"))


def _span(text: str) -> str:
    fence = "`" * (1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{pad}{text}{pad}{fence}"
