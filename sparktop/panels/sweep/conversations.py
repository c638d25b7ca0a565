"""Draws what agents do over time: a row for each, or how many do what where they are many."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from sparktop.graphics.axes import time_axis
from sparktop.model.activity import LETTERS, Activities, Doing
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.rows import Row, fit_row, merged, row_width
from sparktop.panels.sweep.timeline import DECODE, PREFILL, QUEUE
from sparktop.panels.sweep.tracks import GUTTER

_SIGNS: dict[Doing, tuple[str, str]] = {
    Doing.DECODE: (DECODE, "generation/8"),
    Doing.PREFILL: (PREFILL, "prompt"),
    Doing.WAITING: (QUEUE, "waiting"),
    Doing.TOOL: (".", "info"),
    Doing.THINK: ("·", "muted"),
}
"""The (character, role) with which each activity is drawn."""
_BY_LETTER = {letter: _SIGNS[doing] for doing, letter in LETTERS.items()}
_BEGUN = "t"
"""Begins each stretch in which an agent waits for a tool; in the legend it stands before the sign."""
_FILLED, _MOST_SLOTS = 0.75, 4
"""Least share of the width that is filled once there is enough to show, and most time slots per cell."""
_MOST_CELLS = 4
"""Most cells per time slot."""
_AROUND, _LEAST_BODY = 2, 2
"""Rows above and below the picture, the legend and the time axis, and its least height with both."""
_NAMED = 9
_COUNTED = "how many do what"
"""Label of the columns, whose rows are no agents."""


def conversations_height(activities: Activities, most: int) -> int:
    """Return the number of rows, `most` at most, that the picture of `activities` needs."""
    return min(most, _AROUND + len(activities.each)) if activities.each else most


def conversations_rows(activities: Activities, width: int, height: int) -> list[Row]:
    """Draw agents as exactly `height` rows of `width` cells; the right edge is now.

    The first row says how many do what now. Below it each has a row, or where these do not fit, columns show
    how many do what over time. The last row is their time axis, where there is room for it.
    """
    cells = max(4, width - GUTTER)
    slots = max(1, min(_MOST_SLOTS, int(len(activities.counts) / (_FILLED * cells))))
    # Few slots are widened: a level that has just begun fills the room, too.
    wide = max(1, min(_MOST_CELLS, cells // max(1, len(activities.counts))))
    rows = [_legend(activities, min(cells * slots, len(activities.counts)) * activities.step_s, cells)]
    each = len(activities.each)
    has_axis = height >= (_AROUND + each if 0 < each < _LEAST_BODY else _AROUND + _LEAST_BODY)
    body = height - 1 - has_axis
    if 0 < each <= body:
        rows += [_lane(activities, number, cells, slots, wide) for number in range(each)]
    elif body > 0:
        rows += _columns(activities, cells, body, slots, wide)
    if has_axis:
        drawn = min(cells, wide * -(-len(activities.counts) // slots))
        ago = time_axis(drawn, slots * activities.step_s / wide / 2)
        rows.append([(" " * (width - drawn), "text"), label(ago)])
    blank: list[Row] = [[]] * max(0, height - len(rows))
    return [merged(fit_row(row, width)) for row in [*rows, *blank][:height]]


def _legend(activities: Activities, span_s: float, cells: int) -> Row:
    """Return the row of signs with how many do what, and the time that the picture shows."""
    parts: list[Row] = []
    for doing, count in activities.now.items():
        if doing is Doing.WAITING and not activities.queue_known:
            continue
        sign, role = _SIGNS[doing]
        shown = _BEGUN + sign if doing is Doing.TOOL else sign
        parts.append([(shown, role), (f" {count}", "title" if count else "muted"), label(f" {doing.value}")])
    apart = "   " if sum(map(row_width, parts)) + 3 * len(parts) <= cells else " "
    head: Row = [("agents", "accent"), label(f" last {span_s:.0f} s")]
    row: Row = [*fit_row(head, max(GUTTER, row_width(head) + 1))]
    for part in parts:
        row += [*part, (apart, "text")]
    return row


def _lane(activities: Activities, number: int, cells: int, slots: int, wide: int) -> Row:
    text = activities.each[number]
    name = f"agent {number + 1}"
    doing = next((one for one, letter in LETTERS.items() if text[-1:] == letter), Doing.THINK)
    row = [*fit_row([label(name)], _NAMED), *fit_row([(doing.value, _SIGNS[doing][1])], GUTTER - _NAMED)]
    parts = [part for part in _parts(text, cells, slots) for _ in range(wide)]
    row.append((" " * (cells - len(parts)), "text"))
    for letter, group in groupby(Counter(part).most_common(1)[0][0] for part in parts):
        sign, role = _BY_LETTER[letter]
        drawn = sign * len(list(group))
        row.append((_BEGUN + drawn[1:] if letter == LETTERS[Doing.TOOL] else drawn, role))
    return row


def _parts(text: str, cells: int, slots: int) -> list[str]:
    """Return the slots of each cell, at most `cells`; of the last cell the newest only, which is now."""
    first = max(0, len(text) - cells * slots)
    parts = [text[max(first, end - slots) : end] for end in range(len(text), first, -slots)][::-1]
    return [*parts[:-1], text[-1:]] if parts else []


def _columns(activities: Activities, cells: int, height: int, slots: int, wide: int) -> list[Row]:
    """Draw how many do what as columns of `height` cells, the servers' work at the bottom."""
    counts = activities.counts[-cells * slots :]
    ends = list(range(len(counts), 0, -slots))[::-1]
    # The last column is now, as the numbers above it are.
    each = [_column(counts[max(0, end - (slots if end < len(counts) else 1)) : end], height) for end in ends]
    columns = [column for column in each for _ in range(wide)]
    total = sum(activities.counts[-1]) if activities.counts else 0
    rows: list[Row] = []
    for at in range(height):
        top = f"{total}┤" if at == 0 else "0┤" if at == height - 1 else ""
        name = _COUNTED if at == 1 and height > _LEAST_BODY else ""
        row = [
            *fit_row([label(name)], GUTTER - len(top)),
            (top, "muted"),
            (" " * (cells - len(columns)), "text"),
        ]
        for doing, group in groupby(column[at] for column in columns):
            sign, role = _SIGNS[doing]
            row.append((sign * len(list(group)), role))
        rows.append(row)
    return rows


def _column(counts: tuple[tuple[int, ...], ...], height: int) -> list[Doing]:
    """Return what each of `height` cells shows, from the top: whoever thinks first, decode at the bottom."""
    sums = [sum(values) for values in zip(*counts, strict=True)]
    total, passed = sum(sums) or 1, 0
    column: list[Doing] = []
    for doing, value in zip(Doing, sums, strict=True):
        passed += value
        column += [doing] * (round(height * passed / total) - len(column))
    return [*column, *[Doing.THINK] * (height - len(column))][::-1]
