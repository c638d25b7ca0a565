"""The store's state of one backend: newest metrics, histories, and what they are computed from."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Any, TypeAlias

from msgspec.structs import replace

from sparktop.analysis.evidence import growth, prefill_s
from sparktop.analysis.placement import launched_count, launched_slots
from sparktop.analysis.speed_state import StepPace
from sparktop.analysis.stall import StandstillClock
from sparktop.analysis.state import LoadFigures, backend_state, limit_that_holds
from sparktop.model.engine import (
    POSITION,
    EngineIdentity,
    EngineSample,
    LaneSample,
    PrefixCache,
    kv_fullest_percent,
    kv_used_percent,
    lane_sum,
)
from sparktop.model.event import Event, ProgressView
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.figures import COUNTER_FIGURES, How
from sparktop.model.node import Workload
from sparktop.model.series import HistoryTable, drop_older, known_mean
from sparktop.model.snapshot import (
    BackendHistory,
    BackendView,
    LaneView,
    Latency,
    Limit,
    LimitKind,
    PrefixUse,
)
from sparktop.model.targets import BackendTarget, StateThresholds
from sparktop.model.yardsticks import SteadyLoad
from sparktop.rates import (
    EDGE_SLACK_S,
    LATENCY_WINDOW_S,
    MISSED_INTERVALS,
    RATE_WINDOW_S,
    Lineage,
    LinkKind,
    Window,
    advance,
    follow_server,
    merge,
)
from sparktop.store.load_log import LaneLogs, LoadLog, Role
from sparktop.store.plausible import Plausibility
from sparktop.store.sources import Health
from sparktop.store.steps import SlowSteps, StepBaseline, WorkLog

_REMEMBERED = BackendHistory.__struct_fields__
_TWO_SAMPLES = 1.5
"""Intervals between samples in which there are two, as of a Prometheus that scrapes every 15 s."""
_QUICK_SHARE = 0.6
"""Samples less than this share of the configured interval apart are extra samples: the backend belongs to a
group that is polled more often, to judge its balance."""
_LONGEST_UPTIME_S = 10 * 365 * 86400.0
"""A longer uptime is a wrong clock."""
_CLOCKS_DIFFER_S = 5.0
"""Difference of two machines' clocks that contradicts nothing."""
_STEADY = 0.15
"""Steps count as steps of one batch size while the number of running requests varies by at most this
share."""


