"""Draws a group's balance as a low panel on the overview: the verdict, values, and graphs of the loads."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.graphics import numbers
from sparktop.graphics.braille import lead_row, mirrored
from sparktop.graphics.cells import cell_width, fit_name
from sparktop.model.balance import Balance, BalanceWord, leading
from sparktop.model.snapshot import Snapshot
from sparktop.panels.balance.graphs import (
    DOWN,
    UP,
    GroupSlots,
    group_slots,
    lead_runs,
    load_slots,
    opposed_rows,
    with_level,
)
from sparktop.panels.balance.lines import LoadLine, group_lines, line_slots
from sparktop.panels.balance.verdict import reason_rows, value_line, verdict_line, verdict_pieces, word_run
from sparktop.panels.parts.columns import figures_width, graph_columns, graph_starts, mark, panel_row
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.frame import frame_role, framed, key_tab, name_tab, tab
from sparktop.panels.parts.graph import TimeWindow, area_rows, caption, top_words
from sparktop.panels.parts.names import short_names
from sparktop.panels.parts.rows import Row, Run, fit_row, row_width
from sparktop.panels.parts.sentences import flowed

_PAIR = 2
_STRIP_FROM = 76
"""Width in cells of a low panel from which on it has a graph."""
_GRAPHS_FROM = 3
"""Least height in rows of the inside of a panel with two graphs."""
_NAME = 16
"""Most cells for a group's name in a list."""


def balance_band(
    balance: Balance,
    snapshot: Snapshot,
    width: int,
    height: int,
    window: TimeWindow,
    *,
    selected: bool = False,
) -> list[Row]:
    """Draw the balance of one group of backends as `height` rows of `width` cells.

    The graphs show the time `window`, as all graphs of the board do.
    """
    inside, starts = height - 2, graph_starts(width)
    lines = group_lines(balance, snapshot.backends)
    if inside >= _GRAPHS_FROM and len(starts) > 1 and len(lines) >= _PAIR:
        words = _words(balance, snapshot, figures_width(width), inside)
        graphs = _graphs(balance, lines, graph_columns(width)[1], inside, window)
        rows = [panel_row(row, [graph[index] for graph in graphs], width) for index, row in enumerate(words)]
    elif len(lines) == _PAIR and width >= _STRIP_FROM:
        first, *rest = _words(balance, snapshot, starts[-1] - 3, inside)
        strip = _strip(lines, graph_columns(width)[1], window)
        rows = [[(" ", "text"), *first, (" ", "text"), *strip]]
        rows += [[(" ", "text"), *row] for row in rest]
    else:
        rows = [[(" ", "text"), *row] for row in _words(balance, snapshot, width - 4, inside)]
    return framed(
        rows,
        width,
        height,
        role=frame_role("balance", selected=selected),
        title=group_tab(balance),
        state=word_run(balance),
        about=members(balance),
        note=key_tab("w", "why?"),
    )


def group_entry(balance: Balance, width: int, *, selected: bool = False) -> Row:
    """Return one group's balance as a line of a list, without the list's frame of `width` cells."""
    row: Row = [
        mark(selected=selected),
        (fit_name(_short_name(balance.group), _NAME), "title"),
        (" ", "text"),
    ]
    return fit_row([*row, *verdict_line(balance, width - 2 - _NAME - 2)], width - 2)


def edge_verdict(groups: Sequence[Balance], width: int) -> Row:
    """Return the worst verdict of all groups in `width` cells or fewer, for the backends' frame."""
    if not groups:
        return []
    groups = leading(groups)
    worst = min(groups, key=lambda group: (not group.bad, list(BalanceWord).index(group.word)))
    more: Row = [label(f" +{len(groups) - 1} groups")] if len(groups) > 1 else []
    name: Row = [label(f"{_short_name(worst.group).rstrip()}: ")]
    room = width - row_width([*name, *more]) - 2
    return tab(*name, *verdict_line(worst, room), *more)


def _short_name(group: str) -> str:
    """Return a group's name in `_NAME` cells or fewer; of a model's name without its owner, if too long."""
    short = group if cell_width(group) <= _NAME else group.rpartition("/")[2]
    return fit_name(short, min(_NAME, cell_width(short)))


def group_tab(balance: Balance, word: str = "") -> Row:
    """Return the group's name as a tab for the frame; `word` replaces the word "balance"."""
    return name_tab("balance", fit_name(balance.group, 24).rstrip(), word)


def members(balance: Balance) -> Row:
    """Return a row with the names of the group's two backends, or the number of backends.

    The number is that of engine cores (lanes) if these form the group.
    """
    count = len(balance.backends)
    names = " ⇄ ".join(balance.backends) if count == _PAIR else f"{count} backends"
    if balance.lanes_of is not None:
        names = f"{count} lanes"
    return [("─ ", "border"), (f"{names} ", "text")]


