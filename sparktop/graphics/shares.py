"""Graphs with one value per cell: shares over time, rows of shades, and which of two leads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby

from sparktop.graphics.braille import StackedRow, Values

FILLS = "█▒▓░"
"""Fill characters of a total's parts in turn: neighbours differ even without colour."""
SHADES = "·░▒▓█"
"""Characters of a value: the first for 0, then one for each quarter of the scale."""
SOME_WAIT, MOST_WAIT = "w", "W"
"""Shown instead of a shade where some requests wait, or most of them."""
LEVEL, UP, DOWN = "─", "▲", "▼"
"""Neither leads; the first leads; the second leads."""
NOTHING = -1
"""Layer of an empty cell."""


def cell_means(values: Values, width: int, end_slot: int) -> list[float | None]:
    """Return the mean of the two slots of each of `width` cells, the last of which holds `end_slot`.

    A cell holds the slots 2k and 2k + 1, as in a braille graph; None if neither slot is known.
    """
    count = 2 * width - 1 + end_slot % 2
    shown = list(values[max(0, len(values) - count) :])
    slots: list[float | None] = [None] * (count - len(shown)) + shown + [None] * (1 - end_slot % 2)
    return [_mean(slots[index], slots[index + 1]) for index in range(0, 2 * width, 2)]


def _mean(first: float | None, second: float | None) -> float | None:
    a, b = _known(first), _known(second)
    if a is None or b is None:
        return b if a is None else a
    return (a + b) / 2


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def share_area(parts: Sequence[Sequence[float | None]], height: int) -> list[StackedRow]:
    """Draw how a total is divided over time: the first part at the top, one column of cells per value.

    Rows are runs of (text, part index), `NOTHING` where the total is 0 or unknown. An unknown part has no
    share; the others make up the total.
    """
    if not parts:
        return [[] for _ in range(height)]
    columns = [_column([part[index] for part in parts], height) for index in range(len(parts[0]))]
    return [_runs([column[row] for column in columns], _fill) for row in range(height)]


def _column(sizes: Sequence[float | None], height: int) -> list[int]:
    """Return the part index of each row of a column, from top to bottom."""
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
    """Draw a row of shades, one cell per value, as runs of (text, layer).

    Layer 0 has shades, layer 1 the cells where requests wait. A shade shows running plus waiting requests as
    a share of `top`; a letter replaces it where some wait. A cell without known values is a space.
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
    """Draw which of two leads, one cell per value: by at least (1 + `margin`) times an even share.

    " " is unknown.
    """
    return "".join(_ahead(_known(a), _known(b), margin) for a, b in zip(first, second, strict=True))


def _ahead(a: float | None, b: float | None, margin: float | None) -> str:
    if a is None or b is None:
        return " "
    if margin is None or a + b <= 0:
        return LEVEL
    least = (1 + margin) * (a + b) / 2
    return UP if a >= least else DOWN if b >= least else LEVEL
