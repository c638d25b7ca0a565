"""Labels below a graph over time."""

from __future__ import annotations

_STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
_APART = 14
"""Least distance between the starts of two labels, in terminal cells."""
_NOW = "now"
_MINUTES_FROM_S = 120
_HOURS_FROM_S = 7200
_MIDDLE_FROM_ROWS = 4


def _step_s(cell_s: float) -> float:
    for step in _STEPS_S:
        if step >= _APART * cell_s:
            return step
    days = -(-_APART * cell_s // 86_400)
    return days * 86_400


def _ago(seconds: float, step_s: float) -> str:
    if step_s >= _HOURS_FROM_S:
        return f"−{seconds / 3600:g} h"
    if step_s >= _MINUTES_FROM_S:
        return f"−{seconds / 60:g} min"
    return f"−{seconds:g} s"


def time_axis(width_cells: int, seconds_per_slot: float) -> str:
    """Return the row of labels below a graph over time, such as "−120 s −60 s now".

    The row has `width_cells` cells; each cell of the graph shows two time slots of `seconds_per_slot`. Each
    label is centred on the cell of its time. A label that would cross the left edge starts at that edge.
    """
    if width_cells < len(_NOW):
        return " " * max(0, width_cells)
    cell_s = 2 * seconds_per_slot
    row = list(" " * (width_cells - len(_NOW)) + _NOW)
    if not cell_s > 0:
        return "".join(row)
    step = _step_s(cell_s)
    free = width_cells - len(_NOW) - 1
    ago = step
    while ago <= width_cells * cell_s:
        label = _ago(ago, step)
        # Not `round`: it rounds halves to even, so that equal distances would alternate.
        start = max(0, int(width_cells - ago / cell_s - len(label) / 2 + 0.5))
        if start + len(label) <= free:
            row[start : start + len(label)] = label
            free = start - 1
        ago += step
    return "".join(row)
