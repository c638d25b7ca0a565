"""Draws a group's balance as a low panel on the overview: the verdict, values, and graphs of the loads."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.graphics import numbers
from sparktop.graphics.braille import mirrored
from sparktop.graphics.cells import fit
from sparktop.graphics.opposed import opposed
from sparktop.graphics.shares import lead_row
from sparktop.model.balance import Balance
from sparktop.model.snapshot import Snapshot
from sparktop.panels.balance.lines import LoadLine, balance_axis, group_lines, line_slots
from sparktop.panels.balance.pair import DOWN, UP, lead_runs
from sparktop.panels.balance.slots import GroupSlots, group_slots, layered, load_slots
from sparktop.panels.balance.verdict import reason_rows, verdict_pieces, word_role
from sparktop.panels.parts.columns import figures_width, graph_width
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.frame import framed
from sparktop.panels.parts.graph import TimeAxis, area_rows, caption
from sparktop.panels.parts.rows import Row, Run, fit_row
from sparktop.panels.parts.sentences import flowed
from sparktop.panels.parts.shares import share_rows

_PAIR = 2
_STRIP, _STRIP_FROM = 26, 76
"""Width in cells of the graph in a panel with one row, and the panel's width from which on it is drawn."""


def balance_band(
    balance: Balance,
    snapshot: Snapshot,
    width: int,
    height: int,
    *,
    coarse: int = 1,
    selected: bool = False,
) -> list[Row]:
    """Draw the balance of one group of backends as `height` rows of `width` cells.

    The graphs cover the complete time that the verdict is based on. `coarse` is the factor by which the
    user has stretched the time per dot column.
    """
    inside, each = height - 2, graph_width(width)
    lines = group_lines(balance, snapshot.backends)
    if inside > 1 and each and len(lines) >= _PAIR:
        column = figures_width(width)
        words = _words(balance, snapshot, column, inside)
        axis = balance_axis(balance, lines, snapshot, each, coarse)
        graphs = _graphs(balance, lines, each, inside, axis)
        pad = width - 2 - column - 2 - 2 * each - 1
        rows = [
            [(" ", "text"), *fit_row(row, column), (" " * (1 + pad), "text"), *graph]
            for row, graph in zip(words, graphs, strict=True)
        ]
    elif len(lines) == _PAIR and width >= _STRIP_FROM:
        column = width - 4 - _STRIP - 2
        words = _words(balance, snapshot, column, inside)
        rows = [[(" ", "text"), *words[0], label("  "), *_strip(balance, lines, snapshot, coarse)]]
        rows += [[(" ", "text"), *row] for row in words[1:]]
    else:
        rows = [[(" ", "text"), *row] for row in _words(balance, snapshot, width - 4, inside)]
    return framed(
        rows,
        width,
        height,
        role="selected" if selected else "border",
        title=[("┐", "border"), ("balance", "title"), ("┌", "border"), *group_title(balance)],
        status=[("┐", "border"), (balance.word.value, word_role(balance)), ("┌", "border")],
        note=[(" b shows it large ", "muted")],
    )


def group_title(balance: Balance) -> Row:
    """Return a row with the group's name and its two backends' names, or the number of backends.

    The number is that of engine cores (lanes) if these form the group.
    """
    count = len(balance.backends)
    names = " ⇄ ".join(balance.backends) if count == _PAIR else f"{count} backends"
    if balance.lanes_of is not None:
        names = f"{count} lanes"
    group = fit(balance.group, 24).rstrip()
    return [("─ ", "border"), (f"{group}: ", "muted"), (f"{names} ", "text")]


def _words(balance: Balance, snapshot: Snapshot, width: int, height: int) -> list[Row]:
    """Return exactly `height` rows of text on a group's balance: verdict, values, and reasons if they fit."""
    pieces = verdict_pieces(balance, snapshot.routers, short=height == 1)
    rows = flowed(pieces, width)
    if len(rows) < height:
        rows += reason_rows(balance, width)
    return [fit_row(rows[index] if index < len(rows) else (), width) for index in range(height)]


def _graphs(
    balance: Balance, lines: tuple[LoadLine, ...], width: int, height: int, axis: TimeAxis
) -> list[Row]:
    """Return the rows of two graphs side by side: the group's token rate, and the loads of its backends."""
    shown = group_slots(balance, lines, axis, width)
    left = [
        caption(
            [("Σ t/s", "generation"), label(f" {axis.span_s(width):.0f} s"), *_even(shown)],
            f"max {numbers.tick(shown.group_top)}",
            width,
        ),
        *area_rows(
            shown.group_tps, width, height - 1, shown.group_top, "generation", end_slot=shown.end_slot
        ),
    ]
    right = _pair(balance, shown, width, height) if len(lines) == _PAIR else _many(shown, width, height)
    return [[*a, (" ", "text"), *b] for a, b in zip(left, right, strict=True)]


def _strip(balance: Balance, lines: Sequence[LoadLine], snapshot: Snapshot, coarse: int) -> Row:
    """Draw one row of dots that shows over time which of two backends has more load, and by how much.

    A dot in the upper half of the row means the first backend, in the lower half the second.
    """
    axis = balance_axis(balance, lines, snapshot, _STRIP, coarse)
    one, other = (load_slots(*line_slots(line, axis, _STRIP)[:2]) for line in lines)
    ahead = [_ahead(a, b) for a, b in zip(one, other, strict=True)]
    up = [value if value is not None and value >= 0 else None for value in ahead]
    down = [-value if value is not None and value < 0 else None for value in ahead]
    return [(mirrored(up, down, _STRIP, 1, 1.0, end_slot=axis.end_slot)[0], "running")]


def _ahead(a: float | None, b: float | None) -> float | None:
    """Return (a - b) / (a + b) for the loads a and b of two backends, -1 to 1.

    None if a load is unknown or both are 0.
    """
    return None if a is None or b is None or a + b <= 0 else (a - b) / (a + b)


def _even(shown: GroupSlots) -> Row:
    if shown.even_tps is None:
        return []
    return [label(f" {numbers.rate(shown.even_tps, 6).strip()} if even")]


def _pair(balance: Balance, shown: GroupSlots, width: int, height: int) -> list[Row]:
    """Draw the load of one backend upwards, and the load of another downwards, from a centre line.

    If `height` leaves a row for the centre line, this row shows which backend leads.
    """
    up, down = zip(shown.running, shown.waiting, strict=True)
    half = (height - 1) // 2
    above, below = opposed(up, down, width, half, shown.load_top, end_slot=shown.end_slot)
    words: list[Run] = [(f"{UP}{shown.names[0]}", "running"), (f" {DOWN}{shown.names[1]}", "running")]
    rows = [
        caption(words, f"max {numbers.tick(shown.load_top)}", width),
        *layered(above, ("running", "waiting"), falls=False),
    ]
    if (height - 1) % 2:
        one, other = shown.loads(width)
        rows.append(lead_runs(lead_row(one, other, balance.lead_margin)))
    return [*rows, *layered(below, ("running", "waiting"), falls=True)]


def _many(shown: GroupSlots, width: int, height: int) -> list[Row]:
    words: list[Run] = [("share of requests", "running")]
    letters = f"a–{chr(ord('a') + min(25, len(shown.names) - 1))}"
    return [caption(words, letters, width), *share_rows(shown.loads(width), height - 1)]
