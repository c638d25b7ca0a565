"""The search for the largest load under which conditions hold.

It doubles the load until a level fails. Then it measures where the answer most likely is, by all levels so
far together (`crossing`), until the answer is certain within one, of rates within 10 %, or as many runs are
made as a search may take. Each run of a level has other requests.
"""

from __future__ import annotations

import math

from msgspec import Struct

from sparktop.model.load import LoadPoint
from sparktop.sweep.plan.plan import Capacity
from sparktop.sweep.run.capacity.crossing import Crossing, crossing, seen_of
from sparktop.sweep.run.capacity.grid import grid_of
from sparktop.sweep.run.capacity.judgement import Judged
from sparktop.sweep.run.slo.judgement import Verdict

MOST_RUNS = 20
_MOST_NEAR_RATES = 9
"""Most runs at a rate after the first that fails: they last long, and a rate is found within 10 % only."""
_USUAL_RUNS = 2
_LOW, _HALF, _HIGH = 0.025, 0.5, 0.975


class Probe(Struct, frozen=True):
    """A run of a level to make next."""

    point: LoadPoint
    run: int
    """Number of the run in its level, from 0: another number has other requests."""
    decides: bool = False
    """Whether the run is near the answer, so that it needs many requests."""


class CapacitySearch:
    """Chooses the runs to make, one after the other, and keeps the judgement of each level."""

    def __init__(self, capacity: Capacity, first: float = 1.0) -> None:
        """Begin at 1, or at the rate `first`, that of requests one after the other."""
        self._capacity = capacity
        self._grid = grid_of(capacity, first)
        self.most = capacity.most
        """The largest load to try."""
        self.judged: dict[float, Judged] = {}
        """The judgement of each level by all its runs, by load."""
        self.runs: dict[float, int] = {}
        self.moved_from: float | None = None
        """The largest load that held in its first run, but not with a second one; None if there is none."""
        self._near = 0
        """Number of runs after the first that fails."""
        self._likely: tuple[int, Crossing] | None = None
        """(Number of runs, how likely each load is the answer by these)."""

    def add(self, value: float, judged: Judged) -> None:
        """Store the judgement of the level at `value`, by all its runs, after one more run."""
        before = self.holds
        self._near += self.fails is not None
        self.judged[value] = judged
        self.runs[value] = self.runs.get(value, 0) + 1
        if self.runs[value] > 1 and before == value and before > (self.holds or 0.0):
            self.moved_from = max(before, self.moved_from or before)

    @property
    def likely(self) -> Crossing:
        """How likely each load is the answer, by all levels so far."""
        if self._likely is None or self._likely[0] != self.made:
            self._likely = self.made, self._computed()
        return self._likely[1]

    def _computed(self) -> Crossing:
        troubled = min((value for value, one in self.judged.items() if one.trouble), default=math.inf)
        levels = {value: one.shares for value, one in self.judged.items()}
        decisive = range(len(self._capacity.conditions)) if not self._grid.is_rate else (-1,)
        conditions = [
            seen_of({value: shares[number] for value, shares in levels.items() if shares})
            for number in decisive
        ]
        return crossing(conditions, self._grid, troubled)

    @property
    def _is_known(self) -> bool:
        """Whether any request was judged."""
        return any(one.trouble or any(part.count for part in one.shares) for one in self.judged.values())

    @property
    def holds(self) -> float | None:
        """The largest measured load that holds, below all that fail; None if there is none so far."""
        if not self._is_known:
            return None
        below = math.inf if self.fails is None else self.fails
        return max((value for value in self.judged if value < below), default=None)

    @property
    def fails(self) -> float | None:
        """The smallest measured load that more likely fails than holds; None if there is none so far."""
        if not self._is_known:
            return None
        likely = self.likely
        return min((value for value in self.judged if likely.fails(value) > _HALF), default=None)

    @property
    def at_least(self) -> bool:
        """Return whether the largest load to try holds, so that the answer may be larger."""
        return self.fails is None and self.holds is not None and self.holds >= self.most

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """(largest load that certainly holds, smallest that certainly fails); None where there is none."""
        if not self._is_known:
            return None, None
        low, high = self.likely.quantile(_LOW), self.likely.quantile(_HIGH)
        return low or None, None if high >= self.most else self._grid.after(high)

    def certainty(self, value: float) -> Verdict:
        """Return whether `value` holds or fails for certain."""
        chance = self.likely.fails(value) if self._is_known else _HALF
        if chance <= _LOW:
            return Verdict.HOLDS
        return Verdict.FAILS if chance >= _HIGH else Verdict.UNSURE

    @property
    def tried(self) -> tuple[float, ...]:
        """All measured loads, in the order in which they were measured first."""
        return tuple(self.judged)

    def next(self) -> Probe | None:
        """Return the next run to make; None at the end of the search."""
        is_over = self.made >= MOST_RUNS or (self._grid.is_rate and self._near >= _MOST_NEAR_RATES)
        value = None if is_over else self._next_value()
        if value is None:
            return None
        point = LoadPoint(self._capacity.kind, value)
        return Probe(point, self.runs.get(value, 0), self.fails is not None)

    def _next_value(self) -> float | None:
        if not self.judged:
            return self._grid.first
        top = max(self.judged)
        if not self._is_known and top >= self.most:
            return None
        if self.fails is None and top < self.most:
            return self._grid.at_most(min(2 * top, self.most))
        answer = self.likely.quantile(_HALF)
        pair = sorted({one for one in (answer, self._grid.after(answer)) if one > 0})
        low, high = self.likely.quantile(_LOW), self.likely.quantile(_HIGH)
        if not self._grid.is_close(low, high):
            return min(pair, key=lambda value: self.runs.get(value, 0))
        needed = [one for one in pair if self.runs.get(one, 0) < (_USUAL_RUNS if one == answer else 1)]
        return next(iter(needed), None)

    def levels_left(self) -> int:
        """Return the largest number of runs that usually follow."""
        holds, fails = self.holds, self.fails
        top = self.most if fails is None else fails
        doublings = 0
        low = holds or self._grid.first / 2
        while fails is None and low < top:
            low, doublings = min(2 * low, top), doublings + 1
        gap = max(self._grid.steps(low / 2 if fails is None else (holds or 0.0), top), 1.0)
        repeats = sum(max(0, _USUAL_RUNS - self.runs.get(value or -1.0, 0)) for value in (holds, fails))
        return doublings + math.ceil(math.log2(gap)) + repeats

    def runs_left(self) -> int:
        """Return the largest number of runs that follow at most."""
        left = MOST_RUNS - self.made
        return min(left, _MOST_NEAR_RATES - self._near) if self._grid.is_rate and self._near else left

    @property
    def made(self) -> int:
        """Number of runs so far."""
        return sum(self.runs.values())
