"""Braille cells as block elements, for fonts without braille: two columns of two blocks in each cell."""

from __future__ import annotations

_QUADRANTS = " ▘▝▀▖▌▞▛▗▚▐▜▄▙▟█"
"""By a mask of the filled quadrants: 1 upper left, 2 upper right, 4 lower left, 8 lower right."""
_DOTS = (0x03, 0x18, 0x44, 0xA0)
"""Bits of the two dots of each quadrant, in the same order (Unicode, braille patterns)."""
_SPARSE = "▒"
"""Shown for a cell with one of the two dots in each quadrant, as inside the waiting requests."""


def _block(bits: int) -> str:
    filled = [bits & dots for dots in _DOTS]
    if all(0 < some < dots for some, dots in zip(filled, _DOTS, strict=True)):
        return _SPARSE
    return _QUADRANTS[sum(1 << place for place, some in enumerate(filled) if some)]


BLOCKS = {0x2800 + bits: _block(bits) for bits in range(256)}
"""Table for `str.translate`: the block that stands for each braille character."""
