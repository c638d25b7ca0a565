"""Verdicts on single servers: what limits them, whether they make progress, their starts and their ranks.

A class for each, which keeps what it saw of every server. The rules are in `analysis/`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from urllib.parse import urlsplit

from msgspec import Struct, field, structs
from msgspec.structs import replace

from sparktop.analysis.evidence import Evidence, Machine, Peer
from sparktop.analysis.loading import Look, StartClock, best_past, is_warm
from sparktop.analysis.placement import server_process
from sparktop.analysis.ranks import judge_ranks, newest_answer
from sparktop.analysis.speed_state import bandwidth_gb_per_s, is_gb10, read_percent
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
from sparktop.analysis.start_memory import room_of
from sparktop.analysis.state import limit_to_show
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.engine import EngineSample
from sparktop.model.event import Event, Progress, ProgressView, Severity, Values
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.instant import Instant
from sparktop.model.known import known_max, known_min, known_sum
from sparktop.model.node import GpuReading, NodeSample, Workload, Workloads
from sparktop.model.ranks import RanksReading, RanksVerdict, RanksView
from sparktop.model.snapshot import (
    NODE_INTERVALS,
    BackendState,
    BackendView,
    Limit,
    LimitKind,
    Loading,
    PastStart,
    StartMemory,
    minutes,
)
from sparktop.model.text import clean
from sparktop.store.backend import BackendTrack
from sparktop.store.event_log import ActiveAlerts
from sparktop.store.node import NodeTrack
from sparktop.store.sources import SourceKey
from sparktop.store.tracks import STUCK, Group, RouterTrack, Tracks

EVERY_S = 5.0
"""Seconds between two verdicts on the limit of one backend."""
MOST_AT_ONCE = 16
"""Backends judged in one call of `look`: a longer call would stall the screen."""
_MOST_PEERS = 3
"""Servers compared with one behind a router: this many of those with the fewest requests, and of those with
the most."""

_HUNG = {Progress.SUSPECT, Progress.STUCK}
_ROUTED_S = 60.0
"""Seconds over which the counts of a router are compared with those of the servers behind it."""
_TOO_LITTLE_SENT = {LimitKind.CLIENT, LimitKind.CLIENT_OR_ROUTER}
_OF_THE_SPLIT = _TOO_LITTLE_SENT | {LimitKind.ROUTER}
"""Limits that depend on the verdict on the group's balance."""
_AT_EASE = frozenset({BalanceWord.BALANCED, BalanceWord.IDLE})
"""Verdicts on a group that explain no limit of its servers."""

Routed = Sequence[tuple[RouterTrack, Group]]
"""Each router with the backends behind it."""


class ServerLimits:
    """What holds each backend back, as of the newest verdict.

    A verdict replaces another one when two in a row agree, so that the line does not flicker.
    """

    def __init__(self) -> None:
        """Start without verdicts."""
        self._found: dict[str, Limit | None] = {}
        self._next: dict[str, LimitKind | None] = {}
        """Kind of a verdict that differs from the one in `_found`, by backend: seen once so far."""
        self._judged_at: dict[str, float] = {}
        self._splits: Mapping[str, Balance] = {}
        """The newest balance of the group of each backend that is in one."""
        self._split_words: dict[str, BalanceWord | None] = {}
        """The verdict on the group's balance with which each backend was judged last."""

    def of(self, view: BackendView) -> Limit | None:
        """Return what holds a backend back; None if it does not answer, stands still or was not judged.

        A pinned clock is the machine's own figure: it explains a long step while nothing else moves.
        """
        limit = self._found.get(view.name)
        progress = None if view.progress is None else view.progress.word
        if view.failure is not None or progress in _HUNG:
            return None
        if progress is Progress.STILL and (limit is None or limit.kind is not LimitKind.POWER):
            return None
        if limit is not None and limit.kind in _TOO_LITTLE_SENT and _has_queue(view):
            return None  # since the verdict, requests have begun to wait
        return limit_to_show(limit, view.state)

    def look(
        self,
        at: float,
        backends: Mapping[str, BackendTrack],
        nodes: Mapping[str, NodeTrack],
        routed: Routed,
        groups: Iterable[Balance] = (),
    ) -> None:
        """Judge the backends that are due at `at` (monotonic seconds), those waiting longest first.

        `groups` are the newest verdicts on groups, which have been judged before: a limit that contradicts
        the verdict on its group is judged again at once, or not shown until then.
        """
        for gone in self._judged_at.keys() - backends.keys():
            for book in (self._judged_at, self._found, self._next, self._split_words):
                book.pop(gone, None)
        self._splits = {name: group for group in groups if group.lanes_of is None for name in group.backends}
        for name in self._judged_at:
            split = self._splits.get(name)
            if (None if split is None else split.word) is not self._split_words.get(name):
                self._judged_at[name] = -math.inf
                self._next.pop(name, None)
                found = self._found.get(name)
                if found is not None and (
                    found.kind in _OF_THE_SPLIT or (split is not None and split.word not in _AT_EASE)
                ):
                    self._found[name] = None
        due = [name for name in backends if at - self._judged_at.get(name, -math.inf) >= EVERY_S]
        due.sort(key=lambda name: self._judged_at.get(name, -math.inf))
        running = _running_on(backends) if due else {}
        for name in due[:MOST_AT_ONCE]:
            self._judged_at[name] = at
            split = self._splits.get(name)
            self._split_words[name] = None if split is None else split.word
            self.note(name, _judge_limit(backends[name], backends, nodes, routed, running, split))
        for track in backends.values():
            track.show_limit(self._found.get(track.target.name))

    def note(self, name: str, limit: Limit | None) -> None:
        """Record a judgement of a backend; a verdict of another kind must be judged twice in a row."""
        before = self._found.get(name)
        kind = None if limit is None else limit.kind
        if limit is None or before is None or before.kind is kind or self._next.get(name) is kind:
            self._found[name] = limit
            self._next.pop(name, None)
        else:
            self._next[name] = kind


