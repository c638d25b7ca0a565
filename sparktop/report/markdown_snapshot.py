"""A snapshot as GitHub-flavoured Markdown for a forum post: tables of at most 100 columns of text."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.snapshot import Snapshot
from sparktop.report import tables
from sparktop.report.document.document import grid_of, in_markdown
from sparktop.report.markdown import WIDTH, code
from sparktop.report.tables import Kind, Table, ranks_table, without_stale

_LONGEST = 44
"""Cells to which a quoted name is cut; shorter ones are whole, and a table too wide for them is split."""
_EVENTS = 10
"""Events that are listed."""
_LATENCIES, _QUANTILES = ("TTFT", "ITL", "E2E", "queue"), ("p50", "p95", "p99")
_LEGEND = "latencies over the time in column 'over'; – is unknown, <, > and \"to\" are bounds."


def render(snapshot: Snapshot) -> str:
    """Return a snapshot as Markdown, without the addresses of the servers."""
    snapshot = without_stale(snapshot)
    head, overview = _head_lines(snapshot), (tables.groups_table(snapshot), tables.worst_table(snapshot))
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
    last = (tables.limits(backends), tables.reasons(snapshot), tables.events(snapshot, _EVENTS))
    blocks = [
        "\n".join(head),
        *map(_as_table, filter(_has_rows, overview)),
        *([omission] if omission else []),
        *map(_as_list, filter(_has_rows, wrong)),
        *map(_as_table, filter(_has_rows, figures)),
        *map(_as_list, filter(_has_rows, last)),
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


def _has_rows(table: Table) -> bool:
    return bool(table.rows)


def _as_table(table: Table) -> str:
    return in_markdown(grid_of(table, WIDTH, longest=_LONGEST))


def _as_list(table: Table) -> str:
    """Return a table as a list, an item for each row: its cells, figures with the title of their column."""
    lines = [f"### {table.title}", ""]
    for row in table.rows:
        words: list[str] = []
        for column, text in zip(table.columns, row, strict=True):
            if column.kind is Kind.FIGURE and column.title != "time":
                words.append(f"{column.title} {text}")
            elif column.kind is Kind.NAME and text != UNKNOWN:
                words.append(code(text))
            elif column.kind is Kind.FIGURE or text != UNKNOWN:
                words.append(text)
        lines.append(f"- {', '.join(words)}")
    return "\n".join(lines)
