"""Judges at each second which engines make no progress, and keeps the alerts and events about it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.analysis.speed_state import is_gb10
from sparktop.analysis.stall import (
    FACT_S,
    GB10_POWER_W,
    GpuWork,
    Standstill,
    engine_cpu,
    engine_gpus,
    excuse_of,
    full_core_percent,
    judge_standstill,
    limits_s,
    power_limits,
    rdma_mb_per_s,
    reason_of_standstill,
)
from sparktop.graphics.numbers import count_words
from sparktop.model.event import Event, Phase, Progress, ProgressView, Severity, Values
from sparktop.model.instant import Instant
from sparktop.model.node import GpuReading, NodeSample
from sparktop.model.series import drop_older, known_max
from sparktop.model.snapshot import NODE_INTERVALS
from sparktop.store.alerts import ended_words
from sparktop.store.backend import BackendTrack
from sparktop.store.event_log import ActiveAlerts
from sparktop.store.node import NodeTrack
from sparktop.store.sources import SourceKey

STUCK_ALERT, BLOCKED, _PAUSED = "stuck", "blocked", "paused"
"""Names of the alerts: an engine without progress, and requests that wait while none runs; of the event."""
NOTED_S = 15.0
"""A standstill of at least so many seconds leaves an event, and requests that wait so long while none runs
are an alert."""
_STEADY_S = 45.0
"""GPUs are judged by this many newest seconds."""
_COLLECTED_S = 5.0
"""From so many seconds without progress on, the work of the GPUs is remembered."""
_LATE_INTERVALS = 3.0
"""A sample of a machine that is older than so many intervals says nothing about now."""
_POWERS_KEPT = 900
"""Powers that are kept of a GPU at work, and at rest: 15 minutes at 1 Hz."""
_BLOCKED_WORDS, _ASLEEP_WORDS = "requests wait and none runs", "holds requests while it sleeps"
_WORDS = {Progress.SUSPECT: Severity.WARNING, Progress.STUCK: Severity.CRITICAL}


_Powers = dict[tuple[str, int], deque[float]]
"""Powers in watts, the newest last, by machine and index of a GPU whose limits are not known."""


class _WorkSample(NamedTuple):
    """What the machines of a backend did at one time, in monotonic seconds."""

    at: float
    gpus: tuple[GpuWork, ...]
    rdma_mb_per_s: float | None


class _Standing(Struct):
    """What is remembered of one backend."""

    work_samples: deque[_WorkSample] = field(default_factory=deque)
    """Those of the standstill."""
    seen_at: tuple[float, ...] = ()
    """Times of the newest samples of its machines."""
    at_work_w: _Powers = field(default_factory=dict)
    """While the engine made tokens."""
    at_rest_w: _Powers = field(default_factory=dict)
    """While the engine held no request."""
    explained_at: float | None = None
    """Time at which the GPUs were last seen at work, or a reason to rest was known; None if that has not been
    in this standstill."""
    view: ProgressView | None = None
    """The standstill as last shown; None without one."""
    since: Instant | None = None
    """Time of the last progress before it."""
    held: float = 0.0
    """Requests that the backend held when it was last judged."""
    is_noted: bool = False
    """Whether an event has told that it stands still."""

    def words(self, span: str = "") -> str:
        """Return "no progress with 2 requests"; `span` follows "progress"."""
        return f"no progress{span}" + (f" with {count_words(self.held, 'request')}" if self.held else "")


class Standstills:
    """The standstills of all backends."""

    def __init__(self) -> None:
        """Start without a standstill."""
        self._standing: dict[str, _Standing] = {}
        self.nodes_asked: frozenset[str] = frozenset()
        """Machines whose process table would help to explain a standstill."""

    def judge(
        self,
        backends: Mapping[str, BackendTrack],
        nodes: Mapping[str, NodeTrack],
        alerts: ActiveAlerts,
        interval_s: float,
        when: Instant,
    ) -> list[Event]:
        """Judge every backend that answers, update its state and its alert, and return events to add."""
        self._standing = {name: self._standing.get(name) or _Standing() for name in backends}
        events: list[Event] = []
        nodes_asked: set[str] = set()
        backend_count = Counter(node for track in backends.values() for node in track.view.nodes)
        for name, track in backends.items():
            if track.health.failure is not None or track.health.good_at is None:
                nodes_asked.update(track.view.nodes if self._standing[name].since is not None else ())
                continue
            with alerts.keep_fault(SourceKey.backend(name).label, "its progress", when):
                machines = _Machines(track, nodes, backend_count, NODE_INTERVALS * interval_s, when.at)
                self._remember_gpu_work(name, track, machines)
                if track.standstill.stood_s < FACT_S:
                    events += self._end_standstill(name, track, alerts, when)
                    continue
                nodes_asked.update(track.view.nodes)
                self._judge_and_show(name, track, machines, alerts, when)
            events += self._note_standstill(name, alerts, when)
        self.nodes_asked = frozenset(nodes_asked)
        return events

    def suspects(self) -> tuple[str, ...]:
        """Return the names of the backends that are stuck or seem to be."""
        views = ((name, standing.view) for name, standing in self._standing.items())
        return tuple(name for name, view in views if view is not None and view.word in _WORDS)

    def _remember_gpu_work(self, name: str, track: BackendTrack, machines: _Machines) -> None:
        """Remember what the GPUs of a backend do, at each new sample of its machines."""
        standing = self._standing[name]
        if track.standstill.seconds < _COLLECTED_S:
            standing.work_samples.clear()
            standing.explained_at = None
        if machines.seen_at == standing.seen_at:
            return
        standing.seen_at = machines.seen_at
        machines.learn(standing)
        if track.standstill.seconds >= _COLLECTED_S:
            newest_at = max(machines.seen_at, default=0.0)
            works = machines.works(standing)
            standing.work_samples.append(_WorkSample(newest_at, works, rdma_mb_per_s(machines.samples)))
            drop_older(standing.work_samples, newest_at - _STEADY_S)

    def _judge_and_show(
        self, name: str, track: BackendTrack, machines: _Machines, alerts: ActiveAlerts, when: Instant
    ) -> None:
        """Judge the standstill of a backend, and show it."""
        standing, idle_clock, key = self._standing[name], track.standstill, SourceKey.backend(name)
        standstill, now, core_percent = machines.standstill(standing, when.at)
        if standstill.excuse is not None or standstill.core_busy or any(gpu.is_busy for gpu in now):
            standing.explained_at = when.at
        elif standing.explained_at is not None:
            standstill = replace(standstill, unexplained_s=when.at - standing.explained_at)
        waits = idle_clock.waited_s >= FACT_S
        word = judge_standstill(standstill)
        if waits and idle_clock.seconds < FACT_S:
            word = Progress.STILL
        if word is Progress.MOVING:
            standing.view, standing.since, standing.is_noted = None, None, False
            track.show_progress(None)
            for alert in (STUCK_ALERT, BLOCKED):
                alerts.clear(f"{key.label}:{alert}", when)
            return
        reason = reason_of_standstill(standstill, now, core_percent)
        if waits:
            asleep = idle_clock.lane is not None and idle_clock.lane.asleep
            reason = _ASLEEP_WORDS if asleep else "; ".join(filter(None, (_BLOCKED_WORDS, reason)))
        figures = _figures_behind(track, standstill, now, word, NOTED_S if waits else None)
        view = ProgressView(word, idle_clock.stood_s, reason, figures)
        began_s = when.at - idle_clock.waited_s if waits else idle_clock.moved_at
        standing.view, standing.held = view, (track.view.running or 0.0) + (track.view.waiting or 0.0)
        standing.since = when.before(when.at - began_s)
        track.show_progress(view)
        self._alert(key, track, view, alerts, when, waits=waits)

    def _alert(
        self,
        key: SourceKey,
        track: BackendTrack,
        view: ProgressView,
        alerts: ActiveAlerts,
        when: Instant,
        *,
        waits: bool,
    ) -> None:
        """Raise or clear the alerts about a standstill: the graver one alone."""
        since = self._standing[key.name].since
        stuck_id, blocked_id = f"{key.label}:{STUCK_ALERT}", f"{key.label}:{BLOCKED}"
        # Without the seconds, which a replay from the middle does not know; the alert has its beginning.
        if view.word in _WORDS:
            alerts.clear(blocked_id, when, f"now {view.word.value}", timed=False)
            track_view = track.view
            waiting = f", {track_view.waiting:.0f} waiting" if track_view.waiting else ""
            message = f"{view.word.in_words} with {track_view.running or 0:.0f} running{waiting}: no progress"
            message += f". {view.why[:1].upper()}{view.why[1:]}" if view.why else ""
            alerts.hold(stuck_id, _WORDS[view.word], key.name, message, view.evidence, when, since=since)
            return
        alerts.clear(stuck_id, when, f"not stuck: {view.why or view.word.value}", timed=False)
        if waits and view.seconds >= NOTED_S:
            alerts.hold(blocked_id, Severity.WARNING, key.name, view.why, view.evidence, when, since=since)
        elif not waits:
            alerts.clear(blocked_id, when)

    def _note_standstill(self, name: str, alerts: ActiveAlerts, when: Instant) -> list[Event]:
        """Return an event in a list, with the cause, once a standstill without an alert has become long."""
        standing, key = self._standing[name], SourceKey.backend(name)
        view = standing.view
        if view is None or view.word in _WORDS or view.seconds < NOTED_S or standing.is_noted:
            return []
        if alerts.get(f"{key.label}:{BLOCKED}") is not None:
            return []
        standing.is_noted = True
        text = ": ".join(filter(None, (standing.words(), view.why)))
        begun = Event(when.wall, Severity.INFO, name, text, view.evidence, when.at, f"{key.label}:{_PAUSED}")
        return [replace(begun, phase=Phase.BEGIN, duration_s=view.seconds)]

    def _end_standstill(
        self, name: str, track: BackendTrack, alerts: ActiveAlerts, when: Instant
    ) -> list[Event]:
        """End the standstill of a backend that makes progress again, or holds no request any more."""
        standing, key, idle_clock = self._standing[name], SourceKey.backend(name), track.standstill
        view, since, is_noted = standing.view, standing.since, standing.is_noted
        standing.view, standing.since, standing.is_noted = None, None, False
        track.show_progress(None)
        if view is None or since is None:
            return []
        alert_ids = (f"{key.label}:{condition}" for condition in (STUCK_ALERT, BLOCKED))
        held_alerts = [alert for alert in map(alerts.get, alert_ids) if alert is not None]
        starts = [since.at, *(alert.since_s for alert in held_alerts if alert.since_s)]
        stood_s = max(view.seconds, idle_clock.moved_at - min(starts))
        after = "then went on" if idle_clock.went_on else "then its requests were gone"
        message = f"{standing.words(f' for {stood_s:.0f} s')}, {after}"
        for alert in held_alerts:
            alerts.clear(alert.id, when, message, timed=False)
        if held_alerts or stood_s < NOTED_S:
            return []
        text, about = (
            message if is_noted or not view.why else f"{message}: {view.why}",
            f"{key.label}:{_PAUSED}",
        )
        phase = Phase.END if is_noted else None
        return [Event(when.wall, Severity.INFO, name, text, view.evidence, when.at, about, phase, stood_s)]


class _Machines:
    """The machines of one backend at one time, as far as they are watched and answer."""

    def __init__(
        self,
        track: BackendTrack,
        nodes: Mapping[str, NodeTrack],
        backend_count: Mapping[str, int],
        interval_s: float,
        at: float,
    ) -> None:
        """Collect the newest samples; `backend_count` is that of each machine."""
        self._track = track
        self._samples: dict[str, NodeSample] = {}
        """By machine; without those that are not seen."""
        self._gpus: dict[str, tuple[GpuReading, ...]] = dict.fromkeys(track.view.nodes, ())
        """The GPUs of the backend by machine; none of those that are not seen."""
        for name in track.view.nodes:
            node = nodes.get(name)
            sample = node.view.sample if node is not None and node.view.failure is None else None
            if node is None or sample is None or at - sample.at > _LATE_INTERVALS * interval_s:
                continue
            processes = node.view.engine_processes
            alone = backend_count[name] == 1
            self._gpus[name] = engine_gpus(track.target.name, sample.gpus, processes, alone=alone) or ()
            self._samples[name] = sample
        self.samples = list(self._samples.values())
        self.seen_at = tuple(sample.at for sample in self.samples)

    def learn(self, standing: _Standing) -> None:
        """Add to `standing` the power of each GPU at work or at rest, unless its limits are known."""
        view = self._track.view
        working = bool(view.running) and bool(view.generation_tps_1s)
        resting = view.running == 0 and not view.waiting and not view.generation_tps
        if not working and not resting:
            return
        powers = standing.at_work_w if working else standing.at_rest_w
        for name, sample in self._samples.items():
            for gpu in self._gpus[name]:
                if gpu.power_w is not None and not is_gb10(gpu, unified=sample.memory.unified):
                    kept_powers = powers.setdefault((name, gpu.index), deque(maxlen=_POWERS_KEPT))
                    kept_powers.append(gpu.power_w)

    def works(self, standing: _Standing) -> tuple[GpuWork, ...]:
        """Return what each GPU does; an element without figures stands for a machine that is not seen."""
        result: list[GpuWork] = []
        for name, gpus in self._gpus.items():
            if not gpus:
                result.append(GpuWork())
            for gpu in gpus:
                at_work_w, at_rest_w = (
                    powers.get((name, gpu.index), ()) for powers in (standing.at_work_w, standing.at_rest_w)
                )
                quiet_w, busy_w = power_limits(at_work_w, at_rest_w)
                if is_gb10(gpu, unified=self._samples[name].memory.unified):
                    quiet_w, busy_w = GB10_POWER_W
                result.append(
                    GpuWork(gpu.power_w, gpu.utilization_percent, gpu.sm_clock_mhz, quiet_w, busy_w)
                )
        return tuple(result)

    def standstill(
        self, standing: _Standing, at: float
    ) -> tuple[Standstill, tuple[GpuWork, ...], float | None]:
        """Return (the standstill at `at` in s, the GPUs now, CPU use of its process that fills a core)."""
        track, idle_clock = self._track, self._track.standstill
        samples = standing.work_samples
        works = tuple(work for sample in samples for work in sample.gpus)
        now = samples[-1].gpus if samples else ()
        rdma_rates = [sample.rdma_mb_per_s for sample in samples]
        resting = bool(now) and all(work.is_at_rest for work in now)
        spinning = any(work.is_spinning for work in now)
        cpu_by_machine = [engine_cpu(sample, track.view.engine, sample.gpus) for sample in self.samples]
        is_cpu_known = len(cpu_by_machine) == len(self._gpus) and all(cpu_by_machine)
        core_percent = None
        if resting:
            core_percent = full_core_percent(percent for percents in cpu_by_machine for percent in percents)
        lane = idle_clock.lane
        excuse = excuse_of(lane, self.samples) if lane is not None and not spinning else None
        result = Standstill(
            idle_clock.seconds,
            idle_clock.has_answered,
            works,
            None if None in rdma_rates else known_max(rdma_rates),
            several_machines=len(self._gpus) > 1,
            processes_known=is_cpu_known,
            core_busy=core_percent is not None,
            excuse=excuse,
            ranks_apart=ended_words(track, at) or track.ranks_apart,
            counts_steps=lane is None or not lane.per_finished_request or lane.engine_work is not None,
            may_be_stale=idle_clock.may_be_stale,
            fact_s=idle_clock.fact_s,
        )
        return result, now, core_percent


def _figures_behind(
    track: BackendTrack,
    standstill: Standstill,
    now: Sequence[GpuWork],
    word: Progress,
    wait_limit_s: float | None,
) -> Values:
    """Return the figures behind the verdict `word`, for machine-readable output.

    `wait_limit_s` is the limit of requests that only wait; None if they run.
    """
    view, (suspect_s, stuck_s) = track.view, limits_s(standstill)
    # Of one GPU, that which draws most: figures of several machines would be those of none.
    hardest = max(now, key=lambda gpu: gpu.power_w or 0.0, default=GpuWork())
    return {
        "limit_s": wait_limit_s or (stuck_s if word is Progress.STUCK else suspect_s),
        "error_after_s": stuck_s if word is Progress.SUSPECT else None,
        "power_w": hardest.power_w,
        "utilization_percent": hardest.utilization_percent,
        "sm_clock_mhz": hardest.clock_mhz,
        "rdma_mb_per_s": standstill.rdma_mb_per_s,
        "kv_cache_percent": view.kv_cache_percent,
        "running": view.running,
        "waiting": view.waiting,
        "window_s": _STEADY_S,
    }