def _has_queue(view: BackendView) -> bool:
    """Return whether requests wait; one that has come to an empty server only awaits its next step."""
    return bool(view.waiting and (view.running or view.waiting > 1))


def _running_on(backends: Mapping[str, BackendTrack]) -> dict[str, list[str]]:
    """Return the names of the backends that run requests, by the node they are on."""
    result: dict[str, list[str]] = {}
    for name, track in backends.items():
        if track.view.running:
            for node in track.view.nodes:
                result.setdefault(node, []).append(name)
    return result


def _judge_limit(
    track: BackendTrack,
    backends: Mapping[str, BackendTrack],
    nodes: Mapping[str, NodeTrack],
    routed: Routed,
    running: Mapping[str, Sequence[str]],
    split: Balance | None,
) -> Limit | None:
    if track.health.failure is not None or not track.work.looks:
        return None
    from sparktop.analysis.limited_by import limited_by  # late: the first verdict comes after seconds

    beside = (name for node in track.view.nodes for name in running.get(node, ()))
    neighbours = tuple(name for name in dict.fromkeys(beside) if backends[name] is not track)
    return limited_by(_evidence(track, backends, nodes, routed, neighbours, split))


def _evidence(
    track: BackendTrack,
    backends: Mapping[str, BackendTrack],
    nodes: Mapping[str, NodeTrack],
    routed: Routed,
    neighbours: tuple[str, ...],
    split: Balance | None,
) -> Evidence:
    view, lanes = track.view, max(1, len(track.view.lanes))
    hosts = [nodes[name] for name in view.nodes if name in nodes]
    samples = [nodes[name].view.sample if name in nodes else None for name in view.nodes]
    front, peers = _peers(track, backends, routed)
    router, group = (None, None) if front is None else front
    capacity = view.kv_capacity_tokens
    reads = view.estimated_read_gb_per_s
    return Evidence(
        tuple(track.work.looks),
        slots=view.slots,
        kv_capacity_tokens=None if capacity is None else capacity / lanes,
        machines=tuple(
            Machine(host.target.name, tuple(host.work.looks), host.view.speed, host.work.usual_mhz)
            for host in hosts
            if host.health.failure is None
        ),
        spans=max(1, len(view.nodes)),
        cores=lanes,
        router=None if router is None else router.target.name,
        routed=None if router is None or group is None else _is_routed(router, group, backends),
        held_back=None if router is None or group is None else _requests_held_back(router, group, backends),
        slow_router=None if router is None else router.slow,
        split=split,
        peers=peers,
        neighbours=neighbours,
        read_percent=read_percent(bandwidth_gb_per_s(samples), reads, len(view.nodes), lanes),
        read_gb_per_s=reads,
        server_cores=track.work.server_cores,
        counts_at_end=view.rate_note is not None,
        speculates=bool(view.spec_drafts_per_s),
    )


