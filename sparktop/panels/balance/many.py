"""Draws the graphs of a group of more than two backends: shares of all requests, loads, and token rates.

Loads are drawn as shades: the denser the shade of a cell, the more requests.
"""

from __future__ import annotations

from sparktop.graphics import numbers
from sparktop.graphics.bars import sparkrow
from sparktop.graphics.cells import fit
from sparktop.graphics.shares import cell_means, heat_row
from sparktop.panels.balance.slots import (
    GUTTER,
    GroupSlots,
    group_speed,
    in_gutter,
    newest,
    ruled,
    scale_end,
    tps_heading,
)
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.roles import part_letter, part_role
from sparktop.panels.parts.rows import Row, fit_row
from sparktop.panels.parts.sections import heading
from sparktop.panels.parts.shares import share_rows

_CALM = "generation/8"
"""Role of the token bars: full bars side by side are conspicuous enough in the middle of the gradient."""
_AREA, _GROUP = 4, 2
"""Least heights in rows of the graph of shares and of the graph of the group's token rate."""


def many_rows(shown: GroupSlots, width: int, height: int) -> tuple[list[Row], list[Row]]:
    """Draw the graphs of a group of more than two backends as `height` rows; return (rows, further rows).

    The further rows are the token rates of each backend if these did not fit into the first rows, else
    empty.
    """
    count, graph = len(shown.names), width - GUTTER
    heat = [heat_heading(shown, width), *heat_rows(shown, width)]
    speeds = [
        tps_heading("tokens/s of each", shown.tps_top, width),
        *(_speed_bar(shown, index, graph) for index in range(count)),
    ]
    room = height - len(heat) - 2  # rules over the shares and over the group's tokens
    inside = room - len(speeds) >= 2 * (_AREA + _GROUP) - 2
    if inside:
        room -= len(speeds)
    area = max(_AREA, room * 3 // 5)
    rows = [
        heading("share of all requests", "", width),
        *_in_scale(share_rows(shown.loads(graph), area)),
        *heat,
        *(speeds if inside else ()),
        *group_speed(shown, width, max(_GROUP, room - area)),
    ]
    return rows, [] if inside else speeds


def _in_scale(rows: list[Row]) -> list[Row]:
    gutter: list[Row] = [scale_end([], "100 %"), *([] for _ in rows[2:]), scale_end([], "0")]
    return in_gutter(gutter, rows)


def heat_heading(shown: GroupSlots, width: int) -> Row:
    """Return the title row above the backends' loads, with a legend of the shades that stand for loads."""
    words: Row = [("─ ", "border"), ("requests", "accent"), (" ·none ░▒▓█", "running")]
    words += [(" w some wait W most ", "waiting")]
    return ruled(words, f"█ to {numbers.tick(shown.load_top)}", width)


def heat_rows(shown: GroupSlots, width: int) -> list[Row]:
    """Return a row per backend: name, current number of requests, and the load over time as shades."""
    return [_heat(shown, index, width - GUTTER) for index in range(len(shown.names))]


def _heat(shown: GroupSlots, index: int, width: int) -> Row:
    running, waiting = shown.running[index], shown.waiting[index]
    cells = [cell_means(values, width, shown.end_slot) for values in (running, waiting)]
    run = newest(running)
    load = None if run is None else run + (newest(waiting) or 0.0)
    runs = heat_row(cells[0], cells[1], shown.load_top)
    roles = (part_role(index), "warn")
    return [*_named(shown, index, numbers.count(load, 4)), *((text, roles[layer]) for text, layer in runs)]


def _named(shown: GroupSlots, index: int, value: str) -> Row:
    return fit_row(
        [
            (f"{part_letter(index)} ", part_role(index)),
            (fit(shown.names[index], GUTTER - 3 - len(value)), "text"),
            (value, "title" if value.strip() != numbers.UNKNOWN else "muted"),
            label(" "),
        ],
        GUTTER,
    )


def _speed_bar(shown: GroupSlots, index: int, width: int) -> Row:
    values = shown.generation_tps[index]
    bars = sparkrow(cell_means(values, width, shown.end_slot), width, shown.tps_top)
    return [*_named(shown, index, numbers.rate(newest(values), 5)), (bars, _CALM)]
