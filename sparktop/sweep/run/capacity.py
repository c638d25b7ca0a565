"""The levels of a capacity search, its answer as the result stores it, and changes of a server meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.graphics.numbers import count_words
from sparktop.model.instant import TimeRange
from sparktop.model.load import LoadKind, LoadPoint
from sparktop.model.snapshot import LimitKind
from sparktop.sweep.compare.ratio import main_rate, rate_ratio
from sparktop.sweep.plan.capacity import level_plan, longest_seconds
from sparktop.sweep.plan.plan import Capacity, Plan, RunBatch
from sparktop.sweep.plan.slo import words_of
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.open_loop import windows
from sparktop.sweep.result.results import (
    CapacityAnswer,
    ConditionResult,
    Drift,
    LevelResult,
    ProbeResult,
    RanOut,
)
from sparktop.sweep.run.judgement import LoadVerdict, Shares, Verdict, judge
from sparktop.sweep.run.level import LevelMaker, LevelRecord, LevelRefusedError, TargetFailedError
from sparktop.sweep.run.preparation import PreparedTarget
from sparktop.sweep.run.progress import ResultChanged
from sparktop.sweep.run.result_builder import ResultBuilder
from sparktop.sweep.run.search import LEVEL_OVERHEAD, CapacitySearch, keeps_up
from sparktop.sweep.terms.definitions import METRICS

# The answer of a capacity search as its result file stores it, and what ran out first.


_PERCENT = 100.0
_LEAST_REQUESTS = 5
"""Requests in each of two runs from which on their shares are compared."""
_NO_REASON = {LimitKind.UNKNOWN.value, LimitKind.CLIENT.value, LimitKind.CLIENT_OR_ROUTER.value}
"""Limits that do not say what the server needs more of."""
_LIMITS_OF_STEPS = {LimitKind.BANDWIDTH.value, LimitKind.DECODE.value}
"""Limits of decode steps."""


def capacity_answer(
    search: CapacitySearch,
    levels: dict[float, LevelResult],
    *,
    complete: bool,
    drift: Drift | None = None,
) -> CapacityAnswer:
    """Return the answer of a search for one target; `levels` has the result of each level by its load.

    Of a server that changed meanwhile nothing is certain.
    """
    holds, fails = search.holds, search.fails
    best = None if holds is None else levels.get(holds)
    border = fails if fails is not None else holds
    return CapacityAnswer(
        # 0: not even the smallest load holds.
        holds=0.0 if holds is None and fails is not None and complete else holds,
        fails=fails,
        at_least=search.at_least,
        complete=complete,
        interval=search.interval if drift is None else (None, None),
        drift=drift,
        moved_from=search.moved_from if search.moved_from != holds else None,
        ran_out=None if border not in levels else _limit_at_border(levels, holds, border),
        output_tps=None if best is None or best.output_tps is None else best.output_tps.mean,
        probes=tuple(
            _probe_result(value, judged, search, holds=fails is None or value < fails, steady=drift is None)
            for value, judged in search.judged.items()
        ),
    )


JudgedRun = tuple[LoadVerdict, datetime]
"""(One run of a level, judged alone; when it ended)."""


def drift_of(runs: Mapping[float, Sequence[JudgedRun]]) -> Drift | None:
    """Return how a server changed between the first and the last run of a level; None if none is shown.

    `runs` are those of each level by its load, in order. A change is shown if the 95 % intervals of the
    shares of requests that met a condition do not overlap.
    """
    for value, judged_runs in runs.items():
        (first, first_at), (last, last_at) = judged_runs[0], judged_runs[-1]  # of one run, both are it
        for before, last_share in zip(first.shares, last.shares, strict=False):
            enough = before.condition is not None and min(before.count, last_share.count) >= _LEAST_REQUESTS
            if enough and (last_share.high < before.low or before.high < last_share.low):
                return Drift(
                    value=value,
                    condition=condition_result(before),
                    later=condition_result(last_share),
                    first_at=first_at,
                    last_at=last_at,
                )
    return None


def _limit_at_border(levels: dict[float, LevelResult], holds: float | None, border: float) -> RanOut:
    """Return what held the servers back at the load `border`, and what else near it, by the levels.

    `holds` is the largest load that holds.
    """
    limit = limit_of_level(levels[border], border)
    if limit.kind is None:
        return limit
    elsewhere: dict[str, tuple[float, ...]] = {}
    for load, level in sorted(levels.items(), key=itemgetter(0)):
        kind = None if level.limited_by is None else level.limited_by.kind
        if kind is not None and (load == holds or load > border) and kind not in {limit.kind, *_NO_REASON}:
            elsewhere[kind] = (*elsewhere.get(kind, ()), load)
    return limit.model_copy(update={"elsewhere": elsewhere})


def limit_of_level(level: LevelResult, value: float) -> RanOut:
    """Return what held the servers back at the level with the load `value`, with its evidence."""
    limit, server = level.limited_by, level.server
    figures = []
    if server is not None:
        kv = server.kv_fullest_percent
        if kv is None:
            kv = server.kv_cache_max_percent
        if kv is not None and (limit is None or "KV cache" not in limit.reason):
            figures.append(f"KV cache {kv:.0f} % used")
        if server.preemptions:
            figures.append(count_words(server.preemptions, "preemption"))
        if server.waiting_max:
            count = count_words(server.waiting_max, "request")
            figures.append(f"up to {count} waited")
    reason = "no limit of the servers was reached" if figures else "the servers report no figures"
    evidence = "; ".join([reason if limit is None else limit.reason, *figures])
    if limit is None or limit.kind == LimitKind.UNKNOWN.value:
        return RanOut(kind=None, evidence=evidence, value=value)
    # What more requests would do, the hint on steps, is what the search has measured.
    hint = None if limit.kind in _LIMITS_OF_STEPS else limit.hint
    return RanOut(kind=limit.kind, evidence=evidence, hint=hint, server=limit.server, value=value)


def _probe_result(
    value: float, judged: LoadVerdict, search: CapacitySearch, *, holds: bool, steady: bool
) -> ProbeResult:
    """Return a level as the result file stores it.

    It is certain by all levels together only if its own requests do not say the opposite.
    """
    by_all = search.certainty(value) is (Verdict.HOLDS if holds else Verdict.FAILS)
    has_requests = any(shares.count for shares in judged.shares)
    is_judged = has_requests or bool(judged.trouble)
    agrees = judged.holds is holds or not has_requests
    return ProbeResult(
        value=value,
        runs=search.runs[value],
        holds=holds,
        certain=by_all and agrees and steady,
        fails_percent=round(_PERCENT * search.fails_chance(value), 1) if is_judged else None,
        trouble=judged.trouble or None,
        requests=judged.requests,
        conditions=tuple(map(condition_result, judged.shares)),
    )


def condition_result(shares: Shares) -> ConditionResult:
    """Return how many requests met a condition as a result file stores it."""
    condition = shares.condition
    return ConditionResult(
        condition="all" if condition is None else words_of(condition),
        figure=None if condition is None else condition.figure,
        limit=None if condition is None else condition.limit,
        at_least=condition is not None and condition.at_least,
        value=shares.value,
        needed_percent=_PERCENT * shares.needed,
        met_percent=_PERCENT * shares.share if shares.count else None,
        interval_percent=(_PERCENT * shares.low, _PERCENT * shares.high) if shares.count else None,
        requests=shares.count,
    )


# Whether a server changed while a search measured it: a level of its answer is measured again at the end.


_LEAST_LEVELS = 2
"""Levels from which on a search measures an earlier one again."""

_MOST_P = 0.01
"""Largest p-value of a change: a search asks only once, and a steady server must not be suspected."""
_LEAST_PERCENT = 5.0
"""Smallest change of a token rate that is one: a smaller one alters no answer."""

_Load = TypeVar("_Load", int, float)
"""A load: a number of requests or agents, or a rate."""


def value_to_repeat(held: Mapping[_Load, bool], answer: _Load | None, newest: _Load | None) -> _Load | None:
    """Return the load to measure again at the end of a search; None if a change would not alter the answer.

    `held` is whether each load held when it was measured first, `answer` the largest that holds by all that
    is known, `newest` the load measured last. The largest that held is repeated: those that failed later may
    have failed because the server got slower. It is not repeated if nothing was measured after it.
    """
    again = max(
        (load for load, holds in held.items() if holds and (answer is None or load >= answer)), default=None
    )
    return again if len(held) >= _LEAST_LEVELS and again != newest else None


Times = tuple[str, str]
"""When a level was measured first and last, see `times_apart`."""


def measured_again(first: LevelResult, record: LevelRecord) -> LevelResult:
    """Return a level with the result `first` by the runs that were added to its `record` since."""
    again = [trace for trace in record.traces if trace.run >= first.runs]
    spans = {run: span for run, span in windows(record.starts, again).items() if run >= first.runs}
    return level_result(record.level, again, spans)


def rate_drift(first: LevelResult, last: LevelResult, times: Times) -> str | None:
    """Return how the token rate of a level changed, at p < 0.01 and by 5 % or more; else None."""
    metric = main_rate([first, last])
    ratio = None if metric is None else rate_ratio(last, first, metric)
    if metric is None or ratio is None or ratio.p is None:
        return None
    if ratio.p >= _MOST_P or not ratio.is_beyond(_LEAST_PERCENT):
        return None
    shown, rates = METRICS[metric], (first.rate(metric), last.rate(metric))
    means = [rate.mean for rate in rates if rate is not None]
    texts = [f"{shown.text(mean)} {shown.unit} at {at}" for mean, at in zip(means, times, strict=True)]
    return f"{changed_words(slower=ratio.percent < 0)}: {shown.title.lower()} {', '.join(texts)}"


def pace_drift(first: LevelResult, last: LevelResult, times: Times, max_error_share: float) -> str | None:
    """Return that a server did not keep up with a rate with which it had kept up; None if it did."""
    if not keeps_up(first, max_error_share) or keeps_up(last, max_error_share):
        return None
    loop = last.open_loop
    growth = f": {loop.growth_words}" if loop is not None and loop.growth_words else ""
    return f"it kept up with {first.point.label} at {times[0]}, not at {times[1]}{growth}"


def changed_words(*, slower: bool) -> str:
    """Return that a server changed during a search."""
    return f"the server got {'slower' if slower else 'faster'} while it was measured"


def times_apart(first: datetime, last: datetime) -> tuple[str, str]:
    """Return two times of day as text, with seconds where they are of the same minute."""
    near = f"{first:%H:%M}" == f"{last:%H:%M}"
    before, after = (f"{at.astimezone():{'%H:%M:%S' if near else '%H:%M'}}" for at in (first, last))
    return before, after


# Measures the levels that a capacity search chooses on one target, and stores the answer after each.


Measure = Callable[[LevelMaker, RunBatch, LevelRecord], Awaitable[LevelResult | None]]
"""Executes a batch of runs, and stores and returns the level's result; None if nothing was measured."""