def _peers(
    track: BackendTrack, backends: Mapping[str, BackendTrack], routed: Routed
) -> tuple[tuple[RouterTrack, Group] | None, tuple[Peer, ...]]:
    """Return the router in front of a backend and the servers to compare the backend with behind it."""
    name, model = track.target.name, track.view.model
    for router, group in routed:
        if name not in group.backends:
            continue
        beside = [
            other
            for other in (
                backends[backend] for backend in group.backends if backend != name and backend in backends
            )
            if other.view.model == model and other.role is track.role and _is_serving(other)
        ]
        return (router, group), tuple(_least_and_most_loaded(beside))
    return None, ()


def _backends_behind(group: Group, backends: Mapping[str, BackendTrack]) -> list[BackendTrack]:
    return [backends[name] for name in group.backends if name in backends and backends[name].work.looks]


def _is_routed(router: RouterTrack, group: Group, backends: Mapping[str, BackendTrack]) -> bool | None:
    """Return whether the router's own counts show that the requests of its backends pass it."""
    behind = _backends_behind(group, backends)
    newest = max((track.work.looks[-1].at for track in behind), default=math.inf)
    return router.passes([track.load for track in behind], newest - _ROUTED_S)


def _requests_held_back(
    router: RouterTrack, group: Group, backends: Mapping[str, BackendTrack]
) -> float | None:
    """Return how many requests are in the router and at no server behind it; None if it does not count."""
    behind = _backends_behind(group, backends)
    if len(behind) < len(group.backends):
        return None
    if router.inside is None:
        return router.queued
    return max(0.0, router.inside - sum(_requests_at(track) for track in behind))


def _requests_at(track: BackendTrack) -> float:
    look = track.work.looks[-1]
    return (look.running or 0.0) + (look.waiting or 0.0)


def _is_serving(track: BackendTrack) -> bool:
    """Return whether a backend answers and makes progress: a router did not choose what a stuck one holds."""
    return track.health.failure is None and track.view.state not in STUCK


def _least_and_most_loaded(tracks: Iterable[BackendTrack]) -> Iterable[Peer]:
    by_load = sorted(
        (track for track in tracks if track.work.looks),
        key=lambda track: (track.work.looks[-1].running or 0.0) + (track.work.looks[-1].waiting or 0.0),
    )
    chosen = {id(track): track for track in (*by_load[:_MOST_PEERS], *by_load[-_MOST_PEERS:])}
    return (Peer(one.target.name, tuple(one.work.looks), one.view.slots) for one in chosen.values())


