"""Lines and points in braille, several layers on one grid of cells: curves over an axis that is not time.

A cell holds the dots of all layers together; it is drawn in the colour of the layer that came last. So layers
differ in their dots first: each has a pattern of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

NOTHING = -1
"""Layer of cells with nothing in them."""
SOLID, DASHED, DOTTED, DASH_DOTTED, SPARSE = (1,), (5, 3), (1, 2), (6, 2, 1, 2), (1, 4)
"""Patterns: so many dots on, so many off, and so on."""
PATTERNS = (SOLID, DASHED, DOTTED, DASH_DOTTED)
"""For layers in turn; `SPARSE` is left for what was not measured here."""

_BITS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""Of the left and the right dots of a cell, from the bottom up (Unicode, braille patterns)."""
Runs = list[tuple[str, int]]


class DotGrid:
    """`height` rows of `width` cells; dots count from the left and from the bottom."""

    def __init__(self, width: int, height: int) -> None:
        """Begin with an empty grid."""
        self.width = max(0, width)
        self.height = max(0, height)
        self._masks = [0] * (self.width * self.height)
        self._layers = [NOTHING] * (self.width * self.height)
        self._chars: dict[int, str] = {}

    @property
    def columns(self) -> int:
        """Dots beside each other."""
        return 2 * self.width

    @property
    def levels(self) -> int:
        """Dots above each other."""
        return 4 * self.height

    def dot(self, x: int, y: int, layer: int) -> None:
        """Set a dot; one outside the grid is nothing."""
        if 0 <= x < 2 * self.width and 0 <= y < 4 * self.height:
            place = (self.height - 1 - y // 4) * self.width + x // 2
            self._masks[place] |= _BITS[x % 2][y % 4]
            self._layers[place] = layer

    def dots(self, x: int, heights: Iterable[int], layer: int) -> None:
        """Set dots above each other; those outside the grid are nothing."""
        for y in heights:
            self.dot(x, y, layer)

    def line(self, start: tuple[int, int], end: tuple[int, int], layer: int, pattern: Sequence[int]) -> None:
        """Draw from dot to dot, the first to the left of the last; steep parts have no holes."""
        (x0, y0), (x1, y1) = start, end
        steps = max(abs(x1 - x0), abs(y1 - y0))
        on = _drawn(pattern, steps + 1)
        for step in range(steps + 1):
            if on[step]:
                share = step / steps if steps else 0.0
                self.dot(round(x0 + (x1 - x0) * share), round(y0 + (y1 - y0) * share), layer)

    def put(self, column: int, row: int, char: str, layer: int) -> None:
        """Let a cell hold a character of one cell instead of its dots; rows count from the top."""
        if 0 <= column < self.width and 0 <= row < self.height:
            place = row * self.width + column
            self._chars[place] = char
            self._layers[place] = layer

    def char_at(self, column: int, row: int) -> str | None:
        """Give the character that was put in a cell."""
        return self._chars.get(row * self.width + column)

    def is_empty(self, column: int, row: int) -> bool:
        """Tell whether a cell of the grid holds neither dots nor a character."""
        place = row * self.width + column
        return self._masks[place] == 0 and place not in self._chars

    def row_of(self, y: int) -> int:
        """Give the row, from the top, that holds dots at this height."""
        return self.height - 1 - y // 4

    def rows(self) -> list[Runs]:
        """Give each row as runs of (text, layer); cells with nothing in them are spaces."""
        return [self._row(start) for start in range(0, self.width * self.height, self.width)]

    def _row(self, start: int) -> Runs:
        stop = start + self.width
        masks, chars = self._masks[start:stop], self._chars
        text = [chr(0x2800 + mask) if mask else " " for mask in masks]
        if chars:
            for index in range(self.width):
                if start + index in chars:
                    text[index] = chars[start + index]
        runs: Runs = []
        for layer, group in groupby(range(self.width), key=lambda index: self._layers[start + index]):
            runs.append(("".join(text[index] for index in group), layer))
        return runs


def _drawn(pattern: Sequence[int], count: int) -> list[bool]:
    """Give which of `count` dots in a row are on."""
    if len(pattern) < 2:  # noqa: PLR2004 - nothing is ever off
        return [True] * count
    cycle = [not number % 2 for number, length in enumerate(pattern) for _ in range(length)]
    return [cycle[index % len(cycle)] for index in range(count)]