class BackendTrack:
    """Keeps the samples and histories of one backend, and the newest view computed from them."""

    launched_slots: int | None = None
    """Most requests at once by an option of the server's process; None where that is not seen."""
    reported_role: str | None = None
    """The role that the server's page reports (see `EngineSample.role`); None where it reports none."""

    def __init__(
        self, target: BackendTarget, thresholds: StateThresholds, slow_step_ratio: float = math.inf
    ) -> None:
        """Start without any sample; steps are slow from `slow_step_ratio` times their usual duration on."""
        self.target = target
        self.health = Health()
        self.restarts = 0
        self.preempted_at: float | None = None
        """Monotonic time of the newest sample in which the preemption counter had increased; None if it never
        has."""
        self.restarted_at: deque[float] = deque()
        """Monotonic times of the recent restarts, oldest first."""
        self.slow_steps = SlowSteps()
        self.shared_address = False
        """True once an event has reported that several servers answer at this address."""
        self.step_pace: StepPace | None = None
        """The newest step time compared with earlier steps of the same batch size; None where they cannot be
        compared."""
        self.steady: SteadyLoad | None = None
        """Its steps now, as medians; None unless the batch has stood and they are not slow."""
        self.role: Role | None = None
        """Whether the backend only prefills or only decodes; None if it does both or that is not known."""
        self.standstill = StandstillClock()
        self._pages = PageChanges()
        self._plausibility = Plausibility()
        self._first_at, self._before_at = -math.inf, -math.inf
        """Times of this process' first sample, and of the last one of the process before, if it ended."""
        self._models: tuple[str | None, frozenset[str]] = (None, frozenset())
        """The model that was served last, and all names that were."""
        self.ended: Event | None = None
        """The event that a process of its engine ended, while the server has neither failed nor restarted."""
        self.ended_at: tuple[float, str | None] = (-math.inf, None)
        """Monotonic time of the newest such event, and its subject with the machine that reported it."""
        self.ranks_apart: str | None = None
        """What NCCL says about ranks that lag or are missing, in words; None without such a verdict."""
        self.load = LoadLog()
        """The backend's load at every poll: the input for the balance of its group."""
        self.lanes = LaneLogs()
        self.work = WorkLog()
        self._thresholds = thresholds
        self._baseline = StepBaseline(target.name, slow_step_ratio)
        self._running: deque[tuple[float, float]] = deque()
        """(time, running requests) of the samples in the rate window; emptied when an engine core (lane) has
        no request."""
        self.identity = EngineIdentity()
        self._lineage = Lineage()
        self._window = Window()
        self._held: deque[tuple[float, float | None, float | None]] = deque()
        """(time, running requests, waiting requests) of every sample shown, in the window of the state."""
        self._histories = HistoryTable(_REMEMBERED)
        self._drawn_at = self._shown_at = -math.inf
        """Times of the newest samples in the histories and in the view; -infinity after a failure."""
        self._paced_at = -math.inf
        self._figures = LoadFigures()
        """What the state was judged by at the newest poll."""
        self._limit: Limit | None = None
        self._gpu_percent: float | None = None
        self.loaded_until = -math.inf
        """Monotonic time until which the backend shows the load of a sweep of this program."""
        self.loaded_since = -math.inf
        """Monotonic time at which the newest such sweep began."""
        self.view = BackendView(
            target.name,
            target.url,
            "",
            engine=None if target.engine == "auto" else target.engine,
            nodes=target.nodes,
            slots=target.slots,
            capture_sizes=target.capture_sizes,
            scrape=target.scrape,
        )

    def uptime_s(self, at: float, wall_at: float) -> float | None:
        """Return the seconds since the server's process started, at `at` (monotonic) and `wall_at` (Unix).

        None where its start is unknown, or contradicts what was seen: the machines' clocks then differ.
        """
        if self.view.start_time is None:
            return None
        uptime_s = wall_at - self.view.start_time
        shortest_s, longest_s = at - self._first_at, min(at - self._before_at, _LONGEST_UPTIME_S)
        fits = shortest_s - _CLOCKS_DIFFER_S <= uptime_s <= longest_s + _CLOCKS_DIFFER_S
        return max(0.0, uptime_s) if fits else None

    def set_thresholds(self, thresholds: StateThresholds, slow_step_ratio: float) -> None:
        """Judge later samples by these thresholds."""
        self._thresholds = thresholds
        self._baseline.set_ratio(slow_step_ratio)

    def identify(self, identity: EngineIdentity) -> None:
        """Store what the server reports about itself (version, model, longest context, slots) in the view."""
        self.identity = identity
        self.view = replace(
            self.view,
            version=identity.version,
            model=self._model_name(),
            max_model_len=identity.max_model_len,
            slots=self.target.slots or identity.slots or self.launched_slots,
        )

    def note_launch(self, server: Workload, sample: EngineSample) -> None:
        """Keep what the options of the server's process say where its pages do not: slots and context."""
        self.launched_slots = launched_slots(server, len(sample.lanes))
        names = ("--max-model-len", "--context-length")
        longest = self.identity.max_model_len or launched_count(server, *names)
        if longest != self.view.max_model_len:
            self.view = replace(self.view, max_model_len=longest)

    def show_progress(self, progress: ProgressView | None) -> None:
        """Store the verdict on the engine's standstill, and judge the state again if it has changed."""
        if progress == self.view.progress:
            return
        self._figures = replace(self._figures, progress=progress)
        self.view = self._with_state(self.view, self._figures)

    def show_limit(self, limit: Limit | None, gpu_percent: float | None = None) -> None:
        """Store what holds the backend back, and judge its state again if that has changed.

        `gpu_percent` is the use of its GPUs, if they have been at work of late.
        """
        if (limit, gpu_percent) == (self._limit, self._gpu_percent):
            return
        self._limit, self._gpu_percent = limit, gpu_percent
        if self.health.failure is None and self._figures.seen:
            kind = self._limit_now(self.view)
            self._figures = replace(self._figures, limit=kind, gpu_percent=self._own_gpu_percent())
            self.view = self._with_state(self.view, self._figures)

    def _limit_now(self, view: BackendView) -> LimitKind | None:
        limit = limit_that_holds(self._limit, view)
        return None if limit is None else limit.kind

    def _own_gpu_percent(self) -> float | None:
        """Return the use of its GPUs at work; None unless many requests run, or some at most newest polls."""
        ran = sum(bool(running) for _, running, _ in self._held)
        return self._gpu_percent if self.runs_many or 2 * ran > len(self._held) else None

    @property
    def runs_many(self) -> bool:
        """Whether so many requests run that a server of unknown slots is busy."""
        return bool(self._held) and (self._held[-1][1] or 0.0) >= self._thresholds.busy_running

    def growth(self, name: str, window_s: float) -> tuple[float, float] | None:
        """Return (increase of a counter, elapsed seconds) over `window_s` seconds; None if it is unknown."""
        return self._window.growth(name, window_s)

    def place(self, nodes: tuple[str, ...]) -> None:
        """Store the names of the nodes that the backend runs on."""
        if nodes != self.view.nodes:
            self.view = replace(self.view, nodes=nodes)

    def accept_failure(self, failure: Failure, now: datetime, took_ms: float | None) -> None:
        """Record a failed poll: add a gap to the histories, but keep the last metric values in the view.

        Those of requests go where a new process loads its model: they were of the one that has ended.
        `took_ms` is the duration of the poll.
        """
        self.health.bad(failure, now)
        self.ended = None
        self._histories.append(failure.at, {})
        self._drawn_at = self._shown_at = -math.inf
        self.load.gap(failure.at)
        self.lanes.gap(failure.at)
        self.work.gap()
        self._held.clear()
        self._running.clear()
        self._baseline.pause()
        self.step_pace = self.steady = None
        last = _without_requests(self.view) if failure.kind is FailureKind.LOADING else self.view
        self.view = replace(
            self._with_state(last, LoadFigures(failure=failure)),
            failure=failure,
            failing_since=self.health.failing_since,
            poll_ms=took_ms,
            history=BackendHistory(**self._histories.series()),
            load=self.load.history(),
        )

    def accept_sample(
        self, sample: EngineSample, *, wall_at: float, interval_s: float, took_ms: float | None
    ) -> LinkKind | None:
        """Record a sample and update the view; return how the sample follows the previous one.

        Return None, and change nothing, if the sample is not newer than the last, or if it is the page from
        before again, out of a cache: its counters did not stand, nobody read them. Return None, too, for
        extra samples within an interval: what the balance is judged by is kept, the view stays. `wall_at` is
        the local wall clock (Unix time) at `sample.at`, `interval_s` the configured time between two polls.
        """
        last_at = self._lineage.last.at if self._lineage.last else -math.inf
        if sample.at <= last_at:
            return None
        at, polled_s = sample.at, interval_s
        if self.target.scrape is not None:
            interval_s = self.target.scrape.every_s
        was_cached = self._pages.cached
        if self._pages.is_repeat(sample, interval_s) and self.health.failure is None:
            self.health.good(sample.at)
            return None
        interval_s = max(interval_s, self._pages.every_s or 0.0)
        if self._pages.cached and not was_cached:
            self._count_changes(interval_s)
        # The text of the page has been recorded, and would be most of what is kept of a server: 65 kB.
        sample = replace(sample, page=None)
        kind, sample = self._count_sample(sample, wall_at, interval_s)
        self.health.good(at)
        lanes, continues = sample.lanes, kind is LinkKind.CONTINUES
        histories = self.lanes.note(at, lanes, continues=continues, interval_s=interval_s)
        is_extra = at // polled_s == self._shown_at // polled_s and at - last_at < _QUICK_SHARE * polled_s
        if is_extra and continues and self.preempted_at != at:
            live_tps, _ = _live_generation(lanes, self._window, self.view.generation_tps, interval_s)
            self.load.note(at, lanes, live_tps, continues=True, live=self.view.rate_note is None)
            return None
        self._shown_at = at
        self.reported_role = sample.role
        # What a user wrote counts most.
        slots = self.target.slots or self.identity.slots or sample.slots or self.launched_slots
        before = replace(self.view, slots=slots)
        figures = with_figures(before, lanes, self._window, interval_s, self._thresholds)
        view = self._plausibility.shares(figures, at)
        if view.kv_capacity_tokens is None and self.identity.kv_capacity_tokens is not None:
            view = replace(view, kv_capacity_tokens=float(self.identity.kv_capacity_tokens))
        step_ms = self._step_ms(sample, view, interval_s)
        self.load.note(at, lanes, view.generation_tps_1s, continues=continues, live=view.rate_note is None)
        self._figures = self._load_figures(sample, view, interval_s)
        self.view = replace(
            self._with_state(view, self._figures),
            engine=sample.engine,
            model=self._model_name(),
            lanes=tuple(_lane_view(lane, histories.get(lane.lane)) for lane in lanes),
            restarts=self.restarts,
            start_time=sample.start_time,
            client=sample.client,
            poll_ms=sample.answer_ms if sample.answer_ms is not None else took_ms,
            page_note=" · ".join(filter(None, (self._plausibility.words, self._pages.words))) or None,
            page_every_s=self._pages.every_s,
            step_ms=step_ms,
            prefix=prefix_use(sample, self.identity.prefix_cache),
            responses=responses_accepted(lanes),
            best_step_ms=None if self.step_pace is None else self.step_pace.before_ms,
            failure=None,
            failing_since=None,
            history=self._remember(at, view, step_ms, interval_s),
            load=self.load.history(),
        )
        return kind

    def _count_changes(self, interval_s: float) -> None:
        """Count from change to change of a page that comes from a cache: repeats of a page say nothing."""
        short_s, before = self._window_s(interval_s), None
        self._window.clear()
        for changed in list(self._pages.changes)[:-1]:
            self._window.append(advance(self._window.newest, before, changed), short_s)
            before = changed

    def _window_s(self, interval_s: float) -> float:
        """Return for how many seconds all counters are kept."""
        return max(RATE_WINDOW_S, self._thresholds.window_s, MISSED_INTERVALS * interval_s)

    def _with_state(self, view: BackendView, figures: LoadFigures) -> BackendView:
        """Return `view` with the state that `figures` give, and with their standstill."""
        judged = backend_state(figures, self._thresholds)
        return replace(
            view,
            progress=figures.progress,
            state=judged.state,
            state_rule=judged.rule,
            state_window_s=judged.window_s,
        )

    def _count_sample(
        self, sample: EngineSample, wall_at: float, interval_s: float
    ) -> tuple[LinkKind, EngineSample]:
        """Add the sample's counters to the samples that rates are computed from.

        Return (how the sample follows the previous one, the sample without impossible figures). If the server
        restarted or another server answered, forget all earlier counters first.
        """
        short_s = self._window_s(interval_s)
        before_at = self._lineage.last.at if self._lineage.last else -math.inf
        highest_tps = self._lineage.highest_tps
        self._lineage, kind, baseline = follow_server(self._lineage, sample, wall_at)
        lanes = self._plausibility.lanes(sample, baseline)
        if lanes != sample.lanes:
            self._lineage = replace(self._lineage, highest_tps=highest_tps)
        sample = replace(sample, lanes=lanes)
        if kind is not LinkKind.CONTINUES:
            self._window.clear()
            self._held.clear()
            self._running.clear()
            self._baseline.clear()
            if kind is not LinkKind.JUMPED:  # else it may stand still as before: its counters say so
                self.standstill = StandstillClock()
            self.work.gap()
            self._pages.clear()
            if baseline is not None:
                self._window.append(advance(None, None, baseline), short_s)
            self._first_at, self._before_at = sample.at, -math.inf
        if kind is LinkKind.RESTARTED:
            self._before_at = before_at
            self.ended = None
            self.restarts += 1
            self.restarted_at.append(sample.at)
        self.standstill.note(sample, MISSED_INTERVALS * interval_s)
        before = self._window.newest
        tally = advance(before, baseline, sample)
        self._window.append(tally, short_s)
        if before is not None and growth(before.counter("preemptions"), tally.counter("preemptions")):
            self.preempted_at = sample.at
        return kind, sample

    def _step_ms(self, sample: EngineSample, view: BackendView, interval_s: float) -> float | None:
        """Return the mean duration of an engine step in ms, over about the last 10 s.

        Return None if an engine core (lane) had no request at some time in this period, or if steps were
        counted over less than half of it. Also set `step_pace` to the comparison with earlier step times, or
        to None if no comparison is possible.
        """
        pace, self.step_pace = self.step_pace, None
        steady, self.steady = self.steady, None
        at, lanes, running = sample.at, len(sample.lanes), view.running
        if not running or not all(lane.running for lane in sample.lanes):
            self._running.clear()
            self._baseline.pause()
            return None
        window_s = max(RATE_WINDOW_S, MISSED_INTERVALS * interval_s)
        self._running.append((at, running))
        drop_older(self._running, at - window_s - EDGE_SLACK_S)
        first_at, _ = self._running[0]
        steps, span_s = self._window.growth("steps", window_s) or (0.0, 0.0)
        # None if part of the window is older than the first known number of requests.
        if steps <= 0 or span_s < window_s / 2 or at - first_at < span_s:
            return None
        step_ms = 1000.0 * lanes * span_s / steps
        batch = self._window.ratio("stepped", "steps", window_s)
        counts = [count for _, count in self._running]
        if batch is None or max(counts) - min(counts) > max(1.0, _STEADY * running):
            self._baseline.pause()
            return step_ms
        if at - self._paced_at < _QUICK_SHARE * interval_s:
            # Samples whose windows mostly overlap add no information.
            self.step_pace, self.steady = pace, steady
        else:
            self._paced_at = at
            load = SteadyLoad(at, running, batch, step_ms, view.generation_tps, view.kv_cache_percent)
            self.step_pace = self._baseline.note(load)
            self.steady = self._baseline.steady
        return step_ms

    def _load_figures(self, sample: EngineSample, view: BackendView, interval_s: float) -> LoadFigures:
        """Return the values that the backend's state is judged by, and log those for its limit."""
        self.work.note(sample, view, self._window.newest, prompt_counter(self._window))
        window_s = self._thresholds.window_s
        self._held.append((sample.at, view.running, view.waiting))
        drop_older(self._held, sample.at - window_s - EDGE_SLACK_S)
        first_at, _, _ = self._held[0]
        waiting = [count for _, _, count in self._held if count is not None]
        preempted = self._window.growth("preemptions", max(window_s, _TWO_SAMPLES * interval_s))
        asleep = [lane.asleep for lane in sample.lanes if lane.asleep is not None]
        return LoadFigures(
            seen=True,
            asleep=all(asleep) if asleep else None,
            progress=self.view.progress if self.standstill.stood_s else None,
            preemptions=preempted[0] if preempted else None,
            preempted_s=preempted[1] if preempted else None,
            window_s=sample.at - first_at,
            kv_cache_percent=view.kv_fullest_percent,
            swa_percent=view.counter_figures.get("swa_pool_percent"),
            states_percent=view.counter_figures.get("mamba_pool_percent"),
            waiting=view.waiting,
            waiting_share=len([1 for count in waiting if count > 0]) / len(waiting) if waiting else None,
            running=view.running,
            running_mean=known_mean(count for _, count, _ in self._held),
            # Rates shown beside the state: while it is "idle", all of them are 0.
            tokens_moved=any(
                (view.generation_tps, view.generation_tps_1s, view.prompt_tps, view.prompt_cached_tps)
            ),
            slots=view.slots,
            prefill_s=prefill_s(self.work.polls),
            limit=self._limit_now(view),
            gpu_percent=self._own_gpu_percent(),
            note=sample.note or self._plausibility.words,
        )

    def _remember(
        self, at: float, view: BackendView, step_ms: float | None, interval_s: float
    ) -> BackendHistory:
        """Append the newest values to the histories; return the histories.

        Points are about a configured interval apart, so that a graph covers the same time however often the
        backend is polled.
        """
        if at - self._drawn_at < _QUICK_SHARE * interval_s:
            return view.history
        self._drawn_at = at
        points = graph_points(view, self._window, interval_s) | {"step_ms": step_ms}
        self._histories.append(at, points)
        return BackendHistory(**self._histories.series())

    @property
    def served_models(self) -> tuple[str, ...]:
        """All names under which it answers requests; empty where these are unknown or may be out of date."""
        names, listed = self._lineage.last.models if self._lineage.last else (), self.identity.models
        if listed is None or (names and not set(names) & set(listed)):
            return ()
        return listed

    def swapped_model(self) -> str | None:
        """Return the model that was served before, once no name of that time is served; None otherwise."""
        now = self._model_name()
        if now is None:
            return None
        (before, names_before), last_sample = self._models, self._lineage.last
        names = frozenset({now, *(last_sample.models if last_sample else ()), *self.served_models})
        self._models = now, names
        return None if before is None or names_before & names else before

    def _model_name(self) -> str | None:
        """Return the model's name; None if unknown.

        The name that the server reports as its identity is used if the metrics page names the same model or
        no model. Otherwise the first model on the metrics page is used.
        """
        sample = self._lineage.last
        names = sample.models if sample else ()
        return self.identity.model if self.identity.model in names or not names else names[0]


