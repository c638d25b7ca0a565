"""Joins the drawn panels of a board to rows of the whole width."""

from __future__ import annotations

from sparktop.panels.board.scene import Drawn
from sparktop.panels.parts.rows import Row, blank_row, fit_row


def flatten(drawn: list[Drawn], width: int, height: int) -> list[Row]:
    """Join drawn panels to `height` rows of `width` cells; cells without a panel are blank."""
    board: list[list[tuple[int, int, Row]]] = [[] for _ in range(height)]
    for panel in drawn:
        place = panel.place
        for y, row in enumerate(panel.rows, start=place.y):
            if y < height:
                board[y].append((place.x, place.width, row))
    rows: list[Row] = []
    for pieces in board:
        joined: Row = []
        at = 0
        # A panel's rows are as wide as its place; measuring them again would cost a tenth of all drawing.
        for x, cells, piece in sorted(pieces, key=lambda item: item[0]):
            if x > at:
                joined += blank_row(x - at)
            joined += piece
            at = x + cells
        rows.append(joined if at == width else fit_row(joined, width))
    return rows