# Judges at each second which engines make no progress, and keeps the alerts and events about it.


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
        views = ((name, one.view) for name, one in self._standing.items())
        return tuple(name for name, view in views if view is not None and view.word in _WORDS)

    def _remember_gpu_work(self, name: str, track: BackendTrack, machines: _Machines) -> None:
        """Remember what the GPUs of a backend do, at each new sample of its machines."""
        mine = self._standing[name]
        if track.standstill.seconds < _COLLECTED_S:
            mine.works.clear()
            mine.explained_at = None
        if machines.seen_at == mine.seen_at:
            return
        mine.seen_at = machines.seen_at
        machines.learn(mine.powers)
        if track.standstill.seconds >= _COLLECTED_S:
            works = machines.works(mine.powers)
            newest = max(machines.seen_at, default=0.0)
            mine.works.append((newest, works, rdma_mb_per_s(machines.samples)))
            while mine.works[0][0] < newest - _STEADY_S:
                mine.works.popleft()

    def _judge_and_show(
        self, name: str, track: BackendTrack, machines: _Machines, alerts: ActiveAlerts, when: Instant
    ) -> None:
        """Judge the standstill of a backend, and show it."""
        mine, clock, key = self._standing[name], track.standstill, SourceKey.backend(name)
        found, now, core_percent = machines.standstill(mine)
        if found.excuse is not None or found.core_busy or any(gpu.busy for gpu in now):
            mine.explained_at = when.at
        elif mine.explained_at is not None:
            found = replace(found, unexplained_s=when.at - mine.explained_at)
        waits = clock.waited_s >= FACT_S
        word = Progress.STILL if waits and clock.seconds < FACT_S else judge_standstill(found)
        if word is Progress.MOVING:
            mine.view = mine.since = None
            track.show_progress(None)
            for alert in (STUCK_ALERT, BLOCKED):
                alerts.clear(f"{key.label}:{alert}", when)
            return
        reason = reason_of_standstill(found, now, core_percent)
        if waits:
            asleep = clock.lane is not None and clock.lane.asleep
            reason = _ASLEEP_WORDS if asleep else f"{_BLOCKED_WORDS}{reason and f'; {reason}'}"
        view = ProgressView(word, clock.stood_s, reason, _figures_behind(track, found, now))
        began_s = when.at - clock.waited_s if waits else clock.moved_at
        mine.view, mine.held = view, (track.view.running or 0.0) + (track.view.waiting or 0.0)
        mine.since = Instant(began_s, when.wall - timedelta(seconds=when.at - began_s))
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
            message = f"{view.word.value} with {_held_text(track)}: no progress"
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
        mine, key, clock = self._standing[name], SourceKey.backend(name), track.standstill
        view, since = mine.view, mine.since
        mine.view = mine.since = None
        track.show_progress(None)
        if view is None or since is None:
            return []
        held = [
            alert_id
            for one in (STUCK_ALERT, BLOCKED)
            if alerts.get(alert_id := f"{key.label}:{one}") is not None
        ]
        starts = [
            since.at,
            *(one.since_s for alert_id in held if (one := alerts.get(alert_id)) and one.since_s),
        ]
        stood_s = max(view.seconds, clock.moved_at - min(starts))
        requests = f" with {mine.held:.0f} request{'' if mine.held == 1 else 's'}" if mine.held else ""
        after = "then went on" if clock.went_on else "then its requests were gone"
        message = f"no progress for {stood_s:.0f} s{requests}, {after}"
        for alert_id in held:
            alerts.clear(alert_id, when, message, timed=False)
        if held or stood_s < NOTED_S:
            return []
        said = f"{message}: {view.why}" if view.why else message
        about = f"{key.label}:paused"
        return [Event(when.wall, Severity.INFO, name, said, view.evidence, when.at, about)]


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
            own = node.view.engine_processes
            gpus = engine_gpus(track.target.name, sample.gpus, own, alone=on_node[name] == 1)
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
                    kept = powers.setdefault(
                        (name, gpu.index), (deque(maxlen=_POWERS_KEPT), deque(maxlen=_POWERS_KEPT))
                    )
                    kept[0 if working else 1].append(gpu.power_w)

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

    def standstill(self, mine: _Standing) -> tuple[Standstill, tuple[GpuWork, ...], float | None]:
        """Return (the standstill, the GPUs now, CPU use of a process of the engine that fills a core)."""
        track, clock = self._track, self._track.standstill
        works = tuple(work for _, several, _ in mine.works for work in several)
        now = mine.works[-1][1] if mine.works else ()
        rates = [rate for _, _, rate in mine.works]
        resting = bool(now) and all(work.at_rest for work in now)
        spinning = any(work.spinning for work in now)
        used = [engine_cpu(sample, track.view.engine, sample.gpus) for sample in self.samples]
        known = len(used) == len(self._gpus) and all(used)
        core = full_core_percent(percent for some in used for percent in some) if resting else None
        lane = clock.lane
        excuse = excuse_of(lane, self.samples) if lane is not None and not spinning else None
        result = Standstill(
            clock.seconds,
            clock.made_token,
            works,
            None if None in rates else known_max(rates),
            several_machines=len(self._gpus) > 1,
            processes_known=known,
            core_busy=core is not None,
            excuse=excuse,
            ranks_apart=track.ranks_apart,
            counts_steps=lane is None or not lane.per_finished_request or lane.engine_work is not None,
            may_be_stale=clock.may_be_stale,
        )
        return result, now, core


def _held_text(track: BackendTrack) -> str:
    view = track.view
    waiting = f", {view.waiting:.0f} waiting" if view.waiting else ""
    return f"{view.running or 0:.0f} running{waiting}"


def _figures_behind(track: BackendTrack, standstill: Standstill, now: Sequence[GpuWork]) -> Values:
    """Return the figures behind a verdict, for machine-readable output."""
    view = track.view
    return {
        "limit_s": (BLIND_S if not standstill.gpus else QUIET_S)[1],
        "power_w": known_max(gpu.power_w for gpu in now),
        "utilization_percent": known_min(gpu.utilization_percent for gpu in now),
        "sm_clock_mhz": known_min(gpu.clock_mhz for gpu in now),
        "rdma_mb_per_s": standstill.rdma_mb_per_s,
        "kv_cache_percent": view.kv_cache_percent,
        "running": view.running,
        "waiting": view.waiting,
        "window_s": _STEADY_S,
    }


