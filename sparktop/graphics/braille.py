"""Graphs in braille characters: two dot columns per terminal cell, four dots per row of text.

Live graphs that grow up, down or from a centre line; the same as block elements; lines and points in layers,
one for each curve, of which a cell shows only one: the dots of two curves in one colour would look like one
curve that breaks apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import groupby, repeat
from statistics import fmean
from typing import TypeVar

from sparktop.graphics.axes import CLIPPED

# Each dot column shows the value of one time slot. A missing value (None, NaN) has no dots; 0 has the
# bottom dot, the baseline.
#
# Time slots are numbered from the start of the history, and a cell always holds the slots 2k and 2k+1. When
# the newest slot is even, the last cell has only its left dot column, and the next slot changes only that
# cell. So the picture moves left by a complete cell every second slot. In between, an update sends almost
# no bytes to the terminal.
#
# A column of cells is cached as a string, by the heights of its two dot columns. The columns are then
# transposed to rows of text, so nothing is computed dot by dot.


_DOTS = 4
"""Dots in a cell's column."""
_LEFT = (0x40, 0x04, 0x02, 0x01)
"""Bits of a cell's left dots from the bottom up (Unicode, braille patterns); `_RIGHT` has those of the right
dots."""
_RIGHT = (0x80, 0x20, 0x10, 0x08)
_LEAST_TOP = 1e-300
"""Smallest usable top of the scale: below it, dividing the number of dots by the top overflows."""
LOWER, UPPER, NOTHING = 0, 1, 2
"""Layers of a stacked graph: the lower area, the upper area, an empty row."""
_COLUMNS_KEPT = 8192
"""Most cached columns: all pairs of heights of a graph with 22 rows. They take 2 MB, or 5 MB for a stacked
graph."""
_LOW = 2
"""Height in rows up to which a cell is most of a graph: there only the larger area of a cell colours it."""
_LITTLE = 1 / 8
"""The upper area as a share of the lower one up to which it has no cell at all in a low graph."""
# Cells of one layer, by digit: 0, 1, or 2 where either would do.
_RUNS = re.compile("2*0[02]*|2*1[12]*|2+")

GraphValues = Sequence[float | None]
"""A value for each time slot, None where it is not known."""
Slot = TypeVar("Slot")
"""What a graph shows of a time slot: a height in dots, two of them, or a value."""
LayeredRow = list[tuple[str, int]]
"""A row of text as (text, layer) segments, from left to right."""


def _dots_mask(dots: tuple[int, ...], rows: Sequence[int]) -> int:
    return sum(dots[row] for row in rows)


def _cell_table(left: Sequence[int], right: Sequence[int]) -> tuple[str, ...]:
    """Return the braille character of each pair of a left and a right bit mask.

    `left` and `right` have five masks each. The character of `left[i]` and `right[j]` is at the index 5 * i +
    j; it is a space if the pair has no dots.
    """
    return tuple(chr(0x2800 + a + b) if a + b else " " for a in left for b in right)


_SOLID = _cell_table(
    [_dots_mask(_LEFT, range(n)) for n in range(_DOTS + 1)],
    [_dots_mask(_RIGHT, range(n)) for n in range(_DOTS + 1)],
)
"""Cells filled from the bottom, at index 5 * (height of the left dot column) + (height of the right dot
column)."""
# Every second dot counted from the top one: the outline is exact, and a cell has half of its dots.
_SPARSE = _cell_table(
    *(
        [_dots_mask(dots, range(height - 1, -1, -2)) for height in range(_DOTS + 1)]
        for dots in (_LEFT, _RIGHT)
    )
)
_SPARSE_INSIDE = chr(0x2800 + _dots_mask(_LEFT, (0, 2)) + _dots_mask(_RIGHT, (1, 3)))
"""A cell inside the upper layer of a stacked graph, where both dot columns go on above: a chequerboard."""
_DOTTED = chr(0x2800 + _LEFT[0])
"""A cell of the upper layer with only its lowest row of dots: with both dots it would resemble the lower
layer."""


