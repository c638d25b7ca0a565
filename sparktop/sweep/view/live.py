"""The screen's view of a running sweep, updated from the sweep's events and from the monitor's snapshots.

Nothing in this module waits or reads files. The cost of an event does not depend on the sweep's duration:
tables, plots and comparisons over all levels are computed only when a level is complete.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from statistics import median
from time import monotonic

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.graphics.numbers import middle_s, range_words
from sparktop.model.instant import Countdown, TimeRange
from sparktop.model.load import Level, LoadKind, LoadMode, RequestEnded
from sparktop.model.snapshot import Snapshot
from sparktop.model.sweep import (
    LevelEvidence,
    ResultRow,
    SearchView,
    SweepMoment,
    SweepStatus,
    SweepView,
    SweptTarget,
)
from sparktop.model.yardsticks import Reference
from sparktop.sweep.generator.wire import Batch
from sparktop.sweep.plan.plan import Plan, TargetKind
from sparktop.sweep.result.results import SweepResult, level_of
from sparktop.sweep.run.forecast import conditions_words, forecast
from sparktop.sweep.run.progress import (
    RATE_WINDOW_S,
    Notice,
    PhaseChanged,
    RecentRates,
    ResultChanged,
    SweepEvent,
    SweepPhase,
)
from sparktop.sweep.run.result_builder import plan_result
from sparktop.sweep.run.server_side import watched_backends, watched_nodes
from sparktop.sweep.view.capacity import running_search
from sparktop.sweep.view.levels import (
    LevelProgress,
    Runs,
    evidence_of,
    measured_level,
    running_timelines,
    stored_prefill_s,
    take_request,
)
from sparktop.sweep.view.result import end_words, plan_words, result_view, status_of
from sparktop.sweep.view.series import SweepCurves, TimeGrid


def countdown_of(
    plan: Plan, snapshot: Snapshot, *, plan_words: str, left_s: float, whole_s: float
) -> Countdown:
    """Return the countdown of a sweep that begins in `left_s` of `whole_s` seconds.

    `plan_words` describes the plan's requests, as the running sweep does.
    """
    expected = forecast(plan, (), snapshot)
    time = expected.time
    return Countdown(
        title=plan.preset or "sweep",
        plan_words=plan_words,
        targets=tuple(f"{target.name} ({target.kind.value})" for target in plan.targets),
        levels=plan.axis,
        climb_to=max(expected.higher, default=None),
        requests=expected.requests,
        at_least=expected.at_least,
        warm_ups=expected.warm_ups,
        time="" if time is None else range_words(time.least_s, time.most_s),
        left_s=left_s,
        whole_s=whole_s,
        simulated=snapshot.simulated,
    )


_MOST_NOTICES = 200
"""Newest messages that are kept."""


class _CurrentLevel(Struct, eq=False):
    """Counts of requests and tokens at the current level, since its start or since the end of its warm-up."""

    key: Level | None = None
    ttfts_ms: list[float] = field(default_factory=list)
    """Times to first token so far, in ascending order."""
    ended: int = 0
    ended_in_run: int = 0
    failed: int = 0
    tokens: int = 0
    in_flight: int = 0
    measuring: bool = False
    """False during a warm-up."""

    @property
    def p50_ms(self) -> float | None:
        """Median TTFT of the level so far, in milliseconds; None before the first token."""
        return median(self.ttfts_ms) if self.ttfts_ms else None


class LiveView:
    """The screen's view of a running sweep.

    `take` (for an event) and `sample` (for a snapshot) update the view; `view` and `evidence` return what to
    draw.
    """

    def __init__(self, plan: Plan, *, clock: Callable[[], float] = monotonic) -> None:
        """Start the view of a sweep that begins now; `clock` is that of events and snapshots (monotonic)."""
        self._plan = plan
        self._references: Sequence[Reference] = ()
        self._clock = clock
        self._began = clock()
        self._ended_at: float | None = None
        self._curves = SweepCurves(TimeGrid(self._began))
        self._requests_of: dict[tuple[SweepPhase, Level], Runs] = {}
        """By phase and level. Of those while long prompts arrive, first tokens are drawn, but no bars."""
        self._levels = LevelProgress(plan)
        self._share = 0.0
        """The part of the sweep that was shown last as done."""
        self._backends: dict[str, tuple[str, ...]] = {}
        """Names of the watched servers that the load on each target reaches."""
        self._current = _CurrentLevel()
        self._rates = RecentRates()
        self._phase = PhaseChanged(SweepPhase.STARTING)
        self._phase_at = self._began
        self._notices: list[str] = []
        self._guard: str | None = None
        self._is_simulated = False
        """Whether a server or machine of the watch is; it is known before the first result says so."""
        self._result: SweepResult | None = None
        self.failure: str | None = None
        """The error message of a sweep that raised an exception."""
        self._expected: TimeRange | None = None
        """Range of the sweep's duration before anything is measured; None before the first snapshot."""
        targets = tuple(SweptTarget(target.name, target.kind.value, target.model) for target in plan.targets)
        self._results_view = SweepView(plan.preset or "sweep", SweepStatus.STARTING, "", targets=targets)
        """The view of the measured levels; computed anew after each level."""

    @property
    def result(self) -> SweepResult | None:
        """The sweep's result as of the last completed level; None before the first one."""
        return self._result

    def take(self, event: SweepEvent) -> None:
        """Update the view from an event of the sweep."""
        match event:
            case Batch():
                self._add_load(event)
            case PhaseChanged():
                self._enter_phase(event)
            case ResultChanged():
                self._change_result(event)
            case Notice(is_guard=True):
                self._guard = event.message
            case Notice():
                self._notices.append(event.message)
                del self._notices[:-_MOST_NOTICES]
            case Plan():
                self._plan = self._levels.plan = event

    def sample(self, snapshot: Snapshot) -> None:
        """Update the view from a snapshot of the monitor: add new samples of the servers and machines."""
        if self._expected is None:
            self._expected = forecast(self._plan, (), snapshot).time
        self._is_simulated = self._is_simulated or snapshot.simulated
        for target in self._plan.targets:
            names = watched_backends(target, snapshot)
            self._backends[target.name] = names
            self._curves.watch(names, watched_nodes(target, snapshot))
        self._curves.sample(snapshot)

    def view(self, now: float | None = None) -> SweepView:
        """Return the view of the sweep at `now`, in monotonic seconds; by default the current time.

        Once the sweep has ended, the view at its end is returned.
        """
        at = self._clock() if now is None else now
        if self._ended_at is not None:
            at = self._ended_at
        result, view = self._result, self.line_view(at)
        view = replace(
            view,
            plan_words=self._plan_words(),
            guard=self._guard if result is None else result.guard,
            levels=self._levels.levels(at, self._current.ended_in_run),
            live=replace(self._curves.series(at), ttft_p50_now_ms=self._current.p50_ms),
            notices=tuple(self._notices),
        )
        if view.status.over:
            return view
        if self.failure is not None:
            view = replace(view, status=SweepStatus.FAILED, words=f"failed: {self.failure}", moment=None)
        return replace(view, progress=self._progress(view), searches=self._searches())

    def _progress(self, view: SweepView) -> float | None:
        """Return which part (0 to 1) of the time is over, of a sweep that climbs; None for others.

        It may add levels, so that more time is left than before: the part that was shown never falls.
        """
        if self._plan.climb_to is None or view.left is None:
            return None
        elapsed_s, left_s = view.elapsed_s or 0.0, middle_s(view.left.least_s, view.left.most_s)
        if elapsed_s > 0:
            self._share = max(self._share, elapsed_s / (elapsed_s + left_s))
        return self._share

    def line_view(self, at: float | None = None) -> SweepView:
        """Return the view as far as a single line shows it: without curves, levels and notices."""
        at, result = self._clock() if at is None else at, self._result
        view = replace(
            self._results_view,
            elapsed_s=max(0.0, at - self._began),
            left=self._time_left(at),
            simulated=self._results_view.simulated or self._is_simulated,
        )
        if self._ended_at is not None and result is not None:
            status = status_of(result)
            return replace(view, status=status, words=end_words(status, result))
        early = self._phase.phase in {SweepPhase.STARTING, SweepPhase.PREPARING} or self._current.key is None
        status = SweepStatus.STARTING if early and result is None else SweepStatus.RUNNING
        moment = None if early else self._moment(at)
        return replace(view, status=status, words=self._phase_words(), moment=moment)

    def evidence(self, key: Level) -> LevelEvidence | None:
        """Return the details of the level `key`, running or complete; None if it has not begun."""
        level = None if self._result is None else measured_level(self._result, key)
        # A measured level uses the values of its file, so that it is drawn the same when opened later.
        prefill_s = None if level is None else stored_prefill_s(level)
        requests, server = self._requests_of.get((SweepPhase.RUNNING, key), {}), self._only_server(key.target)
        timelines = running_timelines(key, requests, self._clock(), prefill_s, server)
        if level is None and not timelines and key != self._current.key:
            return None
        rows = (row for row in self._results_view.rows if row.key == key)
        row = next(rows, ResultRow(key, {}, complete=False))
        why = None if timelines else "no request of it has begun"
        return LevelEvidence(row, **evidence_of(level), timelines=timelines, why_no_timeline=why)

    def refer(self, references: Sequence[Reference]) -> None:
        """Draw the curves of the published tables `references` in the plots, replacing earlier ones."""
        self._references = references
        if self._result is not None:
            self._results_view = self._view_of(self._result)

    def _add_load(self, batch: Batch) -> None:
        """Add what was sent and received: all of it to the curves, the runs of a level also to its requests.

        First tokens are drawn also while long prompts arrive. The figures of the level count what is
        measured: neither that nor a warm-up.
        """
        phase, key, current = self._phase.phase, self._phase.level, self._current
        is_drawn = phase in {SweepPhase.RUNNING, SweepPhase.BESIDE}
        requests = None if key is None or not is_drawn else self._requests_of.setdefault((phase, key), {})
        for event in batch.events:
            self._rates.take(event)
            self._curves.take(event)
            ttft_ms = None if requests is None else take_request(requests, event)
            if ttft_ms is not None:
                self._curves.add_first_token(event.at, ttft_ms)
            if current.measuring and ttft_ms is not None:
                insort(current.ttfts_ms, ttft_ms)
            if current.measuring and isinstance(event, RequestEnded):
                current.ended += 1
                current.ended_in_run += 1
                current.failed += event.error is not None
        for token_bin in batch.bins:
            self._curves.add_tokens(token_bin)
            current.tokens += token_bin.tokens if current.measuring else 0
        current.in_flight = batch.in_flight
        self._curves.set_in_flight(batch.at, batch.in_flight, current.p50_ms if current.measuring else None)

    def _only_server(self, target: str) -> str | None:
        """Return the name of the only server that `target` sends its load to; None if several or unknown."""
        names = self._backends.get(target, ())
        if names:
            return names[0] if len(names) == 1 else None
        engines = {planned.name for planned in self._plan.targets if planned.kind is TargetKind.ENGINE}
        return target if target in engines else None

    def _enter_phase(self, event: PhaseChanged) -> None:
        now_s = self._clock()
        key = event.level
        measuring = event.phase is SweepPhase.RUNNING
        began = key != self._current.key or (measuring and not self._current.measuring and event.run == 0)
        if began:
            self._current = _CurrentLevel(key)
        self._current.measuring = measuring
        if measuring:
            self._current.ended_in_run = 0
        self._change_phase(event, now_s)
        self._levels.enter_phase(event, now_s)

    def _change_phase(self, event: PhaseChanged, now_s: float) -> None:
        """Store the phase; the load of a level begins or ends with some."""
        before, after = (phase.level if phase.phase.has_load else None for phase in (self._phase, event))
        if before is not None and before != after:
            self._curves.end_level(now_s)
            self._current.in_flight = 0
        if after is not None and before != after:
            self._curves.begin_level(now_s, after)
        self._phase, self._phase_at = event, now_s

    def _change_result(self, event: ResultChanged) -> None:
        """Store the newest result, recompute its view, and mark levels of failed targets as left out."""
        self._result = result = event.result
        if event.level is not None:
            self._levels.store_result(level_of(event.level, event.target, result.plan), event.level)
        elif result.status is not None:
            self._ended_at = self._clock()
            self._change_phase(PhaseChanged(SweepPhase.ENDED), self._ended_at)
            self._current = _CurrentLevel()
            self._levels.end_sweep(result)
        self._results_view = self._view_of(result)
        for target in result.targets:
            if target.error is not None:
                self._levels.leave_out(target.name)

    def _view_of(self, result: SweepResult) -> SweepView:
        levels = self._levels.levels(self._phase_at, 0) if result.status is None else ()
        unfinished = [level.key for level in levels if level.share != 1.0]
        return result_view(result, references=self._references, unfinished=unfinished)

    def _phase_words(self) -> str:
        phase = self._phase
        if phase.target is None:
            return phase.phase.value
        if phase.level is None:
            waits = ": waits for the answers to trial requests" if phase.phase is SweepPhase.PREPARING else ""
            return f"{phase.phase.value} {phase.target}{waits}"
        where = f"{phase.target}, {phase.level.label}"
        if len(self._plan.lengths) > 1:
            where += f", {phase.level.pp:,} prompt tokens"
        if phase.phase is not SweepPhase.RUNNING or phase.run is None:
            return f"{where}: {phase.phase.value}"
        if phase.runs is not None and phase.run >= phase.runs:
            return f"{where}: measured again, run {phase.run + 1}"
        of_runs = "" if phase.runs is None else f" of {phase.runs}"
        return f"{where}: run {phase.run + 1}{of_runs}"

    def _searches(self) -> tuple[SearchView, ...]:
        capacity, target, level = self._plan.capacity, self._phase.target, self._phase.level
        if capacity is None or target is None:
            return ()
        load = None if level is None else level.point.value
        found = None if self._result is None else self._result.capacity
        return (running_search(capacity, found, target, load),)

    def _plan_words(self) -> str:
        plan = self._plan
        if plan.capacity is not None:
            return conditions_words(plan.capacity)
        if self._result is not None and self._ended_at is not None:
            return plan_words(self._result.plan, self._result.prompt_lengths())
        return plan_words(plan_result(plan), () if plan.guesses_length else plan.lengths)

    def _time_left(self, now: float) -> TimeRange | None:
        """Return the range of the seconds left at `now`, from the plan's forecast before the first run."""
        if self._phase.left is not None:
            return self._phase.left.after(now - self._phase_at)
        if self._expected is None or self._result is not None:
            return None
        return self._expected.after(now - self._began)

    def _moment(self, now: float) -> SweepMoment:
        phase, current = self._phase, self._current
        is_open = current.measuring and self._plan.kind is LoadKind.RATE
        trace_s = None if self._plan.trace is None or not is_open else self._plan.trace.measured_s
        key, requests = current.key, None
        if key is not None and phase.runs is not None and self._plan.mode is LoadMode.BURST:
            # A burst is one request of each that is in flight; a level may get more runs than planned.
            requests = key.point.most_in_flight * max(phase.runs, (phase.run or 0) + 1)
        return SweepMoment(
            phase=phase.phase.value,
            key=key,
            run=None if phase.run is None else phase.run + 1,
            runs=phase.runs,
            in_flight=current.in_flight,
            tps=self._curves.newest_tps(now, RATE_WINDOW_S) if key is not None else None,
            ttft_p50_ms=current.p50_ms,
            ended=current.ended,
            requests=requests,
            failed=current.failed,
            tokens=current.tokens,
            requests_per_s=self._rates.per_s(now) if is_open else None,
            trace_at_s=None if trace_s is None else min(trace_s, self._rates.run_s(now) or 0.0),
            trace_s=trace_s,
        )
