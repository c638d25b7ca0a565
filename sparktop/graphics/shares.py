"""Graphs with one value per terminal cell: parts of a total over time, rows of shades, rows of arrows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby

from sparktop.graphics.braille import StackedRow, Values

FILLS = "█▒▓░"
"""Fill characters for the parts of a total, used in turn, so that neighbours differ even without colour."""
SHADES = "·░▒▓█"
"""Shades of a cell: the first for 0, then one for each quarter of the scale."""
SOME_WAIT, MOST_WAIT = "w", "W"
"""Letters shown instead of a shade: requests wait, fewer than run; or more requests wait than run."""
LEVEL, UP, DOWN = "─", "▲", "▼"
"""Characters of `lead_row`: neither series leads; the first series leads; the second series leads."""
NOTHING = -1
"""Layer of an empty cell."""


def cell_means(values: Values, width: int, end_slot: int) -> list[float | None]:
    """Return a mean for each of `width` cells, each of which covers two time slots of `values`.

    The newest value is in the last cell, and in the time slot number `end_slot`. A cell holds the slots 2k
    and 2k + 1, as in a braille graph. A slot without a known value is ignored; the mean is None if neither
    slot has a known value.
    """
    count = 2 * width - 1 + end_slot % 2
    shown = list(values[max(0, len(values) - count) :])
    slots: list[float | None] = [None] * (count - len(shown)) + shown + [None] * (1 - end_slot % 2)
    known = [
        None if value is None or value != value else value  # noqa: PLR0124 - true for NaN alone
        for value in slots
    ]
    return [
        b if a is None else a if b is None else (a + b) / 2
        for a, b in zip(known[::2], known[1::2], strict=True)
    ]


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def share_area(parts: Sequence[Sequence[float | None]], height: int) -> list[StackedRow]:
    """Draw how a total is divided into `parts` over time; return rows of (text, part index) segments.

    There are `height` rows. Each part is a series with one value per column of cells; the first part is at
    the top. The part index is `NOTHING` where the total is 0 or unknown. An unknown value counts as 0.
    """
    if not parts:
        return [[] for _ in range(height)]
    columns = [_column([part[index] for part in parts], height) for index in range(len(parts[0]))]
    return [_runs([column[row] for column in columns], _fill) for row in range(height)]


def _column(sizes: Sequence[float | None], height: int) -> list[int]:
    """Return the index of the part that is drawn in each row of a column, from top to bottom.

    `sizes` has the value of each part. If their sum is 0 or not finite, all rows are `NOTHING`.
    """
    known = [max(0.0, _known(size) or 0.0) for size in sizes]
    total = sum(known)
    if not 0 < total < math.inf:
        return [NOTHING] * height
    rows: list[int] = []
    passed = 0.0
    for index, size in enumerate(known):
        passed += size
        rows += [index] * (round(height * passed / total) - len(rows))
    return rows


def _fill(part: int) -> str:
    return " " if part == NOTHING else FILLS[part % len(FILLS)]


def _runs(cells: Sequence[int], sign: Callable[[int], str]) -> StackedRow:
    return [(sign(layer) * len(list(group)), layer) for layer, group in groupby(cells)]


def heat_row(running: Sequence[float | None], waiting: Sequence[float | None], top: float) -> StackedRow:
    """Draw a row with one cell for each pair of values; return it as (text, layer) segments.

    A cell shows running plus waiting requests, as a fraction of `top`, by a shade of layer 0. If requests
    wait, a letter of layer 1 replaces the shade: `MOST_WAIT` if more wait than run, else `SOME_WAIT`. If the
    number of running requests is unknown, the cell is a space.
    """
    cells = [
        _shade(_known(one), _known(other) or 0.0, top) for one, other in zip(running, waiting, strict=True)
    ]
    return [
        ("".join(group), int(waits))
        for waits, group in groupby(cells, key=lambda cell: cell in {SOME_WAIT, MOST_WAIT})
    ]


def _shade(running: float | None, waiting: float, top: float) -> str:
    if running is None:
        return " "
    if waiting >= 0.5:  # noqa: PLR2004 - less means that requests waited for only a moment of the cell's time
        return MOST_WAIT if waiting > running else SOME_WAIT
    load = running + waiting
    if load <= 0 or not top > 0:
        return SHADES[0]
    steps = len(SHADES) - 1
    return SHADES[min(steps, math.floor(load / top * steps) + 1)]


def lead_row(first: Sequence[float | None], second: Sequence[float | None], margin: float | None) -> str:
    """Return a row of text with a cell for each pair of values: an arrow to the series that leads, or "─".

    A value leads if it exceeds the mean of the pair by at least the fraction `margin`; with `margin` None, no
    value leads. A pair with an unknown value is shown as a space.
    """
    return "".join(_ahead(_known(a), _known(b), margin) for a, b in zip(first, second, strict=True))


def _ahead(a: float | None, b: float | None, margin: float | None) -> str:
    if a is None or b is None:
        return " "
    if margin is None or a + b <= 0:
        return LEVEL
    least = (1 + margin) * (a + b) / 2
    return UP if a >= least else DOWN if b >= least else LEVEL