# Follows the starts of servers whose processes are visible on a watched node, also while ports are closed.
#
# Earlier starts come from a file on the viewer's machine (`Store.learn`), and each start that is
# seen is added. So the second start of a model on a machine has an expected duration.


_MOST_PAST = 400
"""Earlier starts that are kept."""
_LONGEST_S = 7200.0
"""A server that has not answered for longer than this is not called loading."""
_SLACK_S = 10.0
"""A process that is older than this at the last answer is not a new start; readings are up to 10 s old."""
_FREE_KEPT = 24
"""Samples of a node's free memory that are kept: a server's process is seen some seconds after its begin."""
_NEW_S = 3.0
"""A reading of processes that is older was seen before."""
_BEFORE_READY = frozenset({FailureKind.REFUSED, FailureKind.UNREACHABLE, FailureKind.LOADING})
"""Failures of a server whose port is not open yet, or that answers 503 until it has loaded. A port that is
forwarded by Docker accepts a connection and resets it."""


class _Start(Struct):
    """A start that goes on."""

    clock: StartClock
    node: str
    host: str
    server: Workload
    engine: str
    boot_id: str | None
    spread: int
    """Number of machines that share the weights."""
    begin_bytes: int | None = None
    """Memory that could be allocated at the begin; None if it was not seen."""
    least_bytes: int | None = None
    """The least since then."""
    peak_gpu_bytes: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        return self.host, self.engine, self.server.model or ""

    @property
    def peak_bytes(self) -> int | None:
        if self.begin_bytes is None or self.least_bytes is None or not self.peak_gpu_bytes:
            return None
        # Whatever else the machine did meanwhile, the start took at least its GPU memory.
        return max(self.begin_bytes - self.least_bytes, self.peak_gpu_bytes)


class _Server(Struct):
    """The newest server's process seen of a backend."""

    node: str
    host: str
    process: Workload
    alive: bool = True

    @property
    def key(self) -> tuple[str, str, str]:
        return self.host, self.process.engine or "", self.process.model or ""


