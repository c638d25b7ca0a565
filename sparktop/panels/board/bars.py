"""The rows above and below the board: totals over all servers, keys, and the bar of past moments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from msgspec import Struct

from sparktop.analysis.summary import verdict
from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width
from sparktop.model.event import Event, Severity
from sparktop.model.router import Sum
from sparktop.model.series import known_mean
from sparktop.model.snapshot import Snapshot
from sparktop.panels.parts.figures import (
    LIVE,
    SEVERITY_SIGNS,
    alert_role,
    alerts_sign,
    figure,
    label,
    label_row,
    sum_run,
    wait_role,
)
from sparktop.panels.parts.text import Row, fit_row, fitted_names, hot, merge_runs, row_width, spread_row

_WIDE = 90
"""Width in cells from which on the header's pieces stand two cells apart, not one."""
_SUBJECT = 24
"""Cells to which the name of what fails is cut, if it does not fit otherwise."""
_RATE_WINDOW = " over 10 s"
_FOUR_DIGITS, _FIVE_DIGITS = 999.5, 9999.5
"""From these values on, a count has four digits and a comma, and a rate five."""
HELP = "?"
"""The key that shows the help."""


def _verdict_wordings(snapshot: Snapshot) -> list[Row]:
    """Return the worst thing that holds now as alternative rows, the longest first.

    Each has the number of alerts if there are several. What to try and the key that shows more are left out
    first (before it, the parentheses of a named key such as "enter"), then words.
    """
    worst, count = verdict(snapshot), len(snapshot.alerts)
    role = "good" if worst.severity is None else alert_role(worst.about, worst.severity)
    several = alerts_sign(snapshot.alerts)
    key: Row = label_row(" (", (worst.key, "key"), ")") if worst.key else []
    hints: list[Row] = [[label(f" → {hint}")] for hint in (worst.hint, worst.short_hint) if hint]
    rows: list[Row] = [[(several + worst.words, role), *hint, *key] for hint in (*hints, [])]
    rows += [[(several + worst.short, role), *hint, *key] for hint in (*hints[1:], [])]
    words = numbers.count_words(count, "alert")
    subject = worst.subject
    cut = fitted_names((subject,), _SUBJECT)[subject].rstrip() if cell_width(subject) > _SUBJECT else ""
    return [
        *rows,
        *([[(several + worst.short, role), label(" "), key[1]]] if len(worst.key) > 1 else []),
        [(several + worst.short, role)],
        *([[(several + worst.short.replace(subject, cut), role)]] if cut else []),
        [(f"{several[:1]} {words}", role) if count else label("no alerts")],
    ]


