"""One level on one target: its runs are executed, recorded, and summed up to its result."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from statistics import fmean
from time import monotonic

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import JsonValue

from sparktop.analysis.yardsticks import busy_cores, words, yardsticks
from sparktop.graphics.numbers import count_words
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.instant import TimeRange
from sparktop.model.load import (
    AnswerRead,
    Level,
    LoadEvent,
    LoadKind,
    LoadMode,
    RequestEnded,
    RunStarted,
    concurrency_point,
)
from sparktop.model.node import NodeSample
from sparktop.model.series import known_max, known_mean, sum_if_all_known
from sparktop.model.snapshot import LimitKind
from sparktop.model.sweep import value_of
from sparktop.model.targets import ModelFacts
from sparktop.model.yardsticks import LIMIT
from sparktop.store import Reading, SourceKey
from sparktop.store.sources import SourceKind
from sparktop.sweep.compare.ratio import ratio_of
from sparktop.sweep.generator.wire import (
    LONG,
    Batch,
    Cancel,
    RunFinished,
    RunLoad,
    WorkerMessage,
)
from sparktop.sweep.plan.plan import ENOUGH_S, Plan, RunBatch, TargetKind
from sparktop.sweep.result.level import level_result, run_starts, uncounted_columns
from sparktop.sweep.result.measure import RequestTrace, by_run, gaps_s, run_duration_s
from sparktop.sweep.result.open_loop import windows
from sparktop.sweep.result.results import (
    BesideResult,
    Latency,
    LeftRequests,
    LevelResult,
    LimitSide,
    ServerSide,
    YardstickSide,
)
from sparktop.sweep.run.depth import context_part
from sparktop.sweep.run.forecast import MOST_RUNS, Estimate
from sparktop.sweep.run.guard import Cancellation, Early, GuardWatch
from sparktop.sweep.run.open_loop import draw_seed, ramp_s, tail_s, with_replay
from sparktop.sweep.run.preparation import PreparedTarget
from sparktop.sweep.run.progress import Notice, PhaseChanged, SweepEvent, SweepPhase
from sparktop.sweep.run.router_side import BackendNames, backend_errors, router_side
from sparktop.sweep.run.server_side import (
    Counters,
    ServerLog,
    ServerPoint,
    Span,
    busy_batch,
    in_flight,
    is_mdns,
    level_limit,
    most_at_once,
    node_side,
    queue_reason,
    sums_at_same_time,
)
from sparktop.sweep.run.validity import (
    LevelFacts,
    judge,
    notes_on,
    with_servers,
)
from sparktop.sweep.run.worker_process import RunRecord, SweepWorker, WorkerGoneError
from sparktop.sweep.terms.request_errors import CANCELLED, count_errors, is_refusal


def use_watched_names(message: WorkerMessage, names: BackendNames | None) -> WorkerMessage:
    """Return a message with names of watched backends in place of the ids or URLs that a router reports."""
    if names is None or not isinstance(message, Batch):
        return message
    events = (
        replace(event, served_by=names.name(event.served_by))
        if isinstance(event, RequestEnded) and event.served_by is not None
        else event
        for event in message.events
    )
    bins = (replace(token_bin, served_by=names.name(token_bin.served_by)) for token_bin in message.bins)
    return replace(message, events=tuple(events), bins=tuple(bins))


_MOST_STRETCH = 2.0
"""Most time from the first run of a level to its last, pauses included, divided by the planned duration."""
_TOO_FEW_SENT = {LimitKind.CLIENT, LimitKind.CLIENT_OR_ROUTER}
"""Limits that mean that the servers could have done more."""


def limit_side(
    prepared: PreparedTarget,
    log: ServerLog,
    runs: Sequence[Span],
    busy: Mapping[str, float],
    most_at_once: int,
) -> LimitSide | None:
    """Return what held the servers of `prepared` back in a level; None if unknown.

    `runs` has the span of time of each run, from its first request to the end of its last, with the times
    between in which no user asked. `busy` has the mean batch size by server, `most_at_once` the largest
    number of requests in flight.
    """
    names, target = prepared.backends, prepared.target
    machines = {name: prepared.machines_of.get(name, ()) for name in names}
    router = target.name if target.kind is TargetKind.ROUTER else None
    limits = log.limits(machines, prepared.slots, runs, router)
    if not limits:
        return None
    name, limit = level_limit(limits, busy)
    if limit.kind in _TOO_FEW_SENT and most_at_once < len(names):
        count = "one request" if most_at_once == 1 else f"{most_at_once} requests"
        reason = f"{count} at a time cannot keep {len(names)} servers busy"
        return LimitSide(kind=LimitKind.CLIENT.value, reason=reason)
    server = name if len(names) > 1 else None
    return LimitSide(kind=limit.kind.value, reason=limit.reason, hint=limit.hint, server=server)


_PERCENT = 100.0


_Samples = Mapping[str, list[ServerPoint]]
"""The samples of each server of a target that were taken during measured runs."""


class LevelRecord(Struct, eq=False):
    """Collects the load runs and server counters of one level on one target.

    `result` can be called at any time, also after an interruption.
    """

    plan: Plan
    prepared: PreparedTarget
    level: Level
    starts: list[RunStarted] = field(default_factory=list)
    """The starts of completed measured runs, or of an interrupted one if none was completed."""
    traces: list[RequestTrace] = field(default_factory=list)
    """Requests of completed measured runs, with the time of every token."""
    lasted_s: float = 0.0
    """Seconds that the completed runs lasted together, from the first start to the last end of each."""
    warm_ups: list[RequestTrace] = field(default_factory=list)
    contexts: list[RequestTrace] = field(default_factory=list)
    """Requests that sent contexts alone, before the measured runs."""
    cut: list[RequestTrace] = field(default_factory=list)
    """Requests of an interrupted run."""
    spans: list[Span] = field(default_factory=list)
    """Start and end of each measured run, completed or cancelled."""
    facts: LevelFacts = field(default_factory=LevelFacts)
    """What a judgement of the result needs beside its metrics, as far as no sample is needed for it."""
    growth: dict[str, Counters] = field(default_factory=dict)
    """Growth of each server's counters over all batches, warm-up included, to compare with all requests."""
    measured: dict[str, Counters] = field(default_factory=dict)
    """Growth of each server's counters over measured runs only, from which the level's metrics are
    computed."""
    left: LeftRequests | None = None
    """What the servers did after a hang-up."""
    beside: BesideResult | None = None
    """What the same load showed while long prompts arrived."""

    @property
    def most_in_flight(self) -> int:
        """The most requests in flight."""
        return self.level.point.most_in_flight

    @property
    def runs(self) -> int:
        """Number of measured runs that were completed."""
        return len(self.facts.run_s)

    def add_run(self, record: RunRecord, phase: SweepPhase) -> None:
        """Add a load run of a phase, completed or interrupted."""
        traces = record.traces()
        if phase is not SweepPhase.RUNNING:
            unmeasured_traces = self.contexts if phase is SweepPhase.CONTEXT else self.warm_ups
            unmeasured_traces += traces
            return
        starts, end = [event for event in record.events if isinstance(event, RunStarted)], record.finished
        if not self.runs or (end is not None and not end.cancelled):
            self.starts += starts
        if end is not None:
            # Warm-up calls of agents precede the measured time.
            measured = starts[0].measured if starts and self.plan.mode is LoadMode.AGENTS else None
            self.spans.append(measured or (end.started_at, end.ended_at))
            self.facts.health.append(end.health)
        if end is not None and not end.cancelled:
            self.traces += traces
            self.lasted_s += sum(map(run_duration_s, by_run(traces)))
            self.facts.run_s.append(end.ended_at - end.started_at)
        else:
            self.cut += traces

    def add_growth(
        self,
        before: Mapping[str, ServerPoint],
        warm: Mapping[str, ServerPoint],
        after: Mapping[str, ServerPoint],
    ) -> None:
        """Add how much the servers' counters grew over a batch of runs of the level.

        Each argument has one sample per server, taken while the server was idle: `before` before the batch,
        `warm` after the warm-up run of the batch, and `after` after the batch. Of a batch that was stopped
        `warm` is empty, and `after` has the newest samples.
        """
        for name in self.prepared.backends:
            first, middle, last = before.get(name), warm.get(name), after.get(name)
            if first is None or last is None:
                continue
            grown = last.counters.since(first.counters)
            anew = None not in {first.start_time, last.start_time} and first.start_time != last.start_time
            self.facts.fell |= anew or grown.has_fallen()
            _add_counters(self.growth, name, grown)
            if middle is not None:
                measured = last.counters.since(middle.counters)
                self.facts.fell |= measured.has_fallen()
                _add_counters(self.measured, name, measured)

    def result(self, log: ServerLog, models: Mapping[str, ModelFacts]) -> LevelResult:
        """Return the level's result so far: metrics, what servers and machines reported, reasons to doubt.

        `log` has the samples, `models` has known facts by model name.
        """
        # An interrupted run is used only if there is no complete one: its time windows are cut short.
        traces = self.traces if self.runs else self.cut
        spans = windows(self.starts, traces, is_cut=not self.runs)
        result = level_result(self.level, traces, spans, mode=self.plan.mode)
        if self.runs and self.cut:
            result = _add_partial_requests(result, level_result(self.level, self.cut, mode=self.plan.mode))
            failed = [trace for trace in self.traces if not trace.ok]
            uncounted = uncounted_columns([*failed, *self.cut], run_starts(self._requests()))
            result = result.model_copy(update={"uncounted": uncounted})
        samples = {name: log.servers(name, self.spans) for name in self.prepared.backends}
        requests = self._requests()
        loaded = in_flight((trace.start, trace.end) for trace in requests)
        ran = [
            (min(trace.start for trace in run), max(trace.end for trace in run)) for run in by_run(requests)
        ]
        facts = self._facts_with_samples(log, samples, loaded)
        served = dict(result.served_by)
        if not served and not facts.fell and self.prepared.target.kind is TargetKind.ROUTER:
            counts = {name: grown.finished or 0.0 for name, grown in self.measured.items()}
            served = {name: round(count) for name, count in counts.items() if count > 0}
        batches = self._busy_batches(samples)
        grown = None if facts.fell else facts.growth
        result = with_servers(result, self.plan, self.prepared.kv_capacity_tokens, grown)
        measured, context = self._measured_growth(), self.prepared.result.context_tokens
        result = with_replay(result, self.plan, traces, spans, context, measured, is_cut=not self.runs)
        compared, is_alone = self._compare_with_yardsticks(result), self.level.point == concurrency_point(1)
        of_limit = (side.percent for side in compared if is_alone and side.name == LIMIT)
        result = result.model_copy(
            update={
                "served_by": served,
                "busy_batch": batches,
                "server": self._server_side(samples),
                "backends": {
                    name: self._backend_side(name, points) for name, points in samples.items() if points
                },
                "hardware": facts.hardware,
                "padding_percent": self._padding_percent(models),
                "roofline_percent": next(of_limit, None),
                "yardsticks": compared,
                "balance": self._router_side(samples, traces, result),
                "context": context_part(self.level, self.contexts, self.traces, self._measured_growth()),
                "left": self.left,
                "beside": self.beside,
                "limited_by": limit_side(self.prepared, log, ran, batches, self.most_in_flight),
            }
        )
        judged = {"validity": judge(self.plan, result, facts), "notes": notes_on(result, facts)}
        return result.model_copy(update=judged)

    def _facts_with_samples(self, log: ServerLog, samples: _Samples, loaded: Sequence[Span]) -> LevelFacts:
        """Return the `facts` with what counters and samples of servers and machines add to them."""
        nodes = {name: log.nodes(name, loaded) for name in self.prepared.nodes}
        traces = [*self.warm_ups, *self.contexts, *self._requests()]
        asked_tokens = self.plan.tg if self.plan.trace is None else self.plan.trace.longest_answer
        if any(trace.call is not None for trace in traces):
            asked_tokens = max(trace.tokens for trace in traces)  # their lengths vary
        broken = [trace for trace in traces if not trace.ok]
        prompts = [trace.prompt_tokens for trace in traces if trace.arrivals]
        return replace(
            self.facts,
            generated_tokens=sum(trace.tokens for trace in traces),
            prompt_tokens=sum_if_all_known(prompts) if prompts else 0,
            most_tokens=asked_tokens * len(traces),
            open_tokens=max(0, asked_tokens * len(broken) - sum(trace.tokens for trace in broken)),
            open_requests=len(broken),
            growth=self._sum_over_servers(self.growth),
            measured=self._sum_over_servers(self.measured),
            queues=self._queue_reasons(samples),
            hardware={name: node_side(taken) for name, taken in nodes.items() if taken},
            mdns=is_mdns(self.prepared.target.url),
            routed=self.prepared.target.kind is TargetKind.ROUTER,
        )

    def _requests(self) -> list[RequestTrace]:
        """Return all requests of measured runs, including interrupted ones."""
        return [*self.traces, *self.cut]

    def _queue_reasons(self, samples: _Samples) -> dict[str, str | None]:
        """Return for each server of the target why requests queued at it; None: none did."""
        names = self.prepared.backends
        spans: dict[str, list[Span]] = {}
        for request in self._requests():
            name = request.served_by if len(names) > 1 else next(iter(names), None)
            if name is not None:
                spans.setdefault(name, []).append((request.start, request.end))
        return {
            name: queue_reason(
                samples[name],
                self.prepared.slots.get(name),
                most_at_once(spans.get(name, ())) if spans else None,
                self.most_in_flight,
            )
            for name in names
        }

    def _sum_over_servers(self, growth: Mapping[str, Counters]) -> Counters | None:
        """Return the sum of `growth` over all servers of the target; None if `growth` lacks one of them."""
        names = self.prepared.backends
        if not names or any(name not in growth for name in names):
            return None
        summed, *other_servers = (growth[name] for name in names)
        for grown in other_servers:
            summed = summed.plus(grown)
        return summed

    def _measured_growth(self) -> Counters | None:
        """Return the growth of all servers' counters over measured runs and contexts; None if unknown."""
        return None if self.facts.fell else self._sum_over_servers(self.measured)

    def _server_side(self, samples: _Samples) -> ServerSide | None:
        """Return a summary of the samples and counters of all servers together; None without servers."""
        most = self.most_in_flight
        if not samples:
            return None
        points = [point for reported in samples.values() for point in reported]
        grown = self._measured_growth() or Counters()
        return ServerSide(
            running_max=max(sums_at_same_time(samples, lambda point: point.running, most), default=None),
            waiting_max=max(sums_at_same_time(samples, lambda point: point.waiting, most), default=None),
            kv_cache_max_percent=_highest_kv_percent(samples),
            kv_fullest_percent=known_max(point.kv_fullest_percent for point in points),
            preemptions=grown.preemptions,
            generation_tokens=grown.generation_tokens,
            prompt_tokens=grown.prompt_tokens,
            prefix_cache_hit_percent=_percent(grown.cache_hits, grown.cache_queries),
            spec_accept_percent=_percent(grown.spec_accepted_tokens, grown.spec_draft_tokens),
            spec_accepted_per_draft=_ratio(grown.spec_accepted_tokens, grown.spec_drafts),
        )

    def _backend_side(self, name: str, points: list[ServerPoint]) -> ServerSide:
        """Return a summary of the samples of a server during measured runs."""
        grown = None if self.facts.fell else self.measured.get(name)
        prefill_ms = None
        if grown is not None and grown.prefill_s is not None and grown.prefills:
            prefill_ms = 1000 * grown.prefill_s / grown.prefills
        return ServerSide(
            running_mean=known_mean(point.running for point in points),
            running_max=known_max(point.running for point in points),
            waiting_max=known_max(point.waiting for point in points),
            kv_cache_max_percent=_highest_kv_percent({name: points}),
            prefill_ms=prefill_ms,
        )

    def _busy_batches(self, samples: _Samples) -> dict[str, float]:
        """Return the mean batch size of each server while it was computing, where known, by server name."""
        means = {
            name: busy_batch(points, None if self.facts.fell else self.measured.get(name))
            for name, points in samples.items()
        }
        return {name: mean for name, mean in means.items() if mean is not None}

    def _padding_percent(self, models: Mapping[str, ModelFacts]) -> float | None:
        """Return the unused part, in percent, of the CUDA graph that runs a batch of the level's concurrency.

        A batch runs in the smallest captured graph that holds it. Return None if the captured sizes are
        unknown or no graph holds the batch; 0 if the server captures no graphs. Sizes reported by the server
        take precedence over those in `models`, because two recipes of one model may capture different sizes.
        """
        facts, sizes = models.get(self.prepared.result.model or ""), self.prepared.capture_sizes
        if self.prepared.target.kind is not TargetKind.ENGINE or (facts is None and sizes is None):
            return None
        if self.level.point.kind is not LoadKind.CONCURRENCY:
            return None  # the number in flight varies
        if sizes == ():
            return 0.0
        if sizes is None:
            sizes = () if facts is None else facts.cudagraph_capture_sizes
        batch = self.most_in_flight
        graph = min((size for size in sizes if size >= batch), default=None)
        return None if graph is None else _PERCENT * (graph - batch) / graph

    def _compare_with_yardsticks(self, made: LevelResult) -> tuple[YardstickSide, ...]:
        """Return what the decode rate is compared with; empty if nothing of it is known.

        The server's own best is that from before the sweep.
        """
        if self.level.point.kind is not LoadKind.CONCURRENCY or made.decode_tps is None:
            return ()  # the number in flight varies
        running, accepted = (
            float(self.most_in_flight),
            made.server and made.server.spec_accepted_per_draft,
        )
        basis = self.prepared.yardstick_basis
        generated = running / busy_cores(basis.cores, running) * (1 + (accepted or 0.0))
        level = self.level
        sticks = yardsticks(
            basis,
            made.decode_tps.mean,
            running,
            generated=generated,
            lengths=(None if level.pp is None else level.pp + level.depth, level.tg),
        )
        if not words(sticks):
            return ()
        return tuple(YardstickSide.model_validate(stick) for stick in sticks)

    def _router_side(
        self, samples: _Samples, traces: list[RequestTrace], made: LevelResult
    ) -> dict[str, JsonValue] | None:
        if self.prepared.target.kind is not TargetKind.ROUTER:
            return None
        e2e_ms = made.e2e_ms.p50 if made.e2e_ms is not None else None
        ends = [end for _, end in self.spans]
        return router_side(
            self.prepared.target.name,
            traces,
            samples,
            e2e_s=None if e2e_ms is None else e2e_ms / 1000,
            until=ends[-1] if ends else None,
            strategy=self.prepared.target.strategy,
            errors=backend_errors(self.prepared.backends, traces, {} if self.facts.fell else self.measured),
        )


