"""Whether levels meet conditions: by intervals over runs, or by the share of requests that do.

`judge_level` is for the search for an SLO range, whose conditions limit figures of whole levels. `judge` is
for a capacity search, whose conditions must be met by a share of the single requests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import IntEnum

from msgspec import Struct

from sparktop.graphics.numbers import count_words
from sparktop.model.judgement import USEFUL_RUNS
from sparktop.model.load import CallStart, EndReason, LoadKind
from sparktop.model.statistics import least_values, quantile, unbiased_quantile, wilson
from sparktop.sweep.plan.capacity import AFTER_HUMAN, AFTER_TOOL, share_needed
from sparktop.sweep.plan.plan import Capacity, SloCondition
from sparktop.sweep.plan.slo import (
    SHARES,
    STREAM,
    parts_of,
    plain_words,
    requests_needed,
    rises,
    words_of,
)
from sparktop.sweep.result.measure import RequestTrace
from sparktop.sweep.result.results import LevelResult, Rate
from sparktop.sweep.terms.definitions import RATES

# Requests of one run share batch, heat and clock, so even ten thousand requests say little about the next
# run. Therefore each metric has one value per run, and its interval is Student's t over these values. A
# quantile is computed within each run, or within groups of consecutive runs if a single run has too few
# requests. The interval of a quantile is computed on a logarithmic scale, on which the spread is even. The
# interval assumes that runs are independent and identically distributed; within a run, requests may have
# any distribution.


_MS = 1000.0
"""Milliseconds of a second."""


def _request_value(name: str, trace: RequestTrace, wait_s: float = 0.0) -> float | None:
    """Return the figure `name` of a request, in milliseconds and after `wait_s` more, or its token rate."""
    if name == STREAM:
        return trace.stream_tps
    seconds: float | None = getattr(trace, f"{name}_s")
    return None if seconds is None else _MS * (seconds + wait_s)


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
    limit_words = plain_words(words_of(condition))
    if interval is None:
        few = f"{count_words(level.runs, 'run')}, {ended} requests"
        return f"{limit_words} cannot be judged: {few} give no interval"
    word = {Verdict.HOLDS: "holds", Verdict.UNSURE: "is not sure", Verdict.FAILS: "fails"}[verdict]
    unit = " ms" if condition.figure.endswith("_ms") else ""
    return f"{limit_words} {word} (95 % CI {interval[0]:.4g} to {interval[1]:.4g}{unit})"


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
    by_run: dict[int, list[float]] = {}
    for trace in traces:
        value = _request_value(name, trace) if trace.ok else None
        if value is not None:
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
    `USEFUL_RUNS` groups, or if any value is 0 or negative.
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
    if len(groups) < USEFUL_RUNS or min(values[0] for values in groups) <= 0:
        return None
    figure = Rate.of_runs([math.log(unbiased_quantile(values, share)) for values in groups])
    if figure is None or figure.ci95 is None:
        return None
    return math.exp(figure.ci95[0]), math.exp(min(figure.ci95[1], _LARGEST_LOG))


_LARGEST_LOG = 700.0
"""Logarithm of nearly the largest float."""


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
_ROUNDING = 1e-9
"""Share by which rounding may lower a share of requests."""


def design_effect(squares: float, expected: float) -> float:
    """Return how many requests say as much as an independent one, at least 1; see `Shares`."""
    return max(1.0, (_LONGER * squares + _USUAL_EFFECT * _PRIOR) / (expected + _PRIOR))


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
    squares: float = 0.0
    """Sum over sections of the squared differences between the number that met the condition and its mean."""
    expected: float = 0.0
    """The same sum if all requests were independent."""

    @property
    def share(self) -> float:
        """Share (0 to 1) of the requests that met the condition; 0 without requests."""
        return self.met / self.count if self.count else 0.0


class LoadVerdict(Struct, frozen=True):
    """Whether a level meets the conditions."""

    holds: bool
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
    failed_count = sum(trace.ended is not None and trace.ended.reason is EndReason.ERROR for trace in counted)
    trouble = unstable
    if failed_count > max(1.0, max_error_share * len(counted)):  # a single one shows no share
        trouble = f"{failed_count} of {len(counted)} requests failed"
    shares = [_shares_of_condition(capacity, condition, counted) for condition in capacity.conditions]
    if capacity.kind is LoadKind.RATE:
        shares.append(_shares_of_all(capacity, counted))
    decisive = shares[-1:] if capacity.kind is LoadKind.RATE else shares
    judged = [part for part in decisive if part.count]
    holds = bool(judged) and all(part.share >= part.needed - _ROUNDING for part in judged)
    times = sorted(trace.e2e_s for trace in counted if trace.ok and trace.e2e_s is not None)
    median_s = quantile(times, 0.5) if times else None
    return LoadVerdict(holds and not trouble, tuple(shares), len(counted), median_s, trouble)


def _is_counted(kind: LoadKind, trace: RequestTrace) -> bool:
    """Return whether a request is measured: of a rate by its due time, of conversations by its place."""
    if kind is LoadKind.RATE:
        return trace.due is not None
    return kind is LoadKind.CONCURRENCY or (trace.call is not None and trace.call.measured)


def _shares_of_condition(
    capacity: Capacity, condition: SloCondition, traces: Sequence[RequestTrace]
) -> Shares:
    """Return how many of the requests to which a condition applies meet it."""
    applicable: list[tuple[RequestTrace, bool, float | None]] = []
    for trace in traces:
        judged = _judge_request(capacity.kind, condition, trace)
        if judged is not None:
            applicable.append((trace, *judged))
    needed = share_needed(capacity, condition)
    missing = 0.0 if condition.at_least else math.inf  # a request without a value is the worst
    values = sorted(missing if value is None else value for _, _, value in applicable)
    limited = quantile(values, 1 - needed if condition.at_least else needed) if values else math.inf
    met = [(trace, is_met) for trace, is_met, _ in applicable]
    return _shares(condition, needed, met, limited if math.isfinite(limited) else None)


def _shares_of_all(capacity: Capacity, traces: Sequence[RequestTrace]) -> Shares:
    """Return how many requests meet all conditions that apply to them."""
    met = []
    for trace in traces:
        judged = [_judge_request(capacity.kind, condition, trace) for condition in capacity.conditions]
        met.append((trace, all(verdict is None or verdict[0] for verdict in judged)))
    return _shares(None, capacity.share, met)


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
    wait_s = trace.start - trace.due if kind is LoadKind.RATE and trace.due is not None else 0.0
    if name == "tpot":
        wait_s = 0.0
    is_measured = trace.ok or name not in {"e2e", "tpot", STREAM}
    value = _request_value("ttft" if name in _GROUPS else name, trace, wait_s) if is_measured else None
    if value is not None:
        return value >= condition.limit if condition.at_least else value <= condition.limit, value
    if trace.ok:
        return None  # an answer of a single read has no token rate
    if kind is LoadKind.RATE:
        return False, None
    age = _MS * (trace.end - trace.start)
    is_late = not condition.at_least and age > condition.limit
    return (False, age) if is_late else None


_GROUPS = (AFTER_TOOL, AFTER_HUMAN)
"""Figures of a part of the calls of agents only."""


def _belongs_to_group(group: str, trace: RequestTrace) -> bool:
    call = trace.call
    if call is None or call.compacted:
        return False
    if group == AFTER_TOOL:
        return call.start is CallStart.TOOL
    return call.start is CallStart.HUMAN and call.turn > 0


def _shares(
    condition: SloCondition | None,
    needed: float,
    met: Sequence[tuple[RequestTrace, bool]],
    value: float | None = None,
) -> Shares:
    """Return how many requests met a condition, by `met`: each request, and whether it did."""
    total, count = sum(is_met for _, is_met in met), len(met)
    share = total / count if count else 0.0
    squares, expected = _scatter_of_sections(met, share)
    effective = count / design_effect(squares, expected)
    low, high = wilson(share * effective, effective)
    return Shares(condition, needed, total, count, low, high, value, squares, expected)


def _scatter_of_sections(met: Sequence[tuple[RequestTrace, bool]], share: float) -> tuple[float, float]:
    """Return (squares, expected) of `Shares`: how much sections of runs differ from the `share` of all."""
    runs: dict[int, list[tuple[RequestTrace, bool]]] = {}
    for trace, is_met in met:
        runs.setdefault(trace.run, []).append((trace, is_met))
    groups = []
    for run in runs.values():
        ordered = sorted(run, key=lambda request: request[0].start)
        for part in range(_SECTIONS):
            section = ordered[part * len(ordered) // _SECTIONS : (part + 1) * len(ordered) // _SECTIONS]
            if section:
                groups.append((sum(is_met for _, is_met in section), len(section)))
    if not 0 < share < 1 or len(groups) < 2:  # noqa: PLR2004 - a single one does not vary
        return 0.0, 0.0
    squares = math.fsum((ok - share * size) ** 2 for ok, size in groups)
    return squares * len(groups) / (len(groups) - 1), share * (1 - share) * len(met)
