"""The store's state of one backend: newest metrics, histories, and what they are computed from."""

from __future__ import annotations

import math
from collections import deque
from datetime import datetime

from msgspec.structs import replace

from sparktop.analysis.limited_by.evidence import prefill_s
from sparktop.analysis.roles import Role
from sparktop.analysis.speed_state import StepPace
from sparktop.analysis.standstill import StandstillClock
from sparktop.analysis.state import LoadFigures, backend_state
from sparktop.model.engine import EngineIdentity, EngineSample, LaneSample
from sparktop.model.event import Event
from sparktop.model.failure import Failure
from sparktop.model.limit import Limit, LimitKind
from sparktop.model.progress import ProgressView
from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import BackendHistory, BackendView, LaneHistory, LaneView
from sparktop.model.targets import BackendTarget, StateThresholds
from sparktop.rates import Lineage, LinkKind, Window, advance, follow
from sparktop.rates.tally import EDGE_SLACK_S, MISSED_INTERVALS
from sparktop.store.backend.draft_pace import DraftPace
from sparktop.store.backend.lane_logs import LaneLogs
from sparktop.store.backend.page_changes import PageChanges
from sparktop.store.backend.slow_steps import SlowSteps
from sparktop.store.backend.step_baseline import StepBaseline
from sparktop.store.backend.work_log import WorkLog
from sparktop.store.figures import (
    RATE_WINDOW_S,
    drawn,
    mean,
    prompt_counter,
    with_figures,
    with_limits,
)
from sparktop.store.health import Health
from sparktop.store.load_log import LoadLog

_REMEMBERED = BackendHistory.__struct_fields__
_TWO_SAMPLES = 1.5
"""Intervals between samples in which there are two, as of a Prometheus that scrapes every 15 s."""
_QUICK_SHARE = 0.6
"""Samples less than this share of the configured interval apart are extra samples: the backend belongs to a
group that is polled more often, to judge its balance."""
_LONGEST_UPTIME_S = 10 * 365 * 86400.0
_CLOCKS_DIFFER_S = 5.0
"""Difference of two machines' clocks that contradicts nothing."""
_STEADY = 0.15
"""Steps count as steps of one batch size while the number of running requests varies by at most this
share."""


