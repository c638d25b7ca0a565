"""Which backend has clearly most load, how often this changes, and how often backends fill and empty.

The *share* of a backend is its part of the group's load under an even split.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import compress, pairwise
from operator import ge, le, ne, or_
from statistics import median

from sparktop.analysis.balance.load_grid import LoadGrid, picker
from sparktop.values import dataclass

_SMALLEST, _LARGEST = 0.5, 0.9
_DEVIATIONS = 3.0
_AROUND = 0.5
"""Half-width of the neutral range, as a part of the share: a backend is full from 1.5 times its share on, and
empty up to half of it."""


@dataclass(frozen=True, slots=True)
class Lead:
    """How often the lead (the backend with clearly most load) changed in a time window."""

    margin: float
    """A backend takes the lead when its load reaches (1 + margin) times its share, and keeps it until another
    backend does."""
    changes: int
    swap_s: float | None
    """Median seconds between changes; None with fewer than two changes."""
    per_min: float | None


def lead_margin(total: float, backends: int, factor: float) -> float:
    """Return by how much a backend must exceed its even share to take the lead, as a part of this share.

    The result is 3 standard deviations of a load under random routing, limited to 0.5 to 0.9. `total` is the
    number of requests in the group; `factor` is the variance of a backend's load under random routing,
    relative to the multinomial's.
    """
    if total <= 0:
        return _LARGEST
    return min(_LARGEST, max(_SMALLEST, _DEVIATIONS * math.sqrt((backends - 1) * factor / total)))


def follow_lead(grid: LoadGrid, slots: Sequence[int], margin: float) -> Lead:
    """Count how often the lead passes from one backend to another over the time slots `slots`.

    A backend takes the lead when its load reaches (1 + `margin`) times its even share. Where two backends
    do so in the same slot with equal loads, the lead does not change until one of them has more load.
    """
    pick = picker(grid, slots)
    excess = [
        [load / share for load in pick(column)] for column, share in zip(grid.loads, grid.shares, strict=True)
    ]
    most = list(map(max, *excess))
    leader = -1
    changed_at: list[int] = []
    for index, (slot, top, total) in enumerate(zip(slots, most, pick(grid.totals), strict=True)):
        least = (1 + margin) * total
        # Mostly no backend leads, or the same one still does.
        if top >= least and (leader < 0 or excess[leader][index] < least):
            row = [column[index] for column in excess]
            if row.count(top) == 1:
                if leader >= 0:
                    changed_at.append(slot)
                leader = row.index(top)
    gaps = [(later - earlier) * grid.step_s for earlier, later in pairwise(changed_at)]
    minutes = grid.span_s / 60
    return Lead(
        margin=margin,
        changes=len(changed_at),
        swap_s=median(gaps) if gaps else None,
        per_min=len(changed_at) / minutes if minutes > 0 else None,
    )


@dataclass(frozen=True, slots=True)
class Turns:
    """How often backends went from full to empty or back, whichever of them had most load."""

    turns: int
    """Number of turns of all backends together."""
    most: int
    """Number of turns of the backend with most turns."""
    period_s: float | None
    """Median seconds from full over empty to full, or the reverse; None when no backend did both."""


def follow_turns(grid: LoadGrid, slots: Sequence[int]) -> Turns:
    """Count how often each backend went from 1.5 times its even share of the load to half of it, or back.

    `slots` are the indexes of the time slots to examine. Unlike the number of lead changes, this count
    works for many backends too, where several are full at once while the one with most load stays the
    same.
    """
    counts: list[int] = []
    gaps: list[int] = []
    pick = picker(grid, slots)
    totals = pick(grid.totals)
    edges = {
        share: (
            [(1 - _AROUND) * share * total for total in totals],
            [(1 + _AROUND) * share * total for total in totals],
        )
        for share in set(grid.shares)
    }
    for column, share in zip(grid.loads, grid.shares, strict=True):
        loads, (lows, highs) = pick(column), edges[share]
        # Maps of operators take a third of a loop's time. NaN compares as false.
        full = list(map(ge, loads, highs))
        either = list(map(or_, full, map(le, loads, lows)))
        states, known_at = list(compress(full, either)), list(compress(slots, either))
        turned_at = list(compress(known_at[1:], map(ne, states[1:], states)))
        counts.append(len(turned_at))
        gaps += [later - earlier for earlier, later in zip(turned_at, turned_at[2:], strict=False)]
    return Turns(sum(counts), max(counts, default=0), median(gaps) * grid.step_s if gaps else None)
