"""What the graphs of a running sweep share: the time axis, the column at their left, and names of levels.

The time axis goes from the sweep's begin until now.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec import Struct

from sparktop.graphics.axes import PlotAxis, labelled
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.load import LoadKind
from sparktop.model.sweep_comparison import level_name
from sparktop.model.sweep_view import LevelSpan, LiveSeries, Slots
from sparktop.panels.parts.figures import figure, label
from sparktop.panels.parts.roles import part_letter, part_role
from sparktop.panels.parts.rows import Row, Run, fit_row, merged, row_width

GUTTER = 17
"""Width in cells of the column at the left of each track, for its name, its current value and its scale."""
_STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
"""Possible numbers of time slots per dot column: few, so that the picture is seldom rescaled and drawn
anew."""
_LEAST_COLUMN_S = 0.4
"""Least seconds per dot column: shorter ones would show single steps of the engine, since tokens come in
bursts."""
_STRETCHES = (8, 7, 6, 5, 4.5, 4, 3.5, 3, 2.7, 2.4, 2.1, 1.9, 1.7, 1.5, 1.35, 1.25, 1.12)
"""Possible numbers of dot columns per value, so close that most of each graph is in use."""
_LEAST_DRAWN = 12
"""Values for which a graph has room at least, so that its scale does not change with every value."""
_LABELS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400)
_MINUTE_S, _HOUR_S = 60, 3600
_APART = 9
"""Least distance in cells between labels of the time axis."""
EDGE = "┊"
"""Character drawn where a level begins, in cells that are empty."""


class SweepAxis(Struct, frozen=True, eq=False):
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


def gutter(
    name: Run, value: Row, top: str, bottom: str, height: int, *, beside: Sequence[Run] = ()
) -> list[Row]:
    """Return `height` rows for the column at the left of a graph: name, current value, ends of the scale.

    `beside` is text after the name.
    """
    if height <= 1:
        return [gutter_row([name, (" ", "text"), *value], "")]
    rows = [
        gutter_row([name, (" ", "text"), *beside], top),
        *([] for _ in range(height - 2)),
        gutter_row([], bottom),
    ]
    rows[1] = gutter_row([(" ", "text"), *value], bottom if height == 2 else "")
    return rows


def gutter_row(words: Row, end: str) -> Row:
    """Return one row of the column at the left of a graph: `words`, and the label `end` of its scale."""
    tail: Row = [(f"{end}┤", "muted")] if end else [(" ", "text")]
    return [*fit_row(words, GUTTER - row_width(tail)), *tail]


def value_now(text: str, unit: str, *, role: str = "title") -> Row:
    """Return the newest value of a graph with its unit as styled text; an unknown value has no unit."""
    stripped = text.strip()
    known = stripped != UNKNOWN
    return [figure(stripped, known=known, role=role), label(f" {unit}" if unit and known else "")]


def letters(targets: Sequence[str]) -> dict[str, str]:
    """Return {target name: letter}, with "A" for the first target."""
    return {name: part_letter(index) for index, name in enumerate(targets)}


def level_strip(axis: SweepAxis, names: dict[str, str], *, lengths: bool) -> Row:
    """Draw a row that shows when each level of the sweep ran, with the level's name where it fits.

    The row begins with its own name at the left of the graphs. `names` maps targets to letters; `lengths`
    adds the prompt length to the names of levels.
    """
    places = list(_places(axis))
    words = _words(places, names, lengths=lengths)
    row: Row = []
    used = 0
    for (span, start, stop), (letter, name) in zip(places, words, strict=True):
        row.append((" " * (start - used), "text"))
        text: Row = [(letter, _letter_role(names, span.key.target))] if letter else []
        text.append((name, "accent" if span.ended_at is None else "muted"))
        room, cells = stop - start - 1, row_width(text)
        shown = text if cells <= room else []
        row += [("▏", "border"), *shown, ("─" * (room - row_width(shown)), "border")]
        used = stop
        if span.ended_at is None and not shown:
            row = _with_end(fit_row(row, used), [("▏", "border"), *text])
    unit = " c =" if any(_is_number(name) for _, name in words) else ""
    return merged([*fit_row([label(f"levels{unit}")], GUTTER), *fit_row(row, axis.width)])


def _places(axis: SweepAxis) -> Iterator[tuple[LevelSpan, int, int]]:
    """Yield (period of a level, its first cell, the cell after its last one) for all periods on the axis."""
    used = 0
    spans = axis.live.spans
    for index, span in enumerate(spans):
        start = max(used, axis.cell(span.began_at))
        now = axis.live.start_at + axis.live.count * axis.live.step_s
        stop = axis.cell(now if span.ended_at is None else span.ended_at) + 1
        if index + 1 < len(spans):
            stop = min(stop, axis.cell(spans[index + 1].began_at))
        if start < axis.width and stop > start:
            yield span, start, stop
            used = stop


def _words(
    places: Sequence[tuple[LevelSpan, int, int]], names: dict[str, str], *, lengths: bool
) -> list[tuple[str, str]]:
    """Return (letter of the target, name of the level) for each of `places`.

    Of three spellings, the first one is used that most levels have room for: "A c4" for all; the letter only
    where the target changes; and "A 4", "16" for concurrencies.
    """
    keys = [span.key for span, _, _ in places]
    full = [level_name(key.point, key.prompt_tokens, lengths=lengths, depth=key.depth) for key in keys]
    each = [f"{names[key.target]} " if len(names) > 1 and key.target in names else "" for key in keys]
    once = [word if not at or word != each[at - 1] else "" for at, word in enumerate(each)]
    spellings = [list(zip(each, full, strict=True)), list(zip(once, full, strict=True))]
    if all(key.point.kind is LoadKind.CONCURRENCY and not key.depth for key in keys) and not lengths:
        spellings.append([(word, str(key.concurrency)) for word, key in zip(once, keys, strict=True)])

    def fitting(words: list[tuple[str, str]]) -> int:
        rooms = (stop - start - 1 for _, start, stop in places)
        return sum(len(letter + name) <= room for (letter, name), room in zip(words, rooms, strict=True))

    return max(spellings, key=fitting)


def _is_number(name: str) -> bool:
    return name.isdigit()


def _letter_role(names: dict[str, str], target: str) -> str:
    """Return the role of a target's letter, that of its curve."""
    return part_role(list(names).index(target)) if target in names else "muted"


