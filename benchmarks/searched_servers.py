"""Simulate servers with exactly known limits, and the search for these limits.

Time to first token grows in proportion to concurrency and is log-normal within a run; throughput rises
towards a maximum. Each run has its own random factor. The true answer follows from these formulas alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from statistics import NormalDist

from sparktop.model.load import EndReason, RequestEnded
from sparktop.sweep.plan.plan import Plan, SloCondition, SweepTarget
from sparktop.sweep.plan.slo import any_falls, any_rises, runs_needed
from sparktop.sweep.result.measure import RequestTrace
from sparktop.sweep.result.results import LevelResult, Rate, Requests
from sparktop.sweep.run.slo.judgement import judge_level
from sparktop.sweep.run.slo.search import SloSearch

MOST_CONCURRENCY = 512
_LEVELS = (1, 4, 16, 64)
_STEP_MS = 50.0
"""Median time to first token for each concurrent request."""
_WITHIN = 0.35
_HALF_AT = 40.0
"""Concurrency at which half of the maximum throughput is reached."""
_NOISE = 0.01
_TARGET = SweepTarget("server", "http://127.0.0.1:8000")


@dataclass(frozen=True, slots=True)
class Search:
    """Conditions, as the ends of the range that fulfils them, which are drawn for each search."""

    to: tuple[float, float] | None = None
    """Concurrencies between which the upper end is drawn; None without a condition on latency."""
    since: tuple[float, float] | None = None
    """The same for the lower end, with a condition on throughput."""


SEARCHES = {
    "TTFT p90 at most": Search(to=(3.0, 90.0)),
    "output at least": Search(since=(3.0, 90.0)),
    "both": Search(to=(40.0, 90.0), since=(4.0, 20.0)),
}


@dataclass(frozen=True, slots=True)
class Found:
    """The answer of a search, compared with the truth."""

    holds_truth: bool
    """Whether the true ends are inside their intervals."""
    width: float
    """Upper over lower end of the widest interval; infinite if an end was not found."""
    levels: int


def searched_range(search: Search, dice: Random, spread: float) -> Found:
    """Run the search on a server with randomly drawn limits."""
    conditions, to, since = [], math.inf, 0.0
    if search.to is not None:
        end = _between(dice, search.to)
        limit = _STEP_MS * end * math.exp(_WITHIN * NormalDist().inv_cdf(0.9))
        conditions.append(SloCondition("ttft_p90_ms", limit))
        to = math.floor(end)
    if search.since is not None:
        end = _between(dice, search.since)
        conditions.append(SloCondition("output_tps", _throughput(end), at_least=True))
        since = math.ceil(end)
    plan = Plan((_TARGET,), slo=tuple(conditions), runs=3)
    falls, rises = any_falls(plan.slo), any_rises(plan.slo)
    looked = SloSearch(_LEVELS, MOST_CONCURRENCY, falls=falls, rises=rises)
    levels = 0
    while (concurrency := looked.next()) is not None:
        levels += 1
        level, traces = _level(plan, concurrency, dice, spread)
        looked.add(concurrency, judge_level(plan.slo, level, traces, 0.01))
    intervals = []
    if falls:
        intervals.append((looked.interval, to))
    if rises and looked.from_interval is not None:
        intervals.append((looked.from_interval, since))
    held = all(
        (low or 0) <= truth <= (math.inf if high is None else high) for (low, high), truth in intervals
    )
    width = max((high / low if low and high else math.inf) for (low, high), _ in intervals)
    return Found(held, width, levels)


def _between(dice: Random, ends: tuple[float, float]) -> float:
    low, high = ends
    return math.exp(dice.uniform(math.log(low), math.log(high)))


def _throughput(concurrency: float) -> float:
    return 1600.0 * concurrency / (concurrency + _HALF_AT)


def _level(
    plan: Plan, concurrency: int, dice: Random, spread: float
) -> tuple[LevelResult, list[RequestTrace]]:
    """Simulate a level; return (its result with the rates of runs, the traces of its requests)."""
    traces, values = [], []
    runs = runs_needed(plan, concurrency)
    for run in range(runs):
        slow, fast = (math.exp(dice.gauss(0, spread)) for _ in range(2))
        values.append(_throughput(concurrency) * fast * (1 + dice.gauss(0, _NOISE)))
        for _ in range(concurrency):
            ttft_s = slow * _STEP_MS / 1000 * concurrency * math.exp(dice.gauss(0, _WITHIN))
            traces.append(_trace(run, ttft_s))
    figure = Rate.of_runs(values)
    level = LevelResult(
        concurrency=concurrency,
        runs=runs,
        requests=Requests(ok=len(traces)),
        output_tps=figure,
    )
    return level, traces


def _trace(run: int, ttft_s: float) -> RequestTrace:
    end = RequestEnded("r", ttft_s + 1.0, EndReason.LENGTH)
    return RequestTrace("r", 0.0, run, arrivals=[(ttft_s, 1)], ended=end)
