"""What the store keeps of one backend."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from sparktop.analysis.state import LoadFigures, backend_state
from sparktop.model.engine import EngineIdentity, EngineSample, LaneSample
from sparktop.model.failure import Failure
from sparktop.model.series import History
from sparktop.model.snapshot import BackendHistory, BackendView, LaneView
from sparktop.model.targets import BackendTarget, StateThresholds
from sparktop.rates import Lineage, LinkKind, Window, advance, follow
from sparktop.rates.tally import LATENCY_WINDOW_S, MISSED_INTERVALS
from sparktop.store.health import Health

RATE_WINDOW_S = 10.0
"""The window of token and request rates."""


class BackendTrack:
    """One backend: its newest figures and the history that they are computed from."""

    def __init__(self, target: BackendTarget, thresholds: StateThresholds) -> None:
        """Start with nothing known but the target."""
        self.target = target
        self.health = Health()
        self.restarts = 0
        self.preempted_at: float | None = None
        """When preemptions were counted last."""
        self.shared_address = False
        """True once it was told that several servers answer at its address."""
        self._thresholds = thresholds
        self._identity = EngineIdentity()
        self._lineage = Lineage()
        self._window = Window()
        self._waiting: deque[tuple[float, float]] = deque()
        self._generation, self._prompt = History(), History()
        self._running, self._queued, self._kv = History(), History(), History()
        self.view = BackendView(target.name, target.url, "", nodes=target.nodes, slots=target.slots)
        self._name_parts()

    def identify(self, identity: EngineIdentity) -> None:
        """Take over what the server says of itself."""
        self._identity = identity
        self._name_parts()

    def accept_failure(self, failure: Failure, now: datetime, took_ms: float | None) -> None:
        """Take a failed poll: a gap in the history, the last figures stay."""
        self.health.bad(failure, now)
        for history in (self._generation, self._prompt, self._running, self._queued, self._kv):
            history.append(failure.at, None)
        self._waiting.clear()
        state, rule = backend_state(LoadFigures(failure=failure), self._thresholds)
        self.view = replace(
            self.view,
            state=state,
            state_rule=rule,
            failure=failure,
            failing_since=self.health.failing_since,
            poll_ms=took_ms,
            history=self._histories(),
        )

    def accept_sample(
        self, sample: EngineSample, *, wall_at: float, interval_s: float, took_ms: float | None
    ) -> LinkKind | None:
        """Take a good sample and compute the figures; None for one that is not newer than the last.

        `wall_at` is our wall clock (Unix time) at `sample.at`.
        """
        if self._lineage.last is not None and sample.at <= self._lineage.last.at:
            return None
        kind = self._count(sample, wall_at, interval_s)
        self.health.good(sample.at)
        self._gauge(sample, took_ms)
        self._rate(interval_s)
        self._judge(sample)
        self._remember(sample, interval_s)
        self._name_parts()
        return kind

    def _count(self, sample: EngineSample, wall_at: float, interval_s: float) -> LinkKind:
        """Bring the window up to `sample`; it starts anew where the server did."""
        short_s = max(RATE_WINDOW_S, self._thresholds.window_s, MISSED_INTERVALS * interval_s)
        self._lineage, link = follow(self._lineage, sample, wall_at)
        if link.kind is not LinkKind.CONTINUES:
            self._window.clear()
            self._waiting.clear()
            if link.baseline is not None:
                self._window.append(advance(None, None, link.baseline), short_s)
        if link.kind is LinkKind.RESTARTED:
            self.restarts += 1
        before = self._window.newest
        tally = advance(before, link.baseline, sample)
        self._window.append(tally, short_s)
        if before is not None and tally.counters.get("preemptions", 0.0) > before.counters.get(
            "preemptions", math.inf
        ):
            self.preempted_at = sample.at
        return link.kind

    def _gauge(self, sample: EngineSample, took_ms: float | None) -> None:
        """Show what the page says itself: gauges and counters over all lanes."""
        lanes = sample.lanes
        self.view = replace(
            self.view,
            failure=None,
            failing_since=None,
            engine=sample.engine,
            lanes=tuple(
                LaneView(lane.lane, lane.running, lane.waiting, lane.kv_cache_percent) for lane in lanes
            ),
            running=_total(lane.running for lane in lanes),
            waiting=_total(lane.waiting for lane in lanes),
            kv_cache_percent=_kv_percent(lanes),
            kv_capacity_tokens=_total(lane.kv_capacity_tokens for lane in lanes),
            prompt_tokens=_total(lane.prompt_tokens for lane in lanes),
            generation_tokens=_total(lane.generation_tokens for lane in lanes),
            preemptions=_total(lane.preemptions for lane in lanes),
            finished=_finished(lanes),
            restarts=self.restarts,
            poll_ms=sample.answer_ms if sample.answer_ms is not None else took_ms,
        )

    def _rate(self, interval_s: float) -> None:
        """Show what the window says: rates over 10 s, latencies and ratios over a minute."""
        window = self._window
        # With slow polling a window has to reach the sample before, or there would never be a figure.
        short_s = max(RATE_WINDOW_S, MISSED_INTERVALS * interval_s)
        long_s = max(LATENCY_WINDOW_S, MISSED_INTERVALS * interval_s)
        read_bytes = window.rate("read_bytes_per_gpu", short_s)
        self.view = replace(
            self.view,
            prompt_tps=window.rate(self._prompt_counter, short_s),
            generation_tps=window.rate("generation_tokens", short_s),
            generation_tps_1s=window.live_rate("generation_tokens", interval_s),
            requests_per_s=window.rate("finished", short_s),
            preemptions_per_s=window.rate("preemptions", short_s),
            prefix_cache_hit_percent=self._percent("prefix_cache_hits", "prefix_cache_queries", long_s),
            spec_decode_accept_percent=self._percent("spec_accepted_tokens", "spec_draft_tokens", long_s),
            estimated_read_gb_per_s=None if read_bytes is None else read_bytes / 1e9,
            ttft=window.latency("ttft", long_s),
            itl=window.latency("itl", long_s),
            e2e=window.latency("e2e", long_s),
            queue=window.latency("queue", long_s),
        )

    def _percent(self, part: str, whole: str, window_s: float) -> float | None:
        """Give part / whole over the window; from the gauge where the server has no such counters."""
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

    def _judge(self, sample: EngineSample) -> None:
        window_s = self._thresholds.window_s
        if self.view.waiting is not None:
            self._waiting.append((sample.at, self.view.waiting))
        while self._waiting and self._waiting[0][0] < sample.at - window_s:
            self._waiting.popleft()
        told = len(self._waiting)
        preempted = self._window.counted("preemptions", window_s)
        asleep = [lane.asleep for lane in sample.lanes if lane.asleep is not None]
        load = LoadFigures(
            seen=True,
            asleep=all(asleep) if asleep else None,
            preemptions=preempted[0] if preempted else None,
            window_s=preempted[1] if preempted else 0.0,
            kv_cache_percent=self.view.kv_cache_percent,
            waiting=self.view.waiting,
            waiting_share=sum(waiting > 0 for _, waiting in self._waiting) / told if told else None,
            running=self.view.running,
            slots=self.target.slots,
        )
        state, rule = backend_state(load, self._thresholds)
        self.view = replace(self.view, state=state, state_rule=rule)

    def _remember(self, sample: EngineSample, interval_s: float) -> None:
        view = self.view
        self._generation.append(sample.at, view.generation_tps_1s)
        self._prompt.append(sample.at, self._window.live_rate(self._prompt_counter, interval_s))
        self._running.append(sample.at, view.running)
        self._queued.append(sample.at, view.waiting)
        self._kv.append(sample.at, view.kv_cache_percent)
        self.view = replace(view, history=self._histories())

    @property
    def _prompt_counter(self) -> str:
        """Cached prompt tokens cost nothing: count the computed ones where the server tells them apart."""
        newest = self._window.newest
        told = newest is not None and "prompt_tokens_computed" in newest.counters
        return "prompt_tokens_computed" if told else "prompt_tokens"

    def _name_parts(self) -> None:
        """Show what the server is, from its identity, its page and the target, in this order."""
        identity, sample = self._identity, self._lineage.last
        names = sample.models if sample else ()
        model = identity.model if identity.model in names or not names else names[0]
        engine = self.target.engine if self.target.engine != "auto" else None
        self.view = replace(
            self.view,
            engine=self.view.engine or engine,
            version=identity.version,
            model=model,
            max_model_len=identity.max_model_len,
        )

    def _histories(self) -> BackendHistory:
        return BackendHistory(
            generation_tps=self._generation.view(),
            prompt_tps=self._prompt.view(),
            running=self._running.view(),
            waiting=self._queued.view(),
            kv_cache_percent=self._kv.view(),
        )


def _total(values: Iterable[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return sum(told) if told else None


def _mean(values: Iterable[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return sum(told) / len(told) if told else None


def _kv_percent(lanes: tuple[LaneSample, ...]) -> float | None:
    """Give the used share of all lanes' caches together; a plain mean where a capacity is unknown."""
    told = [lane for lane in lanes if lane.kv_cache_percent is not None]
    capacities = [lane.kv_capacity_tokens or 0.0 for lane in told]
    if not told or not all(capacity > 0 for capacity in capacities):
        return _mean(lane.kv_cache_percent for lane in told)
    used = sum(
        (lane.kv_cache_percent or 0.0) * capacity for lane, capacity in zip(told, capacities, strict=True)
    )
    return used / sum(capacities)


def _finished(lanes: tuple[LaneSample, ...]) -> Mapping[str, float]:
    totals: dict[str, float] = {}
    for lane in lanes:
        for reason, count in lane.finished.items():
            totals[reason] = totals.get(reason, 0.0) + count
    return totals
