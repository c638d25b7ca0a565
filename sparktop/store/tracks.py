"""The tracks of all watched sources: which backends belong together, and which run on which node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from sparktop.analysis.placement import BackendPlace, NodePlace, address_of, matched, place
from sparktop.analysis.speed_state import SLOW_CLOCK, THROTTLED, StepPace
from sparktop.analysis.wall import kv_percent, ttft_s
from sparktop.model.engine import EngineIdentity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.fleet import Fleet, FleetNode, FleetServer, FleetView, stale_s
from sparktop.model.instant import Instant
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.snapshot import BackendView
from sparktop.model.targets import BackendTarget, NodeTarget, PrometheusTarget, Target, Thresholds
from sparktop.store.backend import BackendTrack
from sparktop.store.event_log import AlertBook
from sparktop.store.node import NodeTrack
from sparktop.store.router import Group, RouterTrack, group_names
from sparktop.store.sources import Health, SourceKey, SourceKind


class FleetTrack:
    """One Prometheus: the servers that it scrapes, and whether it answers."""

    def __init__(self, target: PrometheusTarget) -> None:
        """Start without any answer."""
        self.target = target
        self.health = Health()
        self._fleet: Fleet | None = None
        self._newest: float | None = None
        """Monotonic time of the newest scrape of any server."""
        self._fresh_at: float | None = None
        """The same of the newest answer; where all its servers are down, when that came."""

    def accept_failure(self, failure: Failure, now: datetime, took_ms: float | None) -> None:  # noqa: ARG002 - as of all tracks
        """Record failed queries; the last answer is kept."""
        self.health.bad(failure, now)

    def accept_fleet(self, fleet: Fleet) -> None:
        """Record an answer."""
        self.health.good(fleet.at)
        self._fleet = _current(fleet)
        newest = max((one.at for one in fleet.servers if one.at is not None), default=None)
        self._newest = self._newest if newest is None else newest
        self._fresh_at = fleet.at if newest is None else newest

    @property
    def size(self) -> int:
        """Number of servers and machines in the newest answer."""
        return 0 if self._fleet is None else len(self._fleet.servers) + len(self._fleet.nodes)

    def view(self, at: float) -> FleetView:
        """Return the Prometheus as shown at `at` (monotonic seconds).

        Once the newest scrape of all servers is too old, the figures of all servers and machines are unknown.
        """
        fleet, newest, fresh_at = self._fleet, self._newest, self._fresh_at
        if fleet is not None and fresh_at is not None and fleet.at <= fresh_at + stale_s(fleet.every_s) < at:
            nodes = tuple(FleetNode(one.name, one.at, backends=one.backends) for one in fleet.nodes)
            fleet = self._fleet = _current(replace(fleet, at=at, nodes=nodes))
        age_s = None if newest is None else max(0.0, at - newest)
        failure, since = self.health.failure, self.health.failing_since
        return FleetView(self.target.name, self.target.url, fleet, failure, since, age_s)


def _current(fleet: Fleet) -> Fleet:
    """Return an answer without the figures of servers whose newest scrape is too old."""
    late_at = fleet.late_at
    if all(one.at is None or one.at >= late_at for one in fleet.servers):
        return fleet
    servers = (
        one
        if one.at is None or one.at >= late_at
        else FleetServer(one.name, one.url, one.group, one.at, one.down, nodes=one.nodes)
        for one in fleet.servers
    )
    return replace(fleet, servers=tuple(servers))


class EachOnce:
    """Leaves each server and machine in one of several Prometheus, as pairs for high availability need it.

    That is the first one through which it answers, else the first that knows it.
    """

    def __init__(self) -> None:
        """Start without answers."""
        self._from: tuple[tuple[Fleet | None, bool], ...] = ()
        self._made: tuple[Fleet | None, ...] = ()
        """What was made of the newest answers, so that the same answers stay the same objects."""

    def of(self, views: tuple[FleetView, ...]) -> tuple[FleetView, ...]:
        """Return the views without what stands in another one."""
        if len(views) < 2:  # noqa: PLR2004 - two share
            return views
        answers = tuple((view.fleet, view.ok) for view in views)
        if len(answers) != len(self._from) or any(
            new[0] is not old[0] or new[1] != old[1] for new, old in zip(answers, self._from, strict=True)
        ):
            self._from, self._made = answers, _apart(views)
        return tuple(
            view if fleet is view.fleet else replace(view, fleet=fleet)
            for view, fleet in zip(views, self._made, strict=True)
        )


_Key = tuple[str, str, str]


def _key(one: FleetServer) -> _Key:
    """Return what says that a server is the same; pods of two clusters may have equal addresses."""
    return one.url, one.name, one.group


def _apart(views: Sequence[FleetView]) -> tuple[Fleet | None, ...]:
    """Return the answers without servers that stand in another one, and without the machines beside these."""
    servers: dict[_Key, tuple[bool, int]] = {}
    nodes: dict[str, tuple[bool, int]] = {}
    shared: set[int] = set()
    answered = [(index, view.fleet, view.ok) for index, view in enumerate(views) if view.fleet is not None]
    for index, fleet, is_ok in answered:
        for one in fleet.servers:
            key, known = _key(one), servers.get(_key(one))
            is_current = is_ok and not one.down and one.at is not None and one.at >= fleet.late_at
            if known is None or (is_current and not known[0]):
                servers[key] = (is_current, index)
            if known is not None:
                shared |= {known[1], index}
    for index, fleet, is_ok in answered:
        for node in fleet.nodes if index in shared else ():
            is_current = is_ok and not node.down and node.at is not None
            if node.name not in nodes or (is_current and not nodes[node.name][0]):
                nodes[node.name] = (is_current, index)
    found = [view.fleet for view in views]
    for index, fleet, _ in answered:
        if index not in shared:
            continue
        kept = tuple(one for one in fleet.servers if servers[_key(one)][1] == index)
        machines = tuple(one for one in fleet.nodes if nodes[one.name][1] == index)
        left_out = len(fleet.servers) - len(kept)
        said = f"{left_out:,} of its servers are shown by another Prometheus" if left_out else ""
        note = "; ".join(part for part in (said, fleet.note) if part) or None
        found[index] = replace(fleet, servers=kept, nodes=machines, note=note)
    return tuple(found)


# Determines which backend runs on which node, and which node its slow steps can be attributed to.


MOST_PEERS = 16
"""Peers that a backend is compared with: the median of as many is no worse than that of hundreds."""


class Placement:
    """Determines which backends run on each node, when asked to `update` after a change."""

    def __init__(self, backends: Mapping[str, BackendTrack], nodes: Mapping[str, NodeTrack]) -> None:
        """Keep references to `backends` and `nodes` (by name), which may gain and lose entries later."""
        self._backends = backends
        self._nodes = nodes
        self._on_node: dict[str, list[str]] = {}
        """Names of the backends that run on a node, by node name."""
        self._current = False
        self._by_model: dict[str, list[BackendTrack]] = {}
        self._calls_left = 0
        """Calls of `peers` until backends are grouped by model again: one for each backend."""

    def outdate(self) -> None:
        """Make the next `update` determine the placement again, because something has changed."""
        self._current = False

    def update(self) -> None:
        """Determine which backend runs on which node, and store the result in the views of both.

        Do nothing if nothing has changed since the last call.
        """
        if self._current:
            return
        self._current = True
        backends = [
            BackendPlace(name, one.target.url, one.view.engine, one.target.nodes)
            for name, one in self._backends.items()
        ]
        found = place(backends, [_node_place(one) for one in self._nodes.values()])
        self._on_node = {}
        for name, nodes in found.items():
            self._backends[name].place(nodes)
            for node in nodes:
                self._on_node.setdefault(node, []).append(name)
        for name, track in self._nodes.items():
            engines = {one: self._backends[one].view.engine for one in self._on_node.get(name, ())}
            track.assign(matched(track.processes, engines))

    def steps_on(self, node: str) -> tuple[StepPace, ...]:
        """Return the step time comparison of the backend on `node`, as a tuple of at most one element.

        The tuple is empty if there is not exactly one backend, if its step times have no comparison, or if
        another of its nodes has a slow or throttled GPU, which may slow the steps.
        """
        names = self._on_node.get(node, [])
        backend = self._backends[names[0]] if len(names) == 1 else None
        if backend is None or backend.step_pace is None:
            return ()
        beside = [self._nodes[one] for one in backend.view.nodes if one != node and one in self._nodes]
        held_up = any(one.view.speed.word in {SLOW_CLOCK, THROTTLED} for one in beside)
        return () if held_up else (backend.step_pace,)

    def peers(self, track: BackendTrack) -> list[BackendView]:
        """Return at most `MOST_PEERS` other answering backends that serve the same model as `track`.

        They are those watched next after it. Backends known to run on other GPU models are left out. The
        result is empty if the model or the step time of `track` is unknown.
        """
        model = track.view.model
        if model is None or track.view.step_ms is None:
            return []
        gpus, found = self._gpu_names(track.view), list[BackendView]()
        for one in self._after(track, model):
            view = one.view
            if view.model != model or one.health.failure is not None:
                continue
            if not gpus or (self._gpu_names(view) or gpus) == gpus:
                found.append(view)
                if len(found) == MOST_PEERS:
                    break
        return found

    def _after(self, track: BackendTrack, model: str) -> Iterator[BackendTrack]:
        """Yield the other backends with this model, beginning after `track`.

        Backends are grouped by model once for as many calls as there are backends, so that a call costs the
        same with two and with hundreds.
        """
        if self._calls_left <= 0:
            self._calls_left, self._by_model = len(self._backends), {}
            for one in self._backends.values():
                if one.view.model is not None:
                    self._by_model.setdefault(one.view.model, []).append(one)
        self._calls_left -= 1
        alike = self._by_model.get(model, [])
        own = alike.index(track) if track in alike else -1
        yield from islice(alike, own + 1, None)
        yield from islice(alike, max(own, 0))

    def _gpu_names(self, view: BackendView) -> set[str | None]:
        samples = [self.node_sample(name) for name in view.nodes]
        return {gpu.name for sample in samples if sample is not None for gpu in sample.gpus}

    def node_sample(self, name: str) -> NodeSample | None:
        """Return the newest sample of the node `name`; None if there is none or the node is not watched."""
        node = self._nodes.get(name)
        return node.view.sample if node else None


def _node_place(track: NodeTrack) -> NodePlace:
    target, identity = track.target, track.view.identity
    return NodePlace(
        target.name,
        target.via == "local",
        target.url,
        target.ssh,
        identity.addresses,
        identity.hostname,
        track.processes,
    )


# The tracks of all watched sources, and which backends belong together behind the routers.


_STALE = "its figures are stale"
Track = BackendTrack | NodeTrack | RouterTrack | FleetTrack


class Routing(NamedTuple):
    """The routers and the backends that they lead to."""

    routers: list[RouterTrack]
    groups: list[Group]
    """The backends behind each router, in the order of `routers`."""
    names: Mapping[str, str]
    """Name of the group of each backend behind a router, by backend name."""


class Tracks:
    """The track of each watched backend, node and router, by name."""

    def __init__(self, thresholds: Thresholds) -> None:
        """Start with no source; tracks added later judge by `thresholds`."""
        self.backends: dict[str, BackendTrack] = {}
        self.nodes: dict[str, NodeTrack] = {}
        self.routers: dict[str, RouterTrack] = {}
        self.fleets: dict[str, FleetTrack] = {}
        self.thresholds = thresholds
        self._each_once = EachOnce()
        self._wall_figures = WallFigures()

    def add(self, targets: Iterable[Target]) -> None:
        """Add an empty track for each target, except where its type and name have a track already.

        A backend that has one is updated (`BackendTarget.updated_by`).
        """
        for target in targets:
            if isinstance(target, BackendTarget):
                known = self.backends.get(target.name)
                if known is not None:
                    known.target = known.target.updated_by(target)
                else:
                    self.backends[target.name] = BackendTrack(
                        target, self.thresholds.states, self.thresholds.nodes.slow_step_ratio
                    )
            elif isinstance(target, NodeTarget):
                self.nodes.setdefault(target.name, NodeTrack(target, self.thresholds.nodes))
            elif isinstance(target, PrometheusTarget):
                self.fleets.setdefault(target.name, FleetTrack(target))
            elif target.name not in self.routers:
                self.routers[target.name] = RouterTrack(target)

    def set_thresholds(self, thresholds: Thresholds) -> None:
        """Judge the next sample of each source, and all later ones, by `thresholds`."""
        self.thresholds = thresholds
        for backend in self.backends.values():
            backend.set_thresholds(thresholds.states, thresholds.nodes.slow_step_ratio)
        for node in self.nodes.values():
            node.set_thresholds(thresholds.nodes)

    def get(self, key: SourceKey) -> Track | None:
        """Return the track of a source; None if it is not watched."""
        return self._of_kind(key.kind).get(key.name)

    def remove(self, key: SourceKey) -> None:
        """Forget the track of a source, if there is one."""
        self._of_kind(key.kind).pop(key.name, None)

    def _of_kind(
        self, kind: SourceKind
    ) -> dict[str, BackendTrack] | dict[str, NodeTrack] | dict[str, RouterTrack] | dict[str, FleetTrack]:
        match kind:
            case SourceKind.BACKEND:
                return self.backends
            case SourceKind.NODE:
                return self.nodes
            case SourceKind.ROUTER:
                return self.routers
            case SourceKind.PROMETHEUS:
                return self.fleets

    def targets(self) -> tuple[Target, ...]:
        """Return everything that is watched: nodes, backends, routers and each Prometheus."""
        homes = (self.nodes, self.backends, self.routers, self.fleets)
        tracks: Iterable[Track] = (track for home in homes for track in home.values())
        return tuple(track.target for track in tracks)

    def size(self) -> int:
        """Return the number of sources, and of servers and machines on the walls of Prometheus servers."""
        return len(self.targets()) + sum(one.size for one in self.fleets.values())

    def identities(self) -> dict[SourceKey, EngineIdentity | NodeIdentity]:
        """Return the newest identity of each backend and node."""
        return {
            **{SourceKey.backend(name): track.identity for name, track in self.backends.items()},
            **{SourceKey.node(name): track.view.identity for name, track in self.nodes.items()},
        }

    def routing(self) -> Routing:
        """Return the routers, and which backends are behind each of them."""
        routers = list(self.routers.values())
        fronts = {address_of(track.target.url) for track in routers}
        urls = {
            name: track.target.url
            for name, track in self.backends.items()
            if address_of(track.target.url) not in fronts  # a router is no backend of its own group
        }
        groups = [track.group(urls) for track in routers]
        return Routing(routers, groups, group_names(routers, groups))

    def groups_by_name(self, behind: Mapping[str, str]) -> dict[str, str]:
        """Return the name of the group of each backend, by backend name.

        This is the group in `behind`, which has the backends behind a router. For other backends it is the
        group that labels in Prometheus name, else the model; backends of unknown model are left out.
        """
        known = {
            name: behind.get(name) or track.target.group or track.view.model
            for name, track in self.backends.items()
        }
        return {name: group for name, group in known.items() if group is not None}

    def fleet_views(self, at: float, backends: Sequence[BackendView] = ()) -> tuple[FleetView, ...]:
        """Return each Prometheus as shown at `at` (monotonic seconds), each server through one of them.

        Where all of its servers are among `backends`, their figures are those of `backends`.
        """
        views = self._each_once.of(tuple(track.view(at) for track in self.fleets.values()))
        return self._wall_figures.of(views, backends)

    def note_stale(self, alerts: AlertBook, instant: Instant) -> None:
        """Record a failure of each backend and node whose newest sample through a Prometheus is old by now.

        Its alerts end, and it gets none: where the Prometheus fails, that has one for all that it scrapes.
        """
        for name, backend in self.backends.items():
            if self._becomes_stale(backend, instant):
                alerts.clear_source(SourceKey.backend(name), instant, _STALE)
        for name, node in self.nodes.items():
            if self._becomes_stale(node, instant):
                alerts.clear_source(SourceKey.node(name), instant, _STALE)

    def _becomes_stale(self, track: BackendTrack | NodeTrack, instant: Instant) -> bool:
        """Record a failure if the newest sample is old and that is not known; return whether it was."""
        scrape, good_at = track.target.scrape, track.health.good_at
        if scrape is None or good_at is None or instant.at - good_at <= stale_s(scrape.every_s):
            return False
        known = track.health.failure
        if known is not None and known.kind is not FailureKind.LATE:
            return False
        message = f"no new sample through {scrape.source}"
        fleet = self.fleets.get(scrape.source)
        failed = None if fleet is None else fleet.health.failure
        if failed is not None and failed.kind is not FailureKind.LATE:
            message = f"{message}: {failed.message}"
        if known is not None and known.message == message:
            return False
        at = good_at + stale_s(scrape.every_s)  # a gap now would hide samples that come late
        track.accept_failure(Failure(FailureKind.LATE, message, at), instant.wall, None)
        return True

    def begin_own_load(self, names: Iterable[str]) -> None:
        """Record that a sweep of this program loads the backends among `names`."""
        for track in self._backends_in(names):
            track.begin_own_load()

    def end_own_load(self, names: Iterable[str], at: float) -> None:
        """Record that the sweep that loaded the backends among `names` has ended at `at` (monotonic)."""
        for track in self._backends_in(names):
            track.end_own_load(at)

    def _backends_in(self, names: Iterable[str]) -> list[BackendTrack]:
        return [self.backends[name] for name in names if name in self.backends]

    def poll_ms(self) -> dict[str, float]:
        """Return the duration of the newest poll in ms, by the label of the source; unknown ones left out."""
        took = {
            **{SourceKey.backend(name): one.view.poll_ms for name, one in self.backends.items()},
            **{SourceKey.node(name): one.took_ms for name, one in self.nodes.items()},
            **{SourceKey.router(name): one.poll_ms for name, one in self.routers.items()},
        }
        return {key.label: ms for key, ms in took.items() if ms is not None}


# The figures of a wall whose servers are all read one by one: those of their rows, so that sums agree.
#
# A Prometheus computes rates over a minute, rows have theirs over 10 s. The answer of a Prometheus with
# more
# servers than are read one by one stays as it is.


class WallFigures:
    """Returns walls with the figures of rows."""

    def __init__(self) -> None:
        """Start without answers."""
        self._made: dict[str, tuple[Fleet, Fleet]] = {}
        """By Prometheus: its newest answer, and what was made of it; equal ones stay the same object."""

    def of(self, views: Sequence[FleetView], backends: Sequence[BackendView]) -> tuple[FleetView, ...]:
        """Return the views; where each server has a row, with the figures of the rows."""
        rows: dict[str, BackendView] | None = None
        found: list[FleetView] = []
        for view in views:
            fleet = view.fleet
            if fleet is None or not 0 < len(fleet.servers) <= len(backends):
                found.append(view)
                continue
            rows = {one.url: one for one in backends} if rows is None else rows
            if all(one.url in rows for one in fleet.servers):
                found.append(replace(view, fleet=self._with(view.name, fleet, rows), by_rows=True))
            else:
                found.append(view)
        return tuple(found)

    def _with(self, name: str, fleet: Fleet, rows: Mapping[str, BackendView]) -> Fleet:
        servers = tuple(_server(one, rows[one.url], fleet.late_at) for one in fleet.servers)
        answer, made = self._made.get(name, (None, None))
        if answer is fleet and made is not None and made.servers == servers:
            return made
        made = replace(fleet, servers=servers)
        self._made[name] = fleet, made
        return made


def _server(one: FleetServer, row: BackendView, late_at: float) -> FleetServer:
    """Return a server with the figures of its row; unchanged while it does not answer, or has no row yet."""
    if one.down or one.at is None or one.at < late_at or not row.ok or row.age_s is None:
        return one
    return replace(
        one,
        running=row.running,
        waiting=row.waiting,
        kv_cache_percent=kv_percent(row),
        generation_tps=row.generation_tps,
        prompt_tps=row.prompt_tps,
        preemptions_per_s=row.preemptions_per_s,
        ttft_p95_s=ttft_s(row),
        itl_p95_s=None if row.itl.p95 is None else row.itl.p95.seconds,
    )
