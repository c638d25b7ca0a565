"""A snapshot as plain text with aligned tables, and as GitHub-flavoured Markdown for a forum post."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparktop.analysis.summary import verdict
from sparktop.graphics.cells import cell_width, fit, wrap_cells
from sparktop.model.snapshot import Snapshot
from sparktop.model.text import clean
from sparktop.report import tables
from sparktop.report.document.document import grid_of, in_markdown
from sparktop.report.markdown import WIDTH, code
from sparktop.report.tables import CellKind, Table, TableColumn, without_stale

_WIDEST_NAME = 24
"""Cells of the first column at most; a longer name is cut."""
_LONGEST = 2000
"""Characters of a cell at most."""


def render(snapshot: Snapshot, width: int) -> str:
    """Return a snapshot as lines of text that are at most `width` cells wide."""
    snapshot = tables.without_stale(snapshot)
    judged = verdict(snapshot)
    simulated = " · simulated" if snapshot.simulated else ""
    head = (
        f"sparktop snapshot · {tables.headline(snapshot)}{simulated}",
        " · ".join(f"{title} {figure}" for title, figure in tables.totals(snapshot)),
        f"{judged.words} · {judged.hint}" if judged.hint else judged.words,
    )
    lines = [line for text in head for line in wrap_cells(text, width)]
    for text in filter(None, (tables.omission(snapshot), tables.nothing_watched(snapshot))):
        lines += ["", *wrap_cells(text, width)]
    for table, as_list in tables.snapshot_tables(snapshot):
        lines += ["", table.title, *(_list_lines(table, width) if as_list else table_lines(table, width))]
    lines += ["", *wrap_cells(tables.legend(snapshot), width)]
    return "".join(f"{fit(line, width).rstrip()}\n" for line in lines)


def _list_lines(shown: Table, width: int) -> Iterator[str]:
    for sentence, *below in tables.list_items(shown, lambda text: text):
        yield from wrap_cells(f"- {clean(sentence, _LONGEST)}", width, indents=("", "  "))
        for line in below:
            yield from _indent(line, width)


def table_lines(shown: Table, width: int) -> Iterator[str]:
    """Yield the headings and rows of a table as lines of at most `width` cells.

    Columns that have no room beside the others are written below each row, as "title cell · title cell";
    where they are only names and equal in all rows, once below the table.
    """
    columns = shown.columns
    rows = [tuple(clean(text, _LONGEST) for text in row) for row in shown.rows]
    widths = [
        max(cell_width(text) for text in (column.title, *(row[number] for row in rows)))
        for number, column in enumerate(columns)
    ]
    widths[0] = min(widths[0], _WIDEST_NAME, width)
    count = _fitting_columns(widths, width)
    yield _table_line(columns[:count], widths, [column.title for column in columns[:count]])
    hidden = columns[count:]
    rests = [
        " · ".join(f"{column.title} {text}" for column, text in zip(hidden, row[count:], strict=True))
        for row in rows
    ]
    are_names = all(column.kind is CellKind.NAME for column in hidden)
    is_same_rest = are_names and len(rests) > 1 and len(set(rests)) == 1
    for row, rest in zip(rows, rests, strict=True):
        yield _table_line(columns[:count], widths, row)
        if not is_same_rest:
            yield from _indent(rest, width)
    if is_same_rest and rests[0]:
        yield from _indent(f"each: {rests[0]}", width)


def _indent(sentence: str, width: int) -> list[str]:
    return wrap_cells(clean(sentence, _LONGEST), width, indents=("  ", "    "))


def _fitting_columns(widths: Sequence[int], width: int) -> int:
    """Return how many columns from the left fit side by side, with a space between them."""
    count, used_cells = 1, widths[0]
    while count < len(widths) and used_cells + 1 + widths[count] <= width:
        used_cells += 1 + widths[count]
        count += 1
    return count


def _table_line(columns: Sequence[TableColumn], widths: Sequence[int], cells: Sequence[str]) -> str:
    return " ".join(
        fit(text, width, "right" if column.kind is CellKind.FIGURE else "left")
        for column, width, text in zip(columns, widths, cells, strict=False)
    )


# As Markdown.


def markdown(snapshot: Snapshot) -> str:
    """Return a snapshot as Markdown, without the addresses of the servers."""
    snapshot = without_stale(snapshot)
    parts = (tables.omission(snapshot), tables.nothing_watched(snapshot))
    blocks = ["\n".join(_head_lines(snapshot)), *filter(None, parts)]
    for table, as_list in tables.snapshot_tables(snapshot):
        items = ("\n  - ".join((f"- {item}", *below)) for item, *below in tables.list_items(table, code))
        as_text = "\n".join([f"### {table.title}", "", *items])
        blocks.append(as_text if as_list else in_markdown(grid_of(table, WIDTH)))
    return "\n\n".join([*blocks, f"_{tables.legend(snapshot)}_"]) + "\n"


def _head_lines(snapshot: Snapshot) -> Iterator[str]:
    yield "## sparktop snapshot (simulated)" if snapshot.simulated else "## sparktop snapshot"
    yield ""
    yield tables.headline(snapshot)
    yield ""
    yield " · ".join(f"{title} **{figure}**" for title, figure in tables.totals(snapshot))
