"""Draws the rows above and below the main screen: totals over all servers, and keys that a user can press."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sparktop.graphics import numbers
from sparktop.model.event import Severity
from sparktop.model.snapshot import Snapshot
from sparktop.panels.parts.figures import figure, label
from sparktop.panels.parts.rows import Row, row_width, spread_row


def _alerts(snapshot: Snapshot) -> Row:
    count = len(snapshot.alerts)
    if not count:
        return [label("no alerts")]
    critical = any(alert.severity is Severity.CRITICAL for alert in snapshot.alerts)
    word = "alert " if count == 1 else "alerts"
    return [(f"▲ {count} {word}", "bad" if critical else "warn")]


def header_row(
    snapshot: Snapshot,
    width: int,
    *,
    moment: str | None = None,
    notice: str | None = None,
    sweep: str | None = None,
    clock: datetime | None = None,
) -> Row:
    """Return the row above the board: totals, alerts, special modes, and the clock in local time.

    `moment` is a text that names the past moment on the screen, and replaces the clock. `sweep` is the state
    of a running sweep in a word or two. `clock` is the time to show instead of the snapshot's. If not all
    fits, the least important pieces are left out; nothing wraps or moves.
    """
    totals = snapshot.totals
    pieces: list[tuple[int, Row]] = [
        (0, [(" sparktop", "accent")]),
        (2, [label("gen "), figure(numbers.rate(totals.generation_tps, 6)), label(" t/s")]),
        (4, [label("prompt "), figure(numbers.rate(totals.prompt_tps, 6)), label(" t/s")]),
        (3, [label("run "), figure(numbers.count(totals.running, 4))]),
        (3, [label("wait "), figure(numbers.count(totals.waiting, 4))]),
        (1, _alerts(snapshot)),
    ]
    if moment:
        pieces.insert(1, (0, [(moment, "warn")]))
    if notice:
        pieces.insert(1, (1, [(notice, "warn")]))
    if sweep:
        pieces.insert(1, (0, [(sweep, "accent")]))
    if snapshot.simulated:
        pieces.insert(1, (0, [("SIMULATED", "warn")]))
    when = (clock or snapshot.taken_at).astimezone()
    right: Row = [label(f"{snapshot.interval_s:g} s  "), figure("" if moment else f"{when:%H:%M:%S} ")]
    shown_pieces = list(pieces)
    for gap in ("   ", "  ", " "):
        row = _joined([piece for _, piece in shown_pieces], gap)
        if row_width(row) + row_width(right) + 1 <= width:
            return spread_row(row, right, width)
    right = right[1:]
    while len(shown_pieces) > 1:
        row = _joined([piece for _, piece in shown_pieces], " ")
        if row_width(row) + row_width(right) + 1 <= width:
            return spread_row(row, right, width)
        shown_pieces.remove(max(shown_pieces, key=lambda piece: piece[0]))
    return spread_row(_joined([piece for _, piece in shown_pieces], " "), right, width)


def _joined(pieces: Sequence[Row], gap: str) -> Row:
    row: Row = []
    for index, piece in enumerate(pieces):
        if index:
            row.append((gap, "text"))
        row += piece
    return row


def footer_row(keys: Sequence[tuple[str, str]], width: int) -> tuple[Row, list[tuple[int, int, str]]]:
    """Return the row of keys, and their clickable ranges as (first cell, cell after the last, key).

    `keys` has (key, what it does). Keys that do not fit completely are left out.
    """
    row: Row = []
    spots: list[tuple[int, int, str]] = []
    used = 0
    for key, word in keys:
        piece: Row = [(f" {key}", "key"), (f" {word} ", "muted")]
        cells = row_width(piece)
        if used + cells > width:
            break
        row += piece
        spots.append((used, used + cells, key))
        used += cells
    row.append((" " * (width - used), "text"))
    return row, spots
