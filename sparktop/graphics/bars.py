"""Bars that are one row high: a filled fraction, a stack of parts, a short history."""

from __future__ import annotations

import math
from collections.abc import Sequence

EMPTY = "·"
"""Character of the unfilled part of a bar."""
UNKNOWN = "–"
"""Character of a bar whose value is unknown."""
_PARTS = " ▏▎▍▌▋▊▉"
_LEVELS = "▁▂▃▄▅▆▇█"


def _share(fraction: float | None) -> float | None:
    return None if fraction is None or math.isnan(fraction) else min(1.0, max(0.0, fraction))


def bar(fraction: float | None, width: int) -> tuple[str, str]:
    """Return the filled and the empty part of a bar of `width` cells, exact to an eighth of a cell.

    `fraction` is clipped to 0 to 1. If it is above 0, at least an eighth of a cell is filled. If it is None,
    the filled part is "" and the empty part consists of dashes.
    """
    share = _share(fraction)
    if width <= 0:
        return "", ""
    if share is None:
        return "", UNKNOWN * width
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    whole, part = divmod(eighths, 8)
    filled = "█" * whole + (_PARTS[part] if part else "")
    return filled, EMPTY * (width - len(filled))


def segments(parts: Sequence[float], total: float, width: int) -> list[int]:
    """Return the width in cells of each part of a stacked bar, and last that of the remaining bar.

    The remaining bar shows what the parts leave of `total`. The widths add up to `width` exactly
    (largest-remainder method). A part above 0 gets at least one cell; if there are more such parts than
    cells, only the largest get one. If the parts add up to more than `total`, they fill the bar in
    proportion.
    """
    sizes = [part if part > 0 and math.isfinite(part) else 0.0 for part in parts]
    largest = max([*sizes, total if math.isfinite(total) else 0.0], default=0.0)
    if width <= 0 or largest <= 0:
        return [0] * len(sizes) + [max(0, width)]
    # Relative to the largest, because sums of huge numbers would overflow.
    shares = [size / largest for size in sizes]
    limit = total / largest if math.isfinite(total) else 0.0
    shares.append(max(0.0, limit - sum(shares)))
    unit = width / sum(shares)
    widths = [int(share * unit) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: (widths[i] - shares[i] * unit, i))
    for index in by_remainder[: width - sum(widths)]:
        widths[index] += 1
    _show_all(widths, shares)
    return widths


def _show_all(widths: list[int], shares: Sequence[float]) -> None:
    """Change `widths` so that each part of the bar whose share is above 0 has at least one cell.

    `widths` has the cells of each part, and as its last element the cells that no part fills. A part without
    a cell gets one from the widest element. If no element has two cells, the part gets one of the unfilled
    cells. If there are none, the smallest parts stay without a cell.
    """
    rest = len(widths) - 1
    hidden = [index for index in range(rest) if shares[index] > 0 and not widths[index]]
    for index in sorted(hidden, key=lambda i: -shares[i]):
        donor = max(range(len(widths)), key=lambda i: (widths[i], i))
        if widths[donor] > 1:
            widths[donor] -= 1
        elif widths[rest]:
            widths[rest] -= 1
        else:
            return
        widths[index] = 1


def sparkrow(values: Sequence[float | None], width: int, top: float) -> str:
    """Return a row of `width` vertical bars, one cell for each of the newest values, the newest at the right.

    Values are clipped to 0…`top`. 0 has the lowest bar, and None is a space. If there are fewer values than
    cells, the row begins with spaces.
    """
    if width <= 0:
        return ""
    cells = [_level(value, top) for value in values[-width:]]
    return "".join(cells).rjust(width)


def _level(value: float | None, top: float) -> str:
    if value is None or math.isnan(value):
        return " "
    if value <= 0 or not top > 0:
        return _LEVELS[0]
    return _LEVELS[-1] if value >= top else _LEVELS[int(value / top * len(_LEVELS))]
