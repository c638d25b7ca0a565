"""Judgement whether a level meets SLO conditions, by 95 % confidence intervals over load runs.

Requests of one run share batch, heat and clock, so even ten thousand requests say little about the next run.
Therefore each metric has one value per run, and its interval is Student's t over these values. A quantile is
computed within each run, or within groups of consecutive runs if a single run has too few requests. The
interval of a quantile is computed on a logarithmic scale, on which the spread is even. The interval assumes
that runs are independent and identically distributed; within a run, requests may have any distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import IntEnum

from msgspec import Struct

from sparktop.sweep.plan.plan import SloCondition
from sparktop.sweep.plan.slo import LEAST_RUNS, SHARES, STREAM, parts_of, requests_needed, rises, words_of
from sparktop.sweep.result.measure import RequestTrace
from sparktop.sweep.result.results import LevelResult, Rate
from sparktop.sweep.terms.definitions import RATES
from sparktop.sweep.terms.statistics import least_values, unbiased_quantile

_BY_TRACE: dict[str, Callable[[RequestTrace], float | None]] = {
    "ttfr": lambda trace: _ms(trace.ttfr_s),
    "ttft": lambda trace: _ms(trace.ttft_s),
    "first_answer": lambda trace: _ms(trace.first_answer_s),
    "tpot": lambda trace: _ms(trace.tpot_s),
    "e2e": lambda trace: _ms(trace.e2e_s),
    STREAM: lambda trace: trace.stream_tps,
}


class Verdict(IntEnum):
    """Whether a level meets SLO conditions, according to the 95 % intervals of its metrics."""

    FAILS = 0
    """A whole interval violates its limit, or too many requests failed."""
    UNSURE = 1
    """A limit lies inside the interval of its metric, or there is no interval."""
    HOLDS = 2
    """Every interval lies completely on the good side of its limit."""


class Judgement(Struct, frozen=True):
    """The verdicts on one level of an SLO search: one on falling conditions and one on rising conditions.

    Falling conditions get worse as concurrency grows, rising conditions get better.
    """

    falling: Verdict
    """Verdict on conditions that get worse as concurrency grows; HOLDS if there are none."""
    rising: Verdict
    """Verdict on conditions that get better as concurrency grows; HOLDS if there are none."""
    why: str = ""
    """Each condition with its interval, as text."""
    reached: float | None = None
    """Minimum of mean / limit over the conditions that get better with concurrency; None without any."""

    @property
    def both(self) -> Verdict:
        """The worse of the verdicts `falling` and `rising`."""
        return min(self.falling, self.rising)


def judge_level(
    conditions: Sequence[SloCondition],
    level: LevelResult,
    traces: Sequence[RequestTrace],
    max_error_share: float,
) -> Judgement:
    """Return whether a level meets `conditions`, by the 95 % interval of the metric of each condition.

    The result has one verdict on falling conditions (worse as concurrency grows) and one on rising conditions
    (better as concurrency grows). If more than `max_error_share` (0 to 1) of the requests failed, the verdict
    on falling conditions is FAILS. `traces` are the requests of the level's completed runs.
    """
    ended = level.requests.ok + level.requests.failed
    falling = rising = Verdict.HOLDS
    words = []
    if not level.requests.ok or level.requests.failed > max_error_share * ended:
        falling = Verdict.FAILS
        words.append(f"{level.requests.failed} of {ended} requests failed")
    shares = []
    for condition in conditions:
        found = condition_interval(condition, level, traces)
        verdict = condition_verdict(condition, found)
        if rises(condition):
            rising = min(rising, verdict)
            rate = level.rate(condition.figure)
            shares.append(rate.mean / condition.limit if rate is not None else 0.0)
        else:
            falling = min(falling, verdict)
        words.append(_words(condition, verdict, found, level, ended))
    return Judgement(falling, rising, "; ".join(words), min(shares, default=None))


def condition_verdict(condition: SloCondition, interval: tuple[float, float] | None) -> Verdict:
    """Return whether a condition holds by the 95 % interval of its metric; None: there is no interval."""
    if interval is None:
        return Verdict.UNSURE
    low, high = interval
    if low >= condition.limit if condition.at_least else high <= condition.limit:
        return Verdict.HOLDS
    fails = high < condition.limit if condition.at_least else low > condition.limit
    return Verdict.FAILS if fails else Verdict.UNSURE


def _words(
    condition: SloCondition,
    verdict: Verdict,
    interval: tuple[float, float] | None,
    level: LevelResult,
    ended: int,
) -> str:
    if interval is None:
        few = f"{level.runs} run{'' if level.runs == 1 else 's'}, {ended} requests"
        return f"{words_of(condition)} cannot be judged: {few} give no interval"
    word = {Verdict.HOLDS: "holds", Verdict.UNSURE: "is not sure", Verdict.FAILS: "fails"}[verdict]
    return f"{words_of(condition)} {word} ({interval[0]:.4g} to {interval[1]:.4g})"


def condition_interval(
    condition: SloCondition, level: LevelResult, traces: Sequence[RequestTrace]
) -> tuple[float, float] | None:
    """Return the 95 % confidence interval over runs of the metric that a condition limits, in its unit.

    None for too few runs or requests.
    """
    name, word = parts_of(condition.figure)
    if name in RATES:
        rate = level.rate(name)
        return None if rate is None else rate.ci95
    of = _BY_TRACE[name]
    by_run: dict[int, list[float]] = {}
    for trace in traces:
        if trace.ok and (value := of(trace)) is not None:
            by_run.setdefault(trace.run, []).append(value)
    runs = [by_run[run] for run in sorted(by_run)]
    if word != "mean":
        if sum(map(len, runs)) < requests_needed([condition]):
            return None
        return quantile_interval(runs, SHARES[word])
    figure = Rate.of_runs([math.fsum(run) / len(run) for run in runs])
    return None if figure is None else figure.ci95


def quantile_interval(runs: Sequence[Sequence[float]], share: float) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of the quantile `share` (0 to 1) from the values of each run.

    Consecutive runs are grouped until each group has enough values for the quantile. None for fewer than
    `LEAST_RUNS` groups, or if any value is 0 or negative.
    """
    least, groups = least_values(share), []
    group: list[float] = []
    for run in runs:
        group += run
        if len(group) >= least:
            groups.append(sorted(group))
            group = []
    if group and groups:
        groups[-1] = sorted([*groups[-1], *group])
    if len(groups) < LEAST_RUNS or min(one[0] for one in groups) <= 0:
        return None
    figure = Rate.of_runs([math.log(unbiased_quantile(one, share)) for one in groups])
    if figure is None or figure.ci95 is None:
        return None
    return math.exp(figure.ci95[0]), math.exp(min(figure.ci95[1], _LARGEST_LOG))


_LARGEST_LOG = 700.0


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds
