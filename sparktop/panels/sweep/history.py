"""Draws the stored results of sweeps as a table, the newest first, including files that cannot be read."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width, fit
from sparktop.model.sweep import HistoryRow, SweepStatus, SweepView
from sparktop.model.text import clean
from sparktop.panels.parts.figures import heading, label
from sparktop.panels.parts.text import Column, Row, Run, fit_row, fitted_names
from sparktop.panels.sweep.curves import plots_rows
from sparktop.panels.sweep.screen import STATUS_ROLES, headline_rows, levels_and_findings
from sparktop.panels.sweep.table import framed_sweep, page_title

TOP = 2
"""Rows above the first result: the frame and the heading."""
_ROLES = {status.value: role for status, role in STATUS_ROLES.items()} | {
    "unreadable": "bad",
    "imported": "text",
}
_SIGNS, _WHEN, _STATUS = 3, 16, 10
"""Widths in cells of the cursor with the mark, of the start time, and of the final status."""
_NAME, _WIDE_NAME = 14, 20
_WIDE = 100
"""Width in cells from which on names have more room."""
_DETAIL_FROM = 12
"""Height in rows from which on the result under the cursor is also shown in full below the table."""
_LEAST_RESULTS, RESULTS_SHARE = 5, 0.4
"""Least rows of the table above a preview, and the table's share of their rows if there are many results."""
_LEAST_PREVIEW = 4
_PLOT = 6
"""Least rows of a plot below the words of a preview."""
_EMPTY = (
    "no sweep yet: press s on the board to start one",
    "i brings in results of other tools:",
    "llama-benchy, aiperf, guidellm, vllm bench serve",
)


def _cell(text: str) -> Run:
    return text, "muted" if text in {numbers.UNKNOWN, ""} else "text"


_COLUMNS = (
    Column("best tok/s", 10, lambda row: _cell(numbers.decimal(row.decode_tps, 1))),
    Column("targets", 20, lambda row: _cell(", ".join(row.targets)), "left"),
    Column("levels", 6, lambda row: _cell(str(row.levels))),
    Column("best TTFT", 10, lambda row: _cell(numbers.milliseconds(row.ttft_ms))),
    Column("warned", 6, lambda row: (f"!{row.doubtful}", "warn") if row.doubtful else _cell("")),
    Column("model", 22, lambda row: _cell(row.model or numbers.UNKNOWN), "left"),
    Column("up to", 8, lambda row: _cell(numbers.UNKNOWN if row.most is None else row.most.short)),
)
"""Columns in order of importance: narrow screens show only the first ones."""


def _columns_that_fit(width: int) -> list[Column]:
    """Return the columns that fit into `width` cells."""
    room = width - _SIGNS - _WHEN - 1 - (_NAME if width < _WIDE else _WIDE_NAME) - 1 - _STATUS
    chosen = []
    for column in _COLUMNS:
        if column.width + 1 > room:
            break
        chosen.append(column)
        room -= column.width + 1
    return chosen


def room_of(height: int, count: int) -> int:
    """Return how many of `count` results a history screen of `height` rows shows at once.

    Below them, the result under the cursor has a preview if there is room.
    """
    room = max(1, height - TOP - 1 - (2 if height >= _DETAIL_FROM else 0))
    few_rows = min(count, max(_LEAST_RESULTS, int(RESULTS_SHARE * room)))
    return max(1, few_rows) if room - few_rows >= _LEAST_PREVIEW else room


def first_in_sight(count: int, room: int, index: int, first_row: int) -> int:
    """Return the index of the first row to show, so that the row `index` is visible.

    This is `first_row` if that suffices, else the nearest possible one. `count` is the number of rows, `room`
    how many of them are visible at once.
    """
    return max(0, min(count - room, max(index - room + 1, min(index, first_row))))