def header_row(
    snapshot: Snapshot,
    width: int,
    *,
    moment: str | None = None,
    notice: str | None = None,
    sweep: str | None = None,
) -> Row:
    """Return the row above the board: totals, the worst thing that holds now, special modes, and the clock.

    `moment` is a text that names the past moment on the screen, and replaces the clock, which is in local
    time, and the poll interval. `sweep` is the state of a running sweep in a word or two. If not all fits,
    the least important pieces are left out; nothing wraps.
    """
    when = snapshot.taken_at.astimezone()
    poll = f" poll {'–'.join(snapshot.poll_seconds)} s "
    interval: Row = [] if moment else label_row(("-", "key"), poll, ("+", "key"), "  ")
    now: Row = [figure("" if moment else f"{when:%H:%M:%S} ")]
    modes: list[Row] = [[("SIMULATED", "info")]] if snapshot.simulated else []
    is_bad = sweep is not None and sweep.endswith(" failed")
    texts = ((sweep, "warn" if is_bad else "accent"), (moment, "warn"), (notice, "warn"))
    modes += [[(text, role)] for text, role in texts if text]
    name: Row = [("sparktop", "accent")]
    rate, prompt, *load = total_pieces(snapshot)
    if sweep is not None:  # beside the sweep's rate, which is that of fewer seconds
        rate = [*rate, label(_RATE_WINDOW)]
    verdicts, head = _verdict_wordings(snapshot), modes or [name]
    hinted = 2 if verdict(snapshot).hint else 0
    gap = 2 if width >= _WIDE else 1
    with_key = [wording for wording in verdicts if any(role == "key" for _, role in wording)]
    close = [[words, (count.strip(), role)] for words, (count, role) in load]
    # What is left out first, and how much of the verdict's words is worth that: the blanks before counts
    # before the key that shows more.
    choices = [
        ([name, *modes, rate, prompt, *load], [*interval, *now], verdicts[:1]),
        ([name, *modes, rate, *load], [*interval, *now], verdicts[:1]),
        ([name, *modes, rate, *load], now, verdicts[:hinted]),
        ([*head, rate, *load], now, verdicts[:hinted]),
        ([name, *modes, rate, *load], now, verdicts[: hinted + 1]),
        ([*head, rate, *load], now, with_key),
        ([*head, rate, *close], now, with_key),
        ([*head, rate, *load], now, verdicts[:-1]),
        ([*head, rate], now, verdicts[:-1]),
        (head, now, verdicts[:-1]),
        (head, now, verdicts[-1:]),
        (head, [], verdicts[-1:]),
    ]
    for pieces, right, wordings in choices:
        for wording in wordings:
            row = _pieces_row([*pieces, wording], gap)
            if row_width(row) + row_width(right) + 1 <= width:
                return spread_row(row, right, width)
    return spread_row(_pieces_row([*modes[:1], verdicts[-1]], gap), [], width)


def total_pieces(snapshot: Snapshot) -> list[Row]:
    """Return totals over all servers: token rate, prompt rate, running and waiting requests.

    A sum that lacks servers has "≥" before it; of how many it is stands behind the token rate.
    """
    totals = snapshot.totals
    rate, prompt = totals.generation_tps, totals.prompt_tps
    counted_servers: Row = [label(f" ({rate.known} of {rate.of})")] if rate.sign else []
    # A warning, unless a sweep of this program lets them wait.
    roles = map(wait_role, snapshot.backends)
    waiting_role = next((role for role in roles if role != LIVE), LIVE)
    return [
        [sum_run(rate, numbers.rate, _rate_width(rate), LIVE), label(" tok/s"), *counted_servers],
        label_row("prompt ", sum_run(prompt, numbers.rate, _rate_width(prompt)), " tok/s"),
        [label("run "), sum_run(totals.running, numbers.count, _count_width(totals.running), LIVE)],
        label_row(
            "wait ", sum_run(totals.waiting, numbers.count, _count_width(totals.waiting), waiting_role)
        ),
    ]


def _rate_width(total: Sum) -> int:
    """Return the cells of a rate: those of four digits with their comma, or of five, and its sign."""
    return len(total.sign) + (5 if (total.value or 0.0) < _FIVE_DIGITS else 6)


def _count_width(total: Sum) -> int:
    """Return the cells of a count: all its digits up to five, as the lists below have them, and its sign."""
    return len(total.sign) + (3 if (total.value or 0.0) < _FOUR_DIGITS else 5)


def _pieces_row(pieces: Sequence[Row], gap: int) -> Row:
    """Return the pieces as one row, with `gap` cells between them, and one before the first."""
    row: Row = []
    for index, piece in enumerate(pieces):
        row.append((" " * (gap if index else 1), "text"))
        row += piece
    return row


def scroll_keys(above: int, below: int, down: str = "↓", up: str = "↑") -> list[tuple[str, str]]:
    """Return the keys that scroll, each with the number of rows in its direction; [] without such rows."""
    more = [(down, numbers.count_words(below, "more row"))] if below > 0 else []
    return [*([(up, f"{above} above")] if above > 0 else []), *more]


