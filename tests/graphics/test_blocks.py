"""Braille pictures converted to block characters keep their shape."""

from __future__ import annotations

import pytest

from sparktop.graphics.braille import BLOCKS


@pytest.mark.parametrize(
    ("braille", "blocks"),
    [
        ("⠀⣀⣤⣶⣿", " ▄▄██"),  # heights 0 to 4
        ("⡇⢸⣸⣇", "▌▐▟▙"),
        ("⡪", "▒"),  # the inside of the waiting layer
        ("⠛⠉", "▀▀"),
        ("12 % ┄", "12 % ┄"),
    ],
)
def test_each_half_of_a_cell_keeps_its_place(braille: str, blocks: str) -> None:
    """Two rows of dots become half a cell; other text stays the same."""
    assert braille.translate(BLOCKS) == blocks


def test_every_cell_has_a_block() -> None:
    """Every braille character is replaced, and only the empty one by a space."""
    shown = "".join(map(chr, range(0x2800, 0x2900))).translate(BLOCKS)
    assert not any("\u2800" <= char <= "\u28ff" for char in shown)
    assert shown.count(" ") == 1