def history_screen(
    rows: Sequence[HistoryRow],
    width: int,
    height: int,
    *,
    chosen: str | None = None,
    marked: Collection[str] = (),
    query: str = "",
    notice: str = "",
    first: int | None = None,
    unread: int = 0,
    preview: SweepView | None = None,
) -> list[Row]:
    """Draw the table of stored results as exactly `height` rows of `width` cells.

    `chosen` is the key of the row under the cursor, `marked` the keys selected for a comparison, `query`
    the search that found the rows; `notice` reports the last action ("deleted 2 results"). `first`
    is the index of the row at the top (None: the row under the cursor is in the middle), `unread` the
    number of files not read yet; `preview` shows the row under the cursor, None while its file is read.
    """
    inner, room = width - 4, room_of(height, len(rows))
    keys = [row.key for row in rows]
    index = keys.index(chosen) if chosen in keys else 0
    if first is None:
        first = index - room // 2
    top = first_in_sight(len(rows), room, index, first)
    shown_rows = rows[top : top + room]
    body = [_heading_row(inner)]
    body += [
        _history_row(row, inner, chosen=row.key == chosen, marked=row.key in marked) for row in shown_rows
    ]
    if not rows:
        lines = [f"nothing found for “{query}”"] if query else _EMPTY
        if unread:
            lines = ["reading …"]
        body += [fit_row([label(f"  {line}")], inner) for line in lines]
    elif height >= _DETAIL_FROM:
        body += [[] for _ in range(room - len(shown_rows))]
        body += _detail_rows(rows[index], inner)
        if preview is not None and rows[index].problem is None:
            body += preview_rows(preview, inner, height - 2 - len(body))
    searched = f" found for “{query}”" if query else ""
    reading = f", reading {unread} more" if unread else ""
    count = f"{numbers.count_words(len(rows), 'result')}{searched}{reading}"
    hidden = len(rows) - len(shown_rows)
    note = [f"{len(marked)} marked"] if marked else []
    if hidden > 0:
        note.append(numbers.count_words(hidden, "more row"))
    return framed_sweep(
        body[: height - 2],
        width,
        height,
        title=page_title("history", f"{count}, newest first"),
        note=" · ".join(note),
        footnote=[(f" {notice} ", "warn")] if notice else [],
    )


def _detail_rows(row: HistoryRow, width: int) -> list[Row]:
    """Return two rows on one result: file, targets and model, or why the file cannot be read."""
    rule = heading(clean(row.key, 80), "simulated" if row.simulated else "", width)
    if row.problem is not None:
        return [rule, fit_row([("! ", "bad"), (row.problem.removeprefix(f"{row.key}: "), "bad")], width)]
    is_begun = row.status == SweepStatus.RUNNING.value and not row.targets
    parts: Row = [(", ".join(row.targets) or ("no level is done yet" if is_begun else "no target"), "text")]
    if row.model:
        parts.append(label(f"  {row.model}"))
    return [rule, fit_row(parts, width)]


def preview_rows(view: SweepView, width: int, height: int) -> list[Row]:
    """Return a result's answer and levels, and its curves below, in at most `height` rows.

    Return [] in too few rows.
    """
    if height < _LEAST_PREVIEW:
        return []
    words = len(headline_rows(view, width)) + 1 + len(view.rows)
    if not view.plots or height - words < _PLOT:
        return levels_and_findings(view, width, height)
    return [*levels_and_findings(view, width, words), *plots_rows(view.plots, width, height - words)]


def _heading_row(width: int) -> Row:
    row: Row = [
        label(fit("   when", _SIGNS + _WHEN + 1)),
        label(fit("name", (_NAME if width < _WIDE else _WIDE_NAME) + 1)),
        label(fit("ended", _STATUS)),
    ]
    row += [
        label(" " + fit(column.heading, column.width, column.align)) for column in _columns_that_fit(width)
    ]
    return fit_row(row, width)


def _history_row(row: HistoryRow, width: int, *, chosen: bool, marked: bool) -> Row:
    # The mark of simulated results is never cut off; of a long status only the first word stands.
    sign, names = " (sim)" if row.simulated else "", _NAME if width < _WIDE else _WIDE_NAME
    name = fit(fitted_names((row.name,), names - len(sign))[row.name].rstrip() + sign, names)
    status = row.status if cell_width(row.status) <= _STATUS else row.status.split()[0]
    when = "–" if row.started_at is None else f"{row.started_at.astimezone():%Y-%m-%d %H:%M}"
    result: Row = [
        ("▶" if chosen else " ", "selected"),
        ("● " if marked else "  ", "accent"),
        (fit(when, _WHEN), "text" if row.started_at is not None else "muted"),
        (" ", "text"),
        (name, "title"),
        (" ", "text"),
        (fit(status, _STATUS), _ROLES.get(row.status, "text")),
    ]
    if row.problem is not None:
        return fit_row([*result, (f" {row.problem}", "bad")], width)
    for column in _columns_that_fit(width):
        text, role = column.cell(row)
        result += [(" " + fit(text, column.width, column.align), role)]
    return fit_row(result, width)