def _without_requests(view: BackendView) -> BackendView:
    """Return `view` without the values of what its requests did."""
    return replace(
        view,
        running=None,
        waiting=None,
        kv_cache_percent=None,
        kv_fullest_percent=None,
        generation_tps=None,
        generation_tps_1s=None,
        prompt_tps=None,
        requests_per_s=None,
        preemptions_per_s=None,
        steps_per_s=None,
    )


def _lane_view(lane: LaneSample, history: BackendHistory | None) -> LaneView:
    values = (lane.running, lane.waiting, lane.kv_cache_percent, lane.generation_tokens)
    return LaneView(lane.lane, *values, history=history)


# The figures of a backend, computed from its newest metrics page and from its pages of the last minute.


RATE_INTERVALS, _LEAST_RATE_S = 2.0, 2.0
"""A rate covers at least this many poll intervals, and 2 s: over less time it would depend on the timing of
steps and polls."""
_BETWEEN_SCRAPES = 0.75
"""Share of that least time that is enough for scraped servers: a closer look begins between two scrapes."""
_NEARLY = 0.9
"""Share of that least time that is enough, because polls are rarely a full interval apart."""
PER_FINISHED_REQUEST = "per finished request"

_NO_FIGURES: Mapping[str, float | None] = dict.fromkeys(figure.name for figure in COUNTER_FIGURES)
_COMPUTED = tuple(figure for figure in COUNTER_FIGURES if figure.how in {How.RATE, How.PERCENT, How.MEAN})
_COUNTS = {figure.counter: figure for figure in COUNTER_FIGURES if figure.how is How.COUNT}
_GAUGES = {figure.counter: figure for figure in COUNTER_FIGURES if figure.how in {How.GAUGE, How.HIGHEST}}
"""Metrics that are what the newest page reports, by the name of their counter or gauge."""

