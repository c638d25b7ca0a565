"""The levels of a sweep for the screen: their progress, rows of the table, timelines and details.

A *level* is one load on one target; it is measured in several *runs*, repetitions of this load. In
interleaved order the runs of different levels alternate. A *timeline* has a bar for each request of a run,
assembled while the run executes or read from a file. The *details* of a level are shown when its row is
opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any

from msgspec.structs import replace

from sparktop.graphics import numbers
from sparktop.model.judgement import is_too_scattered
from sparktop.model.load import AnswerRead, Level, LoadEvent, LoadMode, RequestEnded, RequestStarted
from sparktop.model.sweep import (
    BackendShare,
    ColumnRank,
    LevelEvidence,
    LevelState,
    PlannedLevel,
    RequestBar,
    ResultRow,
    Timeline,
    Value,
)
from sparktop.model.yardsticks import LIMIT, YARDSTICK_WORDS
from sparktop.sweep.compare.ratio import clearly_best, contenders, is_scattered, main_rate
from sparktop.sweep.plan.plan import Order, Plan, TargetKind
from sparktop.sweep.result.level import split_words
from sparktop.sweep.result.measure import RequestTrace, collect_into
from sparktop.sweep.result.results import (
    ComparisonResult,
    Latency,
    LevelResult,
    NodeSide,
    OpenLoopResult,
    Rate,
    ReplayResult,
    RequestColumns,
    ServerSide,
    SweepResult,
    YardstickSide,
    level_of,
)
from sparktop.sweep.run.progress import PhaseChanged, SweepPhase
from sparktop.sweep.terms.definitions import CALL_LATENCIES, MAIN_RATES, METRICS
from sparktop.sweep.view.marks import balance_fields, limit_words, marks_of
from sparktop.sweep.view.words import conversation_facts, conversation_figures, known_words

_STATES = {
    SweepPhase.WARMING_UP: LevelState.WARMING_UP,
    SweepPhase.CONTEXT: LevelState.RUNNING,
    SweepPhase.RUNNING: LevelState.RUNNING,
    SweepPhase.SETTLING: LevelState.SETTLING,
    SweepPhase.LEAVING: LevelState.SETTLING,
    SweepPhase.BESIDE: LevelState.SETTLING,
}
_IN_PROGRESS = frozenset(_STATES.values())


_FINAL = frozenset({LevelState.DONE, LevelState.CUT_SHORT, LevelState.REFUSED})


def planned_keys(plan: Plan) -> list[Level]:
    """Return the keys of a plan's levels in the order in which they begin.

    Return an empty list for a search, whose levels are not known in advance.
    """
    if plan.searches_concurrency_or_rate or plan.capacity is not None:
        return []
    names = [target.name for target in plan.targets]
    if plan.order is Order.ASCENDING:
        return [level for name in names for level in plan.levels(name)]
    return [level for levels in zip(*map(plan.levels, names), strict=True) for level in levels]


class LevelProgress:
    """The progress of each level of a running sweep, updated from its events."""

    def __init__(self, plan: Plan) -> None:
        """Start with the levels of `plan`, none of which has begun."""
        self.plan = plan
        self.present: Level | None = None
        """The level that is being measured; None before the first and between levels."""
        self._began_at: float | None = None
        """Time in monotonic seconds when the current run began; None between runs."""
        self._levels: dict[Level, PlannedLevel] = {}
        self._levels = {key: self._level(key) for key in planned_keys(plan)}

    def levels(self, now: float, ended: int) -> tuple[PlannedLevel, ...]:
        """Return all levels with their progress at the time `now`, in the order of the plan.

        `ended` is the number of requests of the current run that have ended.
        """
        level = None if self.present is None else self._levels.get(self.present)
        # Without a fixed number of runs, the completed share is unknown.
        if level is not None and self._began_at is not None and level.runs is not None:
            inside = self._share_of_run(level.key.point.most_in_flight, now - self._began_at, ended)
            share = None if inside is None else min(1.0, (level.runs_done + inside) / level.runs)
            self._store(replace(level, share=share))
        return tuple(self._levels.values())

    def enter_phase(self, event: PhaseChanged, now: float) -> None:
        """Record that the sweep entered another phase, such as warming up or running a level, at `now`.

        A measured run ends with its phase.
        """
        key, state = event.level, _STATES.get(event.phase)
        if key is None or state is None:
            return
        previous = None if self.present is None else self._levels.get(self.present)
        if previous is not None:
            if self._began_at is not None:
                runs_done = previous.runs_done + 1
                share = None if previous.runs is None else min(1.0, runs_done / previous.runs)
                previous = replace(previous, runs_done=runs_done, share=share)
            if previous.key != key and previous.state in _IN_PROGRESS:
                previous = replace(previous, state=LevelState.PART)
            self._store(previous)
        self.present = key
        self._began_at = now if event.phase is SweepPhase.RUNNING else None
        level = self._level(key)
        self._store(replace(level, state=state, runs=event.runs or level.runs))

    def _level(self, key: Level) -> PlannedLevel:
        """Return the level `key`; one that was not planned has not begun."""
        runs = self.plan.runs_of(key.point.most_in_flight)
        return self._levels.get(key) or PlannedLevel(key, runs=runs, share=0.0)

    def _store(self, level: PlannedLevel) -> None:
        """Store the new state of a level; insert a level that was not planned in order of concurrency.

        The order is that among the levels of the same target and prompt length; without these, the level
        comes last.
        """
        keys = list(self._levels)
        if level.key not in keys:
            group = level.key.target, level.key.pp
            alike = [index for index, key in enumerate(keys) if (key.target, key.pp) == group]
            below = [index for index in alike if keys[index].point < level.key.point]
            keys.insert(below[-1] + 1 if below else min(alike, default=len(keys)), level.key)
        self._levels[level.key] = level
        self._levels = {key: self._levels[key] for key in keys}

    def store_result(self, key: Level, measured: LevelResult) -> None:
        """Record the result of the level `key`, which is complete or was cut short."""
        level, state = self._level(key), measured_state(measured)
        share = level.share if state is LevelState.CUT_SHORT else 1.0
        self._store(replace(level, state=state, runs_done=measured.runs, share=share))
        if self.present == key:
            self.present = None

    def end_sweep(self, result: SweepResult) -> None:
        """Record the end of the sweep: give each unfinished level its final state.

        The state is `LEFT_OUT` if the level's target failed, else `NOT_MADE`: no run of it is in the result.
        """
        self.present = None
        self._levels = {key: _level_at_end(level, result) for key, level in self._levels.items()}

    def leave_out(self, target: str) -> None:
        """Mark the unfinished levels of `target` as left out: the sweep continues without this target."""
        for key, level in self._levels.items():
            if key.target == target and level.state not in _FINAL:
                self._levels[key] = replace(level, state=LevelState.LEFT_OUT)

    def _share_of_run(self, concurrency: int, since_s: float, ended: int) -> float | None:
        """Return the completed part (0 to 1) of the current run; None if unknown.

        `since_s` is the time in seconds since the run began, `ended` the number of its requests that have
        ended.
        """
        plan = self.plan
        if plan.mode is LoadMode.BURST:
            return min(1.0, ended / concurrency)
        if plan.duration_s is not None:
            return min(1.0, since_s / plan.duration_s)
        return min(1.0, ended / plan.requests) if plan.requests else None


def measured_state(level: LevelResult) -> LevelState:
    """Return the state of a level that was made: done, cut short, or refused by the server."""
    if level.error is not None:
        return LevelState.REFUSED
    return LevelState.CUT_SHORT if level.is_cut_short else LevelState.DONE


def _level_at_end(level: PlannedLevel, result: SweepResult) -> PlannedLevel:
    if level.state in _FINAL:
        return level
    target = result.target(level.key.target)
    if target is not None and target.error is not None:
        return replace(level, state=LevelState.LEFT_OUT)
    return replace(level, state=LevelState.NOT_MADE)


def stored_levels(result: SweepResult) -> tuple[PlannedLevel, ...]:
    """Return the levels of a stored result with their state, also those planned but not measured."""
    plan = result.plan
    searched = result.slo is not None or result.capacity is not None
    made: dict[Level, PlannedLevel] = {}
    for target in result.targets:
        for level in target.levels if searched else target.in_order():
            key = level_of(level, target.name, plan)
            state = measured_state(level)
            share = level.runs / plan.runs if state is LevelState.CUT_SHORT and plan.runs else 1.0
            made[key] = PlannedLevel(key, state, level.runs, plan.runs, min(1.0, share))
    if searched or plan.pp is None:
        return tuple(made.values())
    names = plan.targets or tuple(target.name for target in result.targets)
    keys = [Level(name, point, plan.pp, plan.tg) for name in names for point in plan.axis]
    if plan.order is Order.ABBA:
        keys.sort(key=lambda key: key.point)
    planned = {key: _level_at_end(PlannedLevel(key, runs=plan.runs, share=0.0), result) for key in keys}
    return tuple((planned | made).values())


RANKED = (*MAIN_RATES, "prefill_tps", "peak_tps", "ttft_ms")
"""Metrics whose best value is marked in the table."""


def result_rows(
    result: SweepResult, unfinished: Iterable[Level] = (), comparison: ComparisonResult | None = None
) -> tuple[ResultRow, ...]:
    """Return a row per level, target by target; levels in `unfinished` are marked as incomplete.

    `comparison` is the comparison of the sweep's targets, if it has several.
    """
    incomplete = set(unfinished)
    levels = {
        level_of(level, target.name, result.plan): level
        for target in result.targets
        for level in target.in_order()
    }
    able = set(map(id, contenders(list(levels.values()))))
    ranks = ranks_of({key: level.figures for key, level in levels.items() if id(level) in able}, comparison)
    rate = main_rate(list(levels.values()))
    return tuple(
        replace(_result_row(key, level, incomplete), ranks=ranks.get(key, {}), rate=rate)
        for key, level in levels.items()
    )


def _result_row(key: Level, level: LevelResult, unfinished: set[Level]) -> ResultRow:
    loop, requests = level.open_loop, level.requests
    ttft = level.ttft_ms if loop is None else level.ttft_due_ms
    return ResultRow(
        key=key,
        figures=level.figures,
        conversations=conversation_figures(level),
        error=level.error,
        ttft_p50_ms=None if ttft is None else ttft.p50,
        ttft_p95_ms=None if ttft is None else ttft.p95,
        ttft_growth=None if loop is None else loop.ttft_growth,
        stream_p50_tps=None if level.stream_tps is None else level.stream_tps.p50,
        spec_accept_percent=None if level.server is None else level.server.spec_accept_percent,
        beside_itl_ms=None if level.beside is None else level.beside.mean_itl_ms,
        runs=level.runs,
        ok=requests.ok,
        failed=requests.failed,
        cancelled=requests.cancelled,
        marks=marks_of(level),
        complete=key not in unfinished,
    )


def ranks_of(
    figures: Mapping[Level, Mapping[str, Value]], comparison: ComparisonResult | None = None
) -> dict[Level, dict[str, ColumnRank]]:
    """Return the ranks of levels by key, then by metric: the best value, and those not clearly worse.

    Values are ranked among levels of the same prompt length and depth. Whether two targets differ clearly
    under the same load is taken from `comparison`, so that no table says another thing than the comparison.
    """
    ranks: dict[Level, dict[str, ColumnRank]] = {key: {} for key in figures}
    groups: dict[tuple[int | None, int], list[Level]] = {}
    for key in figures:
        groups.setdefault((key.pp, key.depth), []).append(key)
    for keys in groups.values():
        for metric in RANKED:
            with_metric = [key for key in keys if metric in figures[key]]
            if len(with_metric) < 2:  # noqa: PLR2004 - the best of one says nothing
                continue
            choose = max if METRICS[metric].more_is_better else min
            best_key = choose(with_metric, key=lambda key: figures[key][metric].mean)
            for key in with_metric:
                if key == best_key:
                    ranks[key][metric] = ColumnRank.BEST
                elif (rank := _rank_beside(key, best_key, metric, figures, comparison)) is not None:
                    ranks[key][metric] = rank
    return ranks


def _rank_beside(
    key: Level,
    best: Level,
    metric: str,
    figures: Mapping[Level, Mapping[str, Value]],
    comparison: ComparisonResult | None,
) -> ColumnRank | None:
    """Return the rank of the level `key` beside the level `best`; None if it is worse, or not testable."""
    if comparison is not None and key.point == best.point and key.target != best.target:
        row = comparison.row(metric, key.point, key.pp, key.depth)
        if row is not None and row.ahead == best.target and row.significant is not None:
            if key.target in row.beats:
                return None
            ratio = figures[best][metric].mean / (figures[key][metric].mean or 1.0)
            # The interval of a ratio that is not clear goes from beyond the ratio to beyond 1.
            interval = row.ratio_ci95 if key.target == row.against else (ratio, ratio)
            return ColumnRank.SCATTERED if is_too_scattered(interval) else ColumnRank.TIED
    values = figures[best][metric], figures[key][metric]
    if clearly_best(*values) is not False:
        return None
    return ColumnRank.SCATTERED if is_scattered(*values) else ColumnRank.TIED


MOST_BARS = 5000
"""Maximum number of bars of a run: more would not be legible."""


Runs = dict[int, dict[str, RequestTrace]]
"""The requests of measured runs of a level, by number of the run, then by name of the request."""


def take_request(runs: Runs, event: LoadEvent) -> float | None:
    """Update `runs` from a load event of their level; return the TTFT in ms of a first token, else None."""
    if isinstance(event, RequestStarted):
        traces = runs.setdefault(event.run, {})
        if len(traces) < MOST_BARS:
            collect_into(traces, event)
    elif isinstance(event, AnswerRead | RequestEnded):
        # Newest first: most requests in progress belong to that run.
        traces = next((traces for traces in reversed(runs.values()) if event.request_id in traces), {})
        trace = traces.get(event.request_id)
        waited = trace is not None and trace.first_token is None
        collect_into(traces, event)
        if trace is not None and waited and trace.first_token is not None:
            return 1000 * (event.at - (trace.start if trace.due is None else trace.due))
    return None


def running_timelines(
    key: Level, runs: Runs, now: float, prefill_s: Mapping[str, float] | None, only: str | None
) -> tuple[Timeline, ...]:
    """Return a timeline for each run of the level `key`; requests that still run are drawn up to `now`.

    `prefill_s` has the mean prefill time in seconds that each server reports; None before the level is
    measured. The part of a request's time to first token that exceeds its server's mean is shown as waiting.
    `only` is the only backend that can have answered, used if the answer names none; None if there are
    several or it is unknown.
    """
    bars = {
        run: [
            RequestBar(
                trace.start,
                trace.first_token,
                None if trace.ended is None else trace.ended.at,
                backend=trace.served_by or only,
                ok=trace.ended is None or trace.ok,
            )
            for trace in traces.values()
        ]
        for run, traces in runs.items()
        if traces
    }
    return _timelines(key, bars, now, prefill_s)


def _timelines(
    key: Level,
    runs: Mapping[int, list[RequestBar]],
    now: float | None,
    prefill_s: Mapping[str, float] | None,
) -> tuple[Timeline, ...]:
    """Return a timeline for each run, whose bars have times of any one clock, as `now`."""
    # The names of all runs are used, so that each server has the same letter in all timelines.
    served_by = {bar.backend for bars in runs.values() for bar in bars if bar.backend is not None}
    servers = tuple(sorted(served_by | set(prefill_s or {})))
    timelines = []
    for run, unsorted_bars in sorted(runs.items()):
        bars = sorted(unsorted_bars, key=lambda bar: bar.start_s)
        began, ends = bars[0].start_s, [bar.end_s for bar in bars if bar.end_s is not None]
        until = max(ends, default=bars[-1].start_s)
        if now is not None and len(ends) < len(bars):
            until = now
        notes = [_waiting_note(prefill_s)]
        if len(bars) >= MOST_BARS:
            notes.append(f"the first {MOST_BARS} requests of the run")
        shown_bars = tuple(_since_begin(bar, began, prefill_s or {}) for bar in bars)
        timelines.append(Timeline(key, run, shown_bars, max(0.0, until - began), servers, tuple(notes)))
    return tuple(timelines)


def _waiting_note(prefill_s: Mapping[str, float] | None) -> str:
    """Return how waiting is told from prefill, or why it is not."""
    if not prefill_s:
        why = "the level is not measured yet" if prefill_s is None else "no server reports its prefill time"
        return f"{why}: waiting and prefill are drawn as one"
    means = ", ".join(f"{name} {1000 * value:.0f} ms" for name, value in sorted(prefill_s.items()))
    return (
        f"waiting is estimated: what the time to first token has beyond the server's mean prefill ({means})"
    )


def _since_begin(bar: RequestBar, began: float, prefill_s: Mapping[str, float]) -> RequestBar:
    first, end, prefill, queue = bar.first_token_s, bar.end_s, prefill_s.get(bar.backend or ""), None
    if prefill is not None and first is not None:
        queue = max(0.0, first - bar.start_s - prefill)
    return replace(
        bar,
        start_s=bar.start_s - began,
        first_token_s=None if first is None else first - began,
        end_s=None if end is None else end - began,
        queue_s=queue,
    )


def stored_prefill_s(level: LevelResult) -> dict[str, float]:
    """Return the mean prefill time in seconds by server; servers that do not report it are left out."""
    sides = level.backends.items()
    return {name: side.prefill_ms / 1000 for name, side in sides if side.prefill_ms is not None}


def stored_timelines(key: Level, level: LevelResult, only: str | None) -> tuple[Timeline, ...]:
    """Return a timeline for each run of a stored level; () if the file has no start times.

    `only` is the only backend that can have answered a request, used if the answer named none.
    """
    runs: dict[int, list[RequestBar]] = {}
    for part in (level.each, level.uncounted):
        if part is not None:
            for run, stored in _stored_requests(part, only):
                runs.setdefault(run, []).append(stored)
    return _timelines(key, runs, None, stored_prefill_s(level))


def _stored_requests(part: RequestColumns, only: str | None) -> Iterator[tuple[int, RequestBar]]:
    """Yield (run number, bar) for each stored request; times are in seconds from the start of its run.

    `only` is the only backend that can have answered, used if the file names none.
    """
    oks = part.ok or (True,) * len(part.run)
    places = part.served_by or repeat(None)
    requests = zip(part.run, part.start_ms, part.ttft_ms, part.e2e_ms, places, oks, strict=False)
    for run, start_ms, ttft_ms, e2e_ms, index, ok in requests:
        if start_ms is None:
            continue
        start = start_ms / 1000
        backend = part.backends[index] if index is not None and 0 <= index < len(part.backends) else only
        first_token_s = None if ttft_ms is None else start + ttft_ms / 1000
        end = None if e2e_ms is None else start + e2e_ms / 1000
        yield run, RequestBar(start, first_token_s, end, backend=backend, ok=ok)


_RATES = ("decode_tps", "sustained_tps", "pure_decode_tps", "prefill_tps", "peak_tps")
_LATENCIES = (*CALL_LATENCIES, "ttft_due_ms", "e2e_due_ms", "ttft_ms", "itl_ms", "e2e_ms", "client_wait_ms")


def measured_level(result: SweepResult, key: Level) -> LevelResult | None:
    """Return the result of a level; None if it was not measured."""
    target = result.target(key.target)
    levels = () if target is None else target.levels
    return next((level for level in levels if level_of(level, key.target, result.plan) == key), None)


def stored_evidence(result: SweepResult, key: Level) -> LevelEvidence | None:
    """Return the details of a level of a stored result; None if the result has no such level."""
    level = measured_level(result, key)
    if level is None:
        return None
    row = next(row for row in result_rows(result) if row.key == key)
    timelines = stored_timelines(key, level, _only_server(result, key, level))
    reason = None
    if level.error is not None:
        reason = "it was left out: the server does not take its requests"
    elif not timelines:
        reason = (
            "the file is older than this picture: it keeps no starts of requests"
            if level.each is not None
            else "too many requests to keep"
        )
    return LevelEvidence(row, **evidence_of(level), timelines=timelines, why_no_timeline=reason)


def evidence_of(level: LevelResult | None) -> dict[str, Any]:
    """Return the fields of a `LevelEvidence` that a measured level has; {} for None."""
    if level is None:
        return {}
    facts, shares = tuple(level_facts(level)), stored_shares(level)
    return {"facts": facts, "shares": shares, **balance_fields(level)}


def _only_server(result: SweepResult, key: Level, level: LevelResult) -> str | None:
    """Return the name of the only server that received load at a level; None for several, or if unknown."""
    if level.backends:
        return next(iter(level.backends)) if len(level.backends) == 1 else None
    target = result.target(key.target)
    return key.target if target is not None and target.kind is TargetKind.ENGINE else None


def stored_shares(level: LevelResult) -> tuple[BackendShare, ...]:
    """Return the stored activity of each server behind the target: requests, batch, queue, KV cache.

    The servers are sorted by name; unknown values are None.
    """
    shares = []
    for name in level.known_servers:
        side = level.backends.get(name) or ServerSide()
        requests, batch = level.served_by.get(name), level.busy_batch.get(name)
        queue = side.running_max, side.waiting_max, side.kv_cache_max_percent
        shares.append(BackendShare(name, requests, batch, *queue))
    return tuple(shares)


def level_facts(level: LevelResult) -> Iterator[tuple[str, str]]:
    """Yield (name, text) for each metric and fact of a level, the most important first.

    Yield nothing if the server refused the level's requests.
    """
    if level.error is not None:
        return
    facts = [
        ("Arrivals", _arrivals_words(level.open_loop)),
        ("Trace", _replay_words(level.trace, level.replay)),
        *conversation_facts(level),
        *_client_facts(level),
        ("Router adds", overhead_words(level)),
        ("Server", _server_words(level.server)),
        ("Limit", limit_words(level)),
        *((name, _node_words(side)) for name, side in level.hardware.items()),
        *(("Compared", _yardstick_words(yardstick)) for yardstick in level.yardsticks),
    ]
    yield from ((name, words) for name, words in facts if words)


def _yardstick_words(yardstick: YardstickSide) -> str:
    """Return a yardstick in words: "62 % of its own best, 150 tok/s: 8 running, 2026-11-03"."""
    name = YARDSTICK_WORDS.get(yardstick.name, yardstick.name)
    if yardstick.percent is None or yardstick.tps is None:
        # A server may be limited by its bandwidth where its tok/s at that limit are not known.
        what = "tok/s that the memory bandwidth allows" if yardstick.name == LIMIT else name
        return f"{what}: {yardstick.source}"
    return f"{yardstick.percent:.0f} % of {name}, {yardstick.tps:.1f} tok/s: {yardstick.source}"


def _arrivals_words(open_loop: OpenLoopResult | None) -> str:
    """Return the rates of an open-loop level, its requests in flight, and how its TTFT grows."""
    if open_loop is None:
        return ""
    parts = known_words(
        ("{:.2f} /s arrived", open_loop.arrived_per_s),
        ("{:.2f} /s completed", open_loop.completed_per_s),
        ("in flight {:.1f}", open_loop.in_flight_mean),
        ("at most {:.0f} in flight", open_loop.in_flight_max),
        ("{:.0f} unanswered", open_loop.unanswered or None),
    )
    return "; ".join([*parts, open_loop.growth_words] if open_loop.unstable else parts)


def _replay_words(name: str | None, replay: ReplayResult | None) -> str:
    """Return what a replay of recorded traffic shows: its cache hits, and requests that were not served."""
    if replay is None:
        return ""
    cached = known_words(
        ("{:.0f} % of the prompt tokens cached", replay.cached_percent),
        (" ({:.0f} % are repeated)", None if replay.cached_percent is None else replay.repeated_percent),
    )
    others = known_words(
        ("{:,} requests beyond the context", replay.beyond_context or None),
        ("{:,} turns not due", replay.not_due or None),
    )
    return ", ".join(filter(None, (name or "recorded traffic", "".join(cached), *others)))


def overhead_words(level: LevelResult) -> str | None:
    """Return a text for the latency that a router adds and how it was measured; None if unknown."""
    added_ms = level.own_overhead_ms
    if added_ms is None:
        return None
    if level.router_overhead_from == "router":
        milliseconds_added = "less than 1 ms" if added_ms < 1 else f"{added_ms:.0f} ms"
        return f"{milliseconds_added} by its own count"
    return f"{numbers.signed(added_ms)} ms to the median TTFT"


def _client_facts(level: LevelResult) -> Iterator[tuple[str, str]]:
    """Yield (name, text) for the metrics measured by the load generator, and for the requests by backend."""
    for name in _RATES:
        if (rate := level.rate(name)) is not None:
            yield METRICS[name].title, _rate_words(name, rate)
    for name in _LATENCIES:
        if (latency := level.latency(name)) is not None:
            yield METRICS[name].title, _latency_words(name, latency)
    if level.stream_tps is not None and level.stream_tps.p50 is not None:
        slow = level.stream_tps.p10
        words = f"p50 {level.stream_tps.p50:.1f} tok/s"
        yield "Each stream", words if slow is None else f"{words}, p10 {slow:.1f}"
    requests = level.requests
    again = f"; {requests.resent} sent again: their idle connection was closed" if requests.resent else ""
    yield "Requests", f"{requests.ok} ok, {requests.failed} failed, {requests.cancelled} cancelled{again}"
    split = split_words(level)
    if split is not None:
        names = level.known_servers
        counts = ", ".join(":".join(str(run.get(name, 0)) for name in names) for run in level.runs_split)
        yield "Run by run", f"{split}; {':'.join(names)} = {counts}"


def _rate_words(name: str, rate: Rate) -> str:
    metric = METRICS[name]
    words = f"{metric.text(rate.mean)} {metric.unit}"
    if rate.ci95 is None:
        return f"{words}, a single run"
    ends = f"{metric.text(rate.ci95[0])} to {metric.text(rate.ci95[1])}"
    meaning = f": {metric.meaning}" if name == "pure_decode_tps" else ""
    return f"{words} (95 % CI {ends}, {len(rate.values)} runs){meaning}"


def _latency_words(name: str, latency: Latency) -> str:
    text = METRICS[name].text
    parts = (("mean", latency.mean), ("p50", latency.p50), ("p95", latency.p95), ("max", latency.max))
    return f"{', '.join(f'{word} {text(value)}' for word, value in parts if value is not None)} ms"


def _server_words(server: ServerSide | None) -> str:
    if server is None:
        return ""
    parts = known_words(
        ("running up to {:.0f}", server.running_max),
        ("waiting up to {:.0f}", server.waiting_max),
        ("preemptions {:.0f}", server.preemptions),
        ("KV {:.0f} %", server.kv_cache_max_percent),
        ("cache hits {:.0f} %", server.prefix_cache_hit_percent),
    )
    return ", ".join(parts)


def _node_words(side: NodeSide) -> str:
    headroom = side.headroom_min_bytes
    parts = known_words(
        ("GPU up to {:.0f} °C", side.gpu_c_max),
        ("mean {:.0f} W", side.power_w_mean),
        ("mean SM clock {:.0f} MHz", side.sm_clock_mhz_mean),
        ("throttled {:.0f} %", side.throttled_percent or None),
        ("least memory left {}", None if headroom is None else numbers.data(headroom, 9).strip()),
    )
    return ", ".join(parts) or numbers.UNKNOWN