class ServerStarts:
    """The starts that go on, by backend, and earlier starts."""

    def __init__(self, backends: Mapping[str, BackendTrack], nodes: Mapping[str, NodeTrack]) -> None:
        """Keep references to `backends` and `nodes` (by name), which may gain and lose entries later."""
        self._backends = backends
        self._nodes = nodes
        self._silent: dict[str, BackendTrack] = {}
        """The backends that did not answer when they were polled last: the only ones that may load."""
        self._starts: dict[str, _Start] = {}
        self._served: dict[str, float] = {}
        """When a backend ceased to answer, as a recording says of the time before its replayed part."""
        self._servers: dict[str, _Server] = {}
        self._free: dict[str, deque[tuple[float, int]]] = {}
        """(time, memory that can be allocated) of the newest samples of each node with unified memory."""
        self._past: list[PastStart] = []
        self._finished: list[PastStart] = []

    @property
    def wanted(self) -> frozenset[tuple[str, str, str]]:
        """Keys (host, engine, model) of the starts that go on, and of servers that may start or wake."""
        waiting = {name for name, track in self._backends.items() if track.view.state is BackendState.ASLEEP}
        known = (one.key for name, one in self._servers.items() if name in waiting or name in self._silent)
        return frozenset((*(start.key for start in self._starts.values()), *known))

    def learn(self, starts: Iterable[PastStart]) -> None:
        """Add earlier starts; one that is known already is not added again."""
        known = set(self._known_starts())
        self._past += [start for start in starts if (start.key, start.ended_at) not in known]
        del self._past[:-_MOST_PAST]

    def _known_starts(self) -> list[tuple[tuple[str, str, str], float]]:
        return [(one.key, one.ended_at) for one in self._past]

    def past(self) -> tuple[PastStart, ...]:
        """Return the earlier starts, the oldest first."""
        return tuple(self._past)

    def take_finished(self) -> tuple[PastStart, ...]:
        """Return the starts that ended since the last call."""
        finished, self._finished = tuple(self._finished), []
        return finished

    def note(self, name: str, sample: NodeSample) -> None:
        """Follow the starts of the backends on a node that do not answer, by the node's sample."""
        if sample.workloads is None:
            return
        if sample.memory.unified and sample.memory.headroom_bytes is not None:
            free = self._free.setdefault(name, deque(maxlen=_FREE_KEPT))
            free.append((sample.at, sample.memory.headroom_bytes))
        if (sample.workloads.age_s or 0.0) < _NEW_S:
            self._note_servers(name, sample.workloads)
        for track in self._silent.values():
            if name in track.view.nodes and self._may_load(track):
                self._follow_start(name, track, sample, sample.workloads)

    def _note_servers(self, name: str, workloads: Workloads) -> None:
        """Remember the servers' processes on a node, and which of those before have ended."""
        for backend, track in self._backends.items():
            if name not in track.view.nodes:
                continue
            server, known = self._server_process(name, track, workloads), self._servers.get(backend)
            if server is not None:
                self._servers[backend] = _Server(name, self._host(name), server)
            elif known is not None and known.node == name:
                known.alive = False

    def _host(self, name: str) -> str:
        node = self._nodes.get(name)
        return (node.view.identity.hostname if node is not None else None) or name

    def memory(self, name: str) -> StartMemory | None:
        """Return what is known of the memory that a start of a backend takes; None if it was never seen."""
        server, start = self._servers.get(name), self._starts.get(name)
        if server is None:
            return None
        process = server.process
        last = max(
            (one for one in self._past if one.key == server.key), key=lambda one: one.ended_at, default=None
        )
        return StartMemory(
            server.node,
            process.pid,
            server.host,
            process.engine or "",
            process.asks,
            process.checkpoint_bytes,
            last,
            None if start is None else start.begin_bytes,
            server.alive,
        )

    def served(self, name: str, until: float) -> None:
        """Set until when (monotonic seconds) a backend answered of which this store has no answer."""
        self._served[name] = until
        start = self._starts.get(name)
        if start is not None and start.clock.started_at < until - _SLACK_S:
            del self._starts[name]

    def _may_load(self, track: BackendTrack) -> bool:
        failure = track.health.failure
        return failure is not None and failure.kind in _BEFORE_READY

    def _follow_start(self, name: str, track: BackendTrack, sample: NodeSample, workloads: Workloads) -> None:
        backend, read_at = track.target.name, sample.at - (workloads.age_s or 0.0)
        start = self._starts.get(backend)
        if start is not None and start.node != name:
            return
        server = self._server_process(name, track, workloads)
        if server is None:
            if start is not None:
                del self._starts[backend]
            return
        if start is None or start.server.pid != server.pid:
            start = self._begin(name, track, server, read_at)
            if start is None:
                return
            self._starts[backend] = start
        start.server = server
        start.clock.note(look := _look(sample, workloads, server))
        room = room_of(sample, _gpu_count(sample, server))
        if room is not None:
            if start.least_bytes is None and start.clock.from_begin:
                before = [free for at, free in self._free.get(name, ()) if at <= start.clock.started_at]
                start.begin_bytes = before[-1] if before else room.free_bytes
            start.least_bytes = min(room.free_bytes, start.least_bytes or room.free_bytes)
        if look.on_gpu:
            start.peak_gpu_bytes = max(start.peak_gpu_bytes, look.memory_bytes or 0)

    def _begin(self, name: str, track: BackendTrack, server: Workload, read_at: float) -> _Start | None:
        """Return the start of the process `server`; None if the process has answered, or is too old."""
        if server.age_s is None or server.age_s > _LONGEST_S:
            return None
        started_at, good_at = read_at - server.age_s, track.health.good_at
        if good_at is None:
            good_at = self._served.get(track.target.name)
        if good_at is not None and started_at < good_at - _SLACK_S:
            return None
        node, host = self._nodes.get(name), self._host(name)
        boot_id = node.boot_id if node is not None else None
        clock = StartClock(started_at, read_at)
        return _Start(clock, name, host, server, server.engine or "", boot_id, max(1, len(track.view.nodes)))

    def server_of(self, track: BackendTrack) -> Workload | None:
        """Return the process of a backend's server on the first of its nodes that shows it, else None."""
        for name in track.view.nodes:
            node = self._nodes.get(name)
            sample = None if node is None else node.view.sample
            if sample is None or sample.workloads is None:
                continue
            if (result := self._server_process(name, track, sample.workloads)) is not None:
                return result
        return None

    def _server_process(self, name: str, track: BackendTrack, workloads: Workloads) -> Workload | None:
        """Return the process of the backend's server on a node."""
        here = [backend for backend in self._backends.values() if name in backend.view.nodes]
        return server_process(track.target.url, track.view.engine, workloads, alone=len(here) == 1)

    def explain(self, track: BackendTrack, failure: Failure) -> Failure:
        """Return the failure of a poll, as one of kind LOADING where the server's process is seen to load."""
        self._silent[track.target.name] = track
        start = self._starts.get(track.target.name)
        if start is None:
            return failure
        if failure.kind not in _BEFORE_READY or failure.at - start.clock.started_at > _LONGEST_S:
            del self._starts[track.target.name]
            return failure
        if failure.kind is FailureKind.LOADING:
            return failure
        from sparktop.engines import ENGINES  # late: the first picture needs no reader of pages

        title = ENGINES[start.engine].title if start.engine in ENGINES else "the server"
        message = f"{title} refuses connections while it loads (process {start.server.pid} on {start.node})"
        return structs.replace(failure, kind=FailureKind.LOADING, message=message)

    def answered(self, track: BackendTrack, sample: EngineSample, when: Instant) -> list[Event]:
        """Record that a server answers; return an event with the duration of the start that it ends."""
        self._silent.pop(track.target.name, None)
        start = self._starts.pop(track.target.name, None)
        if start is None:
            return []
        earlier = [one for one in self._past if one.key == start.key]
        last = best_past(earlier, start.boot_id)
        done = PastStart(
            *start.key,
            total_s=sample.at - start.clock.started_at,
            phases=start.clock.phases(sample.at),
            boot_id=start.boot_id,
            warm=is_warm(earlier, start.boot_id),
            ended_at=when.wall.timestamp(),
            reported=sample.startup,
            peak_bytes=start.peak_bytes,
            gpu_peak_bytes=start.peak_gpu_bytes or None,
            gpu_bytes=start.clock.memory_bytes if start.peak_gpu_bytes else None,
            asks=start.server.asks,
        )
        self.learn((done,))
        self._finished.append(done)
        said = f"loaded in {minutes(done.total_s)}"
        if last is not None:
            said += f", {minutes(last.total_s)} last time"
        values = {
            "total_s": done.total_s,
            **_phase_values(done.phases),
            **_phase_values(done.reported, "reported_"),
        }
        about = f"{SourceKey.backend(track.target.name).label}:loaded"
        return [Event(when.wall, Severity.INFO, track.target.name, said, values, when.at, about)]

    def forget(self, name: str) -> None:
        """Forget the start of a backend that is not watched any more."""
        self._silent.pop(name, None)
        self._starts.pop(name, None)
        self._servers.pop(name, None)

    def view(self, track: BackendTrack, at: float) -> Loading | None:
        """Return what is known about a backend's start at the time `at`; None if it does not load."""
        failure = track.health.failure
        if failure is None or failure.kind is not FailureKind.LOADING:
            return None
        start = self._starts.get(track.target.name)
        if start is None:
            return Loading()
        past = best_past([one for one in self._past if one.key == start.key], start.boot_id)
        size = start.server.checkpoint_bytes
        share = None if size is None else size / start.spread
        loading = start.clock.loading(at, past, checkpoint_bytes=share)
        return replace(loading, node=start.node, pid=start.server.pid)