def _add_partial_requests(made: LevelResult, partial: LevelResult) -> LevelResult:
    """Return `made` with the failed and cancelled requests of an interrupted run (`partial`) added."""
    complete, partly = made.requests, partial.requests
    update = {
        "failed": complete.failed + partly.failed,
        "cancelled": complete.cancelled + partly.cancelled,
        "errors": dict(Counter(complete.errors) + Counter(partly.errors)),
    }
    return made.model_copy(update={"requests": complete.model_copy(update=update)})


def _highest_kv_percent(samples: Mapping[str, list[ServerPoint]]) -> float | None:
    return known_max(point.kv_cache_percent for points in samples.values() for point in points)


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _percent(part: float | None, whole: float | None) -> float | None:
    share = _ratio(part, whole)
    return None if share is None else _PERCENT * share


def _add_counters(growth: dict[str, Counters], name: str, more: Counters) -> None:
    earlier_growth = growth.get(name)
    growth[name] = more if earlier_growth is None else earlier_growth.plus(more)


# Execution of levels: warm-up run, measured runs, then a wait until the servers are idle.
#
# During the runs, the limits of failed requests are checked. In `abba` order a level has several batches of
# runs.


LEAST_REST_S = 5.0
"""Least seconds that servers get to become idle."""
_ALONE_RUNS = 2
"""Requests sent alone: the first one may have to wait for compilation, the last one counts."""
REST_INTERVALS = 6.0
"""Maximum wait until servers are idle, in poll intervals; at least `LEAST_REST_S` seconds."""


