"""Two stacked graphs against each other: one grows up from a centre line, the other one down."""

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
"""Each braille cell upside down: dots 1, 2, 3, 7 of its left column change places, and those of its right."""


def upside_down(rows: list[StackedRow]) -> list[StackedRow]:
    """Turn a picture over: the last row first, each cell's dots from its bottom to its top."""
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
    """Draw the half above the centre line and the one below it, `half` rows each, as `stacked` rows.

    Of each pair the first is the layer at the centre line, the second lies beyond it. Both halves have one
    scale: 0…`top`.
    """
    above, below = (stacked(*pair, width, half, top, end_slot=end_slot) for pair in (up, down))
    return above, upside_down(below)
