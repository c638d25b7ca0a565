"""Tracks of a running sweep: graphs under one another on one axis that holds the whole sweep so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparktop.graphics.curve import PlotAxis, labelled
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.sweep_view import LevelKey, LiveSeries, Slots
from sparktop.panels.figures import figure, label
from sparktop.panels.rows import Row, Run, fit_row, merged, row_width

GUTTER = 17
"""Cells at the left of every track: what it is, its figure now, the ends of its scale."""
_STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
"""Slots of a dot column: few values, so that the picture is redrawn from the left only now and then."""
_LEAST_COLUMN_S = 0.4
"""Shorter ones would show the steps of the engine: tokens come in beats."""
_LABELS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400)
_APART = 9
"""Cells between labels, at least."""
EDGE = "┊"
"""Where a level begins, in graphs that have nothing there."""


@dataclass(frozen=True, slots=True, eq=False)
class SweepAxis:
    """The one time axis: the sweep's beginning at the left, so many slots a dot column."""

    live: LiveSeries
    width: int
    """Cells of each graph."""
    slots: int
    """Of a dot column."""

    @property
    def cell_s(self) -> float:
        """Seconds that a cell holds."""
        return 2 * self.slots * self.live.step_s

    def columns(self, values: Slots) -> list[float | None]:
        """Give the mean of each dot column, None to the right of what there is yet."""
        found = means(values, self.slots)
        return found + [None] * (2 * self.width - len(found))

    def cells(self, values: Slots) -> list[float | None]:
        """Give the mean of each cell."""
        found = means(values, 2 * self.slots)
        return found + [None] * (self.width - len(found))

    def cell(self, at: float) -> int:
        """Give the cell in which a time lies."""
        return max(0, min(self.width - 1, int((at - self.live.start_at) / self.cell_s)))

    @property
    def edges(self) -> list[int]:
        """The cells in which levels begin."""
        return sorted({self.cell(span.began_at) for span in self.live.spans})


def sweep_axis(live: LiveSeries, width: int) -> SweepAxis:
    """Give the finest axis of `width` cells that holds all there is."""
    least = max(1, -(-live.count // (2 * max(1, width))))
    fine = max(least, round(_LEAST_COLUMN_S / live.step_s))
    return SweepAxis(live, width, next((step for step in _STEPS if step >= fine), fine))


def means(values: Slots, size: int) -> list[float | None]:
    """Give the mean of each `size` values that follow one another; None where none is known."""
    if size == 1:
        return list(values)
    if None not in values:
        return [sum(part) / len(part) for part in _parts(values, size)]  # type: ignore[arg-type] # no None among them
    result: list[float | None] = []
    for part in _parts(values, size):
        known = [value for value in part if value is not None]
        result.append(sum(known) / len(known) if known else None)
    return result


def _parts(values: Slots, size: int) -> list[Slots]:
    return [values[start : start + size] for start in range(0, len(values), size)]


def with_edges(rows: Sequence[Row], edges: Sequence[int]) -> list[Row]:
    """Draw where levels begin, in cells that are empty."""
    return [_edged(row, edges) for row in rows] if edges else list(rows)


def _edged(row: Row, edges: Sequence[int]) -> Row:
    result: Row = []
    start = 0
    for text, role in row:
        stop, done = start + len(text), 0
        for edge in edges:
            if start <= edge < stop and text[edge - start] == " ":
                result += [(text[done : edge - start], role), (EDGE, "border")]
                done = edge - start + 1
        result.append((text[done:], role))
        start = stop
    return [run for run in result if run[0]]


def beside_gutter(gutter: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """Put what a track is called and its scale at its left."""
    return [
        [*fit_row(gutter[index] if index < len(gutter) else (), GUTTER), *row]
        for index, row in enumerate(rows)
    ]


def gutter(name: Run, value: Row, top: str, bottom: str, height: int) -> list[Row]:
    """Give the rows at the left of a track: name and upper end, value now, lower end."""
    if height <= 1:
        return [_ended([name, (" ", "text"), *value], "")]
    rows = [_ended([name], top), *([] for _ in range(height - 2)), _ended([], bottom)]
    rows[1] = _ended([(" ", "text"), *value], bottom if height == 2 else "")
    return rows


def _ended(words: Row, end: str) -> Row:
    tail: Row = [(f"{end}┤", "muted")] if end else [(" ", "text")]
    return [*fit_row(words, GUTTER - row_width(tail)), *tail]


def value_now(text: str, unit: str, *, role: str = "title") -> Row:
    """Give the newest figure of a track with its unit."""
    stripped = text.strip()
    known = stripped != UNKNOWN
    return [figure(stripped, known=known, role=role), label(f" {unit}" if unit and known else "")]


def letters(targets: Sequence[str]) -> dict[str, str]:
    """Give each target's letter, "a" for the first."""
    return {name: chr(ord("a") + index % 26) for index, name in enumerate(targets)}


def short_level(key: LevelKey, names: dict[str, str]) -> str:
    """Give a level in few cells: "c8", with the target's letter where there are several."""
    letter = f"{names[key.target]} " if len(names) > 1 and key.target in names else ""
    return f"{letter}c{key.concurrency}"


def level_strip(axis: SweepAxis, names: dict[str, str]) -> Row:
    """Draw when which level ran: its name from the cell where it began."""
    row: Row = []
    used = 0
    spans = axis.live.spans
    for index, span in enumerate(spans):
        start = max(used, axis.cell(span.began_at))
        ended = span.ended_at
        now = axis.live.start_at + axis.live.count * axis.live.step_s
        stop = axis.cell(now if ended is None else ended) + 1
        if index + 1 < len(spans):
            stop = min(stop, axis.cell(spans[index + 1].began_at))
        if start >= axis.width or stop <= start:
            continue
        row.append((" " * (start - used), "text"))
        room = stop - start - 1
        word = short_level(span.key, names)
        text = word if len(word) <= room else ""
        role = "accent" if ended is None else "muted"
        row += [("▏", "border"), (text, role), ("─" * (room - len(text)), "border")]
        used = stop
    return merged(fit_row(row, axis.width))


def time_row(axis: SweepAxis) -> Row:
    """Give the labels of the axis: time since the sweep began."""
    span = axis.width * axis.cell_s
    step = next((one for one in _LABELS_S if one >= _APART * axis.cell_s), _LABELS_S[-1])
    places = [(index * step, _elapsed(index * step)) for index in range(int(span // step) + 1)]
    return [label(labelled(places, PlotAxis(0.0, span, axis.width)))]


def _elapsed(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s" if whole else "0"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}" if whole % 60 else f"{whole // 60}m"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}"