class TargetFailedError(Exception):
    """No run can begin on this target: its requests fail for a reason that does not depend on the level."""


class LevelRefusedError(Exception):
    """The server rejected every request of this level, for example as too long; other levels may succeed."""


class LevelMaker(Struct, eq=False):
    """Executes batches of runs one after the other, with one load generator."""

    plan: Plan
    worker: SweepWorker
    log: ServerLog
    cancellation: Cancellation
    guard: GuardWatch
    estimate: Estimate
    emit: Callable[[SweepEvent], None]
    note_run: Callable[[Level, int], None]
    """Called at the start of each measured run with its level and number."""
    sweep_id: str
    interval_s: float = 1.0
    """Seconds between two polls of a server."""
    left: Callable[[int], TimeRange | None] = lambda _: None
    """Returns the range of the sweep's remaining seconds after the given number of runs of the present
    batch."""
    clock: Callable[[], float] = monotonic
    present: PreparedTarget | None = None
    """The target of the present run; None between two batches."""
    newest_data_at: float = 0.0
    """When data of any answer last arrived, in monotonic seconds."""
    rest: dict[str, ServerPoint] = field(default_factory=dict)
    """Newest sample of each server while idle; the growth of counters in the next level is counted from
    here."""
    _ended: int = 0
    _failed: int = 0
    _refused: int = 0
    """Number of requests of the present level that the server rejected as such (HTTP 400, 413, 422)."""
    _newest_failure: str = ""
    _made: int = 0
    """Completed runs of the present batch; -1 until its warm-up is over."""
    _before_s: float = 0.0
    """Seconds that it took to send the context of the next run."""

    async def make(self, batch: RunBatch, record: LevelRecord) -> None:
        """Execute a batch of runs and its warm-up, and fill in the level's `record`.

        Before it returns, wait until the servers are idle again.

        Raises:
            TargetFailedError: requests to the target fail for a reason that does not depend on the level.
            LevelRefusedError: the server rejected every request of the level.
            WorkerGoneError: the load generator's process exited.
        """
        names = record.prepared.backends
        samples_before = self._samples_at_rest(names)
        if batch.first:
            self._ended = self._failed = self._refused = 0
        self._made = -1 if batch.first and self.plan.warmup else 0
        measured_from = samples_before
        paused_s = 0.0
        try:
            if batch.first and self.plan.warmup:
                await self._run(batch, record, 0, SweepPhase.WARMING_UP)
                # Counters are read at rest, so that the growth by the warm-up is not part of the level's
                # figures.
                self._made = 0
                if batch.level.depth:  # a warm-up without context says nothing about the requests with it
                    self._ended = self._failed = self._refused = 0
                began = self.clock()
                if not self.cancellation.requested:
                    await self.settle(names)
                paused_s = self.clock() - began
                measured_from = self._samples_at_rest(names)
            await self._make_runs(batch, record)
        finally:
            self.present = None
        if self.cancellation.requested:
            newest = ((name, self.log.newest(name)) for name in names)
            record.add_growth(
                samples_before, {}, {name: point for name, point in newest if point is not None}
            )
        else:
            began = self.clock()
            self.emit(self._phase_event(SweepPhase.SETTLING, batch))
            record.facts.unsettled = await self.settle(names) or record.facts.unsettled
            self.estimate.learn_pause(paused_s + self.clock() - began)
            record.add_growth(samples_before, measured_from, self.rest)
            if self.plan.leave and batch.last and names:
                record.left = await self._hang_up(batch, record)
            if self.plan.beside is not None and batch.last and record.runs:
                record.beside = await self._measure_beside(batch, record, self.plan.beside)

    async def measure_alone(self, prepared: PreparedTarget) -> float | None:
        """Return how many requests per second a target completes one after the other; None if it fails."""
        self.emit(PhaseChanged(SweepPhase.PREPARING, prepared.target.name))
        level = self.plan.level(prepared.target.name, concurrency_point(1))
        record, e2e_s = LevelRecord(self.plan, prepared, level), None
        for number in range(_ALONE_RUNS):
            command = self._command(RunBatch(level, None), record, number, SweepPhase.WARMING_UP)
            run = RunRecord()
            async for message in self.worker.run(command):
                run.add(message)
            e2e_s = next((trace.e2e_s for trace in run.traces() if trace.ok), None)
        await self.settle(prepared.backends)
        return 1 / e2e_s if e2e_s else None

    async def _measure_beside(
        self, batch: RunBatch, record: LevelRecord, long_tokens: int
    ) -> BesideResult | None:
        """Repeat the runs of a level while prompts of `long_tokens` arrive; return what its requests show.

        None if the server's context has no room for longer prompts, or no request was sent.

        Raises:
            WorkerGoneError: the load generator's process exited.
        """
        tokens = beside_tokens(long_tokens, record.level, record.prepared.result.context_tokens)
        if tokens is None:
            self.emit(Notice(f"{batch.level.label}: the server's context has no room for longer prompts"))
            return None
        traces: list[RequestTrace] = []
        self.emit(self._phase_event(SweepPhase.BESIDE, batch))
        for number in range(record.runs, 2 * record.runs):
            load = self._command(batch, record, number, SweepPhase.RUNNING)
            load = replace(load, beside_tokens=tokens)
            run = RunRecord()
            async for message in self._messages(record, load, run):
                if isinstance(message, Batch):
                    self.emit(message)
            self.present = None
            if run.finished is None or self.cancellation.requested:
                break
            record.facts.health.append(run.finished.health)
            traces += run.traces()
        if not self.cancellation.requested:
            self.emit(self._phase_event(SweepPhase.SETTLING, batch))
            await self.settle(record.prepared.backends)
        return beside_result(record.level, tokens, record.traces, traces, mode=self.plan.mode)

    async def _hang_up(self, batch: RunBatch, record: LevelRecord) -> LeftRequests | None:
        """Send requests, hang up in the middle of their answers, and return what the servers do then.

        Raises:
            WorkerGoneError: the load generator's process exited.
        """
        names, begun_answers, tokens = record.prepared.backends, 0, 0
        load = leave_command(self._command(batch, record, 0, SweepPhase.WARMING_UP))
        samples_before, run, hung_up = self._samples_at_rest(names), RunRecord(), False
        self.emit(self._phase_event(SweepPhase.LEAVING, batch))
        async for message in self._messages(record, load, run):
            if not isinstance(message, Batch) or hung_up:
                continue
            reads = (event for event in message.events if isinstance(event, AnswerRead))
            begun_answers += sum(read.count > 0 for read in reads)
            tokens += sum(token_bin.tokens for token_bin in message.bins)
            if is_middle(begun_answers, tokens, load):
                hung_up = True
                await self.worker.send(Cancel())
        self.present = None
        if run.finished is None or self.cancellation.requested:
            return None
        if not hung_up:
            self.emit(Notice(f"{batch.level.label}: the answers ended before anybody could hang up"))
            return None
        ended_at = run.finished.ended_at
        idle = await self.log.wait_until_idle(names, ended_at, LONGEST_S, lambda: self.cancellation.requested)
        self.rest |= idle or {}
        return left_requests(run.traces(), ended_at, samples_before, self.log, settled=idle is not None)

    def _samples_at_rest(self, names: tuple[str, ...]) -> dict[str, ServerPoint]:
        return {name: self.rest[name] for name in names if name in self.rest}

    async def settle(self, names: tuple[str, ...]) -> str | None:
        """Wait until the servers `names` are idle, and store the newest sample of each in `idle_points`.

        Return None, or a message for the user if a server is not idle when the time limit has passed.
        """
        limit_s = max(LEAST_REST_S, REST_INTERVALS * self.interval_s)
        idle_points = await self.log.wait_until_idle(
            names, self.clock(), limit_s, lambda: self.cancellation.requested
        )
        if idle_points is not None:
            self.rest |= idle_points
            return None
        busy = []
        for name in names:
            point = self.log.newest(name)
            if point is None:
                continue
            self.rest[name] = point
            if not point.idle:
                requests = "requests" if point.running is None else count_words(point.running, "request")
                busy.append(f"{name} still ran {requests}")
        what = ", ".join(busy) or "the counters of a server still moved"
        return f"{what} {limit_s:.0f} s after our last request ended: somebody else's, or not cancelled"

    async def _make_runs(self, batch: RunBatch, record: LevelRecord) -> None:
        """Execute the measured runs of a batch, each after the one that sends its context."""
        phases = (SweepPhase.CONTEXT, SweepPhase.RUNNING) if batch.level.depth else (SweepPhase.RUNNING,)
        for run in self._run_numbers(batch, record):
            for phase in phases:
                if self.cancellation.requested:
                    return
                await self._run(batch, record, run, phase)

    def _run_numbers(self, batch: RunBatch, record: LevelRecord) -> Iterator[int]:
        """Yield the numbers of the batch's runs, from 0, as long as another run is to be made."""
        if batch.runs is not None:
            yield from batch.runs
            run = len(batch.runs)
            while run < MOST_RUNS and self.plan.more_runs and record.lasted_s < ENOUGH_S:
                yield run
                run += 1
            return
        # Pauses between runs do not count, but a level of hardly more than pauses must end.
        needed_s, begun_at, run = self.plan.duration_s or 0.0, self.clock(), 0
        while run == 0 or (record.lasted_s < needed_s and self.clock() - begun_at < _MOST_STRETCH * needed_s):
            yield run
            run += 1

    async def _run(self, batch: RunBatch, record: LevelRecord, run: int, phase: SweepPhase) -> None:
        """Execute one load run and enter it into `record`.

        In the phase CONTEXT it sends what comes before the measured run number `run`.

        Raises:
            TargetFailedError: requests to the target fail for a reason that does not depend on the level.
            LevelRefusedError: the server rejected every request of the level.
            WorkerGoneError: the load generator's process exited.
        """
        command = self._command(batch, record, run, phase)
        self.emit(self._phase_event(phase, batch, run))
        if phase is SweepPhase.RUNNING:
            self.note_run(batch.level, run)
        run_record = RunRecord()
        worker_gone: WorkerGoneError | None = None
        try:
            async for message in self._messages(record, command, run_record):
                if isinstance(message, Batch):
                    self._take_events(batch, message)
        except WorkerGoneError as error:
            worker_gone = error  # what came before belongs to the level
        record.add_run(run_record, phase)
        if worker_gone is not None:
            raise worker_gone
        if (refusal := run_record.refusal) is not None and refusal.word != CANCELLED:
            raise TargetFailedError(refusal.message)
        if run_record.finished is not None and not run_record.finished.cancelled:
            self._learn_duration(batch, run_record.finished, phase)
            self._check_run(batch.level.target, run_record.events)

    def _command(self, batch: RunBatch, record: LevelRecord, run: int, phase: SweepPhase) -> RunLoad:
        """Return the command for the run number `run` of a level, for its contexts, or for its warm-up."""
        is_warm_up, is_context = phase is SweepPhase.WARMING_UP, phase is SweepPhase.CONTEXT
        plan, level, prepared = self.plan, batch.level, record.prepared
        number = [target.name for target in plan.targets].index(level.target)
        which = f"w{run}" if is_warm_up else str(run)
        run_id = f"{self.sweep_id}-{number}-{plan.id_of(level)}-{which}"
        # The same seed gives the same prompts; made ones without a cache salt are only of the same kind.
        fresh = "" if prepared.takes_salt or plan.prompts is not None else f"/{run_id}"
        mode = LoadMode.BURST if is_warm_up else plan.mode
        waits = plan.trace is not None and plan.trace.waits
        concurrency = level.point.most_in_flight
        if plan.mode is LoadMode.OPEN:
            # What the limit of open files allows. A warm-up is one request: the run has arrivals before the
            # measured ones.
            most_connections = self.worker.most_connections or concurrency
            concurrency = 1 if is_warm_up else min(concurrency, most_connections)
        return RunLoad(
            id=f"{run_id}-context" if is_context else run_id,
            target=prepared.asks,
            concurrency=concurrency,
            prompt_tokens=plan.length_of(level),
            output_tokens=plan.tg,
            mode=mode,
            run=run,
            requests=plan.requests if mode is LoadMode.STEADY else None,
            duration_s=None if mode is LoadMode.BURST or waits else plan.duration_s,
            ramp_s=ramp_s(plan) if mode in {LoadMode.OPEN, LoadMode.AGENTS} else None,
            tail_s=tail_s(plan),
            seed=plan.seed,
            prompt_salt=f"{plan.seed}/{plan.id_of(level)}-{which}{fresh}",
            cache_salt=run_id,
            timeouts=plan.timeouts,
            rate=level.point if mode is LoadMode.OPEN else None,
            arrivals=plan.arrivals,
            draw_seed=draw_seed(plan, level, run),
            trace=plan.trace.choice if plan.trace is not None and mode is LoadMode.OPEN else None,
            conversations=plan.conversations,
            max_model_len=prepared.result.context_tokens,
            context_tokens=0 if is_warm_up else level.depth,
            context_alone=is_context,
            text=level.point.text,
            warm_up=is_warm_up,
        )

    async def _messages(
        self, record: LevelRecord, command: RunLoad, run: RunRecord
    ) -> AsyncIterator[WorkerMessage]:
        """Send the command of a run; yield the load generator's messages after entering them into `run`.

        Raises:
            WorkerGoneError: the load generator's process exited.
        """
        self.present, self.newest_data_at = record.prepared, self.clock()
        async for received in self.worker.run(command):
            message = use_watched_names(received, record.prepared.names)
            run.add(message)
            if isinstance(message, Batch):
                begun = any(isinstance(event, AnswerRead) for event in message.events)
                self.newest_data_at = self.clock() if begun or message.bins else self.newest_data_at
            yield message

    def _learn_duration(self, batch: RunBatch, finished: RunFinished, phase: SweepPhase) -> None:
        """Count a complete run, and note its duration, with what came before it, to estimate the rest.

        The warm-up of an open loop is a single request, that of a level with depth has no context: their
        durations say nothing.
        """
        self._made += phase is SweepPhase.RUNNING
        took_s = self._before_s + finished.ended_at - finished.started_at
        alone = not batch.level.depth and self.plan.mode is not LoadMode.OPEN
        if phase is SweepPhase.RUNNING or (phase is SweepPhase.WARMING_UP and alone):
            self.estimate.learn_run(batch.level, took_s)
        self._before_s = took_s if phase is SweepPhase.CONTEXT else 0.0

    def _phase_event(self, phase: SweepPhase, batch: RunBatch, run: int | None = None) -> PhaseChanged:
        if batch.runs is None or phase is SweepPhase.WARMING_UP:  # it tells how many runs there will be
            runs = None
        elif not (batch.first and batch.last):
            runs = self.plan.runs_of(batch.level.point.most_in_flight)
        else:
            # A search makes more runs than the plan has, and a level of short runs may too.
            runs = max(self.estimate.runs_of(batch) or 0, 0 if run is None else run + 1)
        return PhaseChanged(phase, batch.level.target, batch.level, run, runs, self.left(self._made))

    def _take_events(self, batch: RunBatch, message: Batch) -> None:
        """Count the ends of requests, pass the events on, and stop the sweep if too many requests failed."""
        self.emit(message)
        for event in message.events:
            if isinstance(event, RequestEnded):
                self._ended += 1
                if event.error is not None:
                    self._failed += 1
                    self._refused += is_refusal(event.error)
                    self._newest_failure = event.error.message
        if self._refused < self._ended:  # otherwise the level is impossible, not the server broken
            target, failed = batch.level.target, self._failed
            self._stop_because(self.guard.check_requests(target, self._ended, failed, self._newest_failure))

    def _check_run(self, target: str, events: list[LoadEvent]) -> None:
        """Stop the sweep if the run shows that the server is down.

        Raises:
            LevelRefusedError: the server rejected every request of the level so far.
        """
        if self._ended and self._refused == self._ended:
            raise LevelRefusedError(self._newest_failure)
        ends = [event for event in events if isinstance(event, RequestEnded)]
        ok = sum(end.ok for end in ends)
        if any(end.error is not None and end.error.kind is FailureKind.UNSUPPORTED for end in ends):
            return  # our own limit of open files says nothing about the server
        self._stop_because(self.guard.check_run(target, ok, count_errors(events), self._newest_failure))

    def check_reading(self, key: SourceKey, reading: Reading) -> None:
        """Stop the sweep if a sample or failure of a source of the present target violates a limit."""
        present = self.present
        if present is None:
            return
        if isinstance(reading, NodeSample) and key.name in present.nodes:
            self._stop_because(self.guard.check_node(key.name, reading), "stopped_by_guard")
        elif isinstance(reading, Failure) and key.kind is SourceKind.NODE and key.name in present.nodes:
            words = self.guard.check_failure(key.name, reading)
            if words is not None:
                self.emit(Notice(words))
        elif isinstance(reading, Failure) and key.kind is SourceKind.BACKEND:
            self._stop_because(self._why_silent(present))

    def _why_silent(self, present: PreparedTarget) -> str | None:
        """Return why to stop if no server of the target answers polls or sends data any more; else None."""
        silences = [self.log.silence(name) for name in present.backends]
        silent = [silence for silence in silences if silence is not None]
        if not silent or len(silent) < len(silences):
            return None
        newest = max(silent, key=lambda silence: silence[0])
        return self.guard.check_silence(present.target.name, newest, self.newest_data_at, self.clock())

    def _stop_because(self, reason: str | None, status: Early = "failed") -> None:
        if reason is not None:
            self.cancellation.request(status, reason)