def _gpu_count(sample: NodeSample, server: Workload) -> int:
    """Return on how many GPUs of its machine a server is by its command line."""
    return min(max(1, len(sample.gpus)), server.asks.ranks if server.asks is not None else 1)


def _look(sample: NodeSample, workloads: Workloads, server: Workload) -> Look:
    mine = {one.pid: one for one in workloads.processes if one.server == server.pid}
    on_gpu = any(gpu.processes is not None for gpu in sample.gpus)
    if on_gpu:
        memory = sum(
            process.memory_bytes or 0
            for gpu in sample.gpus
            for process in gpu.processes or ()
            if process.pid in mine
        )
    else:
        memory = sum(one.memory_bytes or 0 for one in mine.values())
    rates = [link.rx_bytes_per_s for link in sample.network if link.kind in {"ethernet", "wifi"}]
    return Look(
        sample.at,
        memory,
        on_gpu,
        has_engine=any(pid != server.pid for pid in mine),
        received_bytes_per_s=known_sum(rates),
    )


def _phase_values(phases: Mapping[str, float], before: str = "") -> dict[str, float]:
    """Return durations of phases as an event's values: {"gpu_context_s": 12.0}."""
    return {f"{before}{name.lower().replace(' ', '_')}_s": took for name, took in phases.items()}


