"""Reads braille pictures back, dot by dot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

Dots = list[list[bool]]
"""One list a dot column, from the bottom up."""
# Bits of a cell's dots from the bottom up, left and right, independent of the tested code.
_LEFT = (0b0100_0000, 0b0000_0100, 0b0000_0010, 0b0000_0001)
_RIGHT = (0b1000_0000, 0b0010_0000, 0b0001_0000, 0b0000_1000)


def _read(rows: Sequence[str]) -> Dots:
    columns: Dots = [[] for _ in range(2 * len(rows[0]))]
    for row in reversed(rows):
        for index, char in enumerate(row):
            assert char == " " or "\u2801" <= char <= "\u28ff", f"{char!r} is neither a space nor has a dot"
            mask = 0 if char == " " else ord(char) - 0x2800
            columns[2 * index] += [bool(mask & bit) for bit in _LEFT]
            columns[2 * index + 1] += [bool(mask & bit) for bit in _RIGHT]
    return columns


@pytest.fixture(scope="session")
def read_dots() -> Callable[[Sequence[str]], Dots]:
    """Return the dots of a picture."""
    return _read
