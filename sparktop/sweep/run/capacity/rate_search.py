"""The search for the highest rate under which conditions hold."""

from __future__ import annotations

import math

from sparktop.model.load import LoadPoint
from sparktop.sweep.plan.capacity import RATIO
from sparktop.sweep.run.capacity.search import MOST_PROBES, USUAL_RUNS, CapacitySearch, Probe
from sparktop.sweep.run.slo.judgement import Verdict

_MOST_RUNS = 4
_DIGITS = 3
_FEWEST = 1 / 16
"""Smallest rate to try, in the first one."""


class RateSearch(CapacitySearch):
    """Doubles and bisects rates, and repeats the two levels at the border while they are uncertain."""

    @property
    def fails(self) -> float | None:
        """The smallest measured rate that fails; None if none does so far."""
        return min((value for value, one in self.judged.items() if not one.holds), default=None)

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """(largest rate that certainly holds, smallest that certainly fails); None where there is none."""
        beyond = min((at for at, one in self.judged.items() if one.certain is Verdict.FAILS), default=None)
        sure = [
            at
            for at, one in self.judged.items()
            if one.certain is Verdict.HOLDS and (beyond is None or at < beyond)
        ]
        return max(sure, default=None), beyond

    def certainty(self, value: float) -> Verdict:
        """Return whether the measured rate `value` holds or fails for certain."""
        return self.judged[value].certain

    def next(self) -> Probe | None:
        """Return the next run to make; None at the end of the search."""
        if self.made >= MOST_PROBES:
            return None
        value = self._next_value()
        if value is None:
            value = self._to_repeat()
        if value is None:
            return None
        return Probe(LoadPoint(self._kind, value), self.runs.get(value, 0), self.fails is not None)

    def _next_value(self) -> float | None:
        holds, fails = self.holds, self.fails
        if fails is None:
            if holds is None:
                return self._first
            return None if holds >= self.most else self._rounded(min(2 * holds, self.most))
        if holds is None:
            least = _FEWEST * self._first
            return None if fails <= least * RATIO else self._rounded(max(least, fails / 2))
        middle = None if fails <= RATIO * holds else self._rounded(math.sqrt(holds * fails))
        return None if middle in self.judged else middle

    def _to_repeat(self) -> float | None:
        """Return the level at the border that is to be measured again; None if both are certain enough."""
        for value in (self.holds, self.fails):
            if value is None:
                continue
            one, runs = self.judged[value], self.runs[value]
            if one.certain is Verdict.FAILS:
                continue
            if runs < (USUAL_RUNS if one.certain is Verdict.HOLDS else _MOST_RUNS):
                return value
        return None

    def _steps(self, low: float, high: float) -> float:
        return math.log(high / (low or high * _FEWEST)) / math.log(RATIO)

    def _rounded(self, value: float) -> float:
        return float(f"{value:.{_DIGITS}g}")
