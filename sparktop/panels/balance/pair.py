"""Draws the graphs of a group of two backends: loads above and below a centre line, and token rates."""

from __future__ import annotations

import re

from sparktop.graphics import numbers
from sparktop.graphics.shares import lead_row
from sparktop.panels.balance.slots import (
    GUTTER,
    GroupSlots,
    group_speed,
    in_gutter,
    newest,
    opposed_rows,
    ruled,
    scale_end,
    tps_heading,
    tps_words,
)
from sparktop.panels.parts.figures import LIVE, figure, label
from sparktop.panels.parts.graph import top_words
from sparktop.panels.parts.names import fitted_names
from sparktop.panels.parts.rows import Row
from sparktop.panels.parts.slots import Slots

UP, DOWN = "▲", "▼"
"""Signs of the backend above the centre line and of the backend below it."""
_LEADS = re.compile("[─ ]+|[▲▼]+")
_LOAD_GRADIENTS = ("running", "waiting")
_SPEED_FROM = 13
"""Height in rows of all graphs together from which on each backend's token rate is drawn."""


def pair_rows(shown: GroupSlots, lead_margin: float | None, width: int, height: int) -> list[Row]:
    """Draw loads and token rates of two backends as `height` rows, or a few more if `height` is too small.

    A `lead_margin` of 0.2 means that a backend leads if its load is at least 20 % above its even share.
    """
    load, speed, group = _heights(height)
    rows = [load_heading(shown, width), *_loads(shown, lead_margin, width - GUTTER, load)]
    if speed:
        heading = tps_heading("tok/s of each", shown.tps_top, width)
        rows += [heading, *_speeds(shown, width - GUTTER, speed)]
    return [*rows, *group_speed(shown, width, group)]


def _heights(height: int) -> tuple[int, int, int]:
    """Return heights in rows: (half the load graph, half the token-rate graph, group's token-rate graph).

    The load graph and the token-rate graph have a half for each of two backends. The second height is 0
    where the backends' token rates are not drawn.
    """
    room = height - 3  # two rules and the centre line
    if room - 1 >= _SPEED_FROM:
        load, speed = (room - 1) * 6 // 22, max(1, round((room - 1) * 2 / 22))
        return load, speed, room - 1 - 2 * (load + speed)
    load = max(1, room * 2 // 5)
    return load, 0, max(2, room - 2 * load)


def load_heading(shown: GroupSlots, width: int) -> Row:
    """Return the title row above two backends' loads, with a legend of running and waiting requests."""
    words: Row = [("─ ", "border"), ("requests", "accent")]
    words += [(" ⣿ running", "running"), (" ⡪ waiting ", "waiting")]
    return ruled(words, top_words(shown.load), width)


def _loads(shown: GroupSlots, lead_margin: float | None, width: int, half: int) -> list[Row]:
    up, down = zip(shown.running, shown.waiting, strict=True)
    above, below = opposed_rows(
        up, down, width, half, shown.load_top, _LOAD_GRADIENTS, end_slot=shown.end_slot
    )
    top = numbers.tick(shown.load_top)
    counts_height = max(0, half - 1)
    first = [scale_end(_name(UP, shown, 0), top), *_counts(shown, 0)[:counts_height]]
    last = [*_counts(shown, 1)[:counts_height], scale_end(_name(DOWN, shown, 1), top)]
    empty: list[Row] = [[] for _ in range(half - len(last))]
    one, other = shown.loads(width)
    strip = lead_row(one, other, lead_margin)
    return [
        *in_gutter(first, above),
        [*scale_end([label("  leads")], "0"), *lead_runs(strip)],
        *in_gutter([*empty, *last], below),
    ]


def lead_runs(strip: str) -> Row:
    """Return `strip` as styled text; cells in which no backend leads are muted.

    `strip` has one character per cell, which shows the backend that leads.
    """
    return [(run.group(), "border" if run.group()[0] in "─ " else "title") for run in _LEADS.finditer(strip)]


def _name(sign: str, shown: GroupSlots, index: int) -> Row:
    name = fitted_names(shown.names, GUTTER - 6)[shown.names[index]]
    return [(f"{sign} {name.rstrip()}", "title")]


def _counts(shown: GroupSlots, index: int) -> list[Row]:
    run, wait = newest(shown.running[index]), newest(shown.waiting[index])
    return [
        [label("  run "), figure(numbers.count(run, 5), known=run is not None, role=LIVE)],
        [
            label("  wait"),
            figure(numbers.count(wait, 5), known=wait is not None, role="warn" if wait else LIVE),
        ],
    ]


def _speeds(shown: GroupSlots, width: int, half: int) -> list[Row]:
    nothing: Slots = []
    up, down = shown.generation_tps
    gradients = ("generation", "generation")
    above, below = opposed_rows(
        (up, nothing), (down, nothing), width, half, shown.tps_top, gradients, end_slot=shown.end_slot
    )
    top = numbers.tick(shown.tps_top)
    ends = [
        scale_end([*tps_words(sign, newest(values))], top)
        for sign, values in zip((UP, DOWN), shown.generation_tps, strict=True)
    ]
    empty: list[Row] = [[] for _ in range(half - 1)]
    return [
        *in_gutter(ends[:1], above),
        *in_gutter([*empty, ends[1]], below),
    ]
