"""The store's state of one backend: newest metrics, histories, and what they are computed from."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from msgspec.structs import replace

from sparktop.analysis.evidence import growth, prefill_s
from sparktop.analysis.placement import launched_count, launched_slots
from sparktop.analysis.speed_state import StepPace
from sparktop.analysis.stall import StandstillClock
from sparktop.analysis.state import LoadFigures, backend_state
from sparktop.model.engine import EngineIdentity, EngineSample, LaneSample
from sparktop.model.event import Event, ProgressView
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import Workload
from sparktop.model.series import HistoryTable, drop_older, known_mean
from sparktop.model.snapshot import BackendHistory, BackendView, LaneView, Limit, LimitKind
from sparktop.model.targets import BackendTarget, StateThresholds
from sparktop.model.yardsticks import SteadyLoad
from sparktop.rates import (
    EDGE_SLACK_S,
    LIVE_SPAN_S,
    MISSED_INTERVALS,
    Lineage,
    LinkKind,
    Window,
    advance,
    follow_server,
)
from sparktop.store.figures import (
    RATE_WINDOW_S,
    graph_points,
    prefix_use,
    prompt_counter,
    responses_accepted,
    with_figures,
    with_limits,
)
from sparktop.store.load_log import LoadLog, Role
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
        kind = None if limit is None else limit.kind
        if (kind, gpu_percent) == (self._limit, self._gpu_percent):
            return
        self._limit, self._gpu_percent = kind, gpu_percent
        if self.health.failure is None and self._figures.seen:
            self._figures = replace(self._figures, limit=kind, gpu_percent=self._own_gpu_percent())
            self.view = self._with_state(self.view, self._figures)

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
        self._drawn_at = None
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
        kind = self._count_sample(sample, wall_at, interval_s)
        self.reported_role = sample.role
        # What a user wrote counts most.
        slots = self.target.slots or self.identity.slots or sample.slots or self.launched_slots
        self.health.good(sample.at)
        at, lanes, continues = sample.at, sample.lanes, kind is LinkKind.CONTINUES
        histories = self.lanes.note(at, lanes, continues=continues, interval_s=interval_s)
        before = replace(self.view, slots=slots)
        view = with_limits(with_figures(before, lanes, self._window, interval_s), self._thresholds)
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
            page_note=self._pages.words,
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

    def _count_sample(self, sample: EngineSample, wall_at: float, interval_s: float) -> LinkKind:
        """Add the sample's counters to the samples that rates are computed from.

        Return how the sample follows the previous one. If the server restarted or another server answered,
        forget all earlier counters first.
        """
        short_s = self._window_s(interval_s)
        before_at = self._lineage.last.at if self._lineage.last else -math.inf
        self._lineage, kind, baseline = follow_server(self._lineage, sample, wall_at)
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
        return kind

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
        if self._quick and at - self._paced_at < interval_s:
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
            limit=self._limit,
            gpu_percent=self._own_gpu_percent(),
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


# The load over time of each lane of a server, for servers with 2 to 16 lanes.
#
# A lane is one engine core (data-parallel rank) of a server.


MOST_LANES = 16
"""With more lanes than this, the load of no lane is recorded: the histories would cost more than they
show."""


class LaneLogs:
    """The load over time of each engine core (lane) of a server.

    Nothing is recorded for a server with a single lane or with more than `MOST_LANES`.
    """

    def __init__(self) -> None:
        """Start without lanes."""
        self.logs: dict[str, LoadLog] = {}
        """Load logs by lane name."""
        self._rates: dict[str, LaneRate] = {}

    def note(
        self, at: float, lanes: Sequence[LaneSample], *, continues: bool, interval_s: float
    ) -> dict[str, BackendHistory]:
        """Add the samples of all engine cores (lanes) at `at`; return the history of each lane by lane name.

        The result is empty if the server has a single lane or too many. `continues` is False if the server
        restarted or another server answered since the previous sample.
        """
        if not continues or not 1 < len(lanes) <= MOST_LANES:
            self._rates.clear()
        if not 1 < len(lanes) <= MOST_LANES:
            self.logs.clear()
            return {}
        for gone in self.logs.keys() - {lane.lane for lane in lanes}:
            self.logs[gone].gap(at)
        histories: dict[str, BackendHistory] = {}
        for lane in lanes:
            log = self.logs.get(lane.lane)
            is_continued = log is not None and continues
            if log is None:
                log = self.logs[lane.lane] = LoadLog()
            rate = self._rates.setdefault(lane.lane, LaneRate())
            tokens = None if lane.per_finished_request else lane.generation_tokens
            log.note(
                at, (lane,), rate.note(at, tokens, MISSED_INTERVALS * interval_s), continues=is_continued
            )
            histories[lane.lane] = log.history()
        return histories

    def gap(self, at: float) -> None:
        """Add a gap at `at` for every engine core (lane), because the server did not answer."""
        for log in self.logs.values():
            log.gap(at)


class LaneRate:
    """The generated tokens per second of one engine core (lane), over about the last second."""

    def __init__(self) -> None:
        """Start without samples."""
        self._recent: deque[tuple[float, float]] = deque()
        """(monotonic seconds, tokens)."""

    def note(self, at: float, tokens: float | None, widest_s: float) -> float | None:
        """Add the token counter `tokens` of a sample; return the rate in tokens/s.

        Return None if the counter is unknown, or until the samples span a second. Earlier samples are
        forgotten if the counter fell or the previous sample is more than `widest_s` seconds old.
        """
        recent = self._recent
        fell = tokens is not None and recent and tokens < recent[-1][1]
        if tokens is None or fell or (recent and at - recent[-1][0] > widest_s):
            recent.clear()
        if tokens is None:
            return None
        recent.append((at, tokens))
        # One sample that is older than the span stays, so that the samples span it.
        while len(recent) > 2 and at - recent[1][0] >= LIVE_SPAN_S:  # noqa: PLR2004 - a sample at each end
            recent.popleft()
        took_s = at - recent[0][0]
        return (tokens - recent[0][1]) / took_s if took_s >= LIVE_SPAN_S else None


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
