"""A snapshot as GitHub-flavoured Markdown for a forum post: tables of at most 100 columns of text."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.model.snapshot import Snapshot
from sparktop.report import tables
from sparktop.report.document.document import grid_of, in_markdown
from sparktop.report.markdown import WIDTH, code
from sparktop.report.tables import Table, without_stale


def render(snapshot: Snapshot) -> str:
    """Return a snapshot as Markdown, without the addresses of the servers."""
    snapshot = without_stale(snapshot)
    parts = (tables.omission(snapshot), tables.nothing_watched(snapshot))
    blocks = ["\n".join(_head_lines(snapshot)), *filter(None, parts)]
    for table, as_list in tables.snapshot_tables(snapshot):
        blocks.append(_as_list(table) if as_list else in_markdown(grid_of(table, WIDTH)))
    return "\n\n".join([*blocks, f"_{tables.legend(snapshot)}_"]) + "\n"


def _head_lines(snapshot: Snapshot) -> Iterator[str]:
    yield "## sparktop snapshot (simulated)" if snapshot.simulated else "## sparktop snapshot"
    yield ""
    yield tables.headline(snapshot)
    yield ""
    yield " · ".join(f"{title} **{figure}**" for title, figure in tables.totals(snapshot))


def _as_list(shown: Table) -> str:
    return "\n".join([f"### {shown.title}", "", *(f"- {item}" for item in tables.list_items(shown, code))])
