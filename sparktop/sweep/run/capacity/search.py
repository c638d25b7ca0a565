"""The search for the largest load under which conditions hold.

It doubles the load until a level fails, then bisects: numbers to one, rates to a ratio of `RATIO` on a
logarithmic scale. The two levels at the border, the largest that holds and the smallest that fails, are
measured again with other requests while they are uncertain, and judged by all their runs; if the verdict
changes, the search goes on from there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from sparktop.model.load import LoadKind, LoadPoint
from sparktop.sweep.plan.capacity import FINE_SHARE, FINE_TO, RATIO
from sparktop.sweep.plan.plan import Capacity
from sparktop.sweep.run.capacity.judgement import Judged
from sparktop.sweep.run.slo.judgement import Verdict
from sparktop.sweep.terms.statistics import falling_shares
from sparktop.values import dataclass

MOST_PROBES = 20
_MOST_RUNS = 4
_USUAL_RUNS = 2
_DIGITS = 3
_ROUNDING = 1e-9
_FEWEST = 1 / 16
"""Smallest rate to try, in the first one."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A run of a level to make next."""

    point: LoadPoint
    run: int
    """Number of the run in its level, from 0: another number has other requests."""


class CapacitySearch:
    """Chooses the runs to make, one after the other, and keeps the judgement of each level."""

    def __init__(self, capacity: Capacity, first: float = 1.0) -> None:
        """Begin at the load `first`: 1, or of a rate that of requests one after the other."""
        self._kind = capacity.kind
        self._rates = capacity.kind is LoadKind.RATE
        self._most = capacity.most
        self._first = self._rounded(min(first, self._most))
        self.judged: dict[float, Judged] = {}
        """The judgement of each level by all its runs, by load."""
        self.runs: dict[float, int] = {}
        self.moved_from: float | None = None
        """The largest load that held in its first run, but not with a second one; None if there is none."""

    def add(self, value: float, judged: Judged) -> None:
        """Store the judgement of the level at `value`, by all its runs, after one more run."""
        before = self.holds
        self.judged[value] = judged
        self.runs[value] = self.runs.get(value, 0) + 1
        if self.runs[value] > 1 and before is not None and before > (self.holds or 0.0):
            self.moved_from = max(before, self.moved_from or before)

    @property
    def holds(self) -> float | None:
        """The largest load that holds, below all that fail; None if there is none so far."""
        below = math.inf if self.fails is None else self.fails
        return max((value for value in self.judged if value < below), default=None)

    @property
    def fails(self) -> float | None:
        """The smallest load that fails; None if none does so far."""
        return self._failing(self.judged)

    def _failing(self, levels: Mapping[float, Judged]) -> float | None:
        """Return the smallest of `levels` that fails.

        Shares of requests that meet a condition fall as the load grows, so each level is judged by the
        falling shares nearest to those of all levels: one level with unlucky requests among others decides
        nothing, nor do a few requests.
        """
        ordered = sorted(levels.items())
        failing = [value for value, one in ordered if one.trouble or (self._rates and not one.holds)]
        if not self._rates:
            for each in zip(*(one.shares for _, one in ordered), strict=True):
                shares = falling_shares((one.met, one.count) for one in each)
                failing += [
                    value
                    for (value, _), share, one in zip(ordered, shares, each, strict=True)
                    if share < one.needed - _ROUNDING and not one.too_few
                ]
        return min(failing, default=None)

    @property
    def at_least(self) -> bool:
        """Return whether the largest load to try holds, so that the answer may be larger."""
        return self.fails is None and self.holds is not None and self.holds >= self._most

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """(largest load that certainly holds, smallest that certainly fails); None where there is none."""
        failing = [value for value, one in self.judged.items() if one.certain is Verdict.FAILS]
        beyond = min(failing, default=None)
        sure = [
            value
            for value, one in self.judged.items()
            if one.certain is Verdict.HOLDS and (beyond is None or value < beyond)
        ]
        return max(sure, default=None), beyond

    @property
    def tried(self) -> tuple[float, ...]:
        """All measured loads, in the order in which they were measured first."""
        return tuple(self.judged)

    def next(self) -> Probe | None:
        """Return the next run to make; None at the end of the search."""
        if sum(self.runs.values()) >= MOST_PROBES:
            return None
        value = self._next_value()
        if value is None:
            value = self._to_repeat()
        if value is None:
            return None
        return Probe(LoadPoint(self._kind, value), self.runs.get(value, 0))

    def levels_left(self) -> int:
        """Return the largest number of runs that may follow, unless a repetition changes a verdict."""
        holds, fails = self.holds, self.fails
        top = self._most if fails is None else fails
        doublings = 0
        low = holds or self._first / 2
        while fails is None and low < top:
            low, doublings = min(2 * low, top), doublings + 1
        gap = max(self._steps(low / 2 if fails is None else (holds or 0.0), top), 1.0)
        repeats = sum(max(0, _USUAL_RUNS - self.runs.get(value or -1.0, 0)) for value in (holds, fails))
        return doublings + math.ceil(math.log2(gap)) + repeats

    def _steps(self, low: float, high: float) -> float:
        """Return the number of different answers between two loads."""
        if self._rates:
            return math.log(high / (low or high * _FEWEST)) / math.log(RATIO)
        return (high - low) / max(1.0, low * FINE_SHARE if low > FINE_TO else 1.0)

    def _next_value(self) -> float | None:
        holds, fails = self.holds, self.fails
        if fails is None:
            if holds is None:
                return self._first
            return None if holds >= self._most else self._rounded(min(2 * holds, self._most))
        if holds is None:
            least = _FEWEST * self._first if self._rates else 1.0
            return None if fails <= least * RATIO else self._rounded(max(least, fails / 2))
        middle = self._between(holds, fails)
        return None if middle in self.judged else middle

    def _between(self, low: float, high: float) -> float | None:
        if self._rates:
            return None if high <= RATIO * low else self._rounded(math.sqrt(low * high))
        fine = max(1.0, low * FINE_SHARE) if low > FINE_TO else 1.0
        return None if high - low <= fine else float((low + high) // 2)

    def _to_repeat(self) -> float | None:
        """Return the level at the border that is to be measured again; None if both are certain enough."""
        for value in (self.holds, self.fails):
            if value is None:
                continue
            one, runs = self.judged[value], self.runs[value]
            if one.certain is Verdict.FAILS:
                continue
            if runs < (_USUAL_RUNS if one.certain is Verdict.HOLDS else _MOST_RUNS):
                return value
        return None

    def _rounded(self, value: float) -> float:
        return float(f"{value:.{_DIGITS}g}") if self._rates else float(math.floor(value))
