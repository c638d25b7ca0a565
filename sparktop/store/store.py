"""The store, which accepts the results of polls and returns snapshots; each change can be journalled."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from sparktop.analysis.bandwidth import bandwidth_gb_per_s, read_percent
from sparktop.analysis.speculation import KIND as SPECULATION
from sparktop.analysis.yardsticks import one_request_tps
from sparktop.model.engine import EngineIdentity, EngineSample
from sparktop.model.event import Alert, Event, Severity
from sparktop.model.failure import Failure
from sparktop.model.instant import Instant
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.ranks import RanksReading
from sparktop.model.router import Fleet, RouterSample, SelfView
from sparktop.model.snapshot import (
    NODE_INTERVALS,
    BackendState,
    BackendView,
    Kept,
    NodeView,
    Situation,
    Snapshot,
)
from sparktop.model.targets import Target, Thresholds, Watch
from sparktop.rates import LinkKind
from sparktop.store.alerts import (
    StateEvents,
    judge_absent_models,
    judge_backend,
    judge_dead_rank,
    judge_health,
    judge_router,
    keep_end_event,
    link_events,
    model_events,
)
from sparktop.store.backend import BackendTrack
from sparktop.store.balance import GroupBalances
from sparktop.store.balance_groups import judged_groups
from sparktop.store.endings import ENGINE_ENDED
from sparktop.store.event_log import ActiveAlerts, Announce, EventLog
from sparktop.store.findings import CurrentFindings
from sparktop.store.limits import ServerLimits
from sparktop.store.node import NodeTrack, restart_events
from sparktop.store.node_alerts import judge_node
from sparktop.store.rank_verdicts import RankVerdicts
from sparktop.store.routers import FleetTrack, RouterTrack
from sparktop.store.sources import SourceKey, SourceKind
from sparktop.store.standstills import Standstills
from sparktop.store.starts import ServerStarts
from sparktop.store.tracks import Placement, Track, Tracks, is_simulated, totals
from sparktop.store.yardsticks import YardstickBases


class Change(StrEnum):
    """The methods of the store that change its state; each value is the name of a method."""

    ADD = "add"
    REMOVE = "remove"
    ACCEPT = "accept"
    IDENTIFY = "identify"
    NOTE = "note"
    MEASURE_SELF = "measure_self"
    SET_INTERVAL = "set_interval"
    SET_THRESHOLDS = "set_thresholds"
    SET_SEARCHING = "set_searching"
    BEGIN_OWN_LOAD = "begin_own_load"
    END_OWN_LOAD = "end_own_load"
    JUDGE = "judge"
    LEARN = "learn"


class Call(NamedTuple):
    """One call of a method that changes the store."""

    change: Change
    arguments: tuple[object, ...] = ()
    """Positional arguments of the call."""


class Journal(Protocol):
    """Receives every call that changes a store, in order, before the call takes effect."""

    def write(self, instant: Instant, call: Call) -> None:
        """Record a call made at the time `instant`; return at once and do not raise."""
        ...


class Journals:
    """A journal that passes each call on to any number of journals, which may change while it is used."""

    def __init__(self) -> None:
        """Start without a journal to pass calls on to."""
        self._journals: tuple[Journal, ...] = ()

    def add(self, journal: Journal) -> None:
        """Pass later calls on to `journal`, too."""
        self._journals = (*self._journals, journal)

    def remove(self, journal: Journal) -> None:
        """Pass no further calls on to `journal`."""
        self._journals = tuple(other for other in self._journals if other is not journal)

    def write(self, instant: Instant, call: Call) -> None:
        """Pass a call on."""
        for journal in self._journals:
            journal.write(instant, call)


Reading = EngineSample | NodeSample | RouterSample | RanksReading | Fleet | Failure
"""The result of polling a source: a sample or a failure."""
ReadingListener = Callable[[SourceKey, Reading], None]
"""Called with the source and the result of each poll; must not raise."""

_DOWN = ("unreachable", "engine-dead")
"""Names of the alerts that say that a source does not answer."""
NO_GROUP = "backends"
"""Group name of backends that no router lists and whose model is not known yet."""


class Store:
    """The state of every watched source. Not thread-safe."""

    def __init__(
        self,
        watch: Watch,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        simulated: bool = False,
        journal: Journal | None = None,
    ) -> None:
        """Start with the targets of `watch` and without any samples.

        `clock` (monotonic seconds) and `now` (UTC) are read once a call; `journal` receives later changes.
        """
        self.simulated = simulated
        self._journal = journal
        self.interval_s = watch.interval_s
        """Configured seconds between two polls of a backend; a much longer gap means missing samples."""
        self.searching: tuple[str, ...] = ()
        """Hosts on which no server has been found yet."""
        self._clock, self._now = clock, now
        self._tracks = Tracks(Thresholds(watch.thresholds, watch.node_thresholds))
        self._placement = Placement(self._tracks.backends, self._tracks.nodes)
        self.starts = ServerStarts(self._tracks.backends, self._tracks.nodes)
        self._events = EventLog()
        self._alerts = ActiveAlerts(self._events)
        self.balance = GroupBalances()
        self.standstills = Standstills()
        self.limits = ServerLimits()
        self.ranks = RankVerdicts(self._tracks)
        self._findings = CurrentFindings()
        self.yardsticks = YardstickBases(self._tracks.nodes, watch.models)
        self._states = StateEvents()
        self._self_cost = SelfView()
        self._listeners: list[ReadingListener] = []
        self._add(*watch.nodes, *watch.backends, *watch.routers, *watch.prometheus)

    def targets(self) -> tuple[Target, ...]:
        """Return everything that is watched at present."""
        return self._tracks.targets()

    def size(self) -> int:
        """Return the number of sources, and of servers and machines on the walls of Prometheus servers."""
        return self._tracks.size()

    def identities(self) -> dict[SourceKey, EngineIdentity | NodeIdentity]:
        """Return the newest identity of each backend and node."""
        return self._tracks.identities()

    def _record_call(self, change: Change, *arguments: object) -> Instant:
        """Record a call in the journal, if there is one; return the time at which the call takes effect."""
        instant = Instant(self._clock(), self._now())
        if self._journal is not None:
            self._journal.write(instant, Call(change, arguments))
        return instant

    def set_interval(self, interval_s: float) -> None:
        """Set the seconds between two polls of a backend."""
        self._record_call(Change.SET_INTERVAL, interval_s)
        self.interval_s = interval_s

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds by which samples are judged."""
        return self._tracks.thresholds

    def set_thresholds(self, thresholds: Thresholds) -> None:
        """Judge the next sample of each source, and all later ones, by other thresholds."""
        self._record_call(Change.SET_THRESHOLDS, thresholds)
        self._tracks.set_thresholds(thresholds)

    def set_searching(self, hosts: tuple[str, ...]) -> None:
        """Set the hosts on which no server has been found yet."""
        self._record_call(Change.SET_SEARCHING, hosts)
        self.searching = hosts

    def add(self, *targets: Target) -> None:
        """Also watch `targets`; of a backend that is watched already, its machines and group may change."""
        self._record_call(Change.ADD, *targets)
        self._add(*targets)

    def _add(self, *targets: Target) -> None:
        self._placement.outdate()
        self.balance.regroup()
        self._tracks.add(targets)
        self._placement.update()

    def remove(self, key: SourceKey) -> None:
        """Forget a source, its history and its alerts."""
        instant = self._record_call(Change.REMOVE, key)
        self._tracks.remove(key)
        self.starts.forget(key.name)
        self.yardsticks.forget(key.name)
        self.ranks.forget(key.name)
        self._placement.outdate()
        self.balance.regroup()
        self._alerts.clear_source(key, instant, "it is not watched any more")
        self._placement.update()

    def listen(self, listener: ReadingListener) -> Callable[[], None]:
        """Call `listener` with every poll result once it is stored; return a function that stops this."""
        self._listeners.append(listener)
        return partial(self._listeners.remove, listener)

    def listen_events(self, listener: Announce) -> Callable[[], None]:
        """Call `listener` once with each event that is announced; return a function that stops this.

        A condition that comes and goes again and again is announced seldom (see `EventLog`).
        """
        return self._events.listen(listener)

    def accept(self, key: SourceKey, reading: Reading, took_ms: float | None = None) -> None:
        """Store the result of polling `key`, if that source is watched, and call the listeners in any case.

        Raises:
            TypeError: the result does not fit the type of source, such as a node's sample for a backend.
        """
        instant = self._record_call(Change.ACCEPT, key, reading, took_ms)
        self._accept_reading(key, reading, took_ms, instant)
        self._placement.update()
        for listener in tuple(self._listeners):
            listener(key, reading)

    def _accept_reading(
        self, key: SourceKey, reading: Reading, took_ms: float | None, instant: Instant
    ) -> None:
        """Hand a reading to the track of its source, and judge what follows from it."""
        track = self._tracks.get(key)
        if track is None:
            return
        when = Instant(reading.at, instant.wall)
        if isinstance(reading, Failure):
            if isinstance(track, BackendTrack):
                reading = self.starts.note_failure(track, reading)
            track.accept_failure(reading, when.wall, took_ms)
            judge_health(self._alerts, key, track.health, when)
        elif isinstance(track, BackendTrack) and isinstance(reading, EngineSample):
            self._accept_engine(key, track, reading, took_ms, instant)
        elif isinstance(track, BackendTrack) and isinstance(reading, RanksReading):
            self._events.add(*self.ranks.add(key, reading, when))
        elif isinstance(track, NodeTrack) and isinstance(reading, NodeSample):
            self._accept_node(key, track, reading, took_ms, when)
        elif isinstance(track, RouterTrack) and isinstance(reading, RouterSample):
            track.accept_sample(reading, when.wall, took_ms)
            judge_health(self._alerts, key, track.health, when)
            judge_router(self._alerts, key, track, self._loading_deployments(track, when.at), when)
        elif isinstance(track, FleetTrack) and isinstance(reading, Fleet):
            track.accept_fleet(reading)
            judge_health(self._alerts, key, track.health, when)
        else:
            raise TypeError(f"{key.label} cannot take a {type(reading).__name__}")

    def _loading_deployments(self, router: RouterTrack, at: float) -> dict[str, str]:
        """Return which of a router's troubled deployments load their model, in words with the phase."""
        troubled = router.deployment_troubles()
        result: dict[str, str] = {}
        for other, group in self._tracks.routing()[0] if troubled else ():
            for deployment, name in (group.deployments or {}).items() if other is router else ():
                track = self._tracks.backends.get(name or "")
                if track is not None and track.view.state is BackendState.LOADING and deployment in troubled:
                    loading = self.starts.view(track, at)
                    phase = "" if loading is None else loading.phase_words
                    result[deployment] = f"{name} loads its model{phase and f': {phase}'}"
        return result

    def identify(self, key: SourceKey, identity: EngineIdentity | NodeIdentity) -> None:
        """Store what a source reports about itself; ignored if the source is not watched.

        Raises:
            TypeError: the identity does not fit the type of source, such as a node's for a backend.
        """
        instant = self._record_call(Change.IDENTIFY, key, identity)
        track = self._tracks.get(key)
        if track is None:
            return
        match track, identity:
            case BackendTrack(), EngineIdentity():
                track.identify(identity)
                self._events.add(*model_events(key, track, instant))
            case NodeTrack(), NodeIdentity():
                self._events.add(*restart_events(key, track, identity, instant))
                track.identify(identity)
                self._placement.outdate()
                self._placement.update()
            case _:
                raise TypeError(f"{key.label} cannot be a {type(identity).__name__}")

    def learn(self, kept: Kept) -> None:
        """Add what files hold of earlier starts and setups of servers, and of published rates."""
        self._record_call(Change.LEARN, kept)
        self.starts.learn(kept.starts)
        self.yardsticks.learn(kept.setups, kept.published)

    def note(self, subject: str, message: str, severity: Severity = Severity.INFO) -> None:
        """Add an event about `subject`, unless the log still has the same message about the same subject."""
        instant = self._record_call(Change.NOTE, subject, message, severity)
        self._events.note(Event(instant.wall, severity, subject, message, at_s=instant.at))

    def measure_self(self, cpu_percent: float | None, rss_bytes: int | None) -> None:
        """Record the CPU use (percent) and the resident memory (bytes) of this program."""
        self._record_call(Change.MEASURE_SELF, cpu_percent, rss_bytes)
        self._self_cost = replace(self._self_cost, cpu_percent=cpu_percent, rss_bytes=rss_bytes)

    def measure_terminal(self, bytes_per_s: float | None) -> None:
        """Record the bytes per second that this program sends to the terminal."""
        self._self_cost = replace(self._self_cost, terminal_bytes_per_s=bytes_per_s)

    def judged_together(self) -> tuple[tuple[str, ...], ...]:
        """Return the backends of each judged group; empty if `judge` has not been called recently."""
        return self.balance.groups_at(self._clock())

    @contextmanager
    def loaded_from_here(self, names: frozenset[str]) -> Iterator[None]:
        """Suppress alerts about load and balance of what a sweep of this program loads in a `with` block."""
        self.begin_own_load(names)
        try:
            yield
        finally:
            self.end_own_load(names)

    def begin_own_load(self, names: frozenset[str]) -> None:
        """Suppress alerts about load and balance of these backends and routers until `end_own_load`."""
        began_at = self._record_call(Change.BEGIN_OWN_LOAD, names).at
        self._tracks.set_own_load(names, math.inf, since=began_at)
        self.balance.begin_own_load(names)

    def end_own_load(self, names: frozenset[str]) -> None:
        """End the suppression of `begin_own_load`; balances are judged by the load from now on."""
        ended_at = self._record_call(Change.END_OWN_LOAD, names).at
        self._tracks.set_own_load(names, ended_at + self.thresholds.states.window_s)  # states cover its end
        self.balance.end_own_load(names)

    def judge(self) -> None:
        """Judge each engine's progress, and the limits of backends and the balance of groups that are due.

        Call this at each full second: it updates verdicts, alerts and events, which snapshots only show.
        """
        instant = self._record_call(Change.JUDGE)
        with self._alerts.keep_fault("rules:servers", "all rules", instant):
            self._judge_all(instant)

    def _judge_all(self, instant: Instant) -> None:
        tracks, alerts = self._tracks, self._alerts
        self._events.settle(instant)
        self.ranks.pass_on_apart()
        tracks.note_stale(alerts, instant)
        stood = self.standstills.judge(tracks.backends, tracks.nodes, alerts, self.interval_s, instant)
        self._events.add(*stood)
        for name, track in tracks.backends.items():
            key = SourceKey.backend(name)
            with alerts.keep_fault(key.label, "its ranks", instant):
                judge_dead_rank(alerts, key, track, instant)
        self._events.add(*self._states.judge(tracks, alerts, instant))
        routed, group_names = tracks.routing()
        backends = tracks.backends
        for router, group in routed:
            with alerts.keep_fault(SourceKey.router(router.target.name).label, "its models", instant):
                judge_absent_models(alerts, router, router.absent_models(group, backends), instant)
        groups = partial(judged_groups, backends, tracks.groups_by_name(group_names), routed)
        self._events.add(*self.balance.judge_due(instant, groups, alerts))
        links = self._findings.alerting_by_server("slow-link")
        self.limits.judge_due(
            instant, alerts, backends, tracks.nodes, routed, self.balance.view(instant.at), links
        )
        self._findings.judge(self._situation(instant), alerts, instant)

    def _situation(self, instant: Instant) -> Situation:
        """Return the views of all servers, machines and routers at a time, and earlier starts."""
        at, tracks = instant.at, self._tracks
        routed, group_names = tracks.routing()
        backends = {
            name: self._backend_view(track, at, instant.wall, group_names)
            for name, track in tracks.backends.items()
        }
        members = tuple(backends.values())
        return Situation(
            at,
            instant.wall,
            backends,
            {name: self._node_view(track, at) for name, track in tracks.nodes.items()},
            tuple(router.view(at, group, members) for router, group in routed),
            self.starts.past(),
            self.thresholds.nodes,
        )

    def _node_view(self, track: NodeTrack, at: float) -> NodeView:
        findings = self._findings.of(SourceKey.node(track.view.name))
        return replace(track.view, age_s=track.health.age_s(at), findings=findings)

    def adopt(
        self, alerts: Iterable[Alert], events: Sequence[Event], verdicts: Mapping[str, tuple[str, float]]
    ) -> None:
        """Set the beginnings of alerts and verdicts (Unix seconds, by group) to those in a recording.

        Used where only the minutes before now were replayed. `events` replace the events of this store.
        """
        at = self._clock()
        for alert in alerts:
            self._adopt_alert(alert, at)
        self._events.adopt(events)
        self.balance.adopt(verdicts, at)

    def _adopt_alert(self, alert: Alert, at: float) -> None:
        """Set the beginning and highest severity of an active alert to those that a recording has.

        An alert that the store's own samples do not confirm shortly after `at` (monotonic) is ignored. If it
        says that a source does not answer, the source gets the time since when.
        """
        label, _, name = alert.id.rpartition(":")
        kind, _, source = label.partition(":")
        if name in _DOWN and kind == SourceKind.BACKEND and alert.since_s is not None:
            self.starts.set_answered_until(source, alert.since_s)
        if self._alerts.adopt(alert, at) and name in _DOWN and kind in list(SourceKind):
            track = self._tracks.get(SourceKey(SourceKind(kind), source))
            if track is not None:
                _adopt_failures(track, alert)

    def snapshot(self) -> Snapshot:
        """Return the state of all sources, alerts, events and balances as of now."""
        now = self._situation(Instant(self._clock(), self._now()))
        backends, nodes = tuple(now.backends.values()), tuple(now.nodes.values())
        fleets = self._tracks.fleet_views(now.at, backends)
        return Snapshot(
            taken_at=now.wall,
            at=now.at,
            interval_s=self.interval_s,
            node_interval_s=NODE_INTERVALS * self.interval_s,
            nodes=nodes,
            backends=backends,
            routers=now.routers,
            fleets=fleets,
            balance=self.balance.view(now.at),
            alerts=self._alerts.view(),
            events=self._events.view(),
            totals=totals(backends, fleets),
            self_cost=replace(self._self_cost, poll_ms=self._tracks.poll_ms()),
            simulated=self.simulated or is_simulated(backends, nodes),
            searching=self.searching,
            thresholds=self.thresholds.states,
        )

    def _accept_engine(
        self,
        key: SourceKey,
        track: BackendTrack,
        sample: EngineSample,
        took_ms: float | None,
        instant: Instant,
    ) -> None:
        """Store a backend's sample, and raise the alerts and events that follow from it."""
        when = Instant(sample.at, instant.wall)
        wall_at = instant.wall.timestamp() - (instant.at - sample.at)
        engine = track.view.engine
        kind = track.accept_sample(sample, wall_at=wall_at, interval_s=self.interval_s, took_ms=took_ms)
        if kind is None:
            return
        if track.view.engine != engine:
            self._placement.outdate()
        judge_health(self._alerts, key, track.health, when)
        judge_backend(self._alerts, key, track, self._tracks.thresholds.states, when)
        if kind is LinkKind.RESTARTED:
            self.ranks.forget(key.name)
        if kind is not LinkKind.CONTINUES:
            self.yardsticks.forget(key.name)
        self._events.add(*model_events(key, track, when))
        self._events.add(
            *link_events(key, track, kind, when, engine), *self.starts.note_answer(track, sample, when)
        )
        if (server := self.starts.server_of(track)) is not None:
            track.note_launch(server, sample)
        self.yardsticks.note(track, server, when)
        peers = self._placement.peers(track)
        track.slow_steps.judge(self._alerts, key, track.view, track.step_pace, peers, when)

    def _accept_node(
        self, key: SourceKey, track: NodeTrack, sample: NodeSample, took_ms: float | None, when: Instant
    ) -> None:
        processes_before = track.processes, track.orphans
        track.loads = self.starts.go_on_at(key.name)
        newer = track.accept_sample(sample, took_ms, NODE_INTERVALS * self.interval_s)
        if (track.processes, track.orphans) != processes_before:
            self._placement.outdate()
        judge_health(self._alerts, key, track.health, when)
        if newer:
            self._placement.update()
            self.starts.follow(key.name, sample)
            track.judge_steps(self._placement.steps_on(key.name))
            events = judge_node(self._alerts, key, track, self._tracks.thresholds.nodes, when)
            self._events.add(*(event for event in events if self._is_news(event)))

    def _is_news(self, event: Event) -> bool:
        """Return False for a machine's event about the end of an engine that is known already; else True."""
        track = self._tracks.backends.get(event.subject)
        return track is None or event.kind != ENGINE_ENDED or keep_end_event(track, event)

    def _backend_view(
        self, track: BackendTrack, at: float, now: datetime, groups: Mapping[str, str]
    ) -> BackendView:
        """Return a backend as it is shown, with what the other parts of the store know of it."""
        view = track.view
        bandwidth = bandwidth_gb_per_s([self._placement.node_sample(name) for name in view.nodes])
        basis = self.yardsticks.of(view.name)
        findings = self._findings.of(SourceKey.backend(view.name))
        return replace(
            view,
            age_s=track.health.age_s(at),
            loading=self.starts.view(track, at),
            start_memory=self.starts.memory(view.name),
            group=groups.get(view.name) or track.target.group or view.model or NO_GROUP,
            role=track.reported_role if track.role is None else track.role.value,
            ranks=self.ranks.view(view.name, at),
            limited_by=self.limits.limit_of(view),
            findings=findings,
            spec_verdict=next((finding.said for finding in findings if finding.kind == SPECULATION), None),
            lanes_balance=self.balance.of_lanes(view.name),
            in_sweep=at < track.loaded_until,
            yardstick_basis=basis,
            roofline_percent=read_percent(
                bandwidth, view.estimated_read_gb_per_s, len(view.nodes), len(view.lanes)
            ),
            roofline_tps=one_request_tps(basis.weights, bandwidth, len(view.nodes), max(1, len(view.lanes))),
            uptime_s=track.uptime_s(at, now.timestamp()),
        )


def _adopt_failures(track: Track, alert: Alert) -> None:
    """Set since when a source fails and how often it has failed, from the alert that it does not answer."""
    health, failures = track.health, alert.values.get("failures")
    if health.failing_at is None or alert.since_s is None:
        return
    health.failing_at, health.failing_since = alert.since_s, alert.since
    if isinstance(failures, int | float):
        health.failures = max(health.failures, int(failures))
    if not isinstance(track, RouterTrack | FleetTrack):  # its view is built again for each snapshot
        track.view = replace(track.view, failing_since=alert.since)
