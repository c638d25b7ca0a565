"""The loads from which a capacity search chooses: whole numbers, or rates in equal ratios."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

from msgspec import Struct

from sparktop.model.load import LoadKind
from sparktop.sweep.plan.capacity import FINE_SHARE, FINE_TO, RATIO
from sparktop.sweep.plan.plan import Capacity

_RATE_STEP = 2 ** (1 / 15)
"""Ratio of neighbouring rates: two steps are less than `RATIO`, and 15 of them double a rate."""
_STEPS_DOWN = 30
"""Number of rates below the first one, down to a quarter of it: no request waits for another there."""
_PLACE_STEP = 1.03
"""Ratio of neighbouring places above `FINE_TO`, where whole numbers are closer than that."""
_BEYOND = 3.0
_DIGITS = 3
_LEAST = 0.3
_TINY = 1e-12


class Grid(Struct, frozen=True):
    """The possible loads of a search, ascending, and where between them the border may be."""

    values: tuple[float, ...]
    first: float
    """The load with which the search begins, one of `values`."""
    places: tuple[tuple[float, float], ...]
    """(load, probability before any run) of the places at which requests begin to miss too often. They
    are equally likely on a logarithmic scale, up to three times the largest load."""
    is_rate: bool = False

    def at_most(self, load: float) -> float:
        """Return the largest value that is not above `load`; the smallest value if all are."""
        return max((one for one in self.values if one <= load), default=self.values[0])

    def after(self, load: float) -> float:
        """Return the next value above `load`; the largest value if there is none."""
        return min((one for one in self.values if one > load), default=self.values[-1])

    def steps(self, low: float, high: float) -> float:
        """Return the number of different answers between two loads."""
        if self.is_rate:
            return math.log(high / max(low, self.values[0])) / math.log(RATIO)
        return (high - low) / max(1.0, low * FINE_SHARE if low > FINE_TO else 1.0)

    def is_close(self, low: float, high: float) -> bool:
        """Return whether the middle of two loads is near both: within one, a sixteenth or 10 % of a rate."""
        if self.is_rate:
            return high <= max(low, self.values[0]) * RATIO**2
        return high - low <= 2 * max(1.0, low * FINE_SHARE if low > FINE_TO else 1.0)


def grid_of(capacity: Capacity, first: float) -> Grid:
    """Return the loads of a search; rates lie around `first`, that of requests one after the other."""
    if capacity.kind is not LoadKind.RATE:
        return _numbers(int(capacity.most))
    first = _rounded(min(first, capacity.most))
    steps = math.ceil(math.log(capacity.most / first) / math.log(_RATE_STEP))
    values = {_rounded(first * _RATE_STEP**step) for step in range(-_STEPS_DOWN, steps)}
    ascending = (*sorted(one for one in values if one < capacity.most), capacity.most)
    places = [one / math.sqrt(_RATE_STEP) for one in ascending]
    while places[-1] < _BEYOND * capacity.most:
        places.append(places[-1] * _RATE_STEP)
    return Grid(ascending, first, _likely(places, places[0] / _RATE_STEP), is_rate=True)


@cache
def _numbers(most: int) -> Grid:
    places = [0.5 + one for one in range(FINE_TO + 1)]
    while places[-1] < _BEYOND * most:
        places.append(places[-1] * _PLACE_STEP)
    places = [one for one in places if one < _BEYOND * most + 1]
    return Grid(tuple(map(float, range(1, most + 1))), 1.0, _likely(places, _LEAST))


def _likely(places: list[float], least: float) -> tuple[tuple[float, float], ...]:
    edges = [least, *(math.sqrt(low * high) for low, high in pairwise(places)), places[-1]]
    widths = [math.log(high / low) for low, high in pairwise(edges)]
    return tuple((place, max(_TINY, width)) for place, width in zip(places, widths, strict=True))


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
