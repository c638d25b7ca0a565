"""Computes round numbers for the upper ends of axes."""

from __future__ import annotations

import math
import sys

_STEPS = ("1", "1.5", "2", "2.5", "3", "4", "5", "6", "8", "10")
_MOST_TEXT = "1e308"


def nice_ceiling(value: float | None, minimum: float = 1.0) -> float:
    """Return the smallest round number that is at least `value` and at least `minimum`.

    Round numbers are 1, 1.5, 2, 2.5, 3, 4, 5, 6 or 8 times a power of ten. If `value` is None or NaN, only
    `minimum` counts. The result never exceeds the largest float.
    """
    least = minimum if math.isfinite(minimum) and minimum > 0 else 1.0
    wanted = least if value is None or math.isnan(value) else max(value, least)
    if wanted > float(_MOST_TEXT):
        return sys.float_info.max
    exponent = math.floor(math.log10(wanted))
    # Parsed from text, because products such as 10.0 ** -1 * 2.5 miss the nearest float.
    tops = (float(f"{step}e{power}") for power in (exponent - 1, exponent, exponent + 1) for step in _STEPS)
    return next(top for top in tops if top >= wanted)
