"""The search for the largest whole number of agents, users or requests under which conditions hold."""

from __future__ import annotations

import math

from sparktop.model.load import LoadPoint
from sparktop.sweep.plan.capacity import FINE_SHARE, FINE_TO
from sparktop.sweep.run.capacity.crossing import Crossing, Seen, crossing
from sparktop.sweep.run.capacity.search import MOST_PROBES, USUAL_RUNS, CapacitySearch, Probe
from sparktop.sweep.run.slo.judgement import Verdict

_LOW, _HALF, _HIGH = 0.025, 0.5, 0.975


class NumberSearch(CapacitySearch):
    """Doubles numbers, then measures those that are most likely the answer."""

    _likely: Crossing | None = None
    _made_at = 0
    """Number of runs in `_likely`."""

    @property
    def likely(self) -> Crossing:
        """How likely each number is the answer, by all levels so far."""
        if self._likely is None or self._made_at != self.made:
            self._likely, self._made_at = self._computed(), self.made
        return self._likely

    def _computed(self) -> Crossing:
        troubled = min((value for value, one in self.judged.items() if one.trouble), default=math.inf)
        levels = [(value, one.shares) for value, one in self.judged.items() if not one.trouble]
        conditions = []
        for number in range(len(self._capacity.conditions)):
            seen = [
                Seen(value, shares[number].share * shares[number].weight, shares[number].weight)
                for value, shares in levels
                if number < len(shares) and shares[number].count
            ]
            needed = next((shares[number].needed for _, shares in levels if number < len(shares)), 0.5)
            conditions.append((needed, seen))
        return crossing(conditions, self.most, troubled)

    @property
    def holds(self) -> float | None:
        """The largest measured number that holds, below all that fail; None if there is none so far."""
        return super().holds if self._is_known else None

    @property
    def _is_known(self) -> bool:
        """Whether any request was judged."""
        return any(one.trouble or any(part.count for part in one.shares) for one in self.judged.values())

    @property
    def fails(self) -> float | None:
        """The smallest measured number that fails; None if none does so far."""
        if not self._is_known:
            return None
        likely = self.likely
        return min((value for value in self.judged if likely.fails(value) > _HALF), default=None)

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """(largest number that certainly holds, smallest that certainly fails); None where there is none."""
        if not self._is_known:
            return None, None
        low, high = self.likely.quantile(_LOW), self.likely.quantile(_HIGH)
        return low or None, None if high >= self.most else high + 1

    def certainty(self, value: float) -> Verdict:
        """Return whether `value` holds or fails for certain."""
        chance = self.likely.fails(value) if self._is_known else _HALF
        if chance <= _LOW:
            return Verdict.HOLDS
        return Verdict.FAILS if chance >= _HIGH else Verdict.UNSURE

    def next(self) -> Probe | None:
        """Return the next run to make; None at the end of the search."""
        if self.made >= MOST_PROBES:
            return None
        value = self._next_value()
        if value is None:
            return None
        return Probe(LoadPoint(self._kind, value), self.runs.get(value, 0), self.fails is not None)

    def _next_value(self) -> float | None:
        if not self.judged:
            return self._first
        top = max(self.judged)
        if not self._is_known and top >= self.most:
            return None
        if self.fails is None and top < self.most:
            return self._rounded(min(2 * top, self.most))
        answer = self.likely.quantile(_HALF)
        pair = [value for value in (answer, min(answer + 1, self.most)) if value >= 1]
        if not self._is_decided(answer):
            return min(pair, key=lambda value: self.runs.get(value, 0))
        needed = [value for value in pair if self.runs.get(value, 0) < (USUAL_RUNS if value == answer else 1)]
        return next(iter(needed), None)

    def _is_decided(self, answer: float) -> bool:
        """Return whether the answer is certain within one, or a sixteenth of a large one."""
        low, high = self.likely.quantile(_LOW), self.likely.quantile(_HIGH)
        return high - low <= max(1.0, answer * FINE_SHARE if answer > FINE_TO else 1.0)

    def _steps(self, low: float, high: float) -> float:
        return (high - low) / max(1.0, low * FINE_SHARE if low > FINE_TO else 1.0)
