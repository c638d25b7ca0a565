"""The search for the largest load under which conditions hold.

It doubles the load until a level fails. Rates are then bisected to a ratio of `RATIO` on a logarithmic scale,
and the two levels at the border are measured again with other requests while they are uncertain. Numbers are
then measured where the answer most likely is, by all levels so far together (`crossing`), until it is certain
within one, or as many runs are made as a search may take.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from sparktop.model.load import LoadPoint
from sparktop.sweep.plan.plan import Capacity
from sparktop.sweep.run.capacity.judgement import Judged
from sparktop.sweep.run.slo.judgement import Verdict
from sparktop.values import dataclass

MOST_PROBES = 20
USUAL_RUNS = 2


@dataclass(frozen=True, slots=True)
class Probe:
    """A run of a level to make next."""

    point: LoadPoint
    run: int
    """Number of the run in its level, from 0: another number has other requests."""
    decides: bool = False
    """Whether the run is near the answer, so that it needs many requests."""


class CapacitySearch(ABC):
    """Chooses the runs to make, one after the other, and keeps the judgement of each level."""

    def __init__(self, capacity: Capacity, first: float = 1.0) -> None:
        """Begin at the load `first`: 1, or of a rate that of requests one after the other."""
        self._capacity = capacity
        self._kind = capacity.kind
        self.most = capacity.most
        """The largest load to try."""
        self._first = self._rounded(min(first, self.most))
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
        if self.runs[value] > 1 and before == value and before > (self.holds or 0.0):
            self.moved_from = max(before, self.moved_from or before)

    @property
    def holds(self) -> float | None:
        """The largest measured load that holds, below all that fail; None if there is none so far."""
        below = math.inf if self.fails is None else self.fails
        return max((value for value in self.judged if value < below), default=None)

    @property
    @abstractmethod
    def fails(self) -> float | None:
        """The smallest measured load that fails; None if none does so far."""

    @property
    def at_least(self) -> bool:
        """Return whether the largest load to try holds, so that the answer may be larger."""
        return self.fails is None and self.holds is not None and self.holds >= self.most

    @property
    @abstractmethod
    def interval(self) -> tuple[float | None, float | None]:
        """(largest load that certainly holds, smallest that certainly fails); None where there is none."""

    @abstractmethod
    def certainty(self, value: float) -> Verdict:
        """Return whether the measured load `value` holds or fails for certain."""

    @property
    def tried(self) -> tuple[float, ...]:
        """All measured loads, in the order in which they were measured first."""
        return tuple(self.judged)

    @abstractmethod
    def next(self) -> Probe | None:
        """Return the next run to make; None at the end of the search."""

    def levels_left(self) -> int:
        """Return the largest number of runs that usually follow."""
        holds, fails = self.holds, self.fails
        top = self.most if fails is None else fails
        doublings = 0
        low = holds or self._first / 2
        while fails is None and low < top:
            low, doublings = min(2 * low, top), doublings + 1
        gap = max(self._steps(low / 2 if fails is None else (holds or 0.0), top), 1.0)
        repeats = sum(max(0, USUAL_RUNS - self.runs.get(value or -1.0, 0)) for value in (holds, fails))
        return doublings + math.ceil(math.log2(gap)) + repeats

    @abstractmethod
    def _steps(self, low: float, high: float) -> float:
        """Return the number of different answers between two loads."""

    def _rounded(self, value: float) -> float:
        return float(math.floor(value))

    @property
    def made(self) -> int:
        """Number of runs so far."""
        return sum(self.runs.values())
