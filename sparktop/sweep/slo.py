"""How many agents can it take: the largest concurrency under which conditions hold.

A level holds if the pessimistic end of each figure's 95 % interval does, and it surely fails if the
optimistic end of one does not. Means have Student's interval over runs; quantiles have the distribution-free
one of order statistics (binomial). That needs 36 requests for a p90: a level gets as many runs as it takes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparktop.errors import UsageError
from sparktop.model.text import clean
from sparktop.nearest import did_you_mean
from sparktop.sweep.plan import SloCondition
from sparktop.sweep.results import LATENCIES, RATES, LevelResult
from sparktop.sweep.served_by import binomial_share
from sparktop.sweep.statistics import P90_FROM, P95_FROM, P99_FROM, quantile, rate_figure
from sparktop.sweep.trace import RequestTrace

MOST_CONCURRENCY = 4096
_FINE_SHARE = 1 / 16
"""The search ends when what is left between two levels is this share of the lower, or one request."""
_TAIL = 0.025
_LEAST_RUNS_OF_A_MEAN = 2
_SHARES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_REQUESTS = {"p10": P90_FROM, "p50": 6, "p90": P90_FROM, "p95": P95_FROM, "p99": P99_FROM}
"""From so many values on the quantile's distribution-free 95 % interval has two ends."""
_STREAM = "stream_tps"
_LATENCY = re.compile(r"([a-z0-9_]+)_(mean|p50|p90|p95|p99)_ms")
_BY_TRACE: dict[str, Callable[[RequestTrace], float | None]] = {
    "ttfr": lambda trace: _ms(trace.ttfr_s),
    "ttft": lambda trace: _ms(trace.ttft_s),
    "first_answer": lambda trace: _ms(trace.first_answer_s),
    "tpot": lambda trace: _ms(trace.tpot_s),
    "e2e": lambda trace: _ms(trace.e2e_s),
    _STREAM: lambda trace: trace.stream_tps,
}


def parse_slo(text: str) -> tuple[SloCondition, ...]:
    """Read `ttft_p90_ms=2000,stream_tps=15`: at most for latencies, at least for rates.

    Raises:
        UsageError: a condition cannot be used.
    """
    found = tuple(_parse_one(part) for part in text.split(",") if part.strip())
    if not found:
        raise UsageError("--slo names no condition; write for example ttft_p90_ms=2000,stream_tps=15")
    return found


def _parse_one(part: str) -> SloCondition:
    name, sign, value = (word.strip() for word in part.partition("="))
    try:
        limit = float(value)
    except ValueError:
        limit = math.nan
    if not sign or not (0 < limit < math.inf):
        raise UsageError(f"--slo: '{clean(part, 40)}' is no condition; write for example ttft_p90_ms=2000")
    if name not in figures():
        near = did_you_mean(name, figures()) or "; write for example ttft_p90_ms or stream_tps"
        raise UsageError(f"--slo: there is no figure '{clean(name, 40)}'{near}")
    return SloCondition(name, limit, at_least=not name.endswith("_ms"))


def figures() -> tuple[str, ...]:
    """Give the names of all figures that a condition may be on; bare `stream_tps` is its p10."""
    latencies = [name.removesuffix("_ms") for name in LATENCIES if name != "itl_ms"]
    return (
        *(f"{name}_{word}_ms" for name in latencies for word in ("mean", "p50", "p90", "p95", "p99")),
        _STREAM,
        f"{_STREAM}_p10",
        f"{_STREAM}_p50",
        *RATES,
    )


def words_of(condition: SloCondition) -> str:
    """Give a condition as a person writes it."""
    return f"{condition.figure} {'≥' if condition.at_least else '≤'} {condition.limit:g}"


