"""The tracks of all watched sources, and which backends belong together behind the routers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from sparktop.analysis.deployments import address_of
from sparktop.analysis.wall import kv_percent, ttft_s
from sparktop.model.engine import EngineIdentity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.fleet import Fleet, FleetServer, FleetView, stale_s
from sparktop.model.instant import Instant
from sparktop.model.node import NodeIdentity
from sparktop.model.snapshot import BackendView
from sparktop.model.targets import BackendTarget, NodeTarget, PrometheusTarget, Target, Thresholds
from sparktop.store.backend import BackendTrack
from sparktop.store.event_log import AlertBook
from sparktop.store.fleet import EachOnce, FleetTrack
from sparktop.store.node import NodeTrack
from sparktop.store.router import Group, RouterTrack, group_names
from sparktop.store.sources import SourceKey, SourceKind

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