def _heights_in_dots(values: GraphValues, dots: int, top: float) -> list[int]:
    """Return the height of each value in dots, on a scale where `top` is `dots` high.

    A missing value (None, NaN) has the height 0, any other value at least 1.
    """
    if not top > _LEAST_TOP:
        return [0 if value is None or value != value else 1 for value in values]  # noqa: PLR0124 - true for NaN alone
    scale = dots / top
    least = 1.5 / scale if scale > 0 else math.inf
    heights: list[int] = []
    for value in values:
        # NaN alone differs from itself; a call of `isnan` for each value would cost a third of all this.
        if value is None or value != value:  # noqa: PLR0124 - true for NaN alone
            heights.append(0)
        elif value < least:
            heights.append(1)
        else:
            heights.append(dots if value >= top else int(value * scale + 0.5))
    return heights


def _dot_columns(slots: list[Slot], width: int, end_slot: int, empty: Slot) -> list[Slot]:
    """Return what the 2 * `width` dot columns of a graph show, from left to right.

    `slots` has that by time slot, oldest first; the newest that fit are shown. `end_slot` is the number of
    the last slot. An odd slot is the right dot column of a cell, an even slot the left one. So if `end_slot`
    is even, the right dot column of the last cell is still `empty`. So are the columns before the first slot.
    """
    count = 2 * width - 1 + end_slot % 2
    shown_slots = slots[max(0, len(slots) - count) :]
    return [empty] * (count - len(shown_slots)) + shown_slots + [empty] * (1 - end_slot % 2)


def _newest_values(values: GraphValues, width: int) -> GraphValues:
    return values[max(0, len(values) - 2 * width) :]


def _rows_of_columns(columns: Sequence[str], height: int) -> list[str]:
    return ["".join(row) for row in zip(*columns, strict=True)] if columns else [""] * height


def _dots_in_cell(height: int, base: int) -> int:
    """Return how many dots a dot column `height` dots high has in the cell that begins at `base` dots."""
    return min(_DOTS, max(0, height - base))


def _column_chars(left: int, right: int, height: int) -> str:
    """Return the characters of one column of cells, from the bottom up, padded with spaces to `height` cells.

    `left` and `right` are the heights, in dots, of the left and the right dot column.
    """
    full_cells = min(left, right) // _DOTS
    ends = (max(left, right) + _DOTS - 1) // _DOTS
    between = "".join(
        _SOLID[5 * _dots_in_cell(left, base) + _dots_in_cell(right, base)]
        for base in range(full_cells * _DOTS, ends * _DOTS, _DOTS)
    )
    return (_SOLID[-1] * full_cells + between).ljust(height)


@lru_cache(maxsize=_COLUMNS_KEPT)
def _area_column(left: int, right: int, height: int) -> str:
    return _column_chars(left, right, height)[::-1]


def area(values: GraphValues, width: int, height: int, top: float, *, end_slot: int = 1) -> list[str]:
    """Draw a filled area graph, the newest value at the right; return `height` rows of `width` cells.

    Values are clipped to 0…`top`; cells at the left stay empty if there are too few values. `end_slot` is the
    number of the newest value's time slot, counted from the start of the history. An odd slot is the right
    dot column of a cell, an even slot the left one.
    """
    if width <= 0 or height <= 0:
        return [""] * height
    heights = _heights_in_dots(_newest_values(values, width), _DOTS * height, top)
    columns = _dot_columns(heights, width, end_slot, 0)
    return _rows_of_columns(list(map(_area_column, columns[::2], columns[1::2], repeat(height))), height)