_SUMMED: Mapping[str, Callable[[LaneSample], float | None]] = {
    name: attrgetter(name)
    for name in (
        "running",
        "waiting",
        "waiting_for_capacity",
        "kv_capacity_tokens",
        "prompt_tokens",
        "generation_tokens",
        "preemptions",
    )
}
"""Fields of a server's lanes whose sums are the fields of these names of its view."""

_Lanes: TypeAlias = Sequence[LaneSample]


def with_figures(
    view: BackendView, lanes: _Lanes, window: Window, interval_s: float, thresholds: StateThresholds
) -> BackendView:
    """Return `view` with the metrics of the newest page and those computed over the pages in `window`.

    Rates are computed over the last 10 s, latencies and ratios over the last minute. Both periods are longer
    if the poll interval is long. Latencies have their limits in `thresholds`.
    """
    # With slow polling a window must reach the previous sample, or there would never be a figure.
    short_s = max(RATE_WINDOW_S, MISSED_INTERVALS * interval_s)
    long_s = max(LATENCY_WINDOW_S, MISSED_INTERVALS * interval_s)
    least_s = least_rate_s(interval_s) * (1.0 if view.scrape is None else _BETWEEN_SCRAPES)
    sums: dict[str, Any] = {name: lane_sum(lanes, field) for name, field in _SUMMED.items()}
    rate = partial(window.rate, window_s=short_s, least_s=least_s)
    percent = partial(_percent_of_growth, lanes, window, long_s)
    prompt, generated = prompt_counter(window), rate("generation_tokens")
    live_tps, live_s = _live_generation(lanes, window, generated, interval_s)
    read = rate("read_bytes_per_gpu")
    itl_slow_s = thresholds.itl_slow_ms / 1000 if thresholds.itl_slow_ms else None

    def latency(name: str, slow_s: float | None = None) -> Latency:
        measured = window.latency(name, long_s)
        return replace(measured, slow_s=slow_s) if slow_s else measured

    return replace(
        view,
        **sums,
        kv_cache_percent=kv_used_percent(lanes),
        kv_fullest_percent=kv_fullest_percent(lanes),
        finished=_finished_by_reason(lanes),
        prompt_tps=rate(prompt),
        prompt_cached_tps=rate("prompt_tokens_cached") if prompt != "prompt_tokens" else None,
        generation_tps=generated,
        generation_tps_1s=live_tps,
        live_window_s=live_s,
        rate_note=_rate_note(lanes),
        rate_window_s=_rate_window_s(window, short_s, least_s),
        requests_per_s=rate("finished"),
        preemptions_per_s=rate("preemptions"),
        prefix_cache_hit_percent=percent(
            "prefix_cache_hits", "prefix_cache_queries", "prefix_cache_hit_percent"
        ),
        spec_decode_accept_percent=percent(
            "spec_accepted_tokens", "spec_draft_tokens", "spec_accept_percent"
        ),
        spec_accepted_per_draft=window.ratio("spec_accepted_tokens", "spec_drafts", long_s),
        spec_drafts_per_s=rate("spec_drafts"),
        spec_draft_length=window.ratio("spec_draft_tokens", "spec_drafts", short_s),
        tokens_per_step=window.ratio("stepped", "steps", long_s),
        steps_per_s=rate("steps"),
        counter_figures=_counter_figures(lanes, window, short_s, least_s, long_s),
        spec_accept_by_position=_by_position(lanes, window, long_s),
        estimated_read_gb_per_s=None if read is None else read / 1e9,
        ttft=latency("ttft", thresholds.ttft_slow_s),
        itl=latency("itl", itl_slow_s),
        e2e=latency("e2e"),
        queue=latency("queue", thresholds.queue_slow_s),
        tpot=latency("tpot"),
        prefill=latency("prefill"),
        decode=latency("decode"),
    )


