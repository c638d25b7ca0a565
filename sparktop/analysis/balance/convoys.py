"""Detects convoys that come and go in turns: the split of all requests against the split of half of them.

A router that counts what it sends puts an equal number of requests on each backend. If requests are alike,
those of one backend end together, return together and go to the same backend again: a convoy each. While all
are present the split is even; while one convoy is away the backends are full and empty. Random routing has no
such difference: relative to the number of requests, its split is as wide with many as with few.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from sparktop.analysis.balance.load_grid import LoadGrid, picker
from sparktop.model.balance import Convoys

FULL_SHARE, PART_SHARES = 0.8, (0.25, 0.6)
"""Shares of the usual most: nearly all requests are present, or about half of them."""
_USUAL_MOST = 0.95
"""The quantile of the total that counts as the usual most; a single burst does not raise it."""
_SMALLEST_SPREAD = 1e-3
"""Smaller spreads are not distinguished, because counts are integers."""
_TIE = -1
_FULL_LOAD, _EMPTY_LOAD = 0.75, 0.25
"""Shares of a backend's own usual most."""


def find_convoys(grid: LoadGrid, slots: Sequence[int]) -> Convoys | None:
    """Compare the splits at full and part load over `slots`; None where the total never falls to half.

    The servers' pace cancels: servers that slow down with their batch widen random routing's split by a
    factor, most of all at full load, and the test is Fisher's F, the ratio of two such spreads.
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


@dataclass(slots=True)
class _Times:
    """The separate times with nearly all requests present and with about half: the spreads of each."""

    columns: Sequence[Sequence[float]]
    shares: Sequence[float]
    most: float
    """Requests in the group at its usual most."""
    full: list[list[float]] = field(default_factory=list)
    full_totals: list[float] = field(default_factory=list)
    part: list[list[float]] = field(default_factory=list)
    leads: list[int] = field(default_factory=list)
    """The backend with most requests at each part time."""
    part_slots: int = 0
    last_part: int = -1
    _fell: bool = True
    """The total fell to half or below since the last full time."""
    _leader: int | None = None

    def take(self, index: int, total: float) -> None:
        """Add the next slot; slots between full and part, and NaN, belong to neither."""
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
    """Return the backend furthest above its share; `_TIE` where two are."""
    loads = [column[index] / share for column, share in zip(columns, shares, strict=True)]
    top = max(loads)
    return loads.index(top) if loads.count(top) == 1 else _TIE


def _second(leads: Sequence[int]) -> int:
    """Return the number of part times led by the backend with the second most of them."""
    ordered = sorted(Counter(one for one in leads if one != _TIE).values(), reverse=True)
    return ordered[1] if len(ordered) > 1 else 0


def _period_s(columns: Sequence[Sequence[float]], step_s: float) -> float | None:
    """Return the median time from full over empty to full, or the reverse; None where no backend did both.

    Full and empty are relative to a backend's own usual most, so that convoys in phase with each other have a
    period too.
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
    """Return the probability of at least `value` under χ² (Wilson and Hilferty's approximation, 1931)."""
    width = 2 / (9 * freedom)
    return math.erfc(((value / freedom) ** (1 / 3) - 1 + width) / math.sqrt(2 * width)) / 2


def f_tail(ratio: float, above: int, below: int) -> float:
    """Return the probability of at least `ratio` under Fisher's F with these degrees of freedom.

    This is the regularised incomplete beta function I(x; below / 2, above / 2) with x = below / (below +
    above · ratio).
    """
    if ratio <= 0:
        return 1.0
    return _incomplete_beta(below / (below + above * ratio), below / 2, above / 2)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return I(x; a, b) by its continued fraction, Abramowitz and Stegun 26.5.8, where that converges."""
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
