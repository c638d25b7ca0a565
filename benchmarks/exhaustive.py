"""Find the true capacity of a simulated server, from runs so long that the answer is certain.

First, each level (above 7, and of rates, in steps of 15 %) is run for five minutes, up to a quarter above
the first that fails. Then the levels near the answer have runs of at least half an hour (rates: and 600
requests), further out level by level, until the levels at both ends are certain. The chance that such a long
run passes follows from the mean and the spread of the shares of requests that met a condition. Levels at
which between 5 % and 95 % of long runs pass are a band: there the chance of the load decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

from simulated_levels import Setup, run_level

from sparktop.model.load import LoadKind
from sparktop.sweep.result.measure import RequestTrace, collect
from sparktop.sweep.result.open_loop import open_loop_figures
from sparktop.sweep.run.capacity.judgement import Judged, judge
from sparktop.sweep.terms.statistics import falling_shares

_SHORT_S, _SHORT_REQUESTS = 300.0, 100.0
_LONG_S, _LONG_REQUESTS = 1800.0, 600.0
"""Least seconds of a run, and least arrivals at a rate."""
_RUNS = 4
_BEYOND, _NEAR, _NEAR_NUMBERS = 1.25, 0.05, 1.0
_GRID, _COARSE = 1.04, 1.15
"""Ratio of neighbouring rates, and of neighbouring levels that have a short run."""
_CERTAIN, _HALF = 0.95, 0.5
_CLEAR, _AT_ONCE = 0.01, 2
"""Runs are made `_AT_ONCE` at a time, until the chance is below `_CLEAR` or above 1 - `_CLEAR`."""
_NEVER = 1e-9


class Truth(NamedTuple):
    """The answer of exhaustive runs."""

    answer: float
    """The largest load at which at least half of the long runs pass."""
    low: float
    """The largest load up to which at least 95 % pass; 0 if there is none."""
    high: float
    """The largest load at which more than 5 % pass; 0 if there is none."""

    @property
    def words(self) -> str:
        """The answer with its band, such as "9 (8 to 10)"."""
        if self.low == self.high:
            return f"{self.answer:.3g}"
        return f"{self.answer:.3g} ({self.low:.3g} to {self.high:.3g})"


def truth(made: Setup, seed: int, first: float) -> Truth:
    """Return the answer for a set-up, with requests drawn from `seed`; rates start at `first` / 16."""
    is_rate = made.capacity.kind is LoadKind.RATE
    chances: dict[float, float] = {}
    failed_at = math.inf
    grid = list(_grid(made, first))
    for value in grid:
        if value > _BEYOND * failed_at:
            break
        if value < _COARSE * max(chances, default=0.0) - _NEVER:
            continue
        chances[value] = _chance(made, value, seed, 1, is_long=False)
        if chances[value] < _HALF:
            failed_at = min(failed_at, value)
    answer = _at_least(chances, _HALF)
    reach = _NEAR * answer if is_rate else max(_NEAR_NUMBERS, _NEAR * answer)
    near = [value for value in grid if answer - reach <= value <= answer + reach] or grid[:1]
    exact = {value: _chance(made, value, seed, _RUNS, is_long=True) for value in near}
    for value in reversed([value for value in grid if value < min(exact, default=0.0)]):
        if exact[min(exact)] >= _CERTAIN:
            break
        exact[value] = _chance(made, value, seed, _RUNS, is_long=True)
    for value in [value for value in grid if value > max(exact, default=math.inf)]:
        if exact[max(exact)] <= 1 - _CERTAIN:
            break
        exact[value] = _chance(made, value, seed, _RUNS, is_long=True)
    return Truth(_at_least(exact, _HALF), _at_least(exact, _CERTAIN), _at_least(exact, 1 - _CERTAIN + _NEVER))


def _grid(made: Setup, first: float) -> Iterator[float]:
    """Yield the levels to run, ascending: whole numbers, or rates in steps of 4 %."""
    if made.capacity.kind is not LoadKind.RATE:
        yield from (float(one) for one in range(1, int(made.capacity.most) + 1))
        return
    value = first / 16
    while value <= made.capacity.most:
        yield value
        value *= _GRID


def _at_least(chances: dict[float, float], least: float) -> float:
    """Return the largest load that passes with at least the chance `least`, once chances are made to fall."""
    ascending = sorted(chances)
    falling = falling_shares([(chances[value], 1.0) for value in ascending])
    return max((at for at, one in zip(ascending, falling, strict=True) if one >= least), default=0.0)


def _chance(made: Setup, value: float, seed: int, runs: int, *, is_long: bool) -> float:
    """Return the chance (0 to 1) that a run passes, from `runs` runs, or from fewer if they are clear."""
    judged: list[Judged] = []
    chance = _HALF
    while len(judged) < runs and _CLEAR < chance < 1 - _CLEAR:
        more = range(len(judged), min(runs, len(judged) + _AT_ONCE))
        judged += [
            _judged(made, value, f"truth {seed}/{value}/{run}/{is_long}", is_long=is_long) for run in more
        ]
        chance = _passes(made, judged)
    return chance


def _passes(made: Setup, judged: list[Judged]) -> float:
    """Return the chance that a run passes: the lowest of the chances for each condition."""
    chance = fmean(0.0 if one.trouble else 1.0 for one in judged)
    last = 1 if made.capacity.kind is LoadKind.RATE else len(made.capacity.conditions)
    for number in range(-last, 0):
        parts = [one.shares[number] for one in judged if one.shares[number].count]
        if not parts:
            continue
        share = fmean(one.share for one in parts)
        binomial = math.sqrt(share * (1 - share) / fmean(one.count for one in parts))
        spread = max(binomial, stdev([one.share for one in parts]) if len(parts) > 1 else 0.0)
        needed = parts[0].needed
        passes = float(share >= needed) if spread == 0 else 1 - NormalDist(share, spread).cdf(needed)
        chance = min(chance, passes)
    return chance


def _judged(made: Setup, value: float, seed: str, *, is_long: bool) -> Judged:
    capacity = made.capacity
    seconds, requests = (_LONG_S, _LONG_REQUESTS) if is_long else (_SHORT_S, _SHORT_REQUESTS)
    if capacity.kind is LoadKind.RATE:
        seconds = max(seconds, requests / value)
    traces = collect(run_level(made, value, seconds, seed))
    unstable = is_unstable(traces, seconds) if capacity.kind is LoadKind.RATE else ""
    return judge(capacity, traces, max_error_share=0.01, unstable=unstable)


def is_unstable(traces: list[RequestTrace], seconds: float) -> str:
    """Return "unstable" if latencies grow over the `seconds` of a run at a rate, else ""."""
    begin = min((one.due for one in traces if one.due is not None), default=0.0)
    figures = open_loop_figures(traces, begin, begin + seconds)
    return "unstable" if figures is not None and figures.unstable else ""
