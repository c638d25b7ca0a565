"""How likely each number is the largest that holds, by all levels of a capacity search together.

The share of requests that meet a condition falls as the load grows. Near the load at which it is just high
enough, its logarithmic odds are taken as a falling straight line over the logarithm of the load, of unknown
place and slope: the method of adaptive staircases that estimate a threshold by a posterior (A. B. Watson and
D. G. Pelli, QUEST, Perception & Psychophysics 33 (1983), 113 to 120). A run with unlucky requests is thus
outweighed by the runs beside it, and runs far from the border say little about it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise

from sparktop.values import dataclass

_SLOPES = tuple(0.75 * 2.0**step for step in range(13))
"""Of the log odds of missing over the log of the load, 0.75 to 3,072; all are equally likely at first."""
_SINGLE, _STEP = 64, 1.03
"""The line may cross between any two whole numbers up to the first, beyond in steps of this ratio."""
_NEAR = 3.0
"""Levels count in full within this ratio of the most likely load, and less farther away."""
_LAPSE = 0.005
"""Share of the requests that miss for reasons other than load."""
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Seen:
    """The requests of a level under one condition, counted as independent ones."""

    value: float
    met: float
    count: float


@dataclass(frozen=True, slots=True)
class Crossing:
    """The probability that the largest number that holds is below each of `values`."""

    values: tuple[float, ...]
    """Numbers from 1 on, ascending."""
    below: tuple[float, ...]

    def fails(self, value: float) -> float:
        """Return the probability that `value` fails."""
        return next((p for one, p in zip(self.values, self.below, strict=True) if one >= value), 1.0)

    def quantile(self, share: float) -> float:
        """Return the largest number that holds, at the quantile `share` (0 to 1); 0 if none does."""
        return max((one for one, p in zip(self.values, self.below, strict=True) if p <= share), default=0.0)


def crossing(conditions: Iterable[tuple[float, Sequence[Seen]]], most: float, fails_at: float) -> Crossing:
    """Return how likely each number up to `most` is the answer.

    `conditions` has the share (0 to 1) that must meet each condition, and what the levels showed. From
    `fails_at` on, a load fails whatever its latencies are.
    """
    values = tuple(float(one) for one in range(1, int(most) + 1))
    places = _places(most)
    holds = [1.0] * len(values)
    for needed, seen in conditions:
        chances = _posterior(needed, seen, places)
        for index, value in enumerate(values):
            holds[index] *= math.fsum(p for (at, _), p in zip(places, chances, strict=True) if at >= value)
    below = [1.0 if value >= fails_at else 1 - held for value, held in zip(values, holds, strict=True)]
    for index, (low, high) in enumerate(pairwise(below)):
        below[index + 1] = max(low, high)
    return Crossing(values, tuple(below))


@cache
def _places(most: float) -> tuple[tuple[float, float], ...]:
    """Return (load, probability at first) of the places at which the line may cross, from 1/2 to 3 × `most`.

    They are equally likely on a logarithmic scale.
    """
    places = [0.5 + one for one in range(_SINGLE + 1)]
    while places[-1] < 3 * most:
        places.append(places[-1] * _STEP)
    places = [one for one in places if one < 3 * most + 1]
    edges = [0.3, *(math.sqrt(low * high) for low, high in pairwise(places)), places[-1]]
    widths = [math.log(high / low) for low, high in pairwise(edges)]
    return tuple((place, max(_TINY, width)) for place, width in zip(places, widths, strict=True))


def _posterior(needed: float, seen: Sequence[Seen], places: Sequence[tuple[float, float]]) -> list[float]:
    """Return the probability of each place at which the share falls to `needed`."""
    first = _weighed(needed, [(one, 1.0) for one in seen], places)
    likely = math.fsum(math.log(at) * p for (at, _), p in zip(places, first, strict=True))
    weights = [
        (one, min(1.0, _NEAR / math.exp(abs(math.log(one.value) - likely)))) for one in seen if one.count
    ]
    return _weighed(needed, weights, places)


def _weighed(
    needed: float, seen: Sequence[tuple[Seen, float]], places: Sequence[tuple[float, float]]
) -> list[float]:
    odds = math.log((1 - needed + _TINY) / (needed + _TINY))
    facts = [(math.log(one.value), one.met * w, (one.count - one.met) * w) for one, w in seen]
    logs: list[float] = []
    for place, chance in places:
        at, first = math.log(place), math.log(chance)
        logs.extend(first + _log_likelihood(odds, slope, at, facts) for slope in _SLOPES)
    top = max(logs)
    each = [math.exp(one - top) for one in logs]
    total, size = math.fsum(each), len(_SLOPES)
    return [math.fsum(each[start : start + size]) / total for start in range(0, len(each), size)]


def _log_likelihood(
    odds: float, slope: float, place: float, facts: Sequence[tuple[float, float, float]]
) -> float:
    total = 0.0
    for at, met, missed in facts:
        exponent = odds + slope * (at - place)
        share = 1 / (1 + math.exp(-exponent)) if exponent > -700 else 0.0  # noqa: PLR2004 - of exp
        miss = _LAPSE + (1 - _LAPSE) * share
        total += met * math.log(max(_TINY, 1 - miss)) + missed * math.log(miss)
    return total