def _with_end(row: Row, word: Row) -> Row:
    """Return `row` with its last cells replaced by `word`: a level that just began is named, too."""
    left = row_width(row) - row_width(word)
    if left < 0:
        return row
    kept: Row = []
    for text, role in row:
        if len(text) > left:
            # A name that is cut would be read as another one.
            return [*kept, ("─" * left, "border"), *word]
        kept.append((text, role))
        left -= len(text)
    return row


def time_row(axis: SweepAxis) -> Row:
    """Return a row with the labels of the time axis, as time since the sweep began."""
    span = axis.width * axis.cell_s
    step = next((seconds for seconds in _LABELS_S if seconds >= _APART * axis.cell_s), _LABELS_S[-1])
    places = [
        (index * step, elapsed_tick(index * step, step, span)) for index in range(int(span // step) + 1)
    ]
    return [label(labelled(places, PlotAxis(0.0, span, axis.width)))]


def elapsed_tick(seconds: int, step: int, span: float) -> str:
    """Return the label of a time axis that shows `span` seconds with a label every `step` seconds.

    All labels of an axis are alike: "20 s" up to a minute, "1:20" for minutes and seconds, "5 min", "1:30 h"
    for hours and minutes, "2 h".
    """
    if not seconds:
        return "0"
    if step % _HOUR_S == 0:
        return f"{seconds // _HOUR_S} h"
    if step % _MINUTE_S == 0:
        minutes = seconds // _MINUTE_S
        return f"{minutes} min" if span < _HOUR_S else f"{minutes // 60}:{minutes % 60:02} h"
    return f"{seconds} s" if span < _MINUTE_S else f"{seconds // 60}:{seconds % 60:02}"