def clipped_cells(values: GraphValues, width: int, top: float, *, end_slot: int = 1) -> list[int]:
    """Return the indexes of the cells of a graph of `width` cells that have a value far above `top`.

    The values and their time slots are those of `area`. A little above, the highest dot says enough.
    """
    far = CLIPPED * top
    if max(filter(None, values), default=0.0) <= far:
        return []
    last = width - 1
    newest = end_slot % 2
    places = enumerate(reversed(_newest_values(values, width)))
    cells = {last - (age + 1 - newest) // 2 for age, value in places if value is not None and value > far}
    return sorted(cell for cell in cells if cell >= 0)


def _stack_heights(lower: GraphValues, upper: GraphValues, height: int, top: float) -> list[tuple[int, int]]:
    """Return (height of the lower area, height of both areas) in dots for each time slot.

    If one of the two values is unknown, it counts as 0; if both are unknown, both heights are 0. An upper
    value above 0 has at least one dot, except where it is the smaller one in a low graph: its colour would
    look like that of much. `height` is that of the graph in rows.
    """
    dots, is_low = _DOTS * height, height <= _LOW
    little = _LITTLE if is_low else 0.0
    bases, tops = _without_negative(lower), _without_negative(upper)
    totals = [
        base if top_value is None else (base or 0.0) + top_value
        for base, top_value in zip(bases, tops, strict=True)
    ]
    heights = zip(
        bases, tops, _heights_in_dots(bases, dots, top), _heights_in_dots(totals, dots, top), strict=True
    )
    result: list[tuple[int, int]] = []
    for lower_value, upper_value, low, both in heights:
        if lower_value is not None and (not upper_value or upper_value <= little * lower_value):
            result.append((both, both))  # no upper area
        elif not lower_value:
            result.append((0, both))  # no lower area
        elif is_low and (upper_value or 0.0) <= lower_value:
            result.append((low, both))  # both, the upper one perhaps without a dot
        else:  # both, the upper one with at least one dot, if need be in place of one of the lower area
            high = max(both, min(dots, low + 1))
            result.append((min(low, high - 1), high))
    return result


def _without_negative(values: GraphValues) -> list[float | None]:
    """Return the values with None for NaN, and with 0 for those below 0."""
    # As in `_heights_in_dots`, without calls for each value.
    known = [None if value is None or value != value else value for value in values]  # noqa: PLR0124 - NaN
    return [0.0 if value is not None and value < 0.0 else value for value in known]


def _column_layers(left: tuple[int, int], right: tuple[int, int], height: int) -> list[int]:
    """Return what each cell in one column of a stacked graph shows: `LOWER`, `UPPER` or `NOTHING`.

    The cells are in order from the bottom up; a cell shows the area that has more of its dots. If the upper
    area would be in no cell, it has the cell of its highest dot, except in a low graph. `left` and `right`
    describe the two dot columns of the cells: (height of the lower area, height of both areas), in dots.
    """
    layers = [NOTHING] * height
    for row in range((max(left[1], right[1]) + _DOTS - 1) // _DOTS):
        base = row * _DOTS
        low = _dots_in_cell(left[0], base) + _dots_in_cell(right[0], base)
        both = _dots_in_cell(left[1], base) + _dots_in_cell(right[1], base)
        layers[row] = LOWER if 2 * low >= both else UPPER
    highest = max((both for low, both in (left, right) if both > low), default=0)
    if highest and height > _LOW and UPPER not in layers:
        layers[(highest - 1) // _DOTS] = UPPER
    return layers


@lru_cache(maxsize=_COLUMNS_KEPT)
def _stack_column(left: tuple[int, int], right: tuple[int, int], height: int) -> tuple[str, str]:
    """Return the characters of one column of a stacked graph, and its layers as digits, both from the top.

    `left` and `right` describe the two dot columns of the cells: (height of the lower area, height of both
    areas), in dots.
    """
    layers = _column_layers(left, right, height)
    solid = _column_chars(left[1], right[1], height)
    chars = [
        solid[row] if layer != UPPER else _upper_cell(left, right, row) for row, layer in enumerate(layers)
    ]
    return "".join(reversed(chars)), "".join(map(str, reversed(layers)))


def _upper_cell(left: tuple[int, int], right: tuple[int, int], row: int) -> str:
    """Return the character of a cell of the upper layer, in the row `row` counted from the bottom.

    The cell is sparse if the upper area has more of its dots. Else it has nearly all dots, with a gap below
    the dot of the upper area.
    """
    base = row * _DOTS
    left_lower, left_both = (_dots_in_cell(dots, base) for dots in left)
    right_lower, right_both = (_dots_in_cell(dots, base) for dots in right)
    if 2 * (left_lower + right_lower) >= left_both + right_both:
        left_mask = _mask_with_gap(_LEFT, left_lower, left_both)
        return chr(0x2800 + left_mask + _mask_with_gap(_RIGHT, right_lower, right_both))
    if min(left[1], right[1]) > base + _DOTS:
        return _SPARSE_INSIDE
    # In the bottom row, a dot column without a dot would be a gap, so both columns stay.
    if row and left[1] == right[1] == base + 1:
        return _DOTTED
    return _SPARSE[5 * left_both + right_both]


def _mask_with_gap(dots: tuple[int, ...], low: int, both: int) -> int:
    """Return the bits of a dot column that is `both` dots high, without the dot below the highest one.

    It is solid where it is too low for a gap, or where nothing of the upper area is above the `low` dots of
    the lower one.
    """
    return _dots_mask(dots, (*range(both - 2), both - 1) if both > max(low, 2) else range(both))


def _stacked_cells(
    lower: GraphValues, upper: GraphValues, width: int, height: int, top: float, end_slot: int
) -> tuple[list[str], list[str]]:
    """Return a stacked graph as rows of characters, and as rows of layers (a digit per cell)."""
    if width <= 0 or height <= 0:
        return [""] * height, [""] * height
    pairs = _stack_heights(_newest_values(lower, width), _newest_values(upper, width), height, top)
    dots = _dot_columns(pairs, width, end_slot, (0, 0))
    columns = list(map(_stack_column, dots[::2], dots[1::2], repeat(height)))
    return _rows_of_columns([chars for chars, _ in columns], height), _rows_of_columns(
        [layers for _, layers in columns], height
    )


def _layer_runs(chars: str, layers: str) -> LayeredRow:
    """Split a row of text into (text, layer) segments; `layers` has a digit for each character.

    Cells without dots join the segment to their left; those at the start of the row join the first segment.
    """
    return [(chars[match.start() : match.end()], int(min(match.group()))) for match in _RUNS.finditer(layers)]


def draw_stacked(
    lower: GraphValues, upper: GraphValues, width: int, height: int, top: float, *, end_slot: int = 1
) -> list[LayeredRow]:
    """Draw an area graph of `upper` on top of one of `lower`; return rows of (text, layer) segments.

    Both have the same time slots. There are `height` rows of `width` cells. Layer 0 is `lower` in solid dots,
    1 is `upper` in sparse dots, and 2 is an empty row. A cell has the layer that has more of the cell's dots,
    `lower` when equal; but wherever `upper` is above 0, at least one cell of that column has its layer. In a
    graph of one or two rows that is left out: there a single cell would look like much.
    `end_slot` is the number of the newest values' time slot: an odd slot is the right dot column of a cell,
    an even slot the left one.
    """
    return list(map(_layer_runs, *_stacked_cells(lower, upper, width, height, top, end_slot)))


def _mask_between(dots: tuple[int, ...], start: int, stop: int) -> int:
    """Return the bit mask of the dots from `start` up to, but not including, `stop` in a cell's dot column.

    Both are positions counted downward: 0 is the cell's top dot. Positions outside the cell are ignored.
    `dots` is `_LEFT` or `_RIGHT`, the bits of the column.
    """
    return _dots_mask(dots, range(max(0, _DOTS - stop), min(_DOTS, _DOTS - start)))


@lru_cache(maxsize=_COLUMNS_KEPT)
def _mirrored_column(left: tuple[int, int], right: tuple[int, int], height: int) -> str:
    """Return one column of cells from top to bottom, for two areas that grow up and down from a centre line.

    `left` and `right` are the heights (up, down), in dots, of the two dot columns of the cells.
    """
    cells: list[str] = []
    for row in range(height):
        centre = 2 * height - row * _DOTS
        dot_mask = _mask_between(_LEFT, centre - left[0], centre + left[1]) + _mask_between(
            _RIGHT, centre - right[0], centre + right[1]
        )
        cells.append(chr(0x2800 + dot_mask) if dot_mask else " ")
    return "".join(cells)


def draw_mirrored(
    up: GraphValues, down: GraphValues, width: int, height: int, top: float, *, end_slot: int = 1
) -> list[str]:
    """Draw two area graphs on a common centre line, `up` growing upward and `down` downward; return the rows.

    There are `height` rows of `width` cells, half of them for each graph. Values are clipped to 0…`top`. 0 is
    drawn as the dot beside the centre line, and a missing value has no dot. The newest value of both series
    is in the time slot number `end_slot`.
    """
    if width <= 0 or height <= 0:
        return [""] * height
    dots = _DOTS * height // 2
    heights = (_heights_in_dots(_newest_values(values, width), dots, top) for values in (up, down))
    columns = list(zip(*(_dot_columns(half, width, end_slot, 0) for half in heights), strict=True))
    return _rows_of_columns(list(map(_mirrored_column, columns[::2], columns[1::2], repeat(height))), height)


@cache
def flip_table() -> Mapping[int, int]:
    """Return the table for `str.translate` that flips each braille cell vertically."""
    pairs = ((0, 6), (1, 2), (2, 1), (6, 0), (3, 7), (4, 5), (5, 4), (7, 3))
    return {
        0x2800 + mask: 0x2800 + sum(1 << after for bit_before, after in pairs if mask >> bit_before & 1)
        for mask in range(1, 256)
    }


LEVEL, UP, DOWN = "─", "▲", "▼"
"""Characters of `lead_row`: neither series leads; the first series leads; the second series leads."""


def cell_means(values: GraphValues, width: int, end_slot: int) -> list[float | None]:
    """Return a mean for each of `width` cells, each of which covers two time slots of `values`.

    The newest value is in the last cell, and in the time slot number `end_slot`. A cell holds the slots 2k
    and 2k + 1, as in a braille graph. A slot without a known value is ignored; the mean is None if neither
    slot has a known value.
    """
    known = [None if value is None or math.isnan(value) else value for value in _newest_values(values, width)]
    columns = _dot_columns(known, width, end_slot, None)
    cells = (
        [value for value in pair if value is not None]
        for pair in zip(columns[::2], columns[1::2], strict=True)
    )
    return [fmean(cell) if cell else None for cell in cells]


def lead_row(first: Sequence[float | None], second: Sequence[float | None], margin: float | None) -> str:
    """Return a row of text with a cell for each pair of values: an arrow to the series that leads, or "─".

    A value leads if it exceeds the mean of the pair by at least the fraction `margin`; with `margin` None, no
    value leads. A pair with an unknown value is shown as a space.
    """
    return "".join(_lead_char(a, b, margin) for a, b in zip(first, second, strict=True))


def _lead_char(a: float | None, b: float | None, margin: float | None) -> str:
    if a is None or b is None or math.isnan(a + b):
        return " "
    if margin is None or a + b <= 0:
        return LEVEL
    least = (1 + margin) * (a + b) / 2
    if a >= least:
        return UP
    return DOWN if b >= least else LEVEL


_QUADRANTS = " ▘▝▀▖▌▞▛▗▚▐▜▄▙▟█"
"""By a mask of the filled quadrants: 1 upper left, 2 upper right, 4 lower left, 8 lower right."""
_QUADRANT_DOTS = (0x03, 0x18, 0x44, 0xA0)
"""Bits of the two dots of each quadrant, in the same order (Unicode, braille patterns)."""
_BLOCKS_SPARSE = "▒"
"""Shown for a cell with one of the two dots in each quadrant, as inside the waiting requests."""


@cache
def block_table() -> Mapping[int, str]:
    """Return the table for `str.translate` with the block that stands for each braille character."""
    table = {}
    for bits in range(256):
        filled = [bits & dots for dots in _QUADRANT_DOTS]
        sparse = all(0 < some < dots for some, dots in zip(filled, _QUADRANT_DOTS, strict=True))
        quadrants = sum(1 << bit for bit, some in enumerate(filled) if some)
        table[0x2800 + bits] = _BLOCKS_SPARSE if sparse else _QUADRANTS[quadrants]
    return table


NO_LAYER = -1
"""Layer of empty cells."""
_SPARSE_DOTS = 5
"""Of a sparse line, one of so many dots is drawn."""
_TURN = 2
"""Cells beside each other that have the same layer where lines share them."""


class DotGrid:
    """A grid of `height` rows of `width` cells.

    Dots are addressed from the left (x) and from the bottom (y).
    """

    def __init__(self, width: int, height: int) -> None:
        """Make an empty grid."""
        self.width = max(0, width)
        self.height = max(0, height)
        self._masks = [0] * (self.width * self.height)
        self._layers = [NO_LAYER] * (self.width * self.height)
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
    def dot_rows(self) -> int:
        """Height of the grid in dots."""
        return 4 * self.height

    def dot(self, x: int, y: int, layer: int) -> None:
        """Draw the dot at (x, y) in a layer over what its cell has; ignore dots outside the grid."""
        if 0 <= x < 2 * self.width and 0 <= y < 4 * self.height:
            index = (self.height - 1 - y // 4) * self.width + x // 2
            mask_before, layer_before = self._masks[index], self._layers[index]
            if mask_before and layer_before != layer:
                if layer_before not in self._sparse:
                    self._below.setdefault(index, {})[layer_before] = mask_before
                mask_before = 0
            self._masks[index] = mask_before | (_LEFT, _RIGHT)[x % 2][y % 4]
            self._layers[index] = layer
            self._chars.pop(index, None)

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
        for step in range(0, steps + 1, _SPARSE_DOTS if sparse else 1):
            share = step / steps if steps else 0.0
            x, y = round(x0 + (x1 - x0) * share), round(y0 + (y1 - y0) * share)
            self.dot(x, y, layer)
            if not sparse:
                self.dot(x, y + 1 if y + 1 < self.dot_rows else y - 1, layer)

    def put(self, column: int, row: int, char: str, layer: int) -> None:
        """Show a character instead of dots in a cell; `column` counts from the left, `row` from the top."""
        if 0 <= column < self.width and 0 <= row < self.height:
            index = row * self.width + column
            self._chars[index] = char
            self._layers[index] = layer

    def char_at(self, column: int, row: int) -> str | None:
        """Return the character that was put in a cell; None for a cell of dots."""
        return self._chars.get(row * self.width + column)

    def is_empty(self, column: int, row: int) -> bool:
        """Return True if a cell has neither dots nor a character."""
        index = row * self.width + column
        return self._masks[index] == 0 and index not in self._chars

    def row_of(self, y: int) -> int:
        """Return the row, counted from the top, that holds dots at height `y`."""
        return self.height - 1 - y // 4

    def take_turns(self) -> None:
        """Assign cells that solid lines share to one of these after the other, `_TURN` columns at a time."""
        for index, layers_below in self._below.items():
            layers = {**layers_below, self._layers[index]: self._masks[index]}
            turn = sorted(layers)[index % self.width // _TURN % len(layers)]
            self._layers[index], self._masks[index] = turn, layers[turn]
        self._below.clear()

    def rows(self) -> list[LayeredRow]:
        """Return each row, from top to bottom, as (text, layer) segments from left to right.

        Empty cells are spaces of layer `NO_LAYER`.
        """
        return [self._row(start) for start in range(0, self.width * self.height, self.width)]

    def _row(self, start: int) -> LayeredRow:
        end_index = start + self.width
        masks, chars = self._masks[start:end_index], self._chars
        text = [chr(0x2800 + mask) if mask else " " for mask in masks]
        if chars:
            for index in range(self.width):
                if start + index in chars:
                    text[index] = chars[start + index]
        runs: LayeredRow = []
        for layer, group in groupby(range(self.width), key=lambda index: self._layers[start + index]):
            runs.append(("".join(text[index] for index in group), layer))
        return runs
