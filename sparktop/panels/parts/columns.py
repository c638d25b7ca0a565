"""The widths of columns, the same in all panels, so that their graphs line up."""

from __future__ import annotations

FIGURES_WIDTH = 38
"""Width in cells of the column of values, without the mean latencies."""
WIDE_FIGURES_WIDTH = 54
"""Width in cells of the column of values with the mean latencies."""
MIN_GRAPH_WIDTH = 12


def graph_width(width: int) -> int:
    """Return the width in cells of each of two graphs in a panel of `width` cells; 0 if they do not fit."""
    room = width - 2 - figures_width(width) - 3
    each = room // 2
    return each if each >= MIN_GRAPH_WIDTH else 0


def figures_width(width: int) -> int:
    """Return the width in cells of the column of values in a panel of `width` cells."""
    if width >= 180:
        return WIDE_FIGURES_WIDTH
    return min(FIGURES_WIDTH, width - 4)