class BackendTrack:
    """Keeps the samples and histories of one backend, and the newest view computed from them."""

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
        self.role: Role | None = None
        """Whether the backend only prefills or only decodes; None if it does both or that is not known."""
        self.standstill = StandstillClock()
        self._pages = PageChanges()
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
        self._window, self._drafts = Window(), DraftPace()
        self._held: deque[tuple[float, float | None, float | None]] = deque()
        """(time, running requests, waiting requests) of every poll in the window of the state."""
        self._histories = HistoryTable(_REMEMBERED)
        self._drawn_at: float | None = None
        """Time of the newest sample in the histories; None after a failure."""
        self._paced_at = -math.inf
        self._quick = False
        """True if the newest sample arrived clearly sooner than the configured interval."""
        self._figures = LoadFigures()
        """What the state was judged by at the newest poll."""
        self._limit: LimitKind | None = None
        self.loaded_until = -math.inf
        """Monotonic time until which the backend shows the load of a sweep of this program."""
        self.view = _first_view(target)

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
            model=self._model(),
            max_model_len=identity.max_model_len,
            slots=self.target.slots or identity.slots,
        )

    def show_progress(self, progress: ProgressView | None) -> None:
        """Store the verdict on the engine's standstill, and judge the state again if it has changed."""
        if progress == self.view.progress:
            return
        self._figures = replace(self._figures, progress=progress)
        self._judge_state()

    def show_limit(self, limit: Limit | None) -> None:
        """Store what holds the backend back, and judge its state again if that has changed."""
        kind = None if limit is None else limit.kind
        if kind is self._limit:
            return
        self._limit = kind
        if self.health.failure is None and self._figures.seen:
            self._figures = replace(self._figures, limit=kind)
            self._judge_state()

    def begin_own_load(self) -> None:
        """Record that a sweep of this program loads the backend: that it is full is what the sweep wants."""
        self.loaded_until = math.inf

    def end_own_load(self, at: float) -> None:
        """Record that the sweep has ended at `at` (monotonic); states still cover its last seconds."""
        self.loaded_until = at + self._thresholds.window_s

    def counted(self, name: str, window_s: float) -> tuple[float, float] | None:
        """Return (increase of a counter, elapsed seconds) over `window_s` seconds; None if it is unknown."""
        return self._window.counted(name, window_s)

    def place(self, nodes: tuple[str, ...]) -> None:
        """Store the names of the nodes that the backend runs on."""
        if nodes != self.view.nodes:
            self.view = replace(self.view, nodes=nodes)

    def accept_failure(self, failure: Failure, now: datetime, took_ms: float | None) -> None:
        """Record a failed poll: add a gap to the histories, but keep the last metric values in the view.

        `took_ms` is the duration of the poll.
        """
        self.health.bad(failure, now)
        self.ended = None
        self._histories.append(failure.at, {})
        self._drawn_at = None
        self.load.gap(failure.at)
        self.lanes.gap(failure.at)
        self.work.gap()
        self._held.clear()
        self._running.clear()
        self._baseline.pause()
        self.step_pace = None
        judged = backend_state(LoadFigures(failure=failure), self._thresholds)
        self.view = replace(
            self.view,
            state=judged.state,
            state_rule=judged.rule,
            state_window_s=None,
            progress=None,
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
        before again, out of a cache: its counters did not stand, nobody read them. `wall_at` is the local
        wall clock (Unix time) at `sample.at`, `interval_s` the configured time between two polls.
        """
        if self._lineage.last is not None and sample.at <= self._lineage.last.at:
            return None
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
        last_at = self._lineage.last.at if self._lineage.last else -math.inf
        self._quick = sample.at - last_at < _QUICK_SHARE * interval_s
        kind = self._count(sample, wall_at, interval_s)
        self._note_reported(sample)
        self.health.good(sample.at)
        at, lanes, continues = sample.at, sample.lanes, kind is LinkKind.CONTINUES
        histories = self.lanes.note(at, lanes, continues=continues, interval_s=interval_s)
        view = with_limits(with_figures(self.view, lanes, self._window, interval_s), self._thresholds)
        if view.kv_capacity_tokens is None and self.identity.kv_capacity_tokens is not None:
            view = replace(view, kv_capacity_tokens=float(self.identity.kv_capacity_tokens))
        step_ms = self._step_ms(sample, view, interval_s)
        self.load.note(at, lanes, view.generation_tps_1s, continues=continues, live=view.rate_note is None)
        self._figures = self._load(sample, view, interval_s)
        judged = backend_state(self._figures, self._thresholds)
        self.view = replace(
            view,
            engine=sample.engine,
            model=self._model(),
            lanes=tuple(_lane_view(lane, histories.get(lane.lane)) for lane in lanes),
            restarts=self.restarts,
            start_time=sample.start_time,
            poll_ms=sample.answer_ms if sample.answer_ms is not None else took_ms,
            page_note=self._pages.words,
            page_every_s=self._pages.every_s,
            step_ms=step_ms,
            spec_verdict=self._drafts.verdict(view, self._window, RATE_WINDOW_S),
            failure=None,
            failing_since=None,
            history=self._remember(at, view, step_ms, interval_s),
            load=self.load.history(),
            progress=self._figures.progress,
            state=judged.state,
            state_rule=judged.rule,
            state_window_s=judged.window_s,
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

    def _note_reported(self, sample: EngineSample) -> None:
        """Keep the role and the number of slots that the page reports."""
        self.reported_role = sample.role
        slots = self.target.slots or self.identity.slots or sample.slots
        if slots != self.view.slots:
            self.view = replace(self.view, slots=slots)

    def _judge_state(self) -> None:
        """Store the state of a backend that answers in the view."""
        judged = backend_state(self._figures, self._thresholds)
        self.view = replace(
            self.view,
            progress=self._figures.progress,
            state=judged.state,
            state_rule=judged.rule,
            state_window_s=judged.window_s,
        )

    def _count(self, sample: EngineSample, wall_at: float, interval_s: float) -> LinkKind:
        """Add the sample's counters to the samples that rates are computed from.

        Return how the sample follows the previous one. If the server restarted or another server answered,
        forget all earlier counters first.
        """
        short_s = self._window_s(interval_s)
        before_at = self._lineage.last.at if self._lineage.last else -math.inf
        self._lineage, link = follow(self._lineage, sample, wall_at)
        if link.kind is not LinkKind.CONTINUES:
            self._window.clear()
            self._held.clear()
            self._running.clear()
            self._baseline.clear()
            self._drafts.clear()
            self.standstill = StandstillClock()
            self.work.gap()
            self._pages.clear()
            if link.baseline is not None:
                self._window.append(advance(None, None, link.baseline), short_s)
        if link.kind is not LinkKind.CONTINUES:
            self._first_at, self._before_at = sample.at, -math.inf
        if link.kind is LinkKind.RESTARTED:
            self._before_at = before_at
            self.ended = None
            self.restarts += 1
            self.restarted_at.append(sample.at)
        self.standstill.note(sample, MISSED_INTERVALS * interval_s)
        before = self._window.newest
        tally = advance(before, link.baseline, sample)
        self._window.append(tally, short_s)
        if before is not None and tally.counters.get("preemptions", 0.0) > before.counters.get(
            "preemptions", math.inf
        ):
            self.preempted_at = sample.at
        return link.kind

    def _step_ms(self, sample: EngineSample, view: BackendView, interval_s: float) -> float | None:
        """Return the mean duration of an engine step in ms, over about the last 10 s.

        Return None if an engine core (lane) had no request at some time in this period, or if steps were
        counted over less than half of it. Also set `step_pace` to the comparison with earlier step times, or
        to None if no comparison is possible.
        """
        pace, self.step_pace = self.step_pace, None
        at, lanes, running = sample.at, len(sample.lanes), view.running
        if not running or not all(lane.running for lane in sample.lanes):
            self._running.clear()
            self._baseline.pause()
            return None
        window_s = max(RATE_WINDOW_S, MISSED_INTERVALS * interval_s)
        self._running.append((at, running))
        while self._running[0][0] < at - window_s - EDGE_SLACK_S:
            self._running.popleft()
        steps, span_s = self._window.counted("steps", window_s) or (0.0, 0.0)
        # None if part of the window is older than the first known number of requests.
        if steps <= 0 or span_s < window_s / 2 or at - self._running[0][0] < span_s:
            return None
        step_ms = 1000.0 * lanes * span_s / steps
        batch = self._window.ratio("stepped", "steps", window_s)
        counts = [count for _, count in self._running]
        if batch is None or max(counts) - min(counts) > max(1.0, _STEADY * running):
            self._baseline.pause()
            return step_ms
        if self._quick and at - self._paced_at < interval_s:
            self.step_pace = pace  # samples whose windows mostly overlap add no information
        else:
            self._paced_at = at
            self.step_pace = self._baseline.note(at, step_ms, running, batch, view.kv_cache_percent)
        return step_ms

    def _load(self, sample: EngineSample, view: BackendView, interval_s: float) -> LoadFigures:
        """Return the values that the backend's state is judged by, and log those for its limit."""
        self.work.note(sample, view, self._window.newest, prompt_counter(self._window))
        window_s = self._thresholds.window_s
        self._held.append((sample.at, view.running, view.waiting))
        while self._held[0][0] < sample.at - window_s - EDGE_SLACK_S:
            self._held.popleft()
        waiting = [count for _, _, count in self._held if count is not None]
        preempted = self._window.counted("preemptions", max(window_s, _TWO_SAMPLES * interval_s))
        asleep = [lane.asleep for lane in sample.lanes if lane.asleep is not None]
        return LoadFigures(
            seen=True,
            asleep=all(asleep) if asleep else None,
            progress=self.view.progress if self.standstill.stood_s else None,
            preemptions=preempted[0] if preempted else None,
            preempted_s=preempted[1] if preempted else None,
            window_s=sample.at - self._held[0][0],
            kv_cache_percent=view.kv_fullest_percent,
            swa_percent=view.counter_figures.get("swa_pool_percent"),
            states_percent=view.counter_figures.get("mamba_pool_percent"),
            waiting=view.waiting,
            waiting_share=len([1 for count in waiting if count > 0]) / len(waiting) if waiting else None,
            running=view.running,
            running_mean=mean([count for _, count, _ in self._held]),
            # Rates shown beside the state: while it is "idle", all of them are 0.
            tokens_moved=any(
                (view.generation_tps, view.generation_tps_1s, view.prompt_tps, view.prompt_cached_tps)
            ),
            slots=view.slots,
            prefill_s=prefill_s(self.work.looks),
            limit=self._limit,
            note=sample.note,
        )

    def _remember(
        self, at: float, view: BackendView, step_ms: float | None, interval_s: float
    ) -> BackendHistory:
        """Append the newest values to the histories; return the histories.

        At most one point per configured interval is added, so that a graph covers the same time whether the
        backend is polled once or four times a second.
        """
        slot = math.floor(at / interval_s)
        if self._quick and self._drawn_at is not None and math.floor(self._drawn_at / interval_s) == slot:
            return view.history
        self._drawn_at = at
        points = drawn(view, self._window, interval_s) | {"step_ms": step_ms}
        self._histories.append(at, points)
        return BackendHistory(**self._histories.series())

    @property
    def served(self) -> tuple[str, ...]:
        """All names under which it answers requests; empty where these are unknown or may be out of date."""
        names, listed = self._lineage.last.models if self._lineage.last else (), self.identity.models
        if listed is None or (names and not set(names) & set(listed)):
            return ()
        return listed

    def swapped_model(self) -> str | None:
        """Return the model that was served before, once no name of that time is served; None otherwise."""
        now = self._model()
        if now is None:
            return None
        (before, known), last = self._models, self._lineage.last
        names = frozenset({now, *(last.models if last else ()), *self.served})
        self._models = now, names
        return None if before is None or known & names else before

    def _model(self) -> str | None:
        """Return the model's name; None if unknown.

        The name that the server reports as its identity is used if the metrics page names the same model or
        no model. Otherwise the first model on the metrics page is used.
        """
        sample = self._lineage.last
        names = sample.models if sample else ()
        return self.identity.model if self.identity.model in names or not names else names[0]


def _first_view(target: BackendTarget) -> BackendView:
    """Return the view of a backend before its first poll."""
    engine = None if target.engine == "auto" else target.engine
    return BackendView(
        target.name,
        target.url,
        "",
        engine=engine,
        nodes=target.nodes,
        slots=target.slots,
        capture_sizes=target.capture_sizes,
        scrape=target.scrape,
    )


def _lane_view(lane: LaneSample, history: LaneHistory | None) -> LaneView:
    shown = (lane.running, lane.waiting, lane.kv_cache_percent, lane.generation_tokens)
    return LaneView(lane.lane, *shown, history=history)