def prefix_use(sample: EngineSample, identified: PrefixCache | None) -> PrefixUse | None:
    """Return what caches spared a server of its prompts since its start, by its counters.

    `identified` is how the server says its cache is configured, for pages that do not say whether it is on.
    None where that, the prompt tokens or the cached ones are unknown, and before the first prompt. SGLang
    counts cached tokens from the first one on: before, its hit rate is 0.
    """
    lanes, cache = sample.lanes, sample.prefix_cache
    cache = identified if cache is None or cache.on is None else cache
    tokens = lane_sum(lanes, _SUMMED["prompt_tokens"])
    if cache is None or cache.on is None or tokens is None:
        return None
    prompts = [lane.ttft.count for lane in lanes if lane.ttft is not None]
    if any(lane.per_finished_request for lane in lanes):
        prompts = [*_finished_by_reason(lanes).values()]
    # Without any count, 0 tokens were found only if the cache is off, or the reported hit rate is 0.
    uncounted = 0.0 if not cache.on or any(lane.prefix_cache_hit_percent == 0 for lane in lanes) else None
    cached = lane_sum(lanes, lambda lane: _cached_tokens(lane, uncounted))
    queried = lane_sum(lanes, lambda lane: lane.prefix_cache_queries) if cache.on else None
    if cached is None or not (prompts or queried):
        return None
    lmcache = [lane.counts for lane in lanes if "lmcache_lookups" in lane.counts]
    looked_up = sum(counts["lmcache_lookups"] for counts in lmcache)
    hits = sum(counts.get("lmcache_hits", 0.0) for counts in lmcache)
    return PrefixUse(
        cache,
        sum(prompts) if prompts else None,
        tokens,
        tokens if queried is None else queried,
        cached,
        merge([lane.request_tokens for lane in lanes if lane.request_tokens is not None]),
        (looked_up, hits) if lmcache else None,
    )


