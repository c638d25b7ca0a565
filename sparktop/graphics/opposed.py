"""Two stacked graphs on a common centre line, the first growing up and the second down."""

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
    """Flip a picture vertically: both the order of rows and the dots of each cell."""
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
    """Draw the half above the centre line and the half below it, `half` rows each, as `stacked` rows.

    The first of each pair is the layer at the centre line, the second lies beyond it. Both halves have the
    scale 0…`top`.
    """
    above, below = (stacked(*pair, width, half, top, end_slot=end_slot) for pair in (up, down))
    return above, upside_down(below)
