"""The choice of the next level of a search, from the levels measured so far.

There are four: `CapacitySearch` for the largest load under which conditions hold for single requests,
`SloSearch` for the range of concurrencies in which figures of levels hold, `RateSearch` for the highest rate
that a server keeps up with, and `next_step` for concurrencies that still raise the token rate.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise

from msgspec import Struct

from sparktop.graphics.numbers import signed
from sparktop.model.load import LoadKind
from sparktop.sweep.compare.ratio import NOISE_FLOOR_PERCENT, Ratio, is_rising, main_rate, rate_ratio
from sparktop.sweep.plan.arrivals import LEAST_RATE, MOST_ARRIVALS, MOST_RATE
from sparktop.sweep.plan.capacity import FINE_SHARE, FINE_TO, RATIO
from sparktop.sweep.plan.plan import Capacity, Plan
from sparktop.sweep.plan.presets import OPEN_S
from sparktop.sweep.plan.slo import MOST_CONCURRENCY
from sparktop.sweep.result.results import LevelResult
from sparktop.sweep.run.judgement import LevelVerdicts, LoadVerdict, Shares, Verdict, design_effect

_RATE_STEP = 2 ** (1 / 15)
"""Ratio of neighbouring rates: two steps are less than `RATIO`, and 15 of them double a rate."""
_STEPS_DOWN = 30
"""Number of rates below the first one, down to a quarter of it: no request waits for another there."""
_PLACE_STEP = 1.03
"""Ratio of neighbouring places above `FINE_TO`, where whole numbers are closer than that."""
_BEYOND = 3.0
"""Ratio of the largest place to the largest load: the border may be beyond what is tried."""
_DIGITS = 3
"""Significant digits of a rate."""
_LEAST = 0.3
"""Load below which the border is not looked for: not even one request at once holds then."""
_TINY = 1e-12
"""Smallest weight and share, so that logarithms exist."""


class PossibleLoads(Struct, frozen=True):
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
        return max((value for value in self.values if value <= load), default=self.values[0])

    def after(self, load: float) -> float:
        """Return the next value above `load`; the largest value if there is none."""
        return min((value for value in self.values if value > load), default=self.values[-1])

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


def grid_of(capacity: Capacity, start: float) -> PossibleLoads:
    """Return the loads of a search; rates lie around `start`, that of requests one after the other."""
    if capacity.kind is not LoadKind.RATE:
        return _number_grid(int(capacity.most))
    start = _round_rate(min(start, capacity.most))
    steps = math.ceil(math.log(capacity.most / start) / math.log(_RATE_STEP))
    values = {_round_rate(start * _RATE_STEP**step) for step in range(-_STEPS_DOWN, steps)}
    ascending = (*sorted(value for value in values if value < capacity.most), capacity.most)
    places = [value / math.sqrt(_RATE_STEP) for value in ascending]
    while places[-1] < _BEYOND * capacity.most:
        places.append(places[-1] * _RATE_STEP)
    return PossibleLoads(ascending, start, _with_probabilities(places, places[0] / _RATE_STEP), is_rate=True)


@cache
def _number_grid(highest: int) -> PossibleLoads:
    places = [0.5 + number for number in range(FINE_TO + 1)]
    while places[-1] < _BEYOND * highest:
        places.append(places[-1] * _PLACE_STEP)
    places = [load for load in places if load < _BEYOND * highest + 1]
    return PossibleLoads(tuple(map(float, range(1, highest + 1))), 1.0, _with_probabilities(places, _LEAST))


def _with_probabilities(places: list[float], least: float) -> tuple[tuple[float, float], ...]:
    """Return (place, its probability before any run, not normalised): its width on a logarithmic scale."""
    edges = [least, *(math.sqrt(low * high) for low, high in pairwise(places)), places[-1]]
    widths = [math.log(high / low) for low, high in pairwise(edges)]
    return tuple((load, max(_TINY, width)) for load, width in zip(places, widths, strict=True))


def _round_rate(value: float) -> float:
    """Return a rate with `_DIGITS` significant digits."""
    return float(f"{value:.{_DIGITS}g}")


# How likely each load is the largest that holds, by all levels of a capacity search together.
#
# The share of requests that meet a condition falls as the load grows. Near the load at which it is just
# high enough, its logarithmic odds are taken as a falling straight line over the logarithm of the load, of
# unknown place and slope: the method of adaptive staircases that estimate a threshold by a posterior (A. B.
# Watson and D. G. Pelli, QUEST, Perception & Psychophysics 33 (1983), 113 to 120). A run with unlucky
# requests is thus outweighed by the runs beside it, and runs far from the border say little about it.


_STEEP = 24.0
"""Slope of the log odds from which on slopes are less likely."""
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
_HALF = 0.5
"""Share that must meet a condition before any request was judged: it then decides nothing."""


LevelShares = tuple[float, float, float]
"""(Load of a level, requests that met a condition, all of them), counted as independent ones."""


def independent_requests(levels: Mapping[float, Shares]) -> tuple[float, list[LevelShares]]:
    """Return (share that must meet a condition, the requests of each level, counted as independent ones).

    A level with few misses does not show how much its sections differ, so that all levels near the border do
    together. Far above it, sections differ since the queue grows.
    """
    judged = {value: shares for value, shares in levels.items() if shares.count}
    near = [shares for shares in judged.values() if 1 - shares.share <= _CLOSE * (1 - shares.needed)]
    effect = design_effect(
        math.fsum(shares.squares for shares in near), math.fsum(shares.expected for shares in near)
    )
    requests = [(value, shares.met / effect, shares.count / effect) for value, shares in judged.items()]
    return next((shares.needed for shares in judged.values()), _HALF), requests


def chances_of_failure(
    conditions: Iterable[tuple[float, Sequence[LevelShares]]], grid: PossibleLoads, fails_at: float
) -> list[float]:
    """Return the probability that the largest load that holds is below each load of `grid`.

    `conditions` has the share (0 to 1) that must meet each condition, and what the levels showed. From
    `fails_at` on, a load fails whatever its latencies are.
    """
    holds = [1.0] * len(grid.values)
    place_starts = [start for start, _ in grid.places]
    for needed, requests in conditions:
        above = list(accumulate(reversed(_posterior(needed, requests, grid.places))))
        above.reverse()
        for index, value in enumerate(grid.values):
            index_above = bisect_left(place_starts, value)
            holds[index] *= above[index_above] if index_above < len(above) else 0.0
    below = [1.0 if value >= fails_at else 1 - held for value, held in zip(grid.values, holds, strict=True)]
    return list(accumulate(below, max))


def _posterior(
    needed: float, requests: Sequence[LevelShares], places: Sequence[tuple[float, float]]
) -> list[float]:
    """Return the probability of each place at which the share falls to `needed`.

    A first estimate says where that is; levels far from it then count less.
    """
    probabilities = _place_probabilities(needed, [(level, 1.0) for level in requests], places)
    likely = math.fsum(math.log(at) * p for (at, _), p in zip(places, probabilities, strict=True))
    weights = [
        (level, min(1.0, _NEAR / math.exp(abs(math.log(level[0]) - likely))))
        for level in requests
        if level[2]
    ]
    return _place_probabilities(needed, weights, places)


def _place_probabilities(
    needed: float, requests: Sequence[tuple[LevelShares, float]], places: Sequence[tuple[float, float]]
) -> list[float]:
    """Return the probability of each place by Bayes' rule, all slopes together with their weights.

    `requests` has the weight of each level. One at which more than a bound missed counts as one at which at
    least that share misses: far above the border the share follows no straight line, as with no free slot it
    falls at once, then slowly.
    """
    odds, bound = math.log((1 - needed + _TINY) / (needed + _TINY)), _CLOSE * (1 - needed)
    facts = []
    for (value, met, count), weight in requests:
        missed, most_missed = count * weight - met * weight, 1.0
        if missed > bound * count * weight:
            missed, most_missed = count * weight * bound, bound
        facts.append((math.log(value), count * weight - missed, missed, most_missed))
    logs: list[float] = []
    for load, chance in places:
        log_place, log_chance = math.log(load), math.log(chance)
        logs.extend(
            log_chance + weight + _log_likelihood(odds, slope, log_place, facts) for slope, weight in _SLOPES
        )
    top = max(logs)
    weights = [math.exp(log - top) for log in logs]
    total, size = math.fsum(weights), len(_SLOPES)
    return [math.fsum(weights[start : start + size]) / total for start in range(0, len(weights), size)]


def _log_likelihood(
    odds: float, slope: float, log_place: float, facts: Sequence[tuple[float, float, float, float]]
) -> float:
    """Return the log of the probability of what the levels showed, by the binomial law.

    The log odds of a miss are `odds` at the load whose logarithm is `log_place`, and grow with `slope`.
    `facts` has (log of the load, requests that met the condition, those that missed it, share that misses at
    most) of each level.
    """
    total = 0.0
    for log_load, met, missed, most_missed in facts:
        exponent = odds + slope * (log_load - log_place)
        share = 1 / (1 + math.exp(-exponent)) if exponent > -700 else 0.0  # noqa: PLR2004 - of exp
        miss = min(most_missed, _LAPSE + (1 - _LAPSE) * share)
        total += met * math.log(max(_TINY, 1 - miss)) + missed * math.log(miss)
    return total


# The search for the largest load under which conditions hold.
#
# It doubles the load until a level fails. Then it measures where the answer most likely is, by all levels
# so far together (`chances_of_failure`), until the answer is certain within one, of rates within 10 %, or as
# many runs are made as a search may take. Each run of a level has other requests.


MOST_SEARCH_RUNS = 20
"""Most runs of levels of a search on one target."""
LEVEL_OVERHEAD = 1.25
"""Duration of a level with its start, its end and the rest after it, in its measured time."""
_MOST_NEAR_RATES = 9
"""Most runs at a rate after the first that fails: they last long, and a rate is found within 10 % only."""
_USUAL_RUNS = 2
"""Runs of the level that is the answer where no decision is close."""
_LOW, _SEARCH_HALF, _HIGH = 0.025, 0.5, 0.975
"""Quantiles of the answer: the ends of its 95 % interval, and its median."""


class CapacitySearch:
    """Chooses the runs to make, one after the other, and keeps the judgement of each level."""

    def __init__(self, capacity: Capacity, first: float = 1.0) -> None:
        """Begin at 1, or at the rate `first`, that of requests one after the other."""
        self._capacity = capacity
        self._grid = grid_of(capacity, first)
        self.most = capacity.most
        """The largest load to try."""
        self.judged: dict[float, LoadVerdict] = {}
        """The judgement of each level by all its runs, by load."""
        self.runs: dict[float, int] = {}
        self.moved_from: float | None = None
        """The largest load that held in its first run, but not with a second one; None if there is none."""
        self._near = 0
        """Number of runs after the first that fails."""
        self._chances: list[float] = []
        """Probability that each load of the grid fails, by all levels so far."""

    def add(self, value: float, judged: LoadVerdict, runs: int = 1) -> None:
        """Store the judgement of the level at `value`, by all its runs, after `runs` more of them."""
        holds_before = self.holds
        self._near += self.fails is not None
        self.judged[value] = judged
        self.runs[value] = self.runs.get(value, 0) + runs
        troubled = min((load for load, verdict in self.judged.items() if verdict.trouble), default=math.inf)
        levels = {load: verdict.shares for load, verdict in self.judged.items()}
        decisive = range(len(self._capacity.conditions)) if not self._grid.is_rate else (-1,)
        conditions = [
            independent_requests({load: shares[number] for load, shares in levels.items() if shares})
            for number in decisive
        ]
        self._chances = chances_of_failure(conditions, self._grid, troubled)
        if self.runs[value] > 1 and holds_before == value and holds_before > (self.holds or 0.0):
            self.moved_from = max(holds_before, self.moved_from or holds_before)

    def fails_chance(self, value: float) -> float:
        """Return the probability that the load `value` fails, by all levels so far."""
        chances = zip(self._grid.values, self._chances, strict=True)
        return next((chance for load, chance in chances if load >= value), 1.0)

    def _quantile(self, share: float) -> float:
        """Return the largest load that holds, at the quantile `share` (0 to 1); 0 if none does."""
        chances = zip(self._grid.values, self._chances, strict=True)
        return max((load for load, chance in chances if chance <= share), default=0.0)

    @property
    def _is_known(self) -> bool:
        """Whether any request was judged."""
        verdicts = self.judged.values()
        return any(verdict.trouble or any(part.count for part in verdict.shares) for verdict in verdicts)

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
        return min((value for value in self.judged if self.fails_chance(value) > _SEARCH_HALF), default=None)

    @property
    def at_least(self) -> bool:
        """Return whether the largest load to try holds, so that the answer may be larger."""
        return self.fails is None and self.holds is not None and self.holds >= self.most

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """(largest load that certainly holds, smallest that certainly fails); None where there is none."""
        if not self._is_known:
            return None, None
        low, high = self._quantile(_LOW), self._quantile(_HIGH)
        return low or None, None if high >= self.most else self._grid.after(high)

    def certainty(self, value: float) -> Verdict:
        """Return whether `value` holds or fails for certain."""
        chance = self.fails_chance(value) if self._is_known else _SEARCH_HALF
        if chance <= _LOW:
            return Verdict.HOLDS
        return Verdict.FAILS if chance >= _HIGH else Verdict.UNSURE

    def next(self) -> float | None:
        """Return the load of the next run to make; None at the end of the search."""
        if self.made >= MOST_SEARCH_RUNS or (self._grid.is_rate and self._near >= _MOST_NEAR_RATES):
            return None
        if not self.judged:
            return self._grid.first
        top = max(self.judged)
        if not self._is_known and top >= self.most:
            return None
        if self.fails is None and top < self.most:
            return self._grid.at_most(min(2 * top, self.most))
        answer = self._quantile(_SEARCH_HALF)
        pair = sorted({value for value in (answer, self._grid.after(answer)) if value > 0})
        low, high = self._quantile(_LOW), self._quantile(_HIGH)
        if not self._grid.is_close(low, high):
            return min(pair, key=lambda value: self.runs.get(value, 0))
        runs = {value: _USUAL_RUNS if value == answer else 1 for value in pair}
        return next((value for value in pair if self.runs.get(value, 0) < runs[value]), None)

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
        left = MOST_SEARCH_RUNS - self.made
        return min(left, _MOST_NEAR_RATES - self._near) if self._grid.is_rate and self._near else left

    @property
    def made(self) -> int:
        """Number of runs so far."""
        return sum(self.runs.values())


# The search for the range of concurrencies in which SLO conditions hold, with an interval for each end.
#
# Falling conditions get worse as concurrency grows, and limit the range from above. The search for this
# upper end measures the given levels, then doubles the concurrency, then bisects. Rising conditions get
# better as concurrency grows, and limit the range from below. The search for this lower end halves and
# bisects; if rising conditions hold nowhere yet, it doubles the concurrency until the metric no longer
# grows. Level means concurrency in this module.


_FINE_SHARE = 1 / 16
"""An end of the range is known well enough when the nearest levels on both sides of it differ by at most this
share of the lower level, or by one request."""
_PLATEAU_GROWTH = 1.05
"""A metric that grows by less than this factor when concurrency doubles has reached its maximum."""

Bounds = tuple[int | None, int | None]
"""(lower, upper) end of an interval of concurrencies; None where it is not found."""


class SloSearch:
    """Chooses the concurrencies to measure, one after the other, and keeps the judgement of each."""

    def __init__(
        self,
        levels: Sequence[int],
        limit: int = MOST_CONCURRENCY,
        *,
        falls: bool = True,
        rises: bool = False,
    ) -> None:
        """Begin with the concurrencies `levels`, and never exceed `limit`.

        `falls` is True if there are conditions that get worse as concurrency grows, `rises` if there are
        conditions that get better.
        """
        self._levels = sorted({level for level in levels if level <= limit}) or [1]
        self._limit = limit
        self._falls, self._rises = falls, rises
        self._judged: dict[int, LevelVerdicts] = {}

    def add(self, concurrency: int, judgement: LevelVerdicts) -> None:
        """Store the verdicts on the level that was measured at `concurrency`."""
        self._judged[concurrency] = judgement

    @property
    def holds_from(self) -> int | None:
        """The smallest measured concurrency at which all SLO conditions hold.

        None if they hold nowhere so far, or if no condition gets better with concurrency.
        """
        return min(self._holding_range(), default=None) if self._rises else None

    @property
    def holds_to(self) -> int | None:
        """The largest measured concurrency of the range in which all SLO conditions hold.

        None if no measured concurrency is in the range.
        """
        return max(self._holding_range(), default=None)

    @property
    def interval(self) -> Bounds:
        """The upper end of the range of concurrencies in which the SLO conditions hold, as an interval.

        It is (largest concurrency at which they certainly hold, largest at which they may hold); a value that
        is not found is None.
        """
        verdicts = self._upper_end_verdicts()
        is_searched = self._falls or bool(self._holding_range())
        low = max(_below_first_failure(verdicts), default=None) if is_searched else None
        failing = [level for level, verdict in verdicts.items() if verdict is Verdict.FAILS]
        return low, min(failing) - 1 if failing else None

    @property
    def from_interval(self) -> Bounds | None:
        """The lower end of the range of concurrencies in which the SLO conditions hold, as an interval.

        It is (smallest concurrency at which they may hold, smallest at which they certainly hold). None if no
        condition gets better with concurrency; the second value is None if not found.
        """
        if not self._rises:
            return None
        first = self._first_rising()
        failing = [level for level, verdicts in self._judged.items() if verdicts.rising is Verdict.FAILS]
        return max((level for level in failing if first is None or level < first), default=0) + 1, first

    def next(self) -> int | None:
        """Return the next concurrency to measure; None when the search for the range is over."""
        # A level need not be measured where the falling conditions do not certainly hold at a lower one.
        # Without any, a lower one failed only if too many of its requests did.
        worst = Verdict.UNSURE if self._falls else Verdict.FAILS
        failed = min((at for at, verdicts in self._judged.items() if verdicts.falling <= worst), default=None)
        for level in self._levels:
            if level not in self._judged and (failed is None or level < failed):
                return level
        following = self._next_above() if self._falls else None
        return self._next_below() if following is None and self._rises else following

    def _next_above(self) -> int | None:
        """Return the next concurrency to measure for the upper end of the range; None when it is found."""
        judged = {level: verdicts.falling for level, verdicts in self._judged.items()}
        holding = max(_below_first_failure(judged), default=None)
        bad = min(_levels_not_holding(judged), default=None)
        if bad is None:
            return None if holding is None or holding >= self._limit else min(2 * holding, self._limit)
        return (bad // 2 or None) if holding is None else _midpoint(holding, bad)

    def _next_below(self) -> int | None:
        """Return the next concurrency to measure for the lower end of the range; None when it is found."""
        first = self._first_rising()
        if first is None:
            return self._double_until_plateau()
        bad = max((level for level in self._judged if level < first), default=0)
        return _midpoint(bad, first) if bad else first // 2 or None

    def _double_until_plateau(self) -> int | None:
        """Return twice the highest measured concurrency, at most the maximum; None to stop doubling.

        Used while rising conditions hold nowhere. Doubling stops if the highest measured concurrency is the
        maximum, or does not meet the falling conditions, or if the last doubling hardly improved the metrics
        of the rising conditions.
        """
        top = max(self._judged)
        if top >= self._limit or self._judged[top].falling is not Verdict.HOLDS:
            return None
        half = max((level for level in self._judged if 2 * level <= top), default=None)
        if half is not None:
            reached_last, reached_before = (self._judged[level].reached or 0.0 for level in (top, half))
            if reached_last < _PLATEAU_GROWTH * reached_before:
                return None
        return min(2 * top, self._limit)

    def _first_rising(self) -> int | None:
        """Return the lowest measured concurrency at which rising conditions hold; None if there is none."""
        holding = (level for level, verdicts in self._judged.items() if verdicts.rising is Verdict.HOLDS)
        return min(holding, default=None)

    def _upper_end_verdicts(self) -> dict[int, Verdict]:
        """Return the verdicts that decide on the upper end of the range, by concurrency.

        Below the lower end, these are those on falling conditions. From there on, rising conditions may fail
        again, so the worse of both verdicts counts.
        """
        first = self._first_rising() or math.inf
        return {
            level: verdicts.falling if level < first else verdicts.both
            for level, verdicts in self._judged.items()
        }

    def _holding_range(self) -> list[int]:
        """Return the measured concurrencies of the contiguous range in which all SLO conditions hold."""
        first = self._first_rising() or math.inf
        return [level for level in _below_first_failure(self._upper_end_verdicts()) if level >= first]


def _levels_not_holding(verdicts: dict[int, Verdict]) -> list[int]:
    return [level for level, verdict in verdicts.items() if verdict is not Verdict.HOLDS]


def _below_first_failure(verdicts: dict[int, Verdict]) -> list[int]:
    """Return the concurrencies below the lowest one that fails; all of them if none fails.

    A concurrency fails if its verdict is not HOLDS.
    """
    first_bad = min(_levels_not_holding(verdicts), default=None)
    return [level for level in verdicts if first_bad is None or level < first_bad]


def _midpoint(low: int, high: int) -> int | None:
    """Return the concurrency halfway between `low` and `high`; None if they are close, see `_FINE_SHARE`."""
    middle = (low + high) // 2
    return None if high - low <= max(1.0, low * _FINE_SHARE) or middle in {low, high} else middle


# The search for the highest rate that a target keeps up with: beyond it, latencies grow without end.
#
# It begins at the rate of requests sent one after the other, 1 / E2E, and doubles it until the server does
# not keep up. Then it halves the gap on a logarithmic scale, until both ends are at most a factor of 1.2
# apart.


GAP = 1.2
"""Largest ratio of the lowest rate that is too much to the highest that is not, at the end of the search."""
MOST_LEVELS = 16
"""Most levels of this search on one target."""
_FIRST_PER_S = 1.0
"""First rate, in requests per second, where the time of a request alone is unknown."""


class RateSearch:
    """Chooses the next rate to measure from the rates that were measured so far."""

    def __init__(self, first_per_s: float | None, most_per_s: float = MOST_RATE) -> None:
        """Begin at `first_per_s` requests per second; None if the time of a request alone is unknown."""
        self._next = _round_rate(min(most_per_s, max(LEAST_RATE, first_per_s or _FIRST_PER_S)))
        self._most = most_per_s
        self._kept_up: dict[float, bool] = {}

    @property
    def holds_to(self) -> float | None:
        """The highest rate below all that were too much; None if there is none."""
        below = self.too_much or math.inf
        return max((rate for rate, held in self._kept_up.items() if held and rate < below), default=None)

    @property
    def too_much(self) -> float | None:
        """The lowest rate with which the target did not keep up; None if it kept up with all."""
        return min((rate for rate, held in self._kept_up.items() if not held), default=None)

    def add(self, per_s: float, *, kept_up: bool) -> None:
        """Record whether the target kept up with a rate."""
        self._kept_up[per_s] = kept_up

    def next(self) -> float | None:
        """Return the next rate to measure; None at the end of the search."""
        rate = self._next_rate()
        if rate is None or rate in self._kept_up or len(self._kept_up) >= MOST_LEVELS:
            return None
        return rate

    def _next_rate(self) -> float | None:
        if not self._kept_up:
            return self._next
        highest, too_much = self.holds_to, self.too_much
        if too_much is None:
            return _round_rate(min(self._most, 2 * max(self._kept_up)))
        if highest is None:
            return _round_rate(max(LEAST_RATE, too_much / 2))
        return None if too_much <= GAP * highest else _round_rate(math.sqrt(highest * too_much))

    def words(self) -> str:
        """Return what was found, as text: "keeps up with 2.83 /s, not with 3.36 /s"."""
        highest, too_much = self.holds_to, self.too_much
        if highest is None:
            return "nothing was measured" if too_much is None else f"does not keep up with {too_much:g} /s"
        beyond = "" if too_much is None else f", not with {too_much:g} /s"
        return f"keeps up with {highest:g} /s{beyond}"


def most_per_s(plan: Plan) -> float:
    """Return the highest rate of which a level of the plan may have the requests."""
    return min(MOST_RATE, MOST_ARRIVALS / (plan.duration_s or OPEN_S))


def keeps_up(level: LevelResult, max_error_share: float) -> bool:
    """Return whether a server kept up with a level: no growth, no limit of the client, few failures."""
    loop = level.open_loop
    if loop is None or loop.unstable or loop.overloaded:
        return False
    return not _is_failing(level, max_error_share)


# Decides whether a sweep goes on to a higher concurrency, from the token rates measured so far.
#
# A level *rises* if its token rate exceeds that of the best level below it by more than the noise floor and
# significantly (Welch's test over runs, two-sided, 5 %). The concurrency is doubled until the 95 % interval
# rules out a rise of 5 % or more, or until two levels in a row are not shown to rise. Then the gap between
# the best level and the next lower one is halved (on a logarithmic scale) until it is a factor of two at
# most, so that the best level is not twice as large as it needs to be.


WORTH_PERCENT = 5.0
"""A rise of the token rate below this percentage is not worth another level."""
_MOST_UNSURE = 2
"""Levels in a row that are not shown to rise, after which the concurrency grows no further."""
_GAP = 2.0
"""Largest ratio of the best concurrency to the next lower one that was measured."""


def next_step(
    levels: Sequence[LevelResult], limit: int, max_error_share: float, slots: int | None = None
) -> tuple[int | None, str]:
    """Return (next concurrency to measure, why there is none) after `levels` of one prompt length and target.

    Never exceed `limit`, which may be the target's `slots`, and do not grow where more than `max_error_share`
    (0 to 1) of the requests of a level failed.
    """
    metric, with_rate = _levels_with_rate(levels)
    if metric is None or not with_rate or any(_is_failing(level, max_error_share) for level in levels):
        return None, "requests failed" if levels else "nothing was measured"
    leader, unsure = _last_rising(with_rate, metric)
    top = with_rate[-1].concurrency
    if unsure < _MOST_UNSURE and top < limit:
        return min(2 * top, limit), ""
    between = _concurrency_between(with_rate, metric)
    return between, "" if between is not None else _end_words(with_rate, leader, metric, slots)


def top_of(levels: Sequence[LevelResult]) -> LevelResult | None:
    """Return the last level whose token rate rises, the answer to how far it does; None without any rate."""
    metric, with_rate = _levels_with_rate(levels)
    return _last_rising(with_rate, metric)[0] if metric is not None and with_rate else None


def _levels_with_rate(levels: Sequence[LevelResult]) -> tuple[str | None, list[LevelResult]]:
    """Return (name of the main token rate, the levels that have it, in ascending order of concurrency)."""
    metric = main_rate(levels)
    with_rate = [level for level in levels if metric and level.rate(metric)]
    return metric, sorted(with_rate, key=lambda level: level.concurrency)


def _is_failing(level: LevelResult, max_error_share: float) -> bool:
    failed_count, ended = level.requests.failed, level.requests.ended
    return level.error is not None or not ended or failed_count > max_error_share * ended


def _last_rising(with_rate: Sequence[LevelResult], metric: str) -> tuple[LevelResult, int]:
    """Return (last level that rises, number of levels above this level that are not shown to rise).

    A level rises if its token rate is significantly above that of the previous level that rises; the first
    one always counts. A level counts as `_MOST_UNSURE` levels if its confidence interval rules out a rise of
    `WORTH_PERCENT`. The levels are in ascending order of concurrency.
    """
    leader, unsure = with_rate[0], 0
    for level in with_rate[1:]:
        ratio = rate_ratio(level, leader, metric)
        if ratio is None:
            unsure += 1
            continue
        tested = ratio.is_significant()
        # Single runs have no test: their means decide.
        rises = ratio.percent > 0 and (tested if tested is not None else ratio.percent >= WORTH_PERCENT)
        if rises:
            leader, unsure = level, 0
        else:
            unsure += 1 if ratio.ci95 is None or _may_rise(ratio) else _MOST_UNSURE
    return leader, unsure


def _end_words(with_rate: Sequence[LevelResult], leader: LevelResult, metric: str, slots: int | None) -> str:
    """Return why the concurrency grows no further, as text."""
    top = with_rate[-1]
    if leader is top:
        rise = "still rise" if is_rising(with_rate, metric) else "may still rise"
        end = "as many as all slots" if top.concurrency == slots else "the largest that this sweep tries"
        return f"tok/s {rise} at c = {top.concurrency}, {end}"
    ratio = rate_ratio(top, leader, metric)
    difference = "no value to compare" if ratio is None else f"{signed(ratio.percent, 1)} %"
    if ratio is not None and ratio.ci95 is not None:
        low, high = (100 * (end - 1) for end in ratio.ci95)
        difference += f", 95 % CI {signed(low, 1)} to {signed(high, 1)} %"
    more = "not certainly more" if ratio is None or _may_rise(ratio) else "no more"
    return f"c = {top.concurrency} gives {more} tok/s than c = {leader.concurrency} (so far {difference})"


def _may_rise(ratio: Ratio) -> bool:
    """Return whether a rate may be more than another by `WORTH_PERCENT`; of single runs the means decide."""
    most_percent = ratio.percent if ratio.ci95 is None else 100 * (ratio.ci95[1] - 1)
    return most_percent >= WORTH_PERCENT


def saturation(levels: Sequence[LevelResult], metric: str) -> LevelResult:
    """Return the level with the lowest load whose rate is within the noise floor of the highest rate.

    Each of `levels`, at least one, has the rate `metric`.
    """
    rates = [(level.rate(metric), level) for level in levels]
    means = [(rate.mean, level) for rate, level in rates if rate is not None]
    least = max(mean for mean, _ in means) / (1 + NOISE_FLOOR_PERCENT / 100)
    reaching = [level for mean, level in means if mean >= least]
    return min(reaching, key=lambda level: level.point)


def _concurrency_between(with_rate: Sequence[LevelResult], metric: str) -> int | None:
    """Return a concurrency between the best level and the next lower one; None if the gap is small enough."""
    best = saturation(with_rate, metric)
    below = [level.concurrency for level in with_rate if level.concurrency < best.concurrency]
    if not below or best.concurrency <= _GAP * below[-1]:
        return None
    middle = round(math.sqrt(below[-1] * best.concurrency))
    return None if middle in {below[-1], best.concurrency} else middle