# What NCCL answered about the ranks of each backend, with the verdict on it.


_STILL_S = 5.0
"""Seconds without progress from which on an engine stands still: from then on answers are evidence."""
_MOST_READINGS = 24
"""Readings that are kept of one backend."""
_SHOWN_S = 1800.0
"""Seconds after the last query for which its result is shown."""
_WAITS_S = 60.0
"""Seconds after which a query without an answer counts as abandoned."""
_MOST_PROPOSED = 8
"""Most hosts that an event names."""
_SAME_ROUND_S = 60.0
"""Queries less than this apart are announced as one event."""


class RankVerdicts:
    """Keeps the readings about the ranks of each backend that was asked about, and judges them."""

    def __init__(self, tracks: Tracks) -> None:
        """Start without readings. `tracks` are those of all watched sources."""
        self._tracks = tracks
        self._readings: dict[str, deque[RanksReading]] = {}
        self._judged: dict[str, tuple[float | None, RanksVerdict]] = {}
        """The newest verdict on each backend, with the time of progress that it was made for."""
        self._announced: dict[str, str] = {}
        self._proposed: dict[str, str] = {}
        """The hosts that were proposed to be watched, by backend."""

    def settle(self) -> None:
        """Pass the ranks that lag or are missing to the tracks, before their progress is judged."""
        for name, track in self._tracks.backends.items():
            track.ranks_apart = self.apart(name)

    def take(self, key: SourceKey, reading: RanksReading, when: Instant) -> list[Event]:
        """Add a reading about a backend.

        Return events: that NCCL is asked, that ranks are apart, and which of their machines are not watched.
        """
        readings = self._readings.setdefault(key.name, deque(maxlen=_MOST_READINGS))
        before = readings[-1].at if readings else None
        readings.append(reading)
        self._judged.pop(key.name, None)
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
        if (missing := self._unwatched_hosts(key.name, reading)) and self._proposed.get(key.name) != missing:
            self._proposed[key.name] = missing
            message = f"NCCL has ranks on {missing}, not watched: name each as a machine under [[nodes]]"
            events.append(Event(when.wall, Severity.INFO, key.name, message, at_s=when.at))
        return events

    def _unwatched_hosts(self, name: str, reading: RanksReading) -> str:
        """Return the hosts that NCCL names and no watched machine has; "" if all may be watched already.

        A machine whose addresses are not known, or of which only others are, is taken for one of them.
        """
        track = self._tracks.backends.get(name)
        if track is None or reading.answer is None:
            return ""
        groups = reading.answer.communicators
        hosts = {rank.host for group in groups for rank in group.ranks if rank.host}
        hosts |= {rank.host for group in groups for rank in group.missing if rank.host}
        known = self._node_by_address()
        if len(hosts) <= len(track.view.nodes):
            return ""
        return clean(", ".join(sorted(hosts - known.keys())[:_MOST_PROPOSED]), 160)

    def still_since(self, name: str) -> float | None:
        """Return the time of a backend's last progress if it holds requests and makes none; else None."""
        track = self._tracks.backends.get(name)
        clock = None if track is None else track.standstill
        return None if clock is None or clock.seconds < _STILL_S else clock.moved_at

    def apart(self, name: str) -> str | None:
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
        for kept in (self._readings, self._judged, self._announced, self._proposed):
            kept.pop(name, None)

    def _verdict(self, name: str) -> RanksVerdict:
        since = self.still_since(name)
        known = self._judged.get(name)
        if known is None or known[0] != since:
            names = self._node_by_address()

            def place(host: str | None) -> str:
                return "an unknown machine" if host is None else names.get(host, host)

            known = since, judge_ranks(self._readings[name], since, place)
            self._judged[name] = known
        return known[1]

    def _node_by_address(self) -> dict[str, str]:
        """Return the names of the watched nodes by each of their addresses."""
        names: dict[str, str] = {}
        for name, track in self._tracks.nodes.items():
            identity, host = track.view.identity, urlsplit(track.target.url or "").hostname
            for address in (host, identity.hostname, *identity.addresses):
                if address:
                    names.setdefault(address, name)
        return names
