"""Judges at each second which engines make no progress, and keeps the alerts and events about it.

Also what NCCL answered about the ranks of an engine that stands still.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import timedelta
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.analysis.ranks import judge_ranks, newest_answer
from sparktop.analysis.speed_state import is_gb10
from sparktop.analysis.stall import (
    BLIND_S,
    FACT_S,
    GB10_POWER_W,
    QUIET_S,
    GpuWork,
    Standstill,
    engine_cpu,
    engine_gpus,
    excuse_of,
    full_core_percent,
    judge_standstill,
    power_limits,
    rdma_mb_per_s,
    reason_of_standstill,
)
from sparktop.model.event import Event, Progress, ProgressView, Severity, Values
from sparktop.model.instant import Instant
from sparktop.model.node import GpuReading, NodeSample
from sparktop.model.ranks import RanksReading, RanksVerdict, RanksView
from sparktop.model.series import drop_older, known_max
from sparktop.model.snapshot import NODE_INTERVALS
from sparktop.store.alerts import ended_words
from sparktop.store.backend import BackendTrack
from sparktop.store.event_log import ActiveAlerts
from sparktop.store.node import NodeTrack
from sparktop.store.sources import SourceKey
from sparktop.store.tracks import Tracks

STUCK_ALERT, BLOCKED = "stuck", "blocked"
"""Names of the alerts: an engine without progress, and requests that wait while none runs."""
NOTED_S = 15.0
"""A standstill of at least so many seconds leaves an event, and requests that wait so long while none runs
are an alert."""
_STEADY_S = 45.0
"""GPUs count as quiet after they have been quiet for so many seconds, and as busy if they were busy in
them."""
_COLLECTED_S = 5.0
"""From so many seconds without progress on, the work of the GPUs is remembered."""
_LATE_INTERVALS = 3.0
"""A sample of a machine that is older than so many intervals says nothing about now."""
_POWERS_KEPT = 900
"""Powers that are kept of a GPU at work, and at rest: 15 minutes at 1 Hz."""
_BLOCKED_WORDS, _ASLEEP_WORDS = "requests wait and none runs", "requests wait while it sleeps"
_WORDS = {Progress.SUSPECT: Severity.WARNING, Progress.STUCK: Severity.CRITICAL}
Powers = tuple[deque[float], deque[float]]
"""Powers of a GPU in watts while its engine made tokens, and while it held no request."""


class _Standing(Struct):
    """What is remembered of one backend."""

    works: deque[tuple[float, tuple[GpuWork, ...], float | None]] = field(default_factory=deque)
    """(time, GPUs, RDMA traffic in MB/s) at each sample of its machines during a standstill."""
    seen_at: tuple[float, ...] = ()
    """Times of the newest samples of its machines."""
    powers: dict[tuple[str, int], Powers] = field(default_factory=dict)
    """By machine and index of a GPU whose limits are not known."""
    explained_at: float | None = None
    """Time at which the GPUs were last seen at work, or a reason to rest was known; None if that has not been
    in this standstill."""
    view: ProgressView | None = None
    """The standstill as last shown; None without one."""
    since: Instant | None = None
    """Time of the last progress before it."""
    held: float = 0.0
    """Requests that the backend held when it was last judged."""


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
        asked: set[str] = set()
        on_node: dict[str, int] = {}
        for track in backends.values():
            for node in track.view.nodes:
                on_node[node] = on_node.get(node, 0) + 1
        for name, track in backends.items():
            if track.health.failure is not None or track.health.good_at is None:
                asked.update(track.view.nodes if self._standing[name].since is not None else ())
                continue
            machines = _Machines(track, nodes, on_node, NODE_INTERVALS * interval_s, when.at)
            self._remember_gpu_work(name, track, machines)
            if track.standstill.stood_s < FACT_S:
                events += self._end_standstill(name, track, alerts, when)
                continue
            asked.update(track.view.nodes)
            self._judge_and_show(name, track, machines, alerts, when)
        self.nodes_asked = frozenset(asked)
        return events

    def suspects(self) -> tuple[str, ...]:
        """Return the names of the backends that are stuck or seem to be."""
        views = ((name, standing.view) for name, standing in self._standing.items())
        return tuple(name for name, view in views if view is not None and view.word in _WORDS)

    def _remember_gpu_work(self, name: str, track: BackendTrack, machines: _Machines) -> None:
        """Remember what the GPUs of a backend do, at each new sample of its machines."""
        standing = self._standing[name]
        if track.standstill.seconds < _COLLECTED_S:
            standing.works.clear()
            standing.explained_at = None
        if machines.seen_at == standing.seen_at:
            return
        standing.seen_at = machines.seen_at
        machines.learn(standing.powers)
        if track.standstill.seconds >= _COLLECTED_S:
            works = machines.works(standing.powers)
            newest = max(machines.seen_at, default=0.0)
            standing.works.append((newest, works, rdma_mb_per_s(machines.samples)))
            drop_older(standing.works, newest - _STEADY_S)

    def _judge_and_show(
        self, name: str, track: BackendTrack, machines: _Machines, alerts: ActiveAlerts, when: Instant
    ) -> None:
        """Judge the standstill of a backend, and show it."""
        standing, clock, key = self._standing[name], track.standstill, SourceKey.backend(name)
        standstill, now, core_percent = machines.standstill(standing, when.at)
        if standstill.excuse is not None or standstill.core_busy or any(gpu.is_busy for gpu in now):
            standing.explained_at = when.at
        elif standing.explained_at is not None:
            standstill = replace(standstill, unexplained_s=when.at - standing.explained_at)
        waits = clock.waited_s >= FACT_S
        word = Progress.STILL if waits and clock.seconds < FACT_S else judge_standstill(standstill)
        if word is Progress.MOVING:
            standing.view = standing.since = None
            track.show_progress(None)
            for alert in (STUCK_ALERT, BLOCKED):
                alerts.clear(f"{key.label}:{alert}", when)
            return
        reason = reason_of_standstill(standstill, now, core_percent)
        if waits:
            asleep = clock.lane is not None and clock.lane.asleep
            reason = _ASLEEP_WORDS if asleep else f"{_BLOCKED_WORDS}{reason and f'; {reason}'}"
        figures = _figures_behind(track, standstill, now, word, NOTED_S if waits else None)
        view = ProgressView(word, clock.stood_s, reason, figures)
        began_s = when.at - clock.waited_s if waits else clock.moved_at
        standing.view, standing.held = view, (track.view.running or 0.0) + (track.view.waiting or 0.0)
        standing.since = Instant(began_s, when.wall - timedelta(seconds=when.at - began_s))
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
            shown = track.view
            waiting = f", {shown.waiting:.0f} waiting" if shown.waiting else ""
            message = f"{view.word.in_words} with {shown.running or 0:.0f} running{waiting}: no progress"
            message += f". {view.why[:1].upper()}{view.why[1:]}" if view.why else ""
            alerts.hold(stuck_id, _WORDS[view.word], key.name, message, view.evidence, when, since=since)
            return
        alerts.clear(stuck_id, when, f"not stuck: {view.why or view.word.value}", timed=False)
        if waits and view.seconds >= NOTED_S:
            alerts.hold(blocked_id, Severity.WARNING, key.name, view.why, view.evidence, when, since=since)
        elif not waits:
            alerts.clear(blocked_id, when)

    def _end_standstill(
        self, name: str, track: BackendTrack, alerts: ActiveAlerts, when: Instant
    ) -> list[Event]:
        """End the standstill of a backend that makes progress again, or holds no request any more."""
        standing, key, clock = self._standing[name], SourceKey.backend(name), track.standstill
        view, since = standing.view, standing.since
        standing.view = standing.since = None
        track.show_progress(None)
        if view is None or since is None:
            return []
        alert_ids = (f"{key.label}:{condition}" for condition in (STUCK_ALERT, BLOCKED))
        held = [alert for alert in map(alerts.get, alert_ids) if alert is not None]
        starts = [since.at, *(alert.since_s for alert in held if alert.since_s)]
        stood_s = max(view.seconds, clock.moved_at - min(starts))
        count = standing.held
        requests = f" with {count:.0f} request{'' if count == 1 else 's'}" if count else ""
        after = "then went on" if clock.went_on else "then its requests were gone"
        message = f"no progress for {stood_s:.0f} s{requests}, {after}"
        for alert in held:
            alerts.clear(alert.id, when, message, timed=False)
        if held or stood_s < NOTED_S:
            return []
        text = f"{message}: {view.why}" if view.why else message
        about = f"{key.label}:paused"
        return [Event(when.wall, Severity.INFO, name, text, view.evidence, when.at, about)]


class _Machines:
    """The machines of one backend at one time, as far as they are watched and answer."""

    def __init__(
        self,
        track: BackendTrack,
        nodes: Mapping[str, NodeTrack],
        on_node: Mapping[str, int],
        interval_s: float,
        at: float,
    ) -> None:
        """Collect the newest samples; `on_node` is the number of backends on each machine."""
        self._track = track
        self._gpus: list[tuple[str, tuple[GpuReading, ...] | None, bool]] = []
        """(machine, GPUs of the backend, whether the memory is unified); None for unknown GPUs."""
        self.samples: list[NodeSample] = []
        for name in track.view.nodes:
            node = nodes.get(name)
            sample = node.view.sample if node is not None and node.view.failure is None else None
            if node is None or sample is None or at - sample.at > _LATE_INTERVALS * interval_s:
                self._gpus.append((name, None, False))
                continue
            processes = node.view.engine_processes
            gpus = engine_gpus(track.target.name, sample.gpus, processes, alone=on_node[name] == 1)
            self._gpus.append((name, gpus, bool(sample.memory.unified)))
            self.samples.append(sample)
        self.seen_at = tuple(sample.at for sample in self.samples)

    def learn(self, powers: dict[tuple[str, int], Powers]) -> None:
        """Add the power of each GPU to those at work or at rest, unless its limits are known."""
        view = self._track.view
        working = bool(view.running) and bool(view.generation_tps_1s)
        resting = view.running == 0 and not view.waiting and not view.generation_tps
        if not working and not resting:
            return
        for name, gpus, unified in self._gpus:
            for gpu in gpus or ():
                if gpu.power_w is not None and not is_gb10(gpu, unified=unified):
                    kept_powers = powers.setdefault(
                        (name, gpu.index), (deque(maxlen=_POWERS_KEPT), deque(maxlen=_POWERS_KEPT))
                    )
                    kept_powers[0 if working else 1].append(gpu.power_w)

    def works(self, powers: Mapping[tuple[str, int], Powers]) -> tuple[GpuWork, ...]:
        """Return what each GPU does; an element without figures stands for a machine that is not seen."""
        result: list[GpuWork] = []
        for name, gpus, unified in self._gpus:
            if not gpus:
                result.append(GpuWork())
            for gpu in gpus or ():
                quiet, busy = GB10_POWER_W if is_gb10(gpu, unified=unified) else (None, None)
                if (name, gpu.index) in powers:
                    quiet, busy = power_limits(*powers[name, gpu.index])
                used, clock = gpu.utilization_percent, gpu.sm_clock_mhz
                result.append(GpuWork(gpu.power_w, used, clock, quiet, busy))
        return tuple(result)

    def standstill(
        self, standing: _Standing, at: float
    ) -> tuple[Standstill, tuple[GpuWork, ...], float | None]:
        """Return (the standstill at `at` in s, the GPUs now, CPU use of its process that fills a core)."""
        track, clock = self._track, self._track.standstill
        works = tuple(work for _, several, _ in standing.works for work in several)
        _, now, _ = standing.works[-1] if standing.works else (0.0, (), None)
        rates = [rate for _, _, rate in standing.works]
        resting = bool(now) and all(work.is_at_rest for work in now)
        spinning = any(work.is_spinning for work in now)
        used = [engine_cpu(sample, track.view.engine, sample.gpus) for sample in self.samples]
        is_cpu_known = len(used) == len(self._gpus) and all(used)
        core = full_core_percent(percent for processes in used for percent in processes) if resting else None
        lane = clock.lane
        excuse = excuse_of(lane, self.samples) if lane is not None and not spinning else None
        result = Standstill(
            clock.seconds,
            clock.has_answered,
            works,
            None if None in rates else known_max(rates),
            several_machines=len(self._gpus) > 1,
            processes_known=is_cpu_known,
            core_busy=core is not None,
            excuse=excuse,
            ranks_apart=ended_words(track, at) or track.ranks_apart,
            counts_steps=lane is None or not lane.per_finished_request or lane.engine_work is not None,
            may_be_stale=clock.may_be_stale,
            fact_s=clock.fact_s,
        )
        return result, now, core


def _figures_behind(
    track: BackendTrack,
    standstill: Standstill,
    now: Sequence[GpuWork],
    word: Progress,
    waited_s: float | None,
) -> Values:
    """Return the figures behind the verdict `word`, for machine-readable output.

    `waited_s` is the limit of requests that only wait; None if they run.
    """
    view, (suspect_s, stuck_s) = track.view, QUIET_S if standstill.gpus else BLIND_S
    # Of one GPU, that which draws most: figures of several machines would be those of none.
    hardest = max(now, key=lambda gpu: gpu.power_w or 0.0, default=GpuWork())
    return {
        "limit_s": waited_s or (stuck_s if word is Progress.STUCK else suspect_s),
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


# What NCCL answered about the ranks of each backend, with the verdict on it.


_STILL_S = 5.0
"""Seconds without progress from which on an engine stands still: from then on answers are evidence."""
_MOST_READINGS = 24
"""Readings that are kept of one backend."""
_SHOWN_S = 1800.0
"""Seconds after the last query for which its result is shown."""
_WAITS_S = 60.0
"""Seconds after which a query without an answer counts as abandoned."""
_SAME_ROUND_S = 60.0
"""Queries less than this apart are announced as one event."""


class RankVerdicts:
    """Keeps the readings about the ranks of each backend that was asked about, and judges them."""

    def __init__(self, tracks: Tracks) -> None:
        """Start without readings. `tracks` are those of all watched sources."""
        self._tracks = tracks
        self._readings: dict[str, deque[RanksReading]] = {}
        self._announced: dict[str, str] = {}

    def pass_on_apart(self) -> None:
        """Pass the ranks that lag or are missing to the tracks, before their progress is judged."""
        for name, track in self._tracks.backends.items():
            track.ranks_apart = self.ranks_apart(name)

    def add(self, key: SourceKey, reading: RanksReading, when: Instant) -> list[Event]:
        """Add a reading about a backend.

        Return events: that NCCL is asked, and that ranks are apart.
        """
        readings = self._readings.setdefault(key.name, deque(maxlen=_MOST_READINGS))
        before = readings[-1].at if readings else None
        readings.append(reading)
        about = f"{key.label}:ranks"
        events = []
        if before is None or reading.at - before > _SAME_ROUND_S:
            self._announced.pop(key.name, None)
            asked = f"NCCL on {reading.node} is asked about its ranks"
            events.append(Event(when.wall, Severity.INFO, key.name, asked, at_s=when.at, about=about))
        verdict = self._verdict(key.name)
        if verdict.apart is not None and self._announced.get(key.name) != verdict.apart:
            self._announced[key.name] = verdict.apart
            message = f"{verdict.word.value}: {verdict.apart}"
            values = {"answers": float(verdict.answers), "window_s": verdict.span_s}
            events.append(Event(when.wall, Severity.WARNING, key.name, message, values, when.at, about))
        return events

    def still_since(self, name: str) -> float | None:
        """Return the time of a backend's last progress if it holds requests and makes none; else None."""
        track = self._tracks.backends.get(name)
        clock = None if track is None else track.standstill
        return None if clock is None or clock.seconds < _STILL_S else clock.moved_at

    def ranks_apart(self, name: str) -> str | None:
        """Return which ranks of a backend lag or are missing, as a sentence; None without such a verdict."""
        return self._verdict(name).apart if name in self._readings else None

    def view(self, name: str, at: float) -> RanksView | None:
        """Return what is shown about the ranks of a backend at the time `at`; None if NCCL was not asked."""
        readings = self._readings.get(name)
        if not readings or at - readings[-1].at > _SHOWN_S:
            return None
        last = readings[-1]
        begun = last.answer is None and last.problem is None
        answered = next((reading for reading in reversed(readings) if reading.answer is not None), None)
        return RanksView(
            verdict=self._verdict(name),
            age_s=max(0.0, at - last.at),
            asking=begun and at - last.at < _WAITS_S,
            node=last.node,
            answer=newest_answer(readings),
            warning=None if answered is None else answered.warning,
            names=self._node_by_address(),
        )

    def forget(self, name: str) -> None:
        """Forget all readings about a backend."""
        for kept in (self._readings, self._announced):
            kept.pop(name, None)

    def _verdict(self, name: str) -> RanksVerdict:
        names = self._node_by_address()

        def place(host: str | None) -> str:
            return "an unknown machine" if host is None else names.get(host, host)

        return judge_ranks(self._readings[name], self.still_since(name), place)

    def _node_by_address(self) -> dict[str, str]:
        """Return the names of the watched nodes by each of their addresses."""
        names: dict[str, str] = {}
        for name, track in self._tracks.nodes.items():
            identity, host = track.view.identity, urlsplit(track.target.url or "").hostname
            for address in (host, identity.hostname, *identity.addresses):
                if address:
                    names.setdefault(address, name)
        return names
