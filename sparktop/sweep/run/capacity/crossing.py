"""How likely each load is the largest that holds, by all levels of a capacity search together.

The share of requests that meet a condition falls as the load grows. Near the load at which it is just high
enough, its logarithmic odds are taken as a falling straight line over the logarithm of the load, of unknown
place and slope: the method of adaptive staircases that estimate a threshold by a posterior (A. B. Watson and
D. G. Pelli, QUEST, Perception & Psychophysics 33 (1983), 113 to 120). A run with unlucky requests is thus
outweighed by the runs beside it, and runs far from the border say little about it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from msgspec import Struct

from sparktop.sweep.run.capacity.grid import Grid
from sparktop.sweep.run.capacity.judgement import Scatter, Shares

_STEEP = 24.0
_SLOPES = tuple((0.75 * 2.0**step, min(0.0, math.log(_STEEP / (0.75 * 2.0**step)))) for step in range(13))
"""(Slope, log of its weight before any run) of the log odds of missing over the log of the load. Slopes from
0.75 to `_STEEP` are equally likely, steeper ones less in proportion: only slots that run out are so steep,
and by chance two levels beside one another look so."""
_NEAR = 3.0
"""Levels count in full within this ratio of the most likely load, and less farther away."""
_CLOSE = 4.0
"""Levels are near the border if no more miss the condition than this many times the share that may."""
_LAPSE = 0.005
"""Share of the requests that miss for reasons other than load."""
_TINY = 1e-12
_HALF = 0.5


class Seen(Struct, frozen=True):
    """The requests of a level under one condition, counted as independent ones."""

    value: float
    met: float
    count: float


def seen_of(levels: Mapping[float, Shares]) -> tuple[float, list[Seen]]:
    """Return (share that must meet a condition, the requests of each level, counted as independent ones).

    A level with few misses does not show how much its sections differ, so that all levels near the border do
    together. Far above it, sections differ since the queue grows.
    """
    judged = {value: one for value, one in levels.items() if one.count}
    near = [one.scatter for one in judged.values() if 1 - one.share <= _CLOSE * (1 - one.needed)]
    scatter = Scatter(
        math.fsum(one.squares for one in near),
        math.fsum(one.expected for one in near),
    )
    seen = [
        Seen(value, one.met / scatter.effect, one.count / scatter.effect) for value, one in judged.items()
    ]
    return next((one.needed for one in judged.values()), _HALF), seen


class Crossing(Struct, frozen=True):
    """The probability that the largest load that holds is below each of `values`."""

    values: tuple[float, ...]
    """Ascending."""
    below: tuple[float, ...]

    def fails(self, value: float) -> float:
        """Return the probability that `value` fails."""
        return next((p for one, p in zip(self.values, self.below, strict=True) if one >= value), 1.0)

    def quantile(self, share: float) -> float:
        """Return the largest load that holds, at the quantile `share` (0 to 1); 0 if none does."""
        return max((one for one, p in zip(self.values, self.below, strict=True) if p <= share), default=0.0)


def crossing(conditions: Iterable[tuple[float, Sequence[Seen]]], grid: Grid, fails_at: float) -> Crossing:
    """Return how likely each load of `grid` is the answer.

    `conditions` has the share (0 to 1) that must meet each condition, and what the levels showed. From
    `fails_at` on, a load fails whatever its latencies are.
    """
    holds = [1.0] * len(grid.values)
    starts = [at for at, _ in grid.places]
    for needed, seen in conditions:
        above = [*accumulate(reversed(_posterior(needed, seen, grid.places)))][::-1]
        for index, value in enumerate(grid.values):
            at = bisect_left(starts, value)
            holds[index] *= above[at] if at < len(above) else 0.0
    below = [1.0 if value >= fails_at else 1 - held for value, held in zip(grid.values, holds, strict=True)]
    return Crossing(grid.values, tuple(accumulate(below, max)))


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
    odds, most = math.log((1 - needed + _TINY) / (needed + _TINY)), _CLOSE * (1 - needed)
    facts = [_fact(one, weight, most) for one, weight in seen]
    logs: list[float] = []
    for place, chance in places:
        at, first = math.log(place), math.log(chance)
        logs.extend(first + weight + _log_likelihood(odds, slope, at, facts) for slope, weight in _SLOPES)
    top = max(logs)
    each = [math.exp(one - top) for one in logs]
    total, size = math.fsum(each), len(_SLOPES)
    return [math.fsum(each[start : start + size]) / total for start in range(0, len(each), size)]


_Fact = tuple[float, float, float, float]
"""(Log of the load, requests that met the condition, those that missed it, share that misses at most)."""


def _fact(seen: Seen, weight: float, most: float) -> _Fact:
    """Return a level; if more than the share `most` missed, as one at which at least that share misses.

    Far above the border the share follows no straight line: with no free slot it falls at once, then slowly.
    """
    at, count, missed = math.log(seen.value), seen.count * weight, (seen.count - seen.met) * weight
    if missed <= most * count:
        return at, count - missed, missed, 1.0
    return at, count * (1 - most), count * most, most


def _log_likelihood(odds: float, slope: float, place: float, facts: Sequence[_Fact]) -> float:
    total = 0.0
    for at, met, missed, most in facts:
        exponent = odds + slope * (at - place)
        share = 1 / (1 + math.exp(-exponent)) if exponent > -700 else 0.0  # noqa: PLR2004 - of exp
        miss = min(most, _LAPSE + (1 - _LAPSE) * share)
        total += met * math.log(max(_TINY, 1 - miss)) + missed * math.log(miss)
    return total