def _words(balance: Balance, snapshot: Snapshot, width: int, height: int) -> list[Row]:
    """Return exactly `height` rows of text on a group's balance: verdict, values, and reasons if they fit."""
    if height == 1:
        return [fit_row(value_line(balance, width), width)]
    pieces = verdict_pieces(balance, snapshot.routers)
    if row_width(pieces[0]) > width:
        pieces = verdict_pieces(balance, snapshot.routers, short=True)
    rows = flowed(pieces, width)
    rows += reason_rows(balance, width, height - len(rows))
    return [fit_row(rows[index] if index < len(rows) else (), width) for index in range(height)]


def _graphs(
    balance: Balance, lines: tuple[LoadLine, ...], width: int, height: int, window: TimeWindow
) -> list[list[Row]]:
    """Return two graphs of `width` cells: the group's token rate, and the loads of its backends."""
    shown = group_slots(balance, lines, window.axis(width), width)
    tokens = area_rows(
        shown.group_tps, width, height - 1, shown.group_top, "generation", end_slot=shown.end_slot
    )
    if shown.even_tps is not None:
        tokens = with_level(tokens, shown.even_tps / shown.group_top)
    words: Row = [("Σ tok/s", "generation")]
    even = _even(shown)
    top = f"max {numbers.tick(shown.group_top)}"
    left = [caption([*words, *even], top, width, [*words, *even[:1]], words), *tokens]
    right = _pair(balance, shown, width, height) if len(lines) == _PAIR else _many(shown, width, height)
    return [left, right]


def _strip(lines: Sequence[LoadLine], width: int, window: TimeWindow) -> Row:
    """Draw one row of dots that shows over time which of two backends has more load, and by how much.

    A dot in the upper half of the row means the first backend, in the lower half the second.
    """
    axis = window.axis(width)
    one, other = (load_slots(*line_slots(line, axis, width)[:2]) for line in lines)
    ahead = [_ahead(a, b) for a, b in zip(one, other, strict=True)]
    up = [value if value is not None and value >= 0 else None for value in ahead]
    down = [-value if value is not None and value < 0 else None for value in ahead]
    return [(mirrored(up, down, width, 1, 1.0, end_slot=axis.end_slot)[0], "running")]


def _ahead(a: float | None, b: float | None) -> float | None:
    """Return (a - b) / (a + b) for the loads a and b of two backends, -1 to 1.

    None if a load is unknown or both are 0.
    """
    return None if a is None or b is None or a + b <= 0 else (a - b) / (a + b)


def _even(shown: GroupSlots) -> Row:
    if shown.even_tps is None:
        return []
    return [label(f" ┄{numbers.rate(shown.even_tps, 6).strip()}"), label(" if even")]


def _pair(balance: Balance, shown: GroupSlots, width: int, height: int) -> list[Row]:
    """Draw the load of one backend upwards, and the load of another downwards, from a centre line.

    If `height` leaves a row for the centre line, this row shows which backend leads.
    """
    up, down = zip(shown.running, shown.waiting, strict=True)
    half = (height - 1) // 2
    gradients = ("running", "waiting")
    drawn = opposed_rows(up, down, width, half, shown.load_top, gradients, end_slot=shown.end_slot)
    words, short = (
        [(f"{UP}{above}", "running"), (f" {DOWN}{below}", "running")]
        for above, below in (shown.names, short_names(shown.names))
    )
    rows = [
        caption(words, top_words(shown.load), width, short),
        *drawn[0],
    ]
    if (height - 1) % 2:
        one, other = shown.loads(width)
        rows.append(lead_runs(lead_row(one, other, balance.lead_margin)))
    return [*rows, *drawn[1]]


def _many(shown: GroupSlots, width: int, height: int) -> list[Row]:
    """Draw the highest load of all backends upwards, and the lowest downwards, from a centre line.

    Equal halves are an even load, whatever the number of backends.
    """
    loads = [load_slots(run, wait) for run, wait in zip(shown.running, shown.waiting, strict=True)]
    known = [[load for load in slot if load is not None] for slot in zip(*loads, strict=True)]
    fullest = [max(slot, default=None) for slot in known]
    emptiest = [min(slot) if len(slot) == len(loads) else None for slot in known]
    half, nothing = (height - 1) // 2, list[float | None]()
    above, below = opposed_rows(
        (fullest, nothing),
        (emptiest, nothing),
        width,
        half,
        shown.load_top,
        ("running", "waiting"),
        end_slot=shown.end_slot,
    )
    words: list[Run] = [(f"{UP}most", "running"), (f" {DOWN}least", "running")]
    rows = [
        caption(words, top_words(shown.load), width),
        *above,
    ]
    if (height - 1) % 2:
        rows.append([("─" * width, "border")])
    return [*rows, *below]