def footer_row(
    keys: Sequence[tuple[str, str]], width: int, *, page: int = 0, more: str = ""
) -> tuple[Row, list[tuple[int, int, str]]]:
    """Return the row of keys, and their clickable ranges as (first cell, cell after the last, key).

    `keys` has (key, what it does). A key is highlighted in its word if it occurs there. If not all keys fit,
    the key `more` stands last and counts the others, which are on further pages; `page` is the page shown,
    and after the last page comes the first. Without `more`, the key of the help stands last.
    """
    pieces = [(key, _key_piece(key, word)) for key, word in keys]
    if sum(row_width(piece) for _, piece in pieces) > width:
        pieces = _keys_on_page(pieces, width, page, more) if more else _keys_that_fit(pieces, width)
    row: Row = []
    key_ranges: list[tuple[int, int, str]] = []
    used_cells = 0
    for key, piece in pieces:
        key_ranges.append((used_cells, used_cells + row_width(piece), key))
        row += piece
        used_cells += row_width(piece)
    row.append((" " * (width - used_cells), "text"))
    return row, key_ranges


def _keys_on_page(
    pieces: Sequence[tuple[str, Row]], width: int, page: int, more: str
) -> list[tuple[str, Row]]:
    """Return one page of a row of keys: those that fit, the help, and the key `more` with the others' number.

    A key that is on no page, as it is too wide for all, counts as another.
    """
    last = [(key, piece) for key, piece in pieces if key == HELP]
    others = [(key, piece) for key, piece in pieces if key != HELP]
    room = width - sum(row_width(piece) for _, piece in last) - len(f" {more} 00 more")
    pages: list[list[tuple[str, Row]]] = [[]]
    left = room
    for key, piece in others:
        if row_width(piece) > left and pages[-1]:
            pages.append([])
            left = room
        left -= row_width(piece)
        if left >= 0:
            pages[-1].append((key, piece))
    page_keys = pages[page % len(pages)]
    return [*page_keys, *last, (more, label_row(" ", (more, "key"), f" {len(others) - len(page_keys)} more"))]


def _key_piece(key: str, word: str) -> Row:
    return [label(" "), *hot(key, word)]


def _keys_that_fit(pieces: Sequence[tuple[str, Row]], width: int) -> list[tuple[str, Row]]:
    """Return the first pieces of a row of keys that fit into `width` cells, and the key of the help if any.

    The help's piece comes last, with the number of keys left out: it lists them.
    """
    others = [(key, piece) for key, piece in pieces if key != HELP]
    room = width - (len(f" {HELP} 00 more keys") if len(others) < len(pieces) else 0)
    fitting_keys: list[tuple[str, Row]] = []
    for key, piece in others:
        room -= row_width(piece)
        if room < 0:
            break
        fitting_keys.append((key, piece))
    if len(others) == len(pieces):
        return fitting_keys
    hidden = len(others) - len(fitting_keys)
    return [*fitting_keys, (HELP, _key_piece(HELP, numbers.count_words(hidden, "more key")))]


_BLOCKS = "▁▂▃▄▅▆▇█"
_SIGNS = {
    Severity.INFO: ("•", "text"),  # larger than in a list: it stands among blocks
    Severity.WARNING: (SEVERITY_SIGNS[Severity.WARNING], "warn"),
    Severity.CRITICAL: (SEVERITY_SIGNS[Severity.CRITICAL], "bad"),
}
_LINE = "─"
_LEAST_WIDTH = 10
"""Cells below which no bar is drawn."""
_TOGETHER = timedelta(seconds=1)
"""Events within this time are reached by one step."""
_LONG = timedelta(hours=12)
"""From this length on, times of two days are shown with their dates."""


class TimeBar(Struct, frozen=True):
    """The content of the time bar: its range of time, events, load, and the moment on the screen."""

    first: datetime
    last: datetime
    shown: datetime
    events: tuple[Event, ...] = ()
    """In order of time."""
    load: tuple[tuple[datetime, float | None], ...] = ()
    """Generated tokens per second of all servers."""


