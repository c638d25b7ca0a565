"""Lines and points in braille on a grid of terminal cells, in several layers (one for each curve).

A cell has one layer, that drawn last in it, and shows only its dots: the dots of two curves in one colour
would look like one curve that breaks apart. Where solid lines share cells, these have their layers in turn,
so that no line is hidden by another.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

NOTHING = -1
"""Layer of empty cells."""
_SPARSE = 5
"""Of a sparse line, one of so many dots is drawn."""
_TURN = 2
"""Cells beside each other that have the same layer where lines share them."""
_BITS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""Bits of a cell's left and right dots, from the bottom up (Unicode, braille patterns)."""
Runs = list[tuple[str, int]]


class DotGrid:
    """A grid of `height` rows of `width` cells.

    Dots are addressed from the left (x) and from the bottom (y).
    """

    def __init__(self, width: int, height: int) -> None:
        """Make an empty grid."""
        self.width = max(0, width)
        self.height = max(0, height)
        self._masks = [0] * (self.width * self.height)
        self._layers = [NOTHING] * (self.width * self.height)
        self._chars: dict[int, str] = {}
        self._below: dict[int, dict[int, int]] = {}
        """{index of a cell: {layer: its dots}}, for the solid lines that others were drawn over."""
        self._sparse: set[int] = set()
        """Layers of sparse lines."""

    @property
    def columns(self) -> int:
        """Width of the grid in dots."""
        return 2 * self.width

    @property
    def levels(self) -> int:
        """Height of the grid in dots."""
        return 4 * self.height

    def dot(self, x: int, y: int, layer: int) -> None:
        """Draw the dot at (x, y) in a layer over what its cell has; ignore dots outside the grid."""
        if 0 <= x < 2 * self.width and 0 <= y < 4 * self.height:
            place = (self.height - 1 - y // 4) * self.width + x // 2
            kept, before = self._masks[place], self._layers[place]
            if kept and before != layer:
                if before not in self._sparse:
                    self._below.setdefault(place, {})[before] = kept
                kept = 0
            self._masks[place] = kept | _BITS[x % 2][y % 4]
            self._layers[place] = layer
            self._chars.pop(place, None)

    def dots(self, x: int, heights: Iterable[int], layer: int) -> None:
        """Draw dots of the dot column `x` at several heights in a layer; ignore dots outside the grid."""
        for y in heights:
            self.dot(x, y, layer)

    def line(self, start: tuple[int, int], end: tuple[int, int], layer: int, *, sparse: bool = False) -> None:
        """Draw a line from `start` to `end`, both (x, y), in a layer: two dots high, or single sparse dots.

        Two dots are seen as a line in every font; single ones are seen as dots.
        """
        if sparse:
            self._sparse.add(layer)
        (x0, y0), (x1, y1) = start, end
        steps = max(abs(x1 - x0), abs(y1 - y0))
        for step in range(0, steps + 1, _SPARSE if sparse else 1):
            share = step / steps if steps else 0.0
            x, y = round(x0 + (x1 - x0) * share), round(y0 + (y1 - y0) * share)
            self.dot(x, y, layer)
            if not sparse:
                self.dot(x, y + 1 if y + 1 < self.levels else y - 1, layer)

    def put(self, column: int, row: int, char: str, layer: int) -> None:
        """Show a character instead of dots in a cell; `column` counts from the left, `row` from the top."""
        if 0 <= column < self.width and 0 <= row < self.height:
            place = row * self.width + column
            self._chars[place] = char
            self._layers[place] = layer

    def char_at(self, column: int, row: int) -> str | None:
        """Return the character that was put in a cell; None for a cell of dots."""
        return self._chars.get(row * self.width + column)

    def is_empty(self, column: int, row: int) -> bool:
        """Return True if a cell has neither dots nor a character."""
        place = row * self.width + column
        return self._masks[place] == 0 and place not in self._chars

    def row_of(self, y: int) -> int:
        """Return the row, counted from the top, that holds dots at height `y`."""
        return self.height - 1 - y // 4

    def take_turns(self) -> None:
        """Assign cells that solid lines share to one of these after the other, `_TURN` columns at a time."""
        for place, below in self._below.items():
            layers = {**below, self._layers[place]: self._masks[place]}
            turn = sorted(layers)[place % self.width // _TURN % len(layers)]
            self._layers[place], self._masks[place] = turn, layers[turn]
        self._below.clear()

    def rows(self) -> list[Runs]:
        """Return each row, from top to bottom, as (text, layer) segments from left to right.

        Empty cells are spaces of layer `NOTHING`.
        """
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
