"""What the graphs of a running sweep share: the time axis, the column at their left, and names of levels.

The time axis goes from the sweep's begin until now.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sparktop.graphics.curve import PlotAxis, labelled
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.sweep_comparison import level_name
from sparktop.model.sweep_view import LevelKey, LiveSeries, Slots
from sparktop.panels.parts.figures import figure, label
from sparktop.panels.parts.rows import Row, Run, fit_row, merged, row_width
from sparktop.values import dataclass

GUTTER = 17
"""Width in cells of the column at the left of each track, for its name, its current value and its scale."""
_STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
"""Possible numbers of time slots per dot column: few, so that the picture is seldom rescaled and drawn
anew."""
_LEAST_COLUMN_S = 0.4
"""Least seconds per dot column: shorter ones would show single steps of the engine, since tokens come in
bursts."""
_STRETCHES = (8, 6, 4, 3, 2, 1.5, 1.25)
"""Possible numbers of dot columns per value at the begin of a sweep, so that half of each graph is in use."""
_LEAST_DRAWN = 12
"""Values for which a graph has room at least, so that its scale does not change with every value."""
_LABELS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400)
_APART = 9
"""Least distance in cells between labels of the time axis."""
EDGE = "┊"
"""Character drawn where a level begins, in cells that are empty."""


@dataclass(frozen=True, slots=True, eq=False)
class SweepAxis:
    """The time axis of all graphs of a running sweep; its left edge is the sweep's begin."""

    live: LiveSeries
    width: int
    """Width of each graph in cells."""
    slots: int
    """Number of time slots (of `live`) per value that is drawn."""
    stretch: float = 1
    """Number of dot columns per value that is drawn; a cell is two dot columns wide."""

    @property
    def cell_s(self) -> float:
        """Seconds that one terminal cell covers."""
        return 2 * self.slots * self.live.step_s / self.stretch

    def columns(self, values: Slots) -> list[float | None]:
        """Return the mean of `values` for each dot column of a graph; None right of the newest value."""
        found = means(values, self.slots)
        if self.stretch > 1:
            found = [found[int(column / self.stretch)] for column in range(self.first(len(found)))]
        return found + [None] * (2 * self.width - len(found))

    def first(self, index: int) -> int:
        """Return the first dot column of the value that is drawn as number `index`."""
        return math.ceil(index * self.stretch)

    def cells(self, values: Slots) -> list[float | None]:
        """Return the mean of `values` for each cell of a graph; None right of the newest value."""
        if self.stretch > 1:
            return self.columns(values)[::2]
        found = means(values, 2 * self.slots)
        return found + [None] * (self.width - len(found))

    def cell(self, at: float) -> int:
        """Return the index of the cell for the time `at` (monotonic s); outside the graph, the nearest."""
        return max(0, min(self.width - 1, int((at - self.live.start_at) / self.cell_s)))

    @property
    def edges(self) -> list[int]:
        """The indexes of the cells in which levels of the sweep begin, ascending."""
        return sorted({self.cell(span.began_at) for span in self.live.spans})


def sweep_axis(live: LiveSeries, width: int) -> SweepAxis:
    """Return the time axis with the least time per cell on which the sweep so far fits into `width` cells."""
    least = max(1, -(-live.count // (2 * max(1, width))))
    fine = max(least, round(_LEAST_COLUMN_S / live.step_s))
    slots = next((step for step in _STEPS if step >= fine), fine)
    drawn = -(-live.count // slots)
    stretch = next((wide for wide in _STRETCHES if wide * max(drawn, _LEAST_DRAWN) <= 2 * width), 1)
    return SweepAxis(live, width, slots, stretch)


def means(values: Slots, size: int) -> list[float | None]:
    """Return the means of groups of `size` consecutive values; None where a group has no known value."""
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
    """Return a graph's rows with a vertical line at each cell index in `edges`, drawn in empty cells only."""
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
    """Join each row of a graph with a row of `gutter`, the column at its left with name, value and scale."""
    return [
        [*fit_row(gutter[index] if index < len(gutter) else (), GUTTER), *row]
        for index, row in enumerate(rows)
    ]


def gutter(name: Run, value: Row, top: str, bottom: str, height: int) -> list[Row]:
    """Return `height` rows for the column at the left of a graph: name, current value, ends of the scale."""
    if height <= 1:
        return [_ended([name, (" ", "text"), *value], "")]
    rows = [_ended([name], top), *([] for _ in range(height - 2)), _ended([], bottom)]
    rows[1] = _ended([(" ", "text"), *value], bottom if height == 2 else "")
    return rows


def _ended(words: Row, end: str) -> Row:
    tail: Row = [(f"{end}┤", "muted")] if end else [(" ", "text")]
    return [*fit_row(words, GUTTER - row_width(tail)), *tail]


def value_now(text: str, unit: str, *, role: str = "title") -> Row:
    """Return the newest value of a graph with its unit as styled text; an unknown value has no unit."""
    stripped = text.strip()
    known = stripped != UNKNOWN
    return [figure(stripped, known=known, role=role), label(f" {unit}" if unit and known else "")]


def letters(targets: Sequence[str]) -> dict[str, str]:
    """Return {target name: letter}, with "a" for the first target."""
    return {name: chr(ord("a") + index % 26) for index, name in enumerate(targets)}


def short_level(key: LevelKey, names: dict[str, str], *, lengths: bool) -> str:
    """Return the short name of a level of load; with several targets the target's letter comes first.

    `names` maps targets to letters; `lengths` adds the prompt length to the name.
    """
    letter = f"{names[key.target]} " if len(names) > 1 and key.target in names else ""
    return letter + level_name(key.point, key.prompt_tokens, lengths=lengths, depth=key.depth)


def level_strip(axis: SweepAxis, names: dict[str, str], *, lengths: bool) -> Row:
    """Draw a row that shows when each level of the sweep ran, with the level's name where it fits.

    `names` maps targets to letters; `lengths` adds the prompt length to the names of levels.
    """
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
        word = short_level(span.key, names, lengths=lengths)
        text = word if len(word) <= room else ""
        role = "accent" if ended is None else "muted"
        row += [("▏", "border"), (text, role), ("─" * (room - len(text)), "border")]
        used = stop
        if ended is None and not text:
            row = _with_end(fit_row(row, used), f"▏{word}")
    return merged(fit_row(row, axis.width))


def _with_end(row: Row, word: str) -> Row:
    """Return `row` with its last cells replaced by `word`: a level that just began is named, too."""
    left = row_width(row) - len(word)
    if left < 0:
        return row
    kept: Row = []
    for text, role in row:
        if len(text) > left:
            # A name that is cut would be read as another one.
            return [*kept, ("─" * left, "border"), (word, "accent")]
        kept.append((text, role))
        left -= len(text)
    return row


def time_row(axis: SweepAxis) -> Row:
    """Return a row with the labels of the time axis, as time since the sweep began."""
    span = axis.width * axis.cell_s
    step = next((seconds for seconds in _LABELS_S if seconds >= _APART * axis.cell_s), _LABELS_S[-1])
    places = [(index * step, _elapsed(index * step)) for index in range(int(span // step) + 1)]
    return [label(labelled(places, PlotAxis(0.0, span, axis.width)))]


def _elapsed(seconds: float) -> str:
    minutes, left_s = divmod(int(seconds), 60)
    if not minutes:
        return f"{left_s} s" if left_s else "0"
    if minutes < 60:
        return f"{minutes}.5 min" if left_s == 30 else f"{minutes} min"
    hours, left_min = divmod(minutes, 60)
    return f"{hours}.5 h" if left_min == 30 else f"{hours} h"
