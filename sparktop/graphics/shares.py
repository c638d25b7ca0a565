"""Graphs with one value per terminal cell: means of two time slots, and rows of arrows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sparktop.graphics.braille import Values

LEVEL, UP, DOWN = "─", "▲", "▼"
"""Characters of `lead_row`: neither series leads; the first series leads; the second series leads."""


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
