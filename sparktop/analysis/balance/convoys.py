"""Detects convoys: compares how evenly requests are split at full load with how evenly at half of that load.

A *convoy* is a set of requests that start together at one backend, end together and return together. A router
that counts what it sends puts an equal number of requests on each backend. If requests are alike, those of
one backend end together, return together and go to the same backend again: a convoy per backend. While all
requests are present the split is even; while one convoy is away, some backends are full and others empty.
Random routing has no such difference: relative to the number of requests, its split is as wide with many
requests as with few.

A *full time* is a stretch of time slots with nearly all requests present, a *part time* one with about
half of the requests present.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.analysis.balance.load_grid import LoadGrid, picker
from sparktop.model.balance import Convoys

FULL_SHARE, PART_SHARES = 0.8, (0.25, 0.6)
"""Shares of the usual maximum of requests in the group: a full time has at least the first, a part time a
share between the other two."""
_USUAL_MOST = 0.95
"""The quantile of the group's total load that counts as its usual maximum; a single burst does not raise
it."""
_SMALLEST_SPREAD = 1e-3
"""Lower limit of a spread in a ratio, because counts are integers and so a spread may be 0."""
_TIE = -1
_FULL_LOAD, _EMPTY_LOAD = 0.75, 0.25
"""A backend is full from the first share of its own usual maximum on, empty up to the second."""


def find_convoys(grid: LoadGrid, slots: Sequence[int]) -> Convoys | None:
    """Compare how evenly requests are split at full load with how evenly at about half load, over time slots.

    `slots` are indexes of time slots of `grid`. At full load nearly all requests are present. Return None
    if the load never falls to about half of full load. The significance test is Fisher's F, the ratio of the
    two spreads. Slow servers cause no false alarm: they make random routing less even at full load, and
    the test looks for the opposite.
    """
    pick = picker(grid, slots)
    totals = pick(grid.totals)
    ordered = sorted(totals)
    most = ordered[math.floor(_USUAL_MOST * len(ordered))] if ordered else 0.0
    if not ordered or most <= 0 or ordered[0] > PART_SHARES[1] * most:
        return None
    times = _Times([pick(column) for column in grid.loads], grid.shares, most)
    for index, total in enumerate(totals):
        times.take(index, total)
    if not times.full:
        return None
    found = Convoys(
        full_times=len(times.full),
        part_times=len(times.part),
        full_spread=_mean_of_means(times.full),
        full_total=sum(times.full_totals) / len(times.full_totals),
        part_share=times.part_slots / len(totals),
        least_leads=_second(times.leads),
        period_s=_period_s(times.columns, grid.step_s),
    )
    if not times.part:
        return found
    each, part_spread = len(times.columns) - 1, _mean_of_means(times.part)
    above, below = each * len(times.part), each * len(times.full)
    return replace(
        found,
        part_spread=part_spread,
        since_part_s=(slots[-1] - slots[times.last_part]) * grid.step_s,
        part_chance=chi_squared_tail(part_spread * above, above),
        chance=f_tail(part_spread / max(found.full_spread, _SMALLEST_SPREAD), above, below),
    )


class _Times(Struct):
    """Collects the stretches of time at full load (nearly all requests present) and part load (about half).

    `full` and `part` have a list for each stretch: how unevenly requests were split in each of its time
    slots.
    """

    columns: Sequence[Sequence[float]]
    shares: Sequence[float]
    most: float
    """Requests in the group at its usual maximum."""
    full: list[list[float]] = field(default_factory=list)
    full_totals: list[float] = field(default_factory=list)
    part: list[list[float]] = field(default_factory=list)
    leads: list[int] = field(default_factory=list)
    """For each part time, the index of the backend furthest above its share; `_TIE` where two are."""
    part_slots: int = 0
    last_part: int = -1
    _fell: bool = True
    """The total has fallen to the upper limit of a part time or below since the last full time."""
    _leader: int | None = None

    def take(self, index: int, total: float) -> None:
        """Add the time slot `index`, in which `total` requests were present, to the full or the part load.

        A total near the usual maximum is full load, one of about half of this is part load. Ignore other
        slots.
        """
        lowest, part = PART_SHARES
        if total >= FULL_SHARE * self.most:
            if self._fell:
                self.full.append([])
                self._fell, self._leader = False, None
            self.full[-1].append(_spread(self.columns, self.shares, index, total))
            self.full_totals.append(total)
        elif total <= part * self.most:
            self._fell = True
            if total >= lowest * self.most:
                self._take_part(index, total)

    def _take_part(self, index: int, total: float) -> None:
        self.part_slots, self.last_part = self.part_slots + 1, index
        first = _first(self.columns, self.shares, index)
        if self._leader is None or first not in {self._leader, _TIE}:
            self.part.append([])
            self.leads.append(first)
            self._leader = first
        self.part[-1].append(_spread(self.columns, self.shares, index, total))


def _spread(columns: Sequence[Sequence[float]], shares: Sequence[float], index: int, total: float) -> float:
    apart = [
        (column[index] - share * total) ** 2 / share for column, share in zip(columns, shares, strict=True)
    ]
    return sum(apart) / total / (len(columns) - 1)


def _first(columns: Sequence[Sequence[float]], shares: Sequence[float], index: int) -> int:
    """Return which backend has the highest load relative to its due share in time slot `index`.

    The result is the index of the backend, or `_TIE` if two backends have the highest.
    """
    loads = [column[index] / share for column, share in zip(columns, shares, strict=True)]
    top = max(loads)
    return loads.index(top) if loads.count(top) == 1 else _TIE


def _second(leads: Sequence[int]) -> int:
    """Count how often each backend leads; return the second highest of these numbers.

    `leads` has the index of the leading backend at each time, or `_TIE`. Return 0 if at most one backend
    ever leads.
    """
    ordered = sorted(Counter(one for one in leads if one != _TIE).values(), reverse=True)
    return ordered[1] if len(ordered) > 1 else 0


def _period_s(columns: Sequence[Sequence[float]], step_s: float) -> float | None:
    """Return the median time in seconds in which a backend goes from full to empty and back, or the reverse.

    Return None if no backend did. Full and empty are relative to the backend's own usual maximum, so a
    period is found also where the loads of all backends rise and fall at the same time.
    """
    gaps: list[int] = []
    for column in columns:
        most = sorted(column)[math.floor(_USUAL_MOST * len(column))]
        full: bool | None = None
        turned_at: list[int] = []
        for index, load in enumerate(column):
            now = True if load >= _FULL_LOAD * most else False if load <= _EMPTY_LOAD * most else full
            if now is not full:
                turned_at.append(index)
                full = now
        # The first entry is the beginning, not a turn.
        gaps += [later - earlier for earlier, later in zip(turned_at[1:], turned_at[3:], strict=False)]
    return median(gaps) * step_s if gaps else None


def _mean_of_means(runs: Sequence[Sequence[float]]) -> float:
    return sum([sum(run) / len(run) for run in runs]) / len(runs)


def chi_squared_tail(value: float, freedom: int) -> float:
    """Return the probability that a χ² variable with `freedom` degrees of freedom is at least `value`.

    Uses the approximation of Wilson and Hilferty (1931).
    """
    width = 2 / (9 * freedom)
    return math.erfc(((value / freedom) ** (1 / 3) - 1 + width) / math.sqrt(2 * width)) / 2


def f_tail(ratio: float, above: int, below: int) -> float:
    """Return the probability that an F-distributed variable is at least `ratio`.

    `above` and `below` are the degrees of freedom of numerator and denominator. The probability is the
    regularised incomplete beta function I(x; below / 2, above / 2) with x = below / (below + above · ratio).
    """
    if ratio <= 0:
        return 1.0
    return _incomplete_beta(below / (below + above * ratio), below / 2, above / 2)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return I(x; a, b), the regularised incomplete beta function.

    Uses the continued fraction 26.5.8 of Abramowitz and Stegun, or the symmetry I(x; a, b) = 1 - I(1 - x; b,
    a) where the fraction converges badly.
    """
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    value = 1.0
    for step in range(60, 0, -1):
        half, odd = divmod(step, 2)
        if odd:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        value = 1 + term / value
    return front / a / value
