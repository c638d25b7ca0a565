"""The store's state of one backend."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from datetime import datetime
from functools import partial
from typing import Any

from sparktop.analysis.roles import Role
from sparktop.analysis.speed_state import StepPace
from sparktop.analysis.state import LoadFigures, backend_state
from sparktop.model.engine import EngineIdentity, EngineSample, LaneSample
from sparktop.model.failure import Failure
from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import BackendHistory, BackendView, LaneView, Latency
from sparktop.model.targets import BackendTarget, StateThresholds
from sparktop.rates import Lineage, LinkKind, Window, advance, follow
from sparktop.rates.lane_sums import kv_fullest_percent, kv_used_percent, lane_sum
from sparktop.rates.tally import EDGE_SLACK_S, LATENCIES, LATENCY_WINDOW_S, MISSED_INTERVALS
from sparktop.store.health import Health
from sparktop.store.lane_logs import LaneLogs
from sparktop.store.load_log import LoadLog
from sparktop.store.slow_steps import SlowSteps
from sparktop.store.step_baseline import StepBaseline
from sparktop.store.token_rate import live_generation, rate_note

RATE_WINDOW_S = 10.0
"""The window of token and request rates, in seconds."""
RATE_INTERVALS, _LEAST_RATE_S = 2.0, 2.0
"""A rate covers at least two intervals and 2 s: over less, it depends on the timing of steps and polls."""
_NEARLY = 0.9
"""Share of a span that is enough, because polls are rarely a full interval apart."""
_REMEMBERED = tuple(one.name for one in fields(BackendHistory))
_AS_SHOWN = (
    "running",
    "waiting",
    "kv_cache_percent",
    "prefix_cache_hit_percent",
    "spec_decode_accept_percent",
    "batch_per_step",
    "step_ms",
    "preemptions_per_s",
    "estimated_read_gb_per_s",
)
"""Histories of figures that have the same name in the view."""
_TOKEN_RATES = ("generation_tps", "generation_tps_1s", "prompt_tps", "prompt_cached_tps")
"""Rates shown beside the state: while it is "idle", all of them are 0."""
_QUICK_SHARE = 0.6
"""Share of the interval: samples closer than this come from a group that is polled more often than
configured."""
_STEADY = 0.15
"""Share of the running requests that may start or end while the steps still count as one batch size."""


class BackendTrack:
    """One backend: its newest figures, and the history that they are computed from."""

    def __init__(
        self, target: BackendTarget, thresholds: StateThresholds, slow_step_ratio: float = math.inf
    ) -> None:
        """Start without any sample."""
        self.target = target
        self.health = Health()
        self.restarts = 0
        self.preempted_at: float | None = None
        """Monotonic time at which preemptions last increased."""
        self.restarted_at: deque[float] = deque()
        """Monotonic times of the recent restarts."""
        self.slow_steps = SlowSteps()
        self.shared_address = False
        """True once an event has reported that several servers answer at this address."""
        self.step_pace: StepPace | None = None
        """The newest steps against earlier ones of the same batch; None where they cannot be compared."""
        self.role: Role | None = None
        """Whether the backend only prefills or only decodes, judged within its group."""
        self.load = LoadLog()
        """Its load at every poll, for the balance of its group."""
        self.lanes = LaneLogs()
        self._thresholds = thresholds
        self._baseline = StepBaseline(target.name, slow_step_ratio)
        self._running: deque[tuple[float, float]] = deque()
        """(time, running requests) over the rate window, for as long as every lane had a request."""
        self._identity = EngineIdentity()
        self._lineage = Lineage()
        self._window = Window()
        self._held: deque[tuple[float, float | None, float | None]] = deque()
        """Time, running and waiting requests of every poll in the window of the state."""
        self._histories = HistoryTable(_REMEMBERED)
        self._drawn_at: float | None = None
        """Time of the newest sample in the histories; None after a failure."""
        self._paced_at = -math.inf
        self._quick = False
        """True for a sample that arrived sooner than the configured interval."""
        self.view = BackendView(
            target.name,
            target.url,
            "",
            nodes=target.nodes,
            slots=target.slots,
            capture_sizes=target.capture_sizes,
        )
        if target.engine != "auto":
            self.view = replace(self.view, engine=target.engine)

    def identify(self, identity: EngineIdentity) -> None:
        """Store what the server reports about itself."""
        self._identity = identity
        self.view = replace(self.view, **self._name_parts())

    def place(self, nodes: tuple[str, ...]) -> None:
        """Store the nodes that the backend runs on."""
        if nodes != self.view.nodes:
            self.view = replace(self.view, nodes=nodes)

    def accept_failure(self, failure: Failure, now: datetime, took_ms: float | None) -> None:
        """Record a failed poll: a gap in the histories; the last figures stay."""
        self.health.bad(failure, now)
        self._histories.append(failure.at, {})
        self._drawn_at = None
        self.load.gap(failure.at)
        self.lanes.gap(failure.at)
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
            failure=failure,
            failing_since=self.health.failing_since,
            poll_ms=took_ms,
            history=BackendHistory(**self._histories.series()),
            load=self.load.history(),
        )

    def accept_sample(
        self, sample: EngineSample, *, wall_at: float, interval_s: float, took_ms: float | None
    ) -> LinkKind | None:
        """Record a sample and compute the figures; None for a sample that is not newer than the last.

        `wall_at` is the local wall clock (Unix time) at `sample.at`.
        """
        if self._lineage.last is not None and sample.at <= self._lineage.last.at:
            return None
        last_at = self._lineage.last.at if self._lineage.last else -math.inf
        self._quick = sample.at - last_at < _QUICK_SHARE * interval_s
        kind = self._count(sample, wall_at, interval_s)
        self.health.good(sample.at)
        figures = self._gauge(sample, took_ms) | self._rate(interval_s) | self._name_parts()
        figures["step_ms"] = self._step_ms(sample, figures, interval_s)
        self._log_load(sample, figures, interval_s, continues=kind is LinkKind.CONTINUES)
        judged = backend_state(self._load(sample, figures), self._thresholds)
        # A single `replace`: each one costs as much as two rates.
        self.view = replace(
            self.view,
            state=judged.state,
            state_rule=judged.rule,
            state_window_s=judged.window_s,
            failure=None,
            failing_since=None,
            history=self._remember(sample.at, figures, interval_s),
            **figures,
        )
        return kind

    def _count(self, sample: EngineSample, wall_at: float, interval_s: float) -> LinkKind:
        """Advance the window to `sample`; it starts empty when the server restarted or is another one."""
        short_s = max(RATE_WINDOW_S, self._thresholds.window_s, MISSED_INTERVALS * interval_s)
        self._lineage, link = follow(self._lineage, sample, wall_at)
        if link.kind is not LinkKind.CONTINUES:
            self._window.clear()
            self._held.clear()
            self._running.clear()
            self._baseline.clear()
            if link.baseline is not None:
                self._window.append(advance(None, None, link.baseline), short_s)
        if link.kind is LinkKind.RESTARTED:
            self.restarts += 1
            self.restarted_at.append(sample.at)
        before = self._window.newest
        tally = advance(before, link.baseline, sample)
        self._window.append(tally, short_s)
        if before is not None and tally.counters.get("preemptions", 0.0) > before.counters.get(
            "preemptions", math.inf
        ):
            self.preempted_at = sample.at
        return link.kind

    def _gauge(self, sample: EngineSample, took_ms: float | None) -> dict[str, Any]:
        """Return the figures read directly from the page, over all lanes, by field of the view."""
        lanes = sample.lanes
        return {
            "engine": sample.engine,
            "lanes": tuple(
                LaneView(lane.lane, lane.running, lane.waiting, lane.kv_cache_percent, lane.generation_tokens)
                for lane in lanes
            ),
            "running": lane_sum(lanes, lambda lane: lane.running),
            "waiting": lane_sum(lanes, lambda lane: lane.waiting),
            "waiting_for_capacity": lane_sum(lanes, lambda lane: lane.waiting_for_capacity),
            "kv_cache_percent": kv_used_percent(lanes),
            "kv_capacity_tokens": lane_sum(lanes, lambda lane: lane.kv_capacity_tokens),
            "prompt_tokens": lane_sum(lanes, lambda lane: lane.prompt_tokens),
            "generation_tokens": lane_sum(lanes, lambda lane: lane.generation_tokens),
            "preemptions": lane_sum(lanes, lambda lane: lane.preemptions),
            "finished": _finished(lanes),
            "restarts": self.restarts,
            "start_time": sample.start_time,
            "poll_ms": sample.answer_ms if sample.answer_ms is not None else took_ms,
        }

    def _rate(self, interval_s: float) -> dict[str, Any]:
        """Return the figures of the window, by field: rates over 10 s, latencies and ratios over a minute."""
        window = self._window
        # With slow polling a window must reach the previous sample, or there would never be a figure.
        short_s = max(RATE_WINDOW_S, MISSED_INTERVALS * interval_s)
        long_s = max(LATENCY_WINDOW_S, MISSED_INTERVALS * interval_s)
        rate = partial(window.rate, window_s=short_s, least_s=least_rate_s(interval_s))
        read_bytes = rate("read_bytes_per_gpu")
        apart = self._prompt_counter != "prompt_tokens"
        generated = rate("generation_tokens")
        lanes = self._lineage.last.lanes if self._lineage.last else ()
        return {
            "prompt_tps": rate(self._prompt_counter),
            "prompt_cached_tps": rate("prompt_tokens_cached") if apart else None,
            "generation_tps": generated,
            "generation_tps_1s": live_generation(
                lanes, generated, window.live_rate("generation_tokens", interval_s)
            ),
            "rate_note": rate_note(lanes),
            "rate_window_s": self._rate_window_s(short_s, least_rate_s(interval_s)),
            "requests_per_s": rate("finished"),
            "preemptions_per_s": rate("preemptions"),
            "prefix_cache_hit_percent": self._percent("prefix_cache_hits", "prefix_cache_queries", long_s),
            "spec_decode_accept_percent": self._percent("spec_accepted_tokens", "spec_draft_tokens", long_s),
            "spec_accepted_per_draft": window.ratio("spec_accepted_tokens", "spec_drafts", long_s),
            "spec_drafts_per_s": rate("spec_drafts"),
            "batch_per_step": window.ratio("stepped", "steps", long_s),
            "steps_per_s": rate("steps"),
            "estimated_read_gb_per_s": None if read_bytes is None else read_bytes / 1e9,
            **{name: window.latency(name, long_s) for name in LATENCIES},
        }

    def _rate_window_s(self, window_s: float, least_s: float) -> float | None:
        """Return the seconds that token rates cover; None where that is less than `least_s`."""
        spans = (self._window.counted(name, window_s) for name in ("generation_tokens", "finished"))
        span_s = next((counted[1] for counted in spans if counted), 0.0)
        return span_s if span_s >= least_s else None

    def _step_ms(self, sample: EngineSample, figures: Mapping[str, Any], interval_s: float) -> float | None:
        """Return the mean step time in ms if every lane worked throughout the window; judge its pace."""
        pace, self.step_pace = self.step_pace, None
        at, lanes, running = sample.at, len(sample.lanes), figures["running"]
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
            self.step_pace = self._baseline.note(at, step_ms, running, batch, figures["kv_cache_percent"])
        return step_ms

    def _percent(self, part: str, whole: str, window_s: float) -> float | None:
        """Return 100 * part / whole over the window; from the gauge if the server lacks these counters."""
        parts = self._window.counted(part, window_s)
        wholes = self._window.counted(whole, window_s)
        if parts and wholes:
            return 100.0 * parts[0] / wholes[0] if wholes[0] > 0 else None
        last = self._lineage.last
        if last is None or (self._window.newest and whole in self._window.newest.counters):
            return None
        if part == "prefix_cache_hits":
            return _mean(lane.prefix_cache_hit_percent for lane in last.lanes)
        return _mean(lane.spec_accept_percent for lane in last.lanes)

    def _log_load(
        self, sample: EngineSample, figures: dict[str, Any], interval_s: float, *, continues: bool
    ) -> None:
        """Record the load of this sample for the balance, and that of each lane if there are several."""
        at, lanes = sample.at, sample.lanes
        live = figures["rate_note"] is None
        self.load.note(at, lanes, figures["generation_tps_1s"], continues=continues, live=live)
        figures["load"] = self.load.history()
        histories = self.lanes.note(at, lanes, continues=continues, interval_s=interval_s)
        if histories:
            views: tuple[LaneView, ...] = figures["lanes"]
            figures["lanes"] = tuple(replace(view, history=histories[view.lane]) for view in views)

    def _load(self, sample: EngineSample, figures: Mapping[str, Any]) -> LoadFigures:
        """Return the figures that the state is judged by."""
        window_s = self._thresholds.window_s
        self._held.append((sample.at, figures["running"], figures["waiting"]))
        while self._held[0][0] < sample.at - window_s - EDGE_SLACK_S:
            self._held.popleft()
        waiting = [count for _, _, count in self._held if count is not None]
        preempted = self._window.counted("preemptions", window_s)
        asleep = [lane.asleep for lane in sample.lanes if lane.asleep is not None]
        return LoadFigures(
            seen=True,
            asleep=all(asleep) if asleep else None,
            preemptions=preempted[0] if preempted else None,
            window_s=sample.at - self._held[0][0],
            kv_cache_percent=kv_fullest_percent(sample.lanes),
            waiting=figures["waiting"],
            waiting_share=sum(count > 0 for count in waiting) / len(waiting) if waiting else None,
            running=figures["running"],
            running_mean=_mean(count for _, count, _ in self._held),
            tokens_moved=any(figures[name] for name in _TOKEN_RATES),
            slots=figures["slots"],
            note=sample.note,
        )

    def _remember(self, at: float, figures: Mapping[str, Any], interval_s: float) -> BackendHistory:
        """Append the figures that are drawn over time to their histories, at most one point per interval.

        This way a graph covers the same time whether its group is polled once or four times a second.
        """
        slot = math.floor(at / interval_s)
        if self._quick and self._drawn_at is not None and math.floor(self._drawn_at / interval_s) == slot:
            return self.view.history
        self._drawn_at = at
        live, apart = self._window.live_rate, figures["prompt_cached_tps"] is not None
        points: dict[str, float | None] = {name: figures[name] for name in _AS_SHOWN}
        points["generation_tps"] = figures["generation_tps_1s"]
        points["prompt_tps"] = live(self._prompt_counter, interval_s)
        points["prompt_cached_tps"] = live("prompt_tokens_cached", interval_s) if apart else None
        for name in ("ttft", "itl", "e2e", "queue"):
            latency: Latency = figures[name]
            points[f"{name}_p50_s"] = latency.p50.seconds if latency.p50 else None
            points[f"{name}_p95_s"] = latency.p95.seconds if latency.p95 else None
        self._histories.append(at, points)
        return BackendHistory(**self._histories.series())

    @property
    def _prompt_counter(self) -> str:
        """The prompt counter to show: computed tokens where known, because cached ones cost nothing."""
        newest = self._window.newest
        known = newest is not None and "prompt_tokens_computed" in newest.counters
        return "prompt_tokens_computed" if known else "prompt_tokens"

    def _name_parts(self) -> dict[str, Any]:
        """Return version, model and limits, by field, from the identity, the page and the target."""
        identity, sample = self._identity, self._lineage.last
        names = sample.models if sample else ()
        model = identity.model if identity.model in names or not names else names[0]
        return {
            "version": identity.version,
            "model": model,
            "max_model_len": identity.max_model_len,
            "slots": self.target.slots or identity.slots,
        }


def least_rate_s(interval_s: float) -> float:
    """Return the shortest span in seconds over which a rate is shown."""
    return _NEARLY * max(_LEAST_RATE_S, RATE_INTERVALS * interval_s)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _finished(lanes: tuple[LaneSample, ...]) -> Mapping[str, float]:
    totals: dict[str, float] = {}
    for lane in lanes:
        for reason, count in lane.finished.items():
            totals[reason] = totals.get(reason, 0.0) + count
    return totals