class CapacityLevels(Struct, eq=False):
    """The levels of a search on one target; call `run` once."""

    maker: LevelMaker
    prepared: PreparedTarget
    measure: Measure
    builder: ResultBuilder
    """Gets the answer so far after each run."""
    _records: dict[float, LevelRecord] = field(default_factory=dict)
    _levels: dict[float, LevelResult] = field(default_factory=dict)
    _median_s: float | None = None
    """Median E2E of the newest level that has one; the next: requests per second at a load of 1."""
    _each_per_s: float | None = None
    _runs: dict[float, list[JudgedRun]] = field(default_factory=dict)
    """The runs of each level by its load, in order."""

    async def run(self) -> None:
        """Measure levels until the largest load under which the conditions hold is found.

        Where the search is for a rate, requests are sent one after the other first.
        """
        plan = self.maker.plan
        capacity = plan.capacity
        assert capacity is not None  # noqa: S101 - the caller's reason to search
        first = 1.0
        if capacity.kind is LoadKind.RATE:
            if alone_per_s := await self.maker.measure_alone(self.prepared):
                first = alone_per_s
                self._median_s = 1 / alone_per_s
        elif (most_connections := self.maker.worker.most_connections) is not None:
            capacity = replace(capacity, most=min(capacity.most, float(most_connections)))
        search, newest = CapacitySearch(capacity, first), None
        while (value := search.next()) is not None and not self.maker.cancellation.requested:
            decides = search.fails is not None
            self._announce_time_left(search, plan, value, decides=decides)
            judged = await self._measure_run(capacity, plan, value, decides=decides)
            if judged is None:
                break
            newest = value
            search.add(value, judged)
            self._store_answer(capacity_answer(search, self._levels, complete=False))
        ended = search.next() is None and not self.maker.cancellation.requested
        held = {load: first_run.holds for load, ((first_run, _), *_) in self._runs.items()}
        if ended and (largest := value_to_repeat(held, search.holds, newest)) is not None:
            # It is not counted for the answer: it shows whether the server is what it was at the start.
            await self._measure_run(capacity, plan, largest, decides=True)
        if search.judged:
            drift = drift_of(self._runs)
            self._store_answer(capacity_answer(search, self._levels, complete=ended, drift=drift))

    def _store_answer(self, answer: CapacityAnswer) -> None:
        self.builder.enter_capacity(self.prepared.target.name, answer)
        self.maker.emit(ResultChanged(self.builder.result))

    async def _measure_run(
        self, capacity: Capacity, plan: Plan, value: float, *, decides: bool
    ) -> LoadVerdict | None:
        """Make one more run of the level at a load; return the judgement by all its runs.

        Of a run that `decides`, the answer is near. None if it was not completed.
        """
        point, run = LoadPoint(capacity.kind, value), len(self._runs.get(value, ()))
        run_plan = self._level_plan(plan, value, decides=decides)
        level = plan.level(self.prepared.target.name, point)
        record = self._records.setdefault(value, LevelRecord(run_plan, self.prepared, level))
        batch = RunBatch(level, (run,), first=run == 0)
        self.maker.plan = run_plan
        try:
            made = await self.measure(self.maker, batch, record)
        except (TargetFailedError, LevelRefusedError) as error:
            self.builder.enter_failure(self.prepared.target.name, str(error))
            return None
        finally:
            self.maker.plan = plan
        if made is None or self.maker.cancellation.requested:
            return None
        self._levels[value] = made
        unstable = unstable_words(made)
        judged = judge(capacity, record.traces, max_error_share=run_plan.max_error_share, unstable=unstable)
        of_run = [trace for trace in record.traces if trace.run == run]
        alone = judge(capacity, of_run, max_error_share=run_plan.max_error_share)
        self._runs.setdefault(value, []).append((alone, datetime.now(UTC)))
        self._median_s = judged.median_s or self._median_s
        if judged.requests and (seconds := (run_plan.duration_s or 0.0) * (run + 1)):
            self._each_per_s = judged.requests / (value * seconds)
        return judged

    def _level_plan(self, plan: Plan, value: float, *, decides: bool) -> Plan:
        point = LoadPoint(plan.kind, value)
        return level_plan(plan, point, self._median_s, self._each_per_s, decides=decides)

    def _announce_time_left(self, search: CapacitySearch, plan: Plan, value: float, *, decides: bool) -> None:
        """Set how long the search may go on, which the maker announces with the levels.

        At a slow rate the next run lasts longer than the plan's levels, and those after it about as long.
        """
        next_s = self._level_plan(plan, value, decides=decides).duration_s or 0.0
        is_slow = plan.kind is LoadKind.RATE and decides
        usual_run_s = LEVEL_OVERHEAD * (next_s if is_slow else plan.duration_s or 0.0)
        longest_run_s = LEVEL_OVERHEAD * max(longest_seconds(plan), next_s)
        most_runs = search.runs_left()
        usual_runs = min(search.levels_left(), most_runs)

        def left_after(runs_made: int) -> TimeRange:
            least_s = max(0.0, (usual_runs - runs_made) * usual_run_s)
            most_s = max(1, most_runs - runs_made) * longest_run_s  # the present run at least
            return TimeRange(least_s, most_s)

        self.maker.left = left_after


def unstable_words(level: LevelResult) -> str:
    """Return why no latency of a rate counts: it is unstable, or the client's limit was reached; else ""."""
    loop = level.open_loop
    if loop is None or not (loop.unstable or loop.overloaded):
        return ""
    if loop.unstable:
        return f"unstable: {loop.growth_words}" if loop.growth_words else "unstable"
    return f"{loop.in_flight_limit} requests in flight, the limit of the client"
