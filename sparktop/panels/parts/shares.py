"""Draws how the load of a group of backends is shared among them over time."""

from __future__ import annotations

from sparktop.graphics.braille import StackedRow
from sparktop.graphics.shares import NOTHING, share_area
from sparktop.panels.parts.roles import part_letter, part_role
from sparktop.panels.parts.rows import Row
from sparktop.panels.parts.slots import Slots


def share_rows(loads: list[Slots], height: int) -> list[Row]:
    """Draw each backend's share of the load over time as `height` rows.

    `loads` has a list for each backend with its load for each terminal cell. In the newest column stand
    the backends' letters.
    """
    return [_share_row(row) for row in share_area(loads, height)]


def _share_row(runs: StackedRow) -> Row:
    row: Row = [(text, "text" if part == NOTHING else part_role(part)) for text, part in runs]
    if not runs or runs[-1][1] == NOTHING:
        return row
    text, part = runs[-1]
    return [*row[:-1], (text[:-1] + part_letter(part), part_role(part))]