def responses_accepted(lanes: _Lanes) -> float | None:
    """Return the requests of the Responses API that a server has accepted; None where it does not count."""
    counts = [lane.counts for lane in lanes if "http_answers" in lane.counts]
    return sum(counted.get("responses", 0.0) for counted in counts) if counts else None


def _cached_tokens(lane: LaneSample, uncounted: float | None) -> float | None:
    """Return the prompt tokens that a lane took from caches, by the highest of its counts.

    They are its count of cached prompt tokens, and the hits of its own and of a shared cache; `uncounted`
    where it reports none of these.
    """
    own_hits, shared = lane.prefix_cache_hits, lane.external_cache_hits
    counts = [lane.prompt_tokens_cached, None if own_hits is None else own_hits + (shared or 0.0), shared]
    return max((count for count in counts if count is not None), default=uncounted)


def graph_points(view: BackendView, window: Window, interval_s: float) -> dict[str, float | None]:
    """Return the value to append to each of a backend's graphs, by field name of `BackendHistory`.

    Token rates are those of about the last second. `step_ms` is not included.
    """
    is_split = view.prompt_cached_tps is not None
    points = {
        "generation_tps": view.generation_tps_1s,
        "prompt_tps": window.live_rate(prompt_counter(window), interval_s),
        "prompt_cached_tps": window.live_rate("prompt_tokens_cached", interval_s) if is_split else None,
        "running": view.running,
        "waiting": view.waiting,
        "kv_cache_percent": view.kv_cache_percent,
        "prefix_cache_hit_percent": view.prefix_cache_hit_percent,
        "spec_decode_accept_percent": view.spec_decode_accept_percent,
        "tokens_per_step": view.tokens_per_step,
        "preemptions_per_s": view.preemptions_per_s,
        "estimated_read_gb_per_s": view.estimated_read_gb_per_s,
    }
    for name, latency in (("ttft", view.ttft), ("itl", view.itl), ("e2e", view.e2e), ("queue", view.queue)):
        points[f"{name}_p50_s"] = latency.p50.seconds if latency.p50 else None
        points[f"{name}_p95_s"] = latency.p95.seconds if latency.p95 else None
    return points


