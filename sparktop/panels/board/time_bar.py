"""The bar below the board that shows which moment of the past is on the screen."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from msgspec import Struct

from sparktop.model.event import Severity
from sparktop.panels.parts.roles import SEVERITY_SIGNS
from sparktop.panels.parts.rows import Row, fit_row, merged, row_width

_BLOCKS = "▁▂▃▄▅▆▇█"
_SIGNS = {
    Severity.INFO: ("•", "text"),  # larger than in a list: it stands among blocks
    Severity.WARNING: (SEVERITY_SIGNS[Severity.WARNING], "warn"),
    Severity.CRITICAL: (SEVERITY_SIGNS[Severity.CRITICAL], "bad"),
}
_LINE = "─"
_LEAST_WIDTH = 10
_LONG = timedelta(hours=12)
"""From this length on, times of two days are shown with their dates."""


class TimeBar(Struct, frozen=True):
    """The content of the time bar: its range of time, events, load, and the moment on the screen."""

    first: datetime
    last: datetime
    shown: datetime
    events: tuple[tuple[datetime, Severity], ...] = ()
    load: tuple[tuple[datetime, float | None], ...] = ()
    """Generated tokens per second of all servers."""


def time_bar_row(bar: TimeBar, width: int) -> tuple[Row, int, int]:
    """Return (row of the bar, index of the first cell of its time range, number of these cells).

    A cell shows the moment on the screen, else the most severe event in the cell's time, else the load as a
    block.
    """
    is_one_day = bar.first.astimezone().date() == bar.last.astimezone().date()
    form = "%H:%M:%S" if is_one_day or bar.last - bar.first < _LONG else "%m-%d %H:%M"
    left: Row = [(f" {bar.first.astimezone():{form}} ", "muted")]
    right: Row = [(f" {bar.last.astimezone():{form}} ", "muted")]
    cells = width - row_width(left) - row_width(right)
    if cells < _LEAST_WIDTH:
        left, right, cells = [], [], width
    row: Row = [(sign, "border" if sign == _LINE else "generation") for sign in _load_signs(bar, cells)]
    for index, severity in _worst(bar, cells).items():
        row[index] = _SIGNS[severity]
    row[cell_of(bar, bar.shown, cells)] = ("┃", "accent")
    return fit_row(merged([*left, *row, *right]), width), row_width(left), cells


def cell_of(bar: TimeBar, wall: datetime, cells: int) -> int:
    """Return the index of the cell for the time `wall`; outside of the bar, that of the nearest cell."""
    share = (wall - bar.first) / max(bar.last - bar.first, timedelta(seconds=1))
    return max(0, min(cells - 1, int(share * cells)))


def time_of(bar: TimeBar, cell: int, cells: int) -> datetime:
    """Return the time in the middle of the cell with the index `cell`; the bar has `cells` cells."""
    return bar.first + (bar.last - bar.first) * ((cell + 0.5) / cells)


def _worst(bar: TimeBar, cells: int) -> dict[int, Severity]:
    """Return {index of a cell: highest severity of the events in the cell}, for cells with events."""
    worst: dict[int, Severity] = {}
    for wall, severity in bar.events:
        if bar.first <= wall <= bar.last:
            cell = cell_of(bar, wall, cells)
            worst[cell] = max(worst.get(cell, severity), severity, key=lambda one: one.rank)
    return worst


def _load_signs(bar: TimeBar, cells: int) -> Iterable[str]:
    """Yield one character per cell: a block as high as the load, or a line if the load is unknown.

    The highest block stands for the highest load in the bar.
    """
    values: list[list[float]] = [[] for _ in range(cells)]
    for wall, value in bar.load:
        if value is not None:
            values[cell_of(bar, wall, cells)].append(value)
    means = _held([sum(each) / len(each) if each else None for each in values])
    top = max((mean for mean in means if mean is not None), default=0.0)
    for mean in means:
        level = 0 if not mean or not top else round(mean / top * (len(_BLOCKS) - 1))
        yield _LINE if mean is None else _BLOCKS[level]


def _held(means: list[float | None]) -> list[float | None]:
    """Return `means` with each small gap (None) filled with the value before the gap.

    Such gaps arise if a cell is shorter than the sampling interval. A gap is small if the values around it
    are at most twice as far apart as known values usually are.
    """
    known = [index for index, mean in enumerate(means) if mean is not None]
    if len(known) < 2:
        return means
    typical = median(late - early for early, late in pairwise(known))
    held = list(means)
    for early, late in pairwise(known):
        if late - early <= 2 * typical:
            held[early:late] = [means[early]] * (late - early)
    return held
