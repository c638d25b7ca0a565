"""Tops of axes: round numbers that hold still."""

from __future__ import annotations

import math
import sys

_STEPS = ("1", "1.5", "2", "2.5", "3", "4", "5", "6", "8", "10")
_MOST_TEXT = "1e308"


def nice_ceiling(value: float | None, minimum: float = 1.0) -> float:
    """Give the next round number: 1, 1.5, 2, 2.5, 3, 4, 5, 6 or 8 times a power of ten.

    It is at least `value` and at least `minimum`.

    An unknown value (None, NaN) gives the ceiling of `minimum`; beyond the largest float's ceiling it is that
    largest float.
    """
    least = minimum if math.isfinite(minimum) and minimum > 0 else 1.0
    wanted = least if value is None or math.isnan(value) else max(value, least)
    if wanted > float(_MOST_TEXT):
        return sys.float_info.max
    exponent = math.floor(math.log10(wanted))
    # From text, because 10.0 ** -1 * 2.5 and the like miss the nearest float.
    tops = (float(f"{step}e{power}") for power in (exponent - 1, exponent, exponent + 1) for step in _STEPS)
    return next(top for top in tops if top >= wanted)