def least_rate_s(interval_s: float) -> float:
    """Return the shortest span in seconds over which a rate is shown, for a poll interval of `interval_s`."""
    return _NEARLY * max(_LEAST_RATE_S, RATE_INTERVALS * interval_s)


def prompt_counter(window: Window) -> str:
    """Return the name of the counter from which the rate of prompt tokens is computed.

    If the server counts computed prompt tokens, it is that counter, which leaves out tokens from the prefix
    cache; else the counter of all prompt tokens.
    """
    newest = window.newest
    is_counted = newest is not None and newest.counter("prompt_tokens_computed") is not None
    return "prompt_tokens_computed" if is_counted else "prompt_tokens"


def _rate_note(lanes: _Lanes) -> str | None:
    """Return `PER_FINISHED_REQUEST` if tokens are counted only when a request finishes, else None."""
    return PER_FINISHED_REQUEST if any(lane.per_finished_request for lane in lanes) else None


def _live_generation(
    lanes: _Lanes, window: Window, counted_tps: float | None, interval_s: float
) -> tuple[float | None, float | None]:
    """Return (generated tokens/s of about the last second, seconds that they cover); None where unknown.

    If the server reports a gauge, return the gauge, summed over the engine cores (lanes); else compute the
    rate from the token counter. An idle SGLang refreshes its gauge only every 30 s. So the counter is also
    used while `counted_tps`, the counted rate of the last seconds, is 0 and the server counts each token at
    once.
    """
    reported = [lane.generation_tps_gauge for lane in lanes if lane.generation_tps_gauge is not None]
    resting = not counted_tps and counted_tps is not None and _rate_note(lanes) is None
    if reported and not resting:
        return sum(reported), None
    counted = window.live_growth("generation_tokens", interval_s)
    return (None, None) if counted is None else (counted[0] / counted[1], counted[1])


def _rate_window_s(window: Window, window_s: float, least_s: float) -> float | None:
    """Return the seconds that the token rates cover; None if that is less than `least_s`."""
    spans = (window.growth(name, window_s) for name in ("generation_tokens", "finished"))
    span_s = next((counted[1] for counted in spans if counted), 0.0)
    return span_s if span_s >= least_s else None


def _counter_figures(
    lanes: _Lanes, window: Window, rate_s: float, least_s: float, ratio_s: float
) -> Mapping[str, float | None]:
    """Return the figures of `COUNTER_FIGURES` by name; None for what the server does not report."""
    result = dict(_NO_FIGURES)
    counters = window.newest.layout.counters if window.newest else {}
    for computed in _COMPUTED:
        if computed.counter in counters:
            result[computed.name] = window.figure(computed, rate_s, least_s, ratio_s)
    reported = (
        (_COUNTS, [lane.counts for lane in lanes if lane.counts]),
        (_GAUGES, [lane.gauges for lane in lanes if lane.gauges]),
    )
    for figures, held in reported:
        for name in figures.keys() & set().union(*held):
            figure, amounts = figures[name], [values[name] for values in held if name in values]
            result[figure.name] = figure.scale * (max(amounts) if figure.how is How.HIGHEST else sum(amounts))
    return result


def _by_position(lanes: _Lanes, window: Window, window_s: float) -> tuple[float | None, ...]:
    """Return the percentage of drafts whose token was accepted, by position in the draft; () if unknown."""
    if not any(f"{POSITION}0" in lane.counts for lane in lanes):
        return ()
    positions = max(sum(name.startswith(POSITION) for name in lane.counts) for lane in lanes)
    shares = (window.ratio(f"{POSITION}{index}", "spec_drafts", window_s) for index in range(positions))
    return tuple(None if share is None else 100.0 * share for share in shares)


def _percent_of_growth(
    lanes: _Lanes, window: Window, window_s: float, part: str, whole: str, gauge: str
) -> float | None:
    """Return 100 * growth of the counter `part` / growth of the counter `whole`, over `window_s` seconds.

    If the server lacks these counters, return the mean of the field `gauge` of its lanes. Return None if
    nothing is known.
    """
    parts, wholes = window.growth(part, window_s), window.growth(whole, window_s)
    if parts and wholes:
        return 100.0 * parts[0] / wholes[0] if wholes[0] > 0 else None
    counts = window.newest is not None and window.newest.counter(whole) is not None
    return None if counts else known_mean(map(attrgetter(gauge), lanes))


