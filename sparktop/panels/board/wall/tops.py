"""Lists of the worst servers and machines of a wall, in few rows each: name, figure, group."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.analysis.wall import Stated, Top, Wall
from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width, fit
from sparktop.model.fleet import FleetNode
from sparktop.panels.board.wall.cells import cell_of
from sparktop.panels.board.wall.lines import group_name, ttft_run
from sparktop.panels.parts.columns import mark
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.names import fitted_names
from sparktop.panels.parts.rows import Row, fit_row

KEY = "l"
"""The key that shows one list after the other in full."""
_FIGURE = 9
_NONE = {
    Top.WAITING: ("no request waits",),
    Top.KV: ("no KV cache is in use",),
    Top.TTFT: ("no request began to answer in the last minute", "no answer began in the last minute"),
    Top.CLOCK: ("no machine is slower than its load explains", "no machine is slow"),
}
"""Sentences for empty lists, the longest first."""


def top_keys(wall: Wall, top: Top, count: int) -> list[str]:
    """Return the names of at most `count` entries of a list."""
    if top is Top.CLOCK:
        return [one.name for one in wall.slow_nodes[:count]]
    return [one.server.name for one, _ in wall.tops.get(top, ())[:count]]


def top_rows(wall: Wall, top: Top, width: int, height: int, *, selected: str | None = None) -> list[Row]:
    """Draw a list as exactly `height` rows of `width` cells: its heading, then an entry in each row."""
    rows: list[Row] = [[label(" "), (top.value, "accent"), *_count(wall, top)]]
    if top is Top.CLOCK:
        rows += _nodes(wall.slow_nodes[: height - 1], width, selected)
    else:
        shown = wall.tops.get(top, ())[: height - 1]
        names = fitted_names(tuple(one.server.name for one, _ in shown), _name_width(width))
        rows += [
            _server(one, names[one.server.name], value, top, width, selected=one.server.name == selected)
            for one, value in shown
        ]
    if len(rows) == 1:
        said = ("no machine is watched",) if top is Top.CLOCK and not wall.nodes else _NONE[top]
        rows.append([label(f" {next((one for one in said if cell_width(one) < width), said[-1])}")])
    return [fit_row(rows[at] if at < len(rows) else (), width) for at in range(height)]


def _count(wall: Wall, top: Top) -> Row:
    count = len(wall.slow_nodes) if top is Top.CLOCK else 0
    return [label(f"  {count} of {len(wall.nodes)} machines")] if count else []


def _server(one: Stated, name: str, value: float, top: Top, width: int, *, selected: bool) -> Row:
    if top is Top.WAITING:
        text = numbers.count(value, 5)
    elif top is Top.KV:
        text = numbers.percent(value, 5)
    else:
        text = ttft_run(one)[0]
    return [
        mark(selected=selected),
        cell_of(one.state),
        (f" {name}", "title"),
        (f"{text.strip():>{_FIGURE}}", "text"),
        label(f"  {fit(group_name(one.server.group), max(0, width - _name_width(width) - _FIGURE - 6))}"),
    ]


def _nodes(nodes: Sequence[FleetNode], width: int, selected: str | None) -> list[Row]:
    """Return the lines of machines; the clock has a column where it is known of any of them."""
    clock = _FIGURE if any(one.sm_clock_mhz is not None for one in nodes) else 0
    longest = max((cell_width(one.name) for one in nodes), default=0)
    words = max((len(one.state) for one in nodes), default=0)
    name = max(8, min(max(longest, _name_width(width)), width - 3 - clock - 2 - words))
    names = fitted_names(tuple(one.name for one in nodes), name)
    return [_node(one, names[one.name], clock, selected=one.name == selected) for one in nodes]


def _node(one: FleetNode, name: str, clock: int, *, selected: bool) -> Row:
    text = numbers.UNKNOWN if one.sm_clock_mhz is None else f"{one.sm_clock_mhz:.0f} MHz"
    return [
        mark(selected=selected),
        cell_of(one.state),
        (f" {name}", "title"),
        (f"{text:>{clock}}" if clock else "", "text"),
        label(f"  {one.state}"),
    ]


def _name_width(width: int) -> int:
    return max(8, min(24, (width - _FIGURE - 6) * 3 // 5))
