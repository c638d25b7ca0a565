"""The record of one level on one target during the sweep: collects runs and counters, computes the result."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from pydantic import JsonValue

from sparktop.model.load import Level, LoadEvent, LoadKind, concurrency_point
from sparktop.model.targets import ModelFacts
from sparktop.sweep.generator.wire.messages import ClientHealth
from sparktop.sweep.plan.plan import Plan, TargetKind
from sparktop.sweep.result.level import level_result, run_starts, uncounted
from sparktop.sweep.result.measure import RequestTrace, by_run, collect, run_duration_s
from sparktop.sweep.result.open_loop import windows
from sparktop.sweep.result.results import BackendSide, LevelResult, ServerSide, UncountedRequests
from sparktop.sweep.run.context.depth import context_part
from sparktop.sweep.run.conversations.level import with_servers
from sparktop.sweep.run.level.counts import asked_of, sampled_span
from sparktop.sweep.run.level.limit import limit_side
from sparktop.sweep.run.load import BackendQueue, InFlight, backend_queue, busy_batch, same_moment
from sparktop.sweep.run.open_loop.replay import with_replay
from sparktop.sweep.run.preparation import PreparedTarget
from sparktop.sweep.run.record import RunRecord
from sparktop.sweep.run.router_side import backend_errors, router_side
from sparktop.sweep.run.server_side import (
    Counters,
    ServerLog,
    ServerPoint,
    Span,
    in_flight,
    node_side,
)
from sparktop.sweep.run.validity import Asked, LevelFacts, judge

_PERCENT = 100.0


class LevelRecord(Struct, eq=False):
    """Collects the load runs and server counters of one level on one target.

    `result` can be called at any time, also after an interruption.
    """

    plan: Plan
    prepared: PreparedTarget
    level: Level
    events: list[LoadEvent] = field(default_factory=list)
    """Events of completed measured runs, with the time of every token."""
    partial: list[LoadEvent] = field(default_factory=list)
    """Events of a measured run that was cancelled or interrupted."""
    traces: list[RequestTrace] = field(default_factory=list)
    """Requests of completed measured runs, folded from `events`."""
    contexts: list[RequestTrace] = field(default_factory=list)
    """Requests that sent contexts alone, before the measured runs."""
    cut: list[RequestTrace] = field(default_factory=list)
    """Requests of an interrupted run, folded from `partial`."""
    spans: list[Span] = field(default_factory=list)
    """Start and end of each measured run, completed or cancelled."""
    run_s: list[float] = field(default_factory=list)
    health: list[ClientHealth] = field(default_factory=list)
    health_entered: int = 0
    """Number of entries of `health` that the sweep's result already contains."""
    asked: Asked = field(default_factory=Asked)
    growth: dict[str, Counters] = field(default_factory=dict)
    """Growth of each server's counters over all stints, warm-up included, to compare with all requests."""
    measured: dict[str, Counters] = field(default_factory=dict)
    """Growth of each server's counters over measured runs only, from which the level's metrics are
    computed."""
    run_finished: list[dict[str, int]] = field(default_factory=list)
    """Finished requests by server, for each measured run after which all servers became idle."""
    fell: bool = False
    unsettled: str | None = None
    cut_short: str | None = None

    @property
    def _most_output(self) -> int:
        """The most output tokens that a request asks for."""
        trace = self.plan.trace
        return self.level.output_tokens if trace is None else trace.summary.longest_answer

    @property
    def runs(self) -> int:
        """Number of measured runs that were completed."""
        return len(self.run_s)

    @property
    def lasted_s(self) -> float:
        """Seconds that the completed runs lasted together, from the first start to the last end of each."""
        return sum(run_duration_s(run) for run in by_run(self.traces))

    def add_run(
        self, record: RunRecord, events: list[LoadEvent], *, warm_up: bool, context: bool = False
    ) -> None:
        """Add a load run, completed or interrupted. Of a warm-up run, add only its token counts.

        `events` are the run's events; they name backends as the monitor names them. With `context`, the run
        sent the context of the next one.
        """
        traces = collect(events)
        self.asked = self.asked.plus(asked_of(traces, self._most_output))
        if context:
            self.contexts += traces
        if warm_up or context:
            return
        end = record.finished
        if end is not None:
            self.spans.append(sampled_span(events, end))
            self.health.append(end.health)
        if end is not None and not end.cancelled:
            self.events += events
            self.traces += traces
            self.run_s.append(end.ended_at - end.started_at)
        else:
            self.partial += events
            self.cut += traces

    def add_growth(
        self,
        before: Mapping[str, ServerPoint],
        warm: Mapping[str, ServerPoint],
        after: Mapping[str, ServerPoint],
    ) -> None:
        """Add how much the servers' counters grew over a stint (a series of consecutive runs of the level).

        Each argument has one sample per server, taken while the server was idle: `before` before the stint,
        `warm` after the warm-up run of the stint, and `after` after the stint.
        """
        for name in self.prepared.backends:
            first, middle, last = before.get(name), warm.get(name), after.get(name)
            if first is None or middle is None or last is None:
                continue
            grown = last.counters.since(first.counters)
            anew = None not in {first.start_time, last.start_time} and first.start_time != last.start_time
            measured = last.counters.since(middle.counters)
            self.fell |= anew or grown.fell() or measured.fell()
            _add(self.growth, name, grown)
            _add(self.measured, name, measured)

    def add_run_finished(self, before: Mapping[str, ServerPoint], after: Mapping[str, ServerPoint]) -> None:
        """Append how many requests each server finished during one measured run, to `run_finished`.

        The samples are from `before` and `after` the run. Do nothing if the number of any server is unknown.
        """
        grown = {
            name: after[name].counters.since(before[name].counters).finished
            for name in self.prepared.backends
            if name in before and name in after
        }
        known = {name: round(count) for name, count in grown.items() if count is not None and count >= 0}
        if len(known) == len(self.prepared.backends):
            self.run_finished.append({name: count for name, count in known.items() if count})

    def result(self, log: ServerLog, models: Mapping[str, ModelFacts]) -> LevelResult:
        """Return the level's result so far: metrics, what servers and machines reported, reasons to doubt.

        `log` has the samples, `models` has known facts by model name.
        """
        # An interrupted run is used only if there is no complete one: its time windows are cut short.
        events = self.events if self.runs else self.partial
        traces = self.traces if self.runs else self.cut
        spans = windows(events, traces, is_cut=not self.runs)
        made = level_result(self.level, traces, spans)
        if self.runs and self.cut:
            made = _with_partial(made, level_result(self.level, self.cut))
            made = made.model_copy(update={"uncounted": self._uncounted()})
        facts = self.facts(log)
        served = dict(made.served_by)
        if not served and self.prepared.target.kind is TargetKind.ROUTER:
            counts = {name: grown.finished or 0.0 for name, grown in self.measured.items()}
            served = {name: round(count) for name, count in counts.items() if count > 0}
            if served and len(self.run_finished) == self.runs:
                made = made.model_copy(update={"runs_split": tuple(self.run_finished)})
        loaded = in_flight((one.start, one.end) for one in self._requests())
        batches = self._busy_batches(log)
        grown = None if self.fell else self._sum(self.growth)
        made = with_servers(made, self.plan, self.prepared.kv_capacity_tokens, grown)
        measured = None if self.fell else self._sum(self.measured)
        context = self.prepared.max_model_len
        made = with_replay(made, self.plan, traces, spans, context, measured, is_cut=not self.runs)
        made = made.model_copy(
            update={
                "served_by": served,
                "busy_batch": batches,
                "server": self._server(log),
                "backends": self._backends(log),
                "hardware": facts.hardware,
                "padding_percent": self._padding(models),
                "roofline_percent": self._roofline(made),
                "balance": self._balance(log, events, made),
                "context": context_part(self.level, self.contexts, self.traces, self._measured()),
                "limited_by": limit_side(self.prepared, log.limits, loaded, batches),
            }
        )
        return made.model_copy(update={"validity": judge(self.plan, made, facts)})

    def facts(self, log: ServerLog) -> LevelFacts:
        """Return what is known about the level beside its metrics, to judge the validity of its result."""
        loaded = in_flight((one.start, one.end) for one in self._requests())
        nodes = {name: log.nodes(name, loaded) for name in self.prepared.nodes}
        return LevelFacts(
            asked=self.asked,
            growth=self._sum(self.growth),
            measured=self._sum(self.measured),
            unsettled=self.unsettled,
            fell=self.fell,
            queues=self._queues(log),
            health=tuple(self.health),
            hardware={name: node_side(points) for name, points in nodes.items() if points},
            mdns=self.prepared.mdns,
            run_s=tuple(self.run_s),
            cut_short=self.cut_short,
        )

    def _requests(self) -> list[RequestTrace]:
        """Return all requests of measured runs, including interrupted ones."""
        return [*self.traces, *self.cut]

    def _queues(self, log: ServerLog) -> tuple[BackendQueue, ...]:
        """Return for each server of the target what its samples show about queued requests."""
        names, slots = self.prepared.backends, self.prepared.slots
        spans: dict[str, list[Span]] = {}
        for one in self._requests():
            name = one.served_by if len(names) > 1 else next(iter(names), None)
            if name is not None:
                spans.setdefault(name, []).append((one.start, one.end))
        at_once = {name: InFlight(spans.get(name, ())).most if spans else None for name in names}
        return tuple(
            backend_queue(name, log.servers(name, self.spans), slots.get(name), at_once[name])
            for name in names
        )

    def _sum(self, growth: Mapping[str, Counters]) -> Counters | None:
        """Return the sum of `growth` over all servers of the target; None if `growth` lacks one of them."""
        names = self.prepared.backends
        if not names or any(name not in growth for name in names):
            return None
        first, *others = (growth[name] for name in names)
        for one in others:
            first = first.plus(one)
        return first

    def _measured(self) -> Counters | None:
        """Return the growth of all servers' counters over measured runs and contexts; None if unknown."""
        return None if self.fell else self._sum(self.measured)

    def _server(self, log: ServerLog) -> ServerSide | None:
        looks = {name: log.servers(name, self.spans) for name in self.prepared.backends}
        if not looks:
            return None
        points = [point for reported in looks.values() for point in reported]
        fullest = [one.kv_fullest_percent for one in points if one.kv_fullest_percent is not None]
        flying = InFlight((one.start, one.end) for one in self._requests())
        grown = self._measured() or Counters()
        return ServerSide(
            running_max=max(same_moment(looks, lambda point: point.running, flying), default=None),
            waiting_max=max(same_moment(looks, lambda point: point.waiting, flying), default=None),
            kv_cache_max_percent=_kv_max(looks),
            kv_fullest_percent=max(fullest, default=None),
            preemptions=grown.preemptions,
            generation_tokens=grown.generation_tokens,
            prompt_tokens=grown.prompt_tokens,
            prefix_cache_hit_percent=_percent(grown.cache_hits, grown.cache_queries),
            spec_accept_percent=_percent(grown.spec_accepted_tokens, grown.spec_draft_tokens),
            spec_accepted_per_draft=_ratio(grown.spec_accepted_tokens, grown.spec_drafts),
        )

    def _backends(self, log: ServerLog) -> dict[str, BackendSide]:
        """Return a summary of the samples of each server that was sampled during measured runs, by name."""
        looks = {name: log.servers(name, self.spans) for name in self.prepared.backends}
        return {name: self._backend(name, points) for name, points in looks.items() if points}

    def _backend(self, name: str, points: list[ServerPoint]) -> BackendSide:
        running = [one.running for one in points if one.running is not None]
        grown = None if self.fell else self.measured.get(name)
        prefill_ms = None
        if grown is not None and grown.prefill_s is not None and grown.prefills:
            prefill_ms = 1000 * grown.prefill_s / grown.prefills
        return BackendSide(
            running_mean=sum(running) / len(running) if running else None,
            running_max=max(running, default=None),
            waiting_max=max((one.waiting for one in points if one.waiting is not None), default=None),
            kv_cache_max_percent=_kv_max({name: points}),
            prefill_ms=prefill_ms,
        )

    def _busy_batches(self, log: ServerLog) -> dict[str, float]:
        """Return the mean batch size of each server while it was computing, where known, by server name."""
        found = {
            name: busy_batch(log.servers(name, self.spans), None if self.fell else self.measured.get(name))
            for name in self.prepared.backends
        }
        return {name: batch for name, batch in found.items() if batch is not None}

    def _uncounted(self) -> UncountedRequests | None:
        """Return a summary of the requests that are not part of the latency metrics.

        These are the failed requests of completed runs, and all requests of interrupted runs.
        """
        failed = [one for one in self.traces if not one.ok]
        return uncounted([*failed, *self.cut], run_starts(self._requests()))

    def _padding(self, models: Mapping[str, ModelFacts]) -> float | None:
        """Return the unused part, in percent, of the CUDA graph that runs a batch of the level's concurrency.

        A batch runs in the smallest captured graph that holds it. Return None if the captured sizes are
        unknown or no graph holds the batch; 0 if the server captures no graphs. Sizes reported by the server
        take precedence over those in `models`, because two recipes of one model may capture different sizes.
        """
        facts, sizes = models.get(self.prepared.model or ""), self.prepared.capture_sizes
        if self.prepared.target.kind is not TargetKind.ENGINE or (facts is None and sizes is None):
            return None
        if self.level.point.kind is not LoadKind.CONCURRENCY:
            return None  # the number in flight varies
        if sizes == ():
            return 0.0
        if sizes is None:
            sizes = () if facts is None else facts.cudagraph_capture_sizes
        wanted = self.level.concurrency
        graph = min((size for size in sizes if size >= wanted), default=None)
        return None if graph is None else _PERCENT * (graph - wanted) / graph

    def _roofline(self, made: LevelResult) -> float | None:
        """Return the decode rate in percent of the maximum that the memory bandwidth allows.

        None at a concurrency other than 1, or if the decode rate or this maximum is unknown.
        """
        limit = self.prepared.roofline_tps
        if self.level.point != concurrency_point(1) or made.decode_tps is None or not limit:
            return None
        return _PERCENT * made.decode_tps.mean / limit

    def _balance(
        self, log: ServerLog, events: list[LoadEvent], made: LevelResult
    ) -> dict[str, JsonValue] | None:
        if self.prepared.target.kind is not TargetKind.ROUTER:
            return None
        looks = {name: log.servers(name, self.spans) for name in self.prepared.backends}
        life_ms = made.e2e_ms.p50 if made.e2e_ms is not None else None
        return router_side(
            self.prepared.target.name,
            events,
            looks,
            e2e_s=None if life_ms is None else life_ms / 1000,
            until=self.spans[-1][1] if self.spans else None,
            strategy=self.prepared.target.strategy,
            errors=backend_errors(
                self.prepared.backends, events, {} if self.fell else self.measured, self._routed_failures(log)
            ),
        )

    def _routed_failures(self, log: ServerLog) -> dict[str, float] | None:
        """Return the failed answers of each server as its router counts them; None without such counts."""
        names = self.prepared.names
        reported = log.router_failures(self.prepared.target.name, self.spans[0][0]) if self.spans else None
        if reported is None or names is None:
            return None
        counts: dict[str, float] = {}
        for deployment, count in reported.items():
            name = names.name(deployment) or deployment
            counts[name] = counts.get(name, 0.0) + count
        return counts


def _with_partial(made: LevelResult, partial: LevelResult) -> LevelResult:
    """Return `made` with the failed and cancelled requests of an interrupted run (`partial`) added."""
    mine, other = made.requests, partial.requests
    errors = dict(mine.errors)
    for word, count in other.errors.items():
        errors[word] = errors.get(word, 0) + count
    requests = mine.model_copy(
        update={
            "failed": mine.failed + other.failed,
            "cancelled": mine.cancelled + other.cancelled,
            "errors": errors,
        }
    )
    return made.model_copy(update={"requests": requests})


def _kv_max(looks: Mapping[str, list[ServerPoint]]) -> float | None:
    shares = (point.kv_cache_percent for points in looks.values() for point in points)
    return max((share for share in shares if share is not None), default=None)


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _percent(part: float | None, whole: float | None) -> float | None:
    share = _ratio(part, whole)
    return None if share is None else _PERCENT * share


def _add(growth: dict[str, Counters], name: str, more: Counters) -> None:
    known = growth.get(name)
    growth[name] = more if known is None else known.plus(more)
