"""Two stacked area graphs on a common centre line: one grows up, the other down."""

from __future__ import annotations

from sparktop.graphics.braille import StackedRow, Values, stacked

_FLIPPED = {
    0x2800 + mask: 0x2800
    + sum(
        1 << after
        for before, after in ((0, 6), (1, 2), (2, 1), (6, 0), (3, 7), (4, 5), (5, 4), (7, 3))
        if mask >> before & 1
    )
    for mask in range(1, 256)
}
"""Each braille cell flipped vertically: dots 1, 2, 3, 7 of the left column are reversed, likewise the
right."""


def upside_down(rows: list[StackedRow]) -> list[StackedRow]:
    """Return braille rows flipped vertically: in reverse order, and with the dots of each cell flipped."""
    return [[(text.translate(_FLIPPED), layer) for text, layer in row] for row in reversed(rows)]


def opposed(
    up: tuple[Values, Values],
    down: tuple[Values, Values],
    width: int,
    half: int,
    top: float,
    *,
    end_slot: int = 1,
) -> tuple[list[StackedRow], list[StackedRow]]:
    """Draw two stacked graphs on a centre line; return (rows above the line, rows below the line).

    `up` grows upward and `down` downward. Each is a pair of series, drawn like `stacked` in `half` rows of
    `width` cells: the first series touches the centre line, the second lies beyond the first. Both graphs
    have the scale 0…`top`. `end_slot` is the number of the newest values' time slot: an odd slot is the right
    dot column of a cell, an even slot the left one.
    """
    above, below = (stacked(*pair, width, half, top, end_slot=end_slot) for pair in (up, down))
    return above, upside_down(below)
