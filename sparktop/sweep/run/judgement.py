"""Whether levels meet conditions: by intervals over runs, or by the share of requests that do.

`judge_level` is for the search for an SLO range, whose conditions limit figures of whole levels. `judge` is
for a capacity search, whose conditions must be met by a share of the single requests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum

from msgspec import Struct

from sparktop.model.load import CallStart, EndReason, LoadKind
from sparktop.sweep.plan.capacity import AFTER_HUMAN, AFTER_TOOL, share_needed
from sparktop.sweep.plan.plan import Capacity, SloCondition
from sparktop.sweep.plan.slo import LEAST_RUNS, SHARES, STREAM, parts_of, requests_needed, rises, words_of
from sparktop.sweep.result.measure import RequestTrace
from sparktop.sweep.result.results import LevelResult, Rate
from sparktop.sweep.terms.definitions import RATES
from sparktop.sweep.terms.statistics import least_values, quantile, unbiased_quantile, wilson

# Requests of one run share batch, heat and clock, so even ten thousand requests say little about the next
# run. Therefore each metric has one value per run, and its interval is Student's t over these values. A
# quantile is computed within each run, or within groups of consecutive runs if a single run has too few
# requests. The interval of a quantile is computed on a logarithmic scale, on which the spread is even. The
# interval assumes that runs are independent and identically distributed; within a run, requests may have
# any distribution.


_BY_TRACE: dict[str, Callable[[RequestTrace], float | None]] = {
    "ttfr": lambda trace: _ms(trace.ttfr_s),
    "ttft": lambda trace: _ms(trace.ttft_s),
    "first_answer": lambda trace: _ms(trace.first_answer_s),
    "tpot": lambda trace: _ms(trace.tpot_s),
    "e2e": lambda trace: _ms(trace.e2e_s),
    STREAM: lambda trace: trace.stream_tps,
}
"""Value of a request, in the unit of the condition, by the name of the figure."""


class Verdict(IntEnum):
    """Whether a level meets SLO conditions, according to the 95 % intervals of its metrics."""

    FAILS = 0
    """A whole interval violates its limit, or too many requests failed."""
    UNSURE = 1
    """A limit lies inside the interval of its metric, or there is no interval."""
    HOLDS = 2
    """Every interval lies completely on the good side of its limit."""


class LevelVerdicts(Struct, frozen=True):
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
) -> LevelVerdicts:
    """Return whether a level meets `conditions`, by the 95 % interval of the metric of each condition.

    The result has one verdict on falling conditions (worse as concurrency grows) and one on rising conditions
    (better as concurrency grows). If more than `max_error_share` (0 to 1) of the requests failed, the verdict
    on falling conditions is FAILS. `traces` are the requests of the level's completed runs.
    """
    ended = level.requests.ended
    falling = rising = Verdict.HOLDS
    words = []
    if not level.requests.ok or level.requests.failed > max_error_share * ended:
        falling = Verdict.FAILS
        words.append(f"{level.requests.failed} of {ended} requests failed")
    shares = []
    for condition in conditions:
        interval = condition_interval(condition, level, traces)
        verdict = condition_verdict(condition, interval)
        if rises(condition):
            rising = min(rising, verdict)
            rate = level.rate(condition.figure)
            shares.append(rate.mean / condition.limit if rate is not None else 0.0)
        else:
            falling = min(falling, verdict)
        words.append(_condition_sentence(condition, verdict, interval, level, ended))
    return LevelVerdicts(falling, rising, "; ".join(words), min(shares, default=None))


def condition_verdict(condition: SloCondition, interval: tuple[float, float] | None) -> Verdict:
    """Return whether a condition holds by the 95 % interval of its metric; None: there is no interval."""
    if interval is None:
        return Verdict.UNSURE
    low, high = interval
    if low >= condition.limit if condition.at_least else high <= condition.limit:
        return Verdict.HOLDS
    fails = high < condition.limit if condition.at_least else low > condition.limit
    return Verdict.FAILS if fails else Verdict.UNSURE


def _condition_sentence(
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
    if len(groups) < LEAST_RUNS or min(values[0] for values in groups) <= 0:
        return None
    figure = Rate.of_runs([math.log(unbiased_quantile(values, share)) for values in groups])
    if figure is None or figure.ci95 is None:
        return None
    return math.exp(figure.ci95[0]), math.exp(min(figure.ci95[1], _LARGEST_LOG))


_LARGEST_LOG = 700.0
"""Logarithm of nearly the largest float."""


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


# Verdict on whether a level meets the conditions of a capacity search, by the share of requests that do.
#
# Requests of a run share a queue, so they say less than as many independent ones would. The certainty
# therefore counts a run's requests as fewer: as many independent ones as would vary as much as its sections
# do.


_SECTIONS = 2
"""Parts of a run, by the starts of its requests, whose shares are compared. A queue or a full cache lasts for
many requests, so that shorter parts are not independent."""
_LONGER = 1.5
"""How much more whole runs vary than their parts show: halves of a run are not independent either."""
_USUAL_EFFECT, _PRIOR = 2.0, 1.0
"""The design effect before any miss was seen, and its weight, in the expected sum of squares."""
_LEAST = 10
"""Minimum number of requests to judge a condition."""
_MS = 1000.0
"""Milliseconds of a second."""
_ROUNDING = 1e-9
"""Share by which rounding may lower a share of requests."""


class Scatter(Struct, frozen=True):
    """How much the shares of sections of runs differ, so that it can be added up over levels."""

    squares: float = 0.0
    """Sum of the squared differences between the number of requests that met a condition and its mean."""
    expected: float = 0.0
    """The same sum if all requests were independent."""

    @property
    def effect(self) -> float:
        """The design effect: how many requests say as much as an independent one, at least 1."""
        observed = _LONGER * self.squares + _USUAL_EFFECT * _PRIOR
        return max(1.0, observed / (self.expected + _PRIOR))


class Shares(Struct, frozen=True):
    """How many requests of a level met one condition, or all of them together."""

    condition: SloCondition | None
    """None: all together."""
    needed: float
    """Share (0 to 1) that must meet it."""
    met: int
    count: int
    low: float
    """Lower end of the 95 % interval of the share (0 to 1)."""
    high: float
    value: float | None = None
    """The quantile that the condition limits, in its unit; None if it is unknown."""
    scatter: Scatter = Scatter()
    """How much the sections of the runs differ."""

    @property
    def share(self) -> float:
        """Share (0 to 1) of the requests that met the condition; 0 without requests."""
        return self.met / self.count if self.count else 0.0

    @property
    def verdict(self) -> Verdict:
        """Whether enough requests certainly meet the condition."""
        if self.count < _LEAST:
            return Verdict.UNSURE
        if self.low >= self.needed:
            return Verdict.HOLDS
        return Verdict.FAILS if self.high < self.needed else Verdict.UNSURE


class LoadVerdict(Struct, frozen=True):
    """Whether a level meets the conditions."""

    holds: bool
    certain: Verdict
    """HOLDS and FAILS if the 95 % intervals leave no doubt."""
    shares: tuple[Shares, ...]
    """One for each condition; of a rate, then one for all together."""
    requests: int
    median_s: float | None
    """Median E2E of the completed requests, None without any."""
    trouble: str = ""
    """Why the level fails whatever its latencies are: unstable, or too many failed requests; else ""."""


def judge(
    capacity: Capacity,
    traces: Iterable[RequestTrace],
    *,
    max_error_share: float,
    unstable: str = "",
) -> LoadVerdict:
    """Return whether a level meets the conditions of `capacity`, by its requests of all runs.

    `unstable` says how latencies grow where the server does not keep up with a rate; "" where it does. A
    level fails if it is unstable, or if more than `max_error_share` (0 to 1) of its requests failed.
    """
    counted = [trace for trace in traces if _is_counted(capacity.kind, trace)]
    failed = sum(trace.ended is not None and trace.ended.reason is EndReason.ERROR for trace in counted)
    trouble = unstable
    if failed > max(1.0, max_error_share * len(counted)):  # a single one shows no share
        trouble = f"{failed} of {len(counted)} requests failed"
    shares = [_shares_of_condition(capacity, condition, counted) for condition in capacity.conditions]
    if capacity.kind is LoadKind.RATE:
        shares.append(_shares_of_all(capacity, counted))
    decisive = shares[-1:] if capacity.kind is LoadKind.RATE else shares
    judged = [part for part in decisive if part.count]
    holds = bool(judged) and all(part.share >= part.needed - _ROUNDING for part in judged)
    certain = min((part.verdict for part in decisive), default=Verdict.UNSURE)
    if trouble:
        holds, certain = False, Verdict.FAILS
    elif (certain is Verdict.HOLDS) is not holds and certain is not Verdict.UNSURE:
        certain = Verdict.UNSURE
    times = sorted(trace.e2e_s for trace in counted if trace.ok and trace.e2e_s is not None)
    return LoadVerdict(
        holds, certain, tuple(shares), len(counted), quantile(times, 0.5) if times else None, trouble
    )


def _is_counted(kind: LoadKind, trace: RequestTrace) -> bool:
    """Return whether a request is measured: of a rate by its due time, of conversations by its place."""
    match kind:
        case LoadKind.RATE:
            return trace.due is not None
        case LoadKind.CONCURRENCY:
            return True
        case _:
            return trace.call is not None and trace.call.measured


def _shares_of_condition(
    capacity: Capacity, condition: SloCondition, traces: Sequence[RequestTrace]
) -> Shares:
    """Return how many of the requests to which a condition applies meet it."""
    applicable = [
        (trace, *judged)
        for trace in traces
        if (judged := _judge_request(capacity.kind, condition, trace)) is not None
    ]
    needed = share_needed(capacity, condition)
    met, low, high, scatter = _share_interval([(trace, is_met) for trace, is_met, _ in applicable])
    missing = 0.0 if condition.at_least else math.inf  # a request without a value is the worst
    values = sorted(missing if value is None else value for _, _, value in applicable)
    limited = quantile(values, 1 - needed if condition.at_least else needed) if values else math.inf
    limited_value = limited if math.isfinite(limited) else None
    return Shares(condition, needed, met, len(applicable), low, high, limited_value, scatter)


def _shares_of_all(capacity: Capacity, traces: Sequence[RequestTrace]) -> Shares:
    """Return how many requests meet all conditions that apply to them."""
    met = []
    for trace in traces:
        judged = [_judge_request(capacity.kind, condition, trace) for condition in capacity.conditions]
        met.append((trace, all(verdict is None or verdict[0] for verdict in judged)))
    count, low, high, scatter = _share_interval(met)
    return Shares(None, capacity.share, count, len(met), low, high, None, scatter)


def _judge_request(
    kind: LoadKind, condition: SloCondition, trace: RequestTrace
) -> tuple[bool, float | None] | None:
    """Return (whether a request meets a condition, its value); None if the condition does not apply to it.

    A failed request meets none. One without an answer has its age; at a rate it meets none either.
    """
    name = parts_of(condition.figure)[0].removesuffix("_due")
    if name in _GROUPS and not _belongs_to_group(name, trace):
        return None
    if trace.ended is not None and trace.ended.reason is EndReason.ERROR:
        return False, None
    value = _request_value(kind, name, trace)
    if value is not None:
        return value >= condition.limit if condition.at_least else value <= condition.limit, value
    if trace.ok:
        return None  # an answer of a single read has no token rate
    if kind is LoadKind.RATE:
        return False, None
    age = _MS * (trace.end - trace.start)
    is_late = not condition.at_least and age > condition.limit
    return (False, age) if is_late else None


def _request_value(kind: LoadKind, name: str, trace: RequestTrace) -> float | None:
    """Return the value of a request in milliseconds, or its token rate; of a rate from the due time."""
    wait_s = trace.start - trace.due if kind is LoadKind.RATE and trace.due is not None else 0.0
    match name:
        case "ttft" | "ttft_tool" | "ttft_human":
            seconds = trace.ttft_s
        case "ttfr":
            seconds = trace.ttfr_s
        case "first_answer":
            seconds = trace.first_answer_s
        case "e2e":
            seconds = trace.e2e_s if trace.ok else None
        case _ if name == STREAM:
            return trace.stream_tps if trace.ok else None
        case _:
            return None if trace.tpot_s is None or not trace.ok else _MS * trace.tpot_s
    return None if seconds is None else _MS * (seconds + wait_s)


_GROUPS = (AFTER_TOOL, AFTER_HUMAN)
"""Figures of a part of the calls of agents only."""


def _belongs_to_group(group: str, trace: RequestTrace) -> bool:
    call = trace.call
    if call is None or call.compacted:
        return False
    if group == AFTER_TOOL:
        return call.start is CallStart.TOOL
    return call.start is CallStart.HUMAN and call.turn > 0


def _share_interval(met: Sequence[tuple[RequestTrace, bool]]) -> tuple[int, float, float, Scatter]:
    """Return (number that met, 95 % interval of the share, how much sections differ)."""
    total, count = sum(is_met for _, is_met in met), len(met)
    if not count:
        return 0, 0.0, 1.0, Scatter()
    share = total / count
    scatter = _scatter_of_sections(met, share)
    effective = count / scatter.effect
    low, high = wilson(share * effective, effective)
    return total, low, high, scatter


def _scatter_of_sections(met: Sequence[tuple[RequestTrace, bool]], share: float) -> Scatter:
    """Return how much the sections of runs differ from the `share` of all, and by chance alone (binomial)."""
    groups = list(_sections(met))
    if not 0 < share < 1 or len(groups) < 2:  # noqa: PLR2004 - a single one does not vary
        return Scatter()
    squares = math.fsum((ok - share * size) ** 2 for ok, size in groups)
    return Scatter(squares * len(groups) / (len(groups) - 1), share * (1 - share) * len(met))


def _sections(met: Sequence[tuple[RequestTrace, bool]]) -> Iterator[tuple[int, int]]:
    """Yield (number that met, number of requests) for each section of each run, in order of time."""
    runs: dict[int, list[tuple[RequestTrace, bool]]] = {}
    for trace, is_met in met:
        runs.setdefault(trace.run, []).append((trace, is_met))
    for run in runs.values():
        ordered = sorted(run, key=lambda request: request[0].start)
        for part in range(_SECTIONS):
            section = ordered[part * len(ordered) // _SECTIONS : (part + 1) * len(ordered) // _SECTIONS]
            if section:
                yield sum(is_met for _, is_met in section), len(section)