def time_bar_row(bar: TimeBar, width: int) -> tuple[Row, int, int]:
    """Return (row of the bar, index of the first cell of its time range, number of these cells).

    A cell shows the moment on the screen, else the most severe event in the cell's time, else the load as a
    block.
    """
    is_one_day = bar.first.astimezone().date() == bar.last.astimezone().date()
    time_format = "%H:%M:%S" if is_one_day or bar.last - bar.first < _LONG else "%m-%d %H:%M"
    left: Row = [(f" {bar.first.astimezone():{time_format}} ", "muted")]
    right: Row = [(f" {bar.last.astimezone():{time_format}} ", "muted")]
    cells = width - row_width(left) - row_width(right)
    if cells < _LEAST_WIDTH:
        left, right, cells = [], [], width
    row: Row = [(sign, "border" if sign == _LINE else "generation") for sign in _load_signs(bar, cells)]
    worst: dict[int, Severity] = {}
    for event in bar.events:
        if bar.first <= event.at <= bar.last:
            cell = cell_of(bar, event.at, cells)
            worst[cell] = max(worst.get(cell, event.severity), event.severity, key=lambda one: one.rank)
    for index, severity in worst.items():
        row[index] = _SIGNS[severity]
    row[cell_of(bar, bar.shown, cells)] = ("┃", "accent")
    return fit_row(merge_runs([*left, *row, *right]), width), row_width(left), cells


def event_words(bar: TimeBar) -> str:
    """Return the last event up to the moment on the screen, and which it is: "2 of 9: 12:03:20 spark-a: …".

    Of several within a second it is the most severe one. Return "" if there is none.
    """
    before = [event for event in bar.events if event.at <= bar.shown]
    if not before:
        return ""
    together = [event for event in before if before[-1].at - event.at <= _TOGETHER]
    event = max(together, key=lambda event: event.severity.rank)
    position = f"{bar.events.index(event) + 1} of {len(bar.events)}"
    sign = SEVERITY_SIGNS[event.severity]
    return f"{sign} event {position}: {event.since.astimezone():%H:%M:%S} {event.subject}: {event.message}"


def cell_of(bar: TimeBar, wall: datetime, cells: int) -> int:
    """Return the index of the cell for the time `wall`; outside of the bar, that of the nearest cell."""
    share = (wall - bar.first) / max(bar.last - bar.first, timedelta(seconds=1))
    return max(0, min(cells - 1, int(share * cells)))


def time_of(bar: TimeBar, cell: int, cells: int) -> datetime:
    """Return the time in the middle of the cell with the index `cell`; the bar has `cells` cells."""
    return bar.first + (bar.last - bar.first) * ((cell + 0.5) / cells)


def _load_signs(bar: TimeBar, cells: int) -> Iterable[str]:
    """Yield one character per cell: a block as high as the load, or a line if the load is unknown.

    The highest block stands for the highest load in the bar.
    """
    loads: list[list[float]] = [[] for _ in range(cells)]
    for wall, value in bar.load:
        if value is not None:
            loads[cell_of(bar, wall, cells)].append(value)
    means = _with_small_gaps_filled([known_mean(in_cell) for in_cell in loads])
    top = max((mean for mean in means if mean is not None), default=0.0)
    for mean in means:
        level = 0 if not mean or not top else round(mean / top * (len(_BLOCKS) - 1))
        yield _LINE if mean is None else _BLOCKS[level]


def _with_small_gaps_filled(means: list[float | None]) -> list[float | None]:
    """Return `means` with each small gap (None) filled with the value before the gap.

    Such gaps arise if a cell is shorter than the sampling interval. A gap is small if the values around it
    are at most twice as far apart as known values usually are.
    """
    indices = [index for index, mean in enumerate(means) if mean is not None]
    if len(indices) < 2:
        return means
    typical = median(late - early for early, late in pairwise(indices))
    filled = list(means)
    for early, late in pairwise(indices):
        if late - early <= 2 * typical:
            filled[early:late] = [means[early]] * (late - early)
    return filled
