"""The results on disk as a table: the newest first, one that cannot be read among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparktop.graphics import numbers
from sparktop.graphics.cells import fit
from sparktop.model.sweep_comparison import HistoryRow
from sparktop.panels.figures import label
from sparktop.panels.frame import framed
from sparktop.panels.rows import Row, fit_row, merged
from sparktop.panels.sweep_words import STATUS_ROLES

_ROLES = {status.value: role for status, role in STATUS_ROLES.items()} | {"unreadable": "bad"}
_WHEN, _NAME, _STATUS = 16, 14, 10


@dataclass(frozen=True, slots=True)
class Column:
    """One column: heading, width, what it shows."""

    heading: str
    width: int
    text: Callable[[HistoryRow], str]
    right: bool = True


_COLUMNS = (
    Column("decode", 8, lambda row: numbers.rate(row.decode_tps, 6).strip()),
    Column("targets", 20, lambda row: ", ".join(row.targets), right=False),
    Column("levels", 6, lambda row: str(row.levels)),
    Column("TTFT", 8, lambda row: _ms(row.ttft_ms)),
    Column("doubt", 5, lambda row: f"!{row.doubtful}" if row.doubtful else ""),
    Column("model", 22, lambda row: row.model or numbers.UNKNOWN, right=False),
    Column(
        "to c", 5, lambda row: numbers.UNKNOWN if row.most_concurrency is None else f"{row.most_concurrency}"
    ),
    Column("tags", 16, lambda row: " ".join(f"#{tag}" for tag in row.tags), right=False),
)
"""In the order of how telling they are: narrow screens get the first ones; a note takes what is left."""


def _ms(value: float | None) -> str:
    return numbers.duration(None if value is None else value / 1000, 7).strip()


def _columns(width: int) -> tuple[list[Column], int]:
    """Give the columns that fit, and the cells left for the note."""
    room = width - 2 - _WHEN - 1 - _NAME - 1 - _STATUS
    chosen = []
    for column in _COLUMNS:
        if column.width + 1 > room:
            break
        chosen.append(column)
        room -= column.width + 1
    return chosen, room


def history_screen(
    rows: Sequence[HistoryRow],
    width: int,
    height: int,
    *,
    chosen: str | None = None,
    marked: Sequence[str] = (),
    query: str = "",
    notice: str = "",
) -> list[Row]:
    """Draw the table as exactly `height` rows of `width` cells.

    `chosen` is the key of the row under the cursor, `marked` those that are to be compared, `query` what the
    rows were found by; `notice` says what just happened ("deleted; u brings it back").
    """
    inner, room = width - 4, max(1, height - 3)
    first = _first(rows, room, chosen)
    shown = rows[first : first + room]
    body = [_heading(inner)]
    body += [_history_row(one, inner, chosen=one.key == chosen, marked=one.key in marked) for one in shown]
    if not rows:
        word = f"nothing found for “{query}”" if query else "no sweep is stored yet: s starts one"
        body.append([label(f"  {word}")])
    count = f" {len(rows)} sweep{'' if len(rows) == 1 else 's'}" + (
        f" found for “{query}” " if query else " "
    )
    title: Row = [("┐", "border"), ("history", "title"), ("┌", "border"), label(count)]
    note: Row = [(" enter opens · c compares · / finds · del deletes ", "muted")]
    foot: Row = [(f" {notice} ", "warn")] if notice else []
    drawn = framed(
        [[(" ", "text"), *row] for row in body],
        width,
        height,
        role="selected",
        title=title,
        note=note,
        footnote=foot,
    )
    return [merged(row) for row in drawn]


def _first(rows: Sequence[HistoryRow], room: int, chosen: str | None) -> int:
    index = next((at for at, row in enumerate(rows) if row.key == chosen), 0)
    return max(0, min(len(rows) - room, index - room // 2))


def _heading(width: int) -> Row:
    columns, left = _columns(width)
    row: Row = [
        label(fit("  when", 2 + _WHEN + 1)),
        label(fit("name", _NAME + 1)),
        label(fit("end", _STATUS)),
    ]
    row += [label(" " + fit(one.heading, one.width, "right" if one.right else "left")) for one in columns]
    return fit_row([*row, label(" note" if left > 5 else "")], width)


def _history_row(row: HistoryRow, width: int, *, chosen: bool, marked: bool) -> Row:
    columns, left = _columns(width)
    when = "–" if row.started_at is None else f"{row.started_at.astimezone():%Y-%m-%d %H:%M}"
    result: Row = [
        ("▶" if chosen else " ", "selected"),
        ("●" if marked else " ", "accent"),
        (fit(when, _WHEN), "text" if row.started_at is not None else "muted"),
        (" ", "text"),
        (fit(f"{row.name}{' sim' if row.simulated else ''}", _NAME), "title"),
        (" ", "text"),
        (fit(row.status, _STATUS), _ROLES.get(row.status, "text")),
    ]
    if row.problem is not None:
        return fit_row([*result, (f" {row.problem}", "bad")], width)
    for column in columns:
        text = column.text(row)
        role = "muted" if text in {numbers.UNKNOWN, ""} else "warn" if column.heading == "doubt" else "text"
        result += [(" " + fit(text, column.width, "right" if column.right else "left"), role)]
    if left > 5:
        result.append(label(f" {fit(row.note, left - 1)}"))
    return fit_row(result, width)
