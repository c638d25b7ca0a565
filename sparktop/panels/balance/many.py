"""Draws the graphs of a group of more than two backends: each one's load and token rate, on one scale."""

from __future__ import annotations

from sparktop.graphics import numbers
from sparktop.panels.balance.slots import (
    GUTTER,
    GroupSlots,
    group_speed,
    in_gutter,
    newest,
    ruled,
    tps_heading,
)
from sparktop.panels.parts.figures import figure, label
from sparktop.panels.parts.graph import area_rows, stacked_rows, top_words
from sparktop.panels.parts.names import fitted_names
from sparktop.panels.parts.rows import Row

_GROUP = 3
"""Least height in rows of the graph of the group's token rate."""
_MOST = 4
"""Most rows of the load of one backend."""


def many_rows(shown: GroupSlots, width: int, height: int) -> tuple[list[Row], list[Row]]:
    """Draw the graphs of a group of more than two backends as `height` rows; return (rows, further rows).

    The further rows are the token rates of each backend if these did not fit into the first rows, else
    empty. All backends have equal heights, so that equal loads look equal.
    """
    count = len(shown.names)
    room = height - 2 - _GROUP  # headings of the loads and of the group's token rate
    inside = room - count >= count + 1
    each = max(1, min(_MOST, (room - (count + 1 if inside else 0)) // count))
    loads = [load_heading(shown, width)]
    for index in range(count):
        loads += _load(shown, index, width - GUTTER, each)
    speeds = [tps_heading("tok/s of each", shown.tps_top, width)]
    for index in range(count):
        speeds += _speed(shown, index, width - GUTTER)
    above = [*loads, *(speeds if inside else ())]
    rows = [*above, *group_speed(shown, width, max(_GROUP, height - len(above) - 1))]
    return rows, [] if inside else speeds


def load_heading(shown: GroupSlots, width: int) -> Row:
    """Return the title row above the backends' loads, with a legend of running and waiting requests."""
    words: Row = [("─ ", "border"), ("requests of each", "accent")]
    words += [(" ⣿ running", "running"), (" ⡪ waiting ", "waiting")]
    return ruled(words, top_words(shown.load), width)


def _load(shown: GroupSlots, index: int, width: int, height: int) -> list[Row]:
    running, waiting = shown.running[index], shown.waiting[index]
    run, wait = newest(running), newest(waiting)
    text = f"{numbers.count(run, 4).strip()}+{numbers.count(wait, 4).strip()}"
    graph = stacked_rows(
        running, waiting, width, height, shown.load_top, ("running", "waiting"), end_slot=shown.end_slot
    )
    gutter = _named(shown, index, figure(text, known=run is not None, role="warn" if wait else "title"))
    return in_gutter([gutter], graph)


def _speed(shown: GroupSlots, index: int, width: int) -> list[Row]:
    values = shown.generation_tps[index]
    now = newest(values)
    graph = area_rows(values, width, 1, shown.tps_top, "generation", end_slot=shown.end_slot)
    text = numbers.rate(now, 5).strip()
    return in_gutter([_named(shown, index, figure(text, known=now is not None))], graph)


def _named(shown: GroupSlots, index: int, value: tuple[str, str]) -> Row:
    """Return the text left of a backend's graph: its name, and `value` as styled text at the right."""
    cells = GUTTER - 1 - len(value[0])
    return [(fitted_names(shown.names, cells)[shown.names[index]], "text"), value, label(" ")]