def _finished_by_reason(lanes: _Lanes) -> Mapping[str, float]:
    totals: dict[str, float] = {}
    for lane in lanes:
        for reason, count in lane.finished.items():
            totals[reason] = totals.get(reason, 0.0) + count
    return totals


# Recognises a metrics page that comes from a cache: it stands for seconds, then everything on it jumps.
#
# A caching proxy answers several polls with one page. The counters then seem to stand while requests run,
# and a rate between two such pages is wrong by up to a whole period. A live page cannot repeat byte by byte
# while its server uses CPU time, which `process_cpu_seconds_total` on it counts. SGLang, whose figures
# change once in many steps, other pages without this counter, and servers that hardly use CPU time or make
# few tokens (a step of prefill may take seconds) are recognised by the header `Age` alone.


_CHANGES = 4
"""Changes of the page that are compared: three spans between them."""
_LEAST_SPAN_S, _LEAST_POLLS = 1.9, 2.5
"""A page that changes more often than that, in seconds or in polls, is not told from a live one."""
_UNEVEN_POLLS, _UNEVEN_SHARE = 1.5, 0.1
"""How far spans between two changes may differ: that many poll intervals and that share of the longest."""
_LEAST_CPU_S = 0.03
"""CPU seconds a poll, three ticks of the kernel's clock, from which on a live page cannot repeat."""
_LEAST_TOKENS = 4
"""Tokens for each running request between two changes: fewer may come from one long step, as of prefill."""
_LIVE_AGAIN = 2
"""Changes in a row, each a poll after the one before, after which a page counts as live again."""
_LATE = 1.5
"""A page that has not changed for so many periods is read as a new one: its server may do nothing."""


class PageChanges:
    """When the page of one server changed, and how often it does if it comes from a cache."""

    def __init__(self) -> None:
        """Start without a page."""
        self.every_s: float | None = None
        """Mean seconds between two changes of a page from a cache; None for a live page, or before a span."""
        self.cached = False
        """Whether the page comes from a cache."""
        self.changes: deque[EngineSample] = deque(maxlen=_CHANGES)
        """The first sample of each of the newest pages."""
        self._page: int | None = None
        """Hash of the newest page: the page itself would be most of what is kept of a server."""
        self._accepted_at = 0.0

    def clear(self) -> None:
        """Forget the pages of a process that has ended."""
        self.changes.clear()
        self.every_s, self.cached = None, False

    @property
    def words(self) -> str | None:
        """That the page comes from a cache, as text; None for a live page."""
        if not self.cached:
            return None
        if self.every_s is None:
            return "the page comes from a cache"
        return f"the page changes every {round(2 * self.every_s) / 2:g} s"

    def is_repeat(self, sample: EngineSample, interval_s: float) -> bool:
        """Note a sample, polled every `interval_s` seconds; return whether it is the page from before again.

        Only a page from a cache repeats. One that has stood for much more than its period is no repeat.
        """
        before, self._page = self._page, None if sample.page is None else hash(sample.page)
        if self._page is None:
            self.clear()
            return False
        old = sample.cache_age_s is not None and sample.cache_age_s >= 1.0
        if self._page != before:
            self.changes.append(replace(sample, page=None))
            self._judge(interval_s, old=old)
            self._accepted_at = sample.at
            return False
        self.cached = self.cached or old
        stood_s = sample.at - self._accepted_at
        if self.cached and (old or (self.every_s is not None and stood_s < _LATE * self.every_s)):
            return True
        self._accepted_at = sample.at
        return False

    def _judge(self, interval_s: float, *, old: bool) -> None:
        """Judge whether the page comes from a cache, at a change of it."""
        spans = [later.at - earlier.at for earlier, later in pairwise(self.changes)]
        least_s = max(_LEAST_SPAN_S, _LEAST_POLLS * interval_s)
        long = [span >= least_s for span in spans]
        if self.cached or old:
            self.cached = old or len(long) < _LIVE_AGAIN or any(long[-_LIVE_AGAIN:])
        else:
            self.cached = len(spans) == _CHANGES - 1 and all(long) and self._has_even_jumps(spans, interval_s)
        spans = [span for span, is_long in zip(spans, long, strict=True) if is_long]
        self.every_s = sum(spans) / len(spans) if self.cached and spans else None

    def _has_even_jumps(self, spans: list[float], interval_s: float) -> bool:
        """Return whether the server made tokens and used CPU time between all changes, which come evenly."""
        even = max(spans) - min(spans) <= _UNEVEN_POLLS * interval_s + _UNEVEN_SHARE * max(spans)
        return even and all(_has_worked(*pair, interval_s) for pair in pairwise(self.changes))


def _has_worked(earlier: EngineSample, later: EngineSample, interval_s: float) -> bool:
    if earlier.cpu_s is None or later.cpu_s is None:
        return False
    before, after = (
        sum(lane.generation_tokens or 0.0 for lane in sample.lanes) for sample in (earlier, later)
    )
    running = max(sum(lane.running or 0.0 for lane in sample.lanes) for sample in (earlier, later))
    polls = (later.at - earlier.at) / interval_s
    used_cpu = later.cpu_s - earlier.cpu_s >= _LEAST_CPU_S * polls
    return running > 0 and after - before >= _LEAST_TOKENS * running and used_cpu
