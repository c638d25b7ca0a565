"""A group's balance on the full screen: graphs with the verdict, and the evidence behind the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.graphics.axes import time_axis
from sparktop.model.balance import Balance
from sparktop.model.snapshot import Snapshot
from sparktop.panels.balance.band import group_tab, members
from sparktop.panels.balance.evidence import answer_rows, plots
from sparktop.panels.balance.graphs import GUTTER, group_slots, many_rows, pair_rows
from sparktop.panels.balance.lines import balance_axis, group_lines
from sparktop.panels.balance.verdict import reason_rows, verdict_pieces, word_run
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.frame import frame_role, framed
from sparktop.panels.parts.rows import Row, fit_row, merged
from sparktop.panels.parts.sentences import flowed

_PAIR = 2
LEAST_PICTURE = 8
"""Least height in rows of the picture with its time axis; with less room the screen scrolls."""
_WORDS_SHARE = 0.3
"""Share of the screen's height for verdict and reasons; further reasons are only counted, and shown in full
with the evidence."""
_PLOT = 10
"""Height in rows of a plot with its axis."""
_WIDE = 150
"""Width in cells from which on plots and questions stand side by side."""
_PLOT_WIDTH, _PLOTS_WIDTH = 36, 64
"""Least width in cells of each of two plots side by side; `_PLOTS_WIDTH` is the width of plots beside the
questions."""


def balance_screen(
    balance: Balance, snapshot: Snapshot, width: int, height: int, *, place: str = "", coarse: int = 1
) -> list[Row]:
    """Draw one group's balance on the whole screen: `height` rows of `width` cells, or more, which scroll.

    `place` names the group's position among several ("group 2 of 3"), "" for a single group. `coarse` is
    the factor by which the user has stretched the time per dot column of the graphs.
    """
    inner = width - 4
    words = _words(balance, snapshot, inner, max(4, int(_WORDS_SHARE * (height - 2))))
    room = max(LEAST_PICTURE, height - 2 - len(words))
    rows = [*words, *group_picture(balance, snapshot, inner, room, coarse)]
    more = " w why? " if not place else f" {place} · tab next · w why? "
    return _in_frame(rows, balance, width, max(height, len(rows) + 2), title="balance", note=more)


def evidence_screen(
    balance: Balance, snapshot: Snapshot, width: int, height: int, *, place: str = ""
) -> list[Row]:
    """Draw why a group got its verdict: the checks on its balance with their figures, and two plots.

    The rows are `width` cells wide; there are at least `height` of them, and more if the text needs them (the
    screen scrolls). `place` is the group's position among several ("group 2 of 3"), "" if there is only one.
    """
    inner = width - 4
    words = _words(balance, snapshot, inner, height)
    if width >= _WIDE:
        room = height - 2 - len(words)
        right = answer_rows(balance, inner - _PLOTS_WIDTH - 2, room)
        tall = max(_PLOT, min(16, room // 2))
        left = [row for plot in plots(balance, _PLOTS_WIDTH, tall) for row in plot]
        body = _side_by_side(left, right, _PLOTS_WIDTH)
    else:
        body = answer_rows(balance, inner)
        if inner >= 2 * _PLOT_WIDTH + 2:
            each = (inner - 2) // 2
            body += _side_by_side(*plots(balance, each, _PLOT), each)
        else:
            body += [row for plot in plots(balance, inner, _PLOT) for row in plot]
    rows = [*words, *body]
    more = f" {place} · tab next · esc back " if place else " esc back "
    return _in_frame(rows, balance, width, max(height, len(rows) + 2), title="why?", note=more)


def _in_frame(
    rows: Sequence[Row], balance: Balance, width: int, height: int, *, title: str, note: str
) -> list[Row]:
    return [
        merged(row)
        for row in framed(
            [[(" ", "text"), *row] for row in rows],
            width,
            height,
            role=frame_role("balance"),
            title=group_tab(balance, title),
            state=word_run(balance),
            about=members(balance),
            note=[(note, "muted")],
        )
    ]


def _words(balance: Balance, snapshot: Snapshot, width: int, most: int) -> list[Row]:
    """Return the verdict and its reasons in at most `most` rows; the last row counts rows that do not fit.

    No sentence is cut: one that does not fit is left out. What to try has a row in any case.
    """
    verdict = flowed(verdict_pieces(balance, snapshot.routers), width)
    rows = [*verdict, *reason_rows(balance, width)]
    if len(rows) > most:
        total = len(rows)
        verdict = verdict[: max(1, most - 2)] if balance.hint else verdict
        rows = [*verdict, *reason_rows(balance, width, most - 1 - len(verdict))][: most - 1]
        rows.append([label(f"… {total - len(rows)} more rows: w shows all")])
    return [fit_row(row, width) for row in rows]


def group_picture(
    balance: Balance, snapshot: Snapshot, width: int, height: int, coarse: int = 1
) -> list[Row]:
    """Draw loads and token rates of a group with a time axis: `height` rows of `width` cells, or more."""
    lines = group_lines(balance, snapshot.backends)
    graph = width - GUTTER
    axis = balance_axis(balance, lines, snapshot, graph, coarse)
    below: Row = [label(" " * GUTTER), label(time_axis(graph, axis.step))]
    if len(lines) < _PAIR:
        return [[label("fewer than two backends report their load: nothing to draw")]]
    shown = group_slots(balance, lines, axis, graph)
    rest: list[Row] = []
    if len(lines) == _PAIR:
        rows = pair_rows(shown, balance.lead_margin, width, height - 1)
    else:
        rows, rest = many_rows(shown, width, height - 1)
    return [fit_row(row, width) for row in (*rows, below, *rest)]


def _side_by_side(left: Sequence[Row], right: Sequence[Row], width: int) -> list[Row]:
    """Join each row of `left`, cut or padded to `width` cells, with the row of `right` beside it."""
    tall = max(len(left), len(right))
    return [
        [
            *fit_row(left[index] if index < len(left) else (), width),
            ("  ", "text"),
            *(right[index] if index < len(right) else ()),
        ]
        for index in range(tall)
    ]
