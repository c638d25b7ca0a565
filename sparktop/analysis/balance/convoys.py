"""Detects convoys: sets of requests that start together at one backend, end together and return together.

A router that counts what it sends puts an equal number of requests on each backend. If requests are alike,
those of one backend end together, return together and go to the same backend again: a convoy per backend.
While all requests are present the split is even; while one convoy is away, some backends are full and
others empty. Random routing has no such difference: relative to the number of requests, its split is as
wide with many requests as with few.

A *full time* is a stretch of time slots with nearly all requests present, a *part time* one with about
half of the requests present.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from sparktop.analysis.balance.load_grid import LoadGrid
from sparktop.analysis.balance.spread import unevenness
from sparktop.model.balance import Convoys
from sparktop.model.statistics import chi_squared_tail, f_tail

FULL_SHARE, PART_SHARES = 0.8, (0.25, 0.6)
"""Shares of the usual maximum of requests in the group: a full time has at least the first, a part time a
share between the other two."""
_USUAL_MOST = 0.95
"""The quantile of the group's total load that counts as its usual maximum; a single burst does not raise
it."""
_SMALLEST_SPREAD = 1e-3
"""Lower limit of a spread in a ratio, because counts are integers and so a spread may be 0."""
_TIE = -1
"""Stands for a leader where two backends have the highest load."""
_FULL_LOAD, _EMPTY_LOAD = 0.75, 0.25
"""A backend is full from the first share of its own usual maximum on, empty up to the second."""


def find_convoys(grid: LoadGrid, slots: Sequence[int]) -> Convoys | None:
    """Compare how evenly requests are split at full load with how evenly at about half load, over time slots.

    `slots` are indexes of time slots of `grid`. At full load nearly all requests are present. Return None
    if the load never falls to about half of full load. The significance test is Fisher's F, the ratio of the
    two spreads. Slow servers cause no false alarm: they make random routing less even at full load, and
    the test looks for the opposite.
    """
    ordered = sorted(grid.totals[slot] for slot in slots)
    usual_most = ordered[math.floor(_USUAL_MOST * len(ordered))] if ordered else 0.0
    if not ordered or usual_most <= 0 or ordered[0] > PART_SHARES[1] * usual_most:
        return None
    times = _Stretches(grid, usual_most)
    for slot in slots:
        times.add_slot(slot)
    if not times.full:
        return None
    result = Convoys(
        full_times=len(times.full),
        part_times=len(times.part),
        full_spread=_mean_of_means(times.full),
        full_total=sum(times.full_totals) / len(times.full_totals),
        part_share=times.part_slots / len(slots),
        least_leads=_leads_of_runner_up(times.leads),
        period_s=_period_s([[column[slot] for slot in slots] for column in grid.loads], grid.step_s),
    )
    if not times.part:
        return result
    others_count, part_spread = len(grid.loads) - 1, _mean_of_means(times.part)
    above, below = others_count * len(times.part), others_count * len(times.full)
    return replace(
        result,
        part_spread=part_spread,
        since_part_s=(slots[-1] - times.last_part) * grid.step_s,
        part_chance=chi_squared_tail(part_spread * above, above),
        chance=f_tail(part_spread / max(result.full_spread, _SMALLEST_SPREAD), above, below),
    )


class _Stretches(Struct):
    """Collects the stretches of time at full load (nearly all requests present) and part load (about half).

    `full` and `part` have a list for each stretch: how unevenly requests were split in each of its time
    slots.
    """

    grid: LoadGrid
    most: float
    """Requests in the group at its usual maximum."""
    full: list[list[float]] = []
    full_totals: list[float] = []
    part: list[list[float]] = []
    leads: list[int] = []
    """For each part time, the index of the backend furthest above its share; `_TIE` where two are."""
    part_slots: int = 0
    last_part: int = -1
    _fell: bool = True
    """The total has fallen to the upper limit of a part time or below since the last full time."""
    _leader: int | None = None

    def add_slot(self, slot: int) -> None:
        """Add a time slot to the full or the part load.

        A total near the usual maximum is full load, one of about half of this is part load. Ignore other
        slots.
        """
        lowest, part = PART_SHARES
        total = self.grid.totals[slot]
        if total >= FULL_SHARE * self.most:
            if self._fell:
                self.full.append([])
                self._fell, self._leader = False, None
            self.full[-1].append(unevenness(self.grid, slot))
            self.full_totals.append(total)
        elif total <= part * self.most:
            self._fell = True
            if total >= lowest * self.most:
                self._add_part_slot(slot)

    def _add_part_slot(self, slot: int) -> None:
        """Add a slot at part load.

        A new stretch begins after each full time, and when another backend takes the lead; a tie that
        follows a lead changes nothing.
        """
        self.part_slots, self.last_part = self.part_slots + 1, slot
        leader = _leader_of(self.grid, slot)
        if self._leader is None or leader not in {self._leader, _TIE}:
            self.part.append([])
            self.leads.append(leader)
            self._leader = leader
        self.part[-1].append(unevenness(self.grid, slot))


def _leader_of(grid: LoadGrid, slot: int) -> int:
    """Return which backend has the highest load relative to its due share in a time slot.

    The result is the index of the backend, or `_TIE` if two backends have the highest.
    """
    loads = [column[slot] / share for column, share in zip(grid.loads, grid.shares, strict=True)]
    top = max(loads)
    return loads.index(top) if loads.count(top) == 1 else _TIE


def _leads_of_runner_up(leads: Sequence[int]) -> int:
    """Count how often each backend leads; return the second highest of these numbers.

    With convoys at least two backends lead in turn; one that always leads is only slow.
    `leads` has the index of the leading backend at each time, or `_TIE`. Return 0 if at most one backend
    ever leads.
    """
    ordered = sorted(Counter(lead for lead in leads if lead != _TIE).values(), reverse=True)
    return ordered[1] if len(ordered) > 1 else 0


def _period_s(columns: Sequence[Sequence[float]], step_s: float) -> float | None:
    """Return the median time in seconds in which a backend goes from full to empty and back, or the reverse.

    Return None if no backend did. Full and empty are relative to the backend's own usual maximum, so a
    period is found also where the loads of all backends rise and fall at the same time.
    """
    gaps: list[int] = []
    for column in columns:
        usual_most = sorted(column)[math.floor(_USUAL_MOST * len(column))]
        full: bool | None = None
        turned_at: list[int] = []
        for index, load in enumerate(column):
            now_full = full
            if load >= _FULL_LOAD * usual_most:
                now_full = True
            elif load <= _EMPTY_LOAD * usual_most:
                now_full = False
            if now_full is not full:
                turned_at.append(index)
                full = now_full
        # The first entry is the beginning, not a turn.
        gaps += [later - earlier for earlier, later in zip(turned_at[1:], turned_at[3:], strict=False)]
    return median(gaps) * step_s if gaps else None


def _mean_of_means(runs: Sequence[Sequence[float]]) -> float:
    return sum([sum(run) / len(run) for run in runs]) / len(runs)
