"""Draws the notice that is shown instead of all panels when the terminal is too small."""

from __future__ import annotations

from sparktop.panels.board.layout import MIN_HEIGHT, MIN_WIDTH
from sparktop.panels.parts.rows import Row, blank_row, fit_row, row_width


def too_small_rows(width: int, height: int) -> list[Row]:
    """Return the notice that the terminal is too small, as `height` rows of `width` cells."""
    lines: list[Row] = [
        [("terminal too small", "warn")],
        [(f"needs {MIN_WIDTH}×{MIN_HEIGHT}, has {width}×{height}", "text")],
        [("q quits", "muted")],
    ]
    above = max(0, (height - len(lines)) // 2)
    margin = max(0, (width - max(map(row_width, lines))) // 2)
    rows = [fit_row([(" " * margin, "text"), *line], width) for line in lines]
    padded = [blank_row(width)] * above + rows
    return (padded + [blank_row(width)] * height)[:height]