# What servers do when all clients hang up in the middle of their answers: how long they go on.


LONGEST_S = 120.0
"""Seconds for which servers are watched after the hang-up."""
_ANSWER_TOKENS = 512
"""Least length of the answers: what is left of shorter ones lasts no longer than a poll interval."""
_MIDDLE = 0.25
"""Share of the tokens of the answers that have begun, from which on they are in their middle."""


def leave_command(load: RunLoad) -> RunLoad:
    """Return the run whose clients hang up, from a run of the same level: one burst of long answers."""
    more = _ANSWER_TOKENS - load.output_tokens
    if load.max_model_len is not None:
        more = min(more, (load.max_model_len - load.prompt_tokens - load.output_tokens) // 2)
    more = max(0, more)
    return replace(load, id=f"{load.id}-leave", output_tokens=load.output_tokens + more, cache_salt=load.id)


def is_middle(begun_answers: int, tokens: int, load: RunLoad) -> bool:
    """Return whether the answers that have begun are in their middle, by all `tokens` received."""
    least = max(begun_answers, _MIDDLE * begun_answers * load.output_tokens)
    return begun_answers > 0 and tokens >= least


def left_requests(
    traces: Sequence[RequestTrace],
    hung_up_at: float,
    before: Mapping[str, ServerPoint],
    log: ServerLog,
    *,
    settled: bool,
) -> LeftRequests | None:
    """Return what servers did after `hung_up_at`; None if no request was in flight, or nothing reports load.

    `before` has the sample of each server at rest before the run; `settled` says whether all came to rest.
    """
    failed_traces = [trace for trace in traces if not trace.ok]
    samples = {name: log.servers(name, [(hung_up_at, math.inf)]) for name in before}
    reporting = [points for points in samples.values() if points and points[-1].idle is not None]
    if not failed_traces or not reporting or len(reporting) < len(samples):
        return None
    busy_at = [point.at for points in reporting for point in points if not point.idle]
    last_at = max(busy_at, default=hung_up_at)
    idle_at = [next((point.at for point in points if point.at > last_at), math.inf) for points in reporting]
    grown = [points[-1].counters.since(before[name].counters) for name, points in samples.items()]
    generated = [growth.generation_tokens for growth in grown if growth.generation_tokens is not None]
    received = sum(trace.tokens for trace in traces)
    is_counted = settled and len(generated) == len(grown) and min(generated) >= 0
    return LeftRequests(
        requests=len(failed_traces),
        received_tokens=sum(trace.tokens for trace in failed_traces),
        goes_on_s=max(0.0, last_at - hung_up_at),
        idle_s=max(idle_at) - hung_up_at if settled and max(idle_at) < math.inf else None,
        tokens_after=max(0.0, sum(generated) - received) if is_counted else None,
    )


# Long prompts beside the requests of a level: how much they slow down the tokens of the short ones.


_AROUND_TOKENS = 64
"""Tokens of a long request beside its text: chat template, a few words, and the answer."""


def beside_tokens(tokens: int, level: Level, max_model_len: int | None) -> int | None:
    """Return the tokens of the long prompts: `tokens`, or what fits into the server's context.

    None if that is not longer than the prompts of the level.
    """
    if max_model_len is not None:
        tokens = min(tokens, max_model_len - _AROUND_TOKENS)
    return tokens if tokens > (level.pp or 0) else None


def beside_result(
    level: Level,
    tokens: int,
    alone: Sequence[RequestTrace],
    traces: Sequence[RequestTrace],
    *,
    mode: LoadMode = LoadMode.STEADY,
) -> BesideResult | None:
    """Return what the requests of `level` showed in runs with long prompts of `tokens` tokens.

    `alone` are the requests of its runs without them, `traces` all requests of the others; None if there are
    none.
    """
    long = [trace for trace in traces if LONG in trace.request_id]
    short = [trace for trace in traces if LONG not in trace.request_id]
    if not short:
        return None
    errors = [
        trace.ended.error for trace in long if trace.ended is not None and trace.ended.error is not None
    ]
    gaps_ms = _gaps_ms(short, [(trace.start, trace.end) for trace in long if trace.ok])
    runs, alone_runs = _means(gaps_ms), _means(_gaps_ms(alone))
    ratio = None
    if runs and alone_runs:
        ratio = ratio_of(value_of(fmean(runs), runs), value_of(fmean(alone_runs), alone_runs))
    ends = None if ratio is None else ratio.ci95
    level_made = level_result(level, short, mode=mode)
    return BesideResult(
        prompt_tokens=tokens,
        arrived=sum(trace.ok for trace in long),
        failed=len(errors),
        error=errors[-1].message if errors else None,
        requests=level_made.requests,
        itl_ms=Latency.of_values([gap for gaps in gaps_ms for gap in gaps]),
        ttft_ms=level_made.ttft_ms,
        itl_runs_ms=runs,
        alone_itl_runs_ms=alone_runs,
        significant=None if ratio is None else ratio.is_significant(),
        change_percent=None if ends is None else (_PERCENT * (ends[0] - 1), _PERCENT * (ends[1] - 1)),
    )


def _gaps_ms(traces: Sequence[RequestTrace], spans: Sequence[Span] | None = None) -> list[list[float]]:
    """Return the token gaps of each run in milliseconds; with `spans`, those that overlap one of these times.

    Each token may wait for a step with thousands of tokens of a prompt.
    """
    return [[1000 * gap for gap in gaps_s(run, spans)] for run in by_run(traces)]


def _means(runs: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return the mean gap of each run; () if a run has none."""
    return tuple(map(fmean, runs)) if all(runs) else ()
