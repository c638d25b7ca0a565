"""Draws what users or agents do over time: a row for each, or how many do what where they are many."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

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
_NAMED = 9
_COUNTED = "how many do what"
"""Label of the columns, whose rows are no users or agents."""


def conversations_height(activities: Activities, most: int) -> int:
    """Return the number of rows, `most` at most, that the picture of `activities` needs."""
    return min(most, 1 + len(activities.each)) if activities.each else most


def conversations_rows(activities: Activities, width: int, height: int) -> list[Row]:
    """Draw users or agents as exactly `height` rows of `width` cells; the right edge is now.

    The first row says how many do what. Below it each has a row, or where these do not fit, columns show how
    many do what over time.
    """
    cells = max(4, width - GUTTER)
    slots = max(1, min(_MOST_SLOTS, int(len(activities.counts) / (_FILLED * cells))))
    # Few slots are widened: a level that has just begun fills the room, too.
    wide = max(1, min(_MOST_CELLS, cells // max(1, len(activities.counts))))
    rows = [_legend(activities, min(cells * slots, len(activities.counts)) * activities.step_s, cells)]
    if activities.each and 1 + len(activities.each) <= height:
        rows += [_lane(activities, number, cells, slots, wide) for number in range(len(activities.each))]
    elif height > 1:
        rows += _columns(activities, cells, height - 1, slots, wide)
    blank: list[Row] = [[]] * max(0, height - len(rows))
    return [merged(fit_row(row, width)) for row in [*rows, *blank][:height]]


def _legend(activities: Activities, span_s: float, cells: int) -> Row:
    """Return the row of signs with how many do what, and the time that the picture shows."""
    parts: list[Row] = []
    for doing, count in activities.now.items():
        if (doing is Doing.TOOL and activities.people) or (
            doing is Doing.WAITING and not activities.queue_known
        ):
            continue
        sign, role = _SIGNS[doing]
        shown = _BEGUN + sign if doing is Doing.TOOL else sign
        parts.append([(shown, role), (f" {count}", "title" if count else "muted"), label(f" {doing.value}")])
    apart = "   " if sum(map(row_width, parts)) + 3 * len(parts) <= cells else " "
    row: Row = [*fit_row([label(f"last {span_s:.0f} s")], GUTTER)]
    for part in parts:
        row += [*part, (apart, "text")]
    return row


def _lane(activities: Activities, number: int, cells: int, slots: int, wide: int) -> Row:
    text = activities.each[number]
    name = f"{'user' if activities.people else 'agent'} {number + 1}"
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
    """Return the slots of each cell, of which the last one is full; at most `cells`."""
    first = max(0, len(text) - cells * slots)
    return [text[max(first, end - slots) : end] for end in range(len(text), first, -slots)][::-1]


def _columns(activities: Activities, cells: int, height: int, slots: int, wide: int) -> list[Row]:
    """Draw how many do what as columns of `height` cells, the servers' work at the bottom."""
    counts = activities.counts[-cells * slots :]
    ends = list(range(len(counts), 0, -slots))[::-1]
    each = [_column(counts[max(0, end - slots) : end], height) for end in ends]
    columns = [column for column in each for _ in range(wide)]
    total = sum(activities.counts[-1]) if activities.counts else 0
    rows: list[Row] = []
    for at in range(height):
        top = f"{total}┤" if at == 0 else "0┤" if at == height - 1 else ""
        name = ("users" if activities.people else "agents", _COUNTED)[at] if at < min(2, height - 1) else ""
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
