"""Which backend has clearly most of the load, and how often that changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from sparktop.analysis.load_grid import LoadGrid

_SMALLEST, _LARGEST = 0.5, 0.9
_DEVIATIONS = 3.0


@dataclass(frozen=True, slots=True)
class Lead:
    """The changes of the lead in a window."""

    margin: float
    """A backend leads with at least (1 + margin) times its share, until another does."""
    changes: int
    swap_s: float | None
    """Median time between changes; None with fewer than two."""
    per_min: float | None


def lead_margin(total: float, backends: int, factor: float) -> float:
    """Give a margin that chance seldom reaches: 3 deviations of random routing, within 0.5 to 0.9."""
    if total <= 0:
        return _LARGEST
    return min(_LARGEST, max(_SMALLEST, _DEVIATIONS * math.sqrt((backends - 1) * factor / total)))


def follow_lead(grid: LoadGrid, slots: Sequence[int], margin: float) -> Lead:
    """Count how often the lead changes over `slots`.

    Where two overtake at once, to the same load, nobody is said to lead until one of them does.
    """
    excess = [
        [column[slot] / share for slot in slots]
        for column, share in zip(grid.loads, grid.shares, strict=True)
    ]
    leader = -1
    changed_at: list[int] = []
    for slot, row in zip(slots, zip(*excess, strict=True), strict=True):
        least = (1 + margin) * grid.totals[slot]
        most = max(row)
        if most >= least and (leader < 0 or row[leader] < least) and row.count(most) == 1:
            if leader >= 0:
                changed_at.append(slot)
            leader = row.index(most)
    gaps = [(later - earlier) * grid.step_s for earlier, later in pairwise(changed_at)]
    minutes = grid.span_s / 60
    return Lead(
        margin=margin,
        changes=len(changed_at),
        swap_s=median(gaps) if gaps else None,
        per_min=len(changed_at) / minutes if minutes > 0 else None,
    )