def runs_needed(conditions: Sequence[SloCondition], concurrency: int, runs: int) -> int:
    """Give how many runs of a burst level it takes to judge all conditions, `runs` at least."""
    needed = runs
    for condition in conditions:
        _, word = _parts(condition.figure)
        if word in _REQUESTS:
            needed = max(needed, -(-_REQUESTS[word] // concurrency))
        else:
            needed = max(needed, _LEAST_RUNS_OF_A_MEAN)
    return needed


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a level holds."""

    holds: bool
    """The pessimistic end of every figure does."""
    fails: bool
    """The optimistic end of some figure does not hold, or too many requests failed."""
    why: str
    """The condition that decides, with its figures."""


def judge_level(
    conditions: Sequence[SloCondition],
    level: LevelResult,
    traces: Sequence[RequestTrace],
    max_error_share: float,
) -> Judgement:
    """Judge a level by its requests and rates."""
    ended = level.requests.ok + level.requests.failed
    if not level.requests.ok or level.requests.failed > max_error_share * ended:
        return Judgement(holds=False, fails=True, why=f"{level.requests.failed} of {ended} requests failed")
    holds, fails, words = True, False, []
    for condition in conditions:
        interval = _interval(condition, level, traces)
        if interval is None:
            return Judgement(
                holds=False, fails=False, why=f"{condition.figure} cannot be told from {ended} requests"
            )
        low, high = interval
        good = low >= condition.limit if condition.at_least else high <= condition.limit
        bad = high < condition.limit if condition.at_least else low > condition.limit
        holds, fails = holds and good, fails or bad
        word = "holds" if good else "fails" if bad else "is not sure"
        words.append(f"{words_of(condition)} {word} ({low:.4g} to {high:.4g})")
    return Judgement(holds, fails, "; ".join(words))


def _interval(
    condition: SloCondition, level: LevelResult, traces: Sequence[RequestTrace]
) -> tuple[float, float] | None:
    name, word = _parts(condition.figure)
    if name in RATES:
        rate = level.rate(name)
        return None if rate is None else rate.ci95 or (rate.mean, rate.mean)
    of = _BY_TRACE[name]
    values = [(trace.run, value) for trace in traces if trace.ok and (value := of(trace)) is not None]
    if word != "mean":
        return quantile_interval([value for _, value in values], _SHARES[word])
    by_run: dict[int, list[float]] = {}
    for run, value in values:
        by_run.setdefault(run, []).append(value)
    figure = rate_figure([sum(run) / len(run) for run in by_run.values()])
    return None if figure is None else figure.ci95 or (figure.mean, figure.mean)


def quantile_interval(values: Sequence[float], share: float) -> tuple[float, float] | None:
    """Give the distribution-free 95 % interval of a quantile; None where there are too few values.

    Its ends are values of the sample: the number of values below the quantile is binomial.
    """
    ordered, count = sorted(values), len(values)
    below, low, high = 0.0, None, None
    for rank in range(count + 1):
        # `below`: the probability that fewer than `rank` values lie below the quantile.
        if below <= _TAIL:
            low = rank
        if high is None and below >= 1 - _TAIL:
            high = rank
        below += binomial_share(rank, count, share)
    if not low or high is None or high > count:
        return None
    middle = quantile(ordered, share)
    return min(ordered[low - 1], middle), max(ordered[high - 1], middle)


class SloSearch:
    """Finds the largest concurrency that holds: up through given levels, then doubling, then bisection."""

    def __init__(self, levels: Sequence[int], most: int = MOST_CONCURRENCY) -> None:
        """Begin with `levels`; never go beyond `most`."""
        self._levels = sorted({level for level in levels if level <= most}) or [1]
        self._most = most
        self._told: dict[int, Judgement] = {}

    @property
    def holds_to(self) -> int | None:
        """The largest concurrency below which nothing was found not to hold; None where none holds."""
        first_bad = min(self._not_holding(), default=None)
        good = [
            level
            for level, one in self._told.items()
            if one.holds and (first_bad is None or level < first_bad)
        ]
        return max(good, default=None)

    @property
    def interval(self) -> tuple[int | None, int | None]:
        """From what surely holds to the largest that may: one below what surely fails, None: not found."""
        failing = [level for level, one in self._told.items() if one.fails]
        return self.holds_to, min(failing) - 1 if failing else None

    def tell(self, concurrency: int, judgement: Judgement) -> None:
        """Take what a level gave."""
        self._told[concurrency] = judgement

    def next(self) -> int | None:
        """Give the next level to make; None when the search is over."""
        holding, bad = self.holds_to, min(self._not_holding(), default=None)
        if bad is not None:
            if holding is None:
                return self._below(bad)
            middle = (holding + bad) // 2
            is_fine = bad - holding <= max(1.0, holding * _FINE_SHARE)
            return None if is_fine or middle in {holding, bad} else middle
        for level in self._levels:
            if level not in self._told:
                return level
        if holding is None or holding >= self._most:
            return None
        return min(2 * holding, self._most)

    def _below(self, bad: int) -> int | None:
        """Give a level below the first one, where even that does not hold."""
        return bad // 2 if bad > 1 else None

    def _not_holding(self) -> list[int]:
        return [level for level, one in self._told.items() if not one.holds]


def _parts(figure: str) -> tuple[str, str]:
    """Give what is measured, and which figure of it."""
    if figure in RATES:
        return figure, "mean"
    if figure.startswith(_STREAM):
        return _STREAM, figure.removeprefix(f"{_STREAM}_") if figure != _STREAM else "p10"
    found = _LATENCY.fullmatch(figure)
    if found is None:
        raise UsageError(f"--slo: there is no figure '{clean(figure, 40)}'")
    return found[1], found[2]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds
