"""The tracks of all sources: which backends form a group, and which run on which node.

A *track* is what the store keeps of one source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, TypeAlias

from sparktop.analysis.placement import address_of, place_backends, with_backends
from sparktop.analysis.speed_state import SLOW_CLOCK, THROTTLED, StepPace
from sparktop.model.engine import EngineIdentity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.instant import Instant
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.router import FleetServer, FleetView, Sum, Totals, stale_s
from sparktop.model.snapshot import BackendView, NodeView
from sparktop.model.targets import BackendTarget, NodeTarget, PrometheusTarget, Target, Thresholds
from sparktop.store.backend import BackendTrack
from sparktop.store.event_log import ActiveAlerts
from sparktop.store.node import NodeTrack
from sparktop.store.routers import EachOnce, FleetTrack, Routed, RouterTrack, WallFigures, group_names
from sparktop.store.sources import SourceKey, SourceKind
from sparktop.store.yardsticks import is_simulated_version

# Which backend runs on which node, and which node its slow steps can be attributed to.


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
        self._is_current = False

    def outdate(self) -> None:
        """Make the next `update` determine the placement again, because something has changed."""
        self._is_current = False

    def update(self) -> None:
        """Determine which backend runs on which node, and store the result in the views of both.

        Do nothing if nothing has changed since the last call.
        """
        if self._is_current:
            return
        self._is_current = True
        assigned = place_backends(
            [(backend.target, backend.view.engine) for backend in self._backends.values()],
            [(node.target, node.view.identity, node.processes) for node in self._nodes.values()],
        )
        self._on_node = {}
        for name, nodes in assigned.items():
            self._backends[name].place(nodes)
            for node in nodes:
                self._on_node.setdefault(node, []).append(name)
        for name, track in self._nodes.items():
            engines = {
                backend: self._backends[backend].view.engine for backend in self._on_node.get(name, ())
            }
            track.assign(with_backends(track.processes, engines, track.orphans))

    def steps_on(self, node: str) -> tuple[StepPace, ...]:
        """Return the step time comparison of the backend on `node`, as a tuple of at most one element.

        The tuple is empty if there is not exactly one backend, if its step times have no comparison, or if
        another of its nodes has a slow or throttled GPU, which may slow the steps.
        """
        names = self._on_node.get(node, [])
        backend = self._backends[names[0]] if len(names) == 1 else None
        if backend is None or backend.step_pace is None:
            return ()
        beside = [
            self._nodes[other] for other in backend.view.nodes if other != node and other in self._nodes
        ]
        held_up = any(machine.view.speed.word in {SLOW_CLOCK, THROTTLED} for machine in beside)
        return () if held_up else (backend.step_pace,)

    def peers(self, track: BackendTrack) -> list[BackendView]:
        """Return at most `MOST_PEERS` other answering backends that serve the same model as `track`.

        They are those watched next after it. Backends known to run on other GPU models are left out. The
        result is empty if the model or the step time of `track` is unknown.
        """
        model = track.view.model
        if model is None or track.view.step_ms is None:
            return []
        tracks = list(self._backends.values())
        after = tracks.index(track) + 1
        gpus = self._gpu_names(track.view)

        def is_peer(other: BackendTrack) -> bool:
            if other.view.model != model or other.health.failure is not None:
                return False
            other_gpus = self._gpu_names(other.view)
            return not gpus or not other_gpus or other_gpus == gpus

        peers = (other.view for other in (*tracks[after:], *tracks[: after - 1]) if is_peer(other))
        return list(islice(peers, MOST_PEERS))

    def _gpu_names(self, view: BackendView) -> set[str | None]:
        samples = [self.node_sample(name) for name in view.nodes]
        return {gpu.name for sample in samples if sample is not None for gpu in sample.gpus}

    def node_sample(self, name: str) -> NodeSample | None:
        """Return the newest sample of the node `name`; None if there is none or the node is not watched."""
        node = self._nodes.get(name)
        return node.view.sample if node else None


# The tracks of all watched sources, and which backends belong together behind the routers.


_STALE = "its figures are stale"
Track: TypeAlias = BackendTrack | NodeTrack | RouterTrack | FleetTrack


class Tracks:
    """The track of each watched backend, node and router, by name."""

    def __init__(self, thresholds: Thresholds) -> None:
        """Start with no source; tracks added later judge by `thresholds`."""
        self.backends: dict[str, BackendTrack] = {}
        self.nodes: dict[str, NodeTrack] = {}
        self.routers: dict[str, RouterTrack] = {}
        self.fleets: dict[str, FleetTrack] = {}
        self.thresholds = thresholds
        self._by_kind: dict[SourceKind, dict[str, Any]] = {
            SourceKind.NODE: self.nodes,
            SourceKind.BACKEND: self.backends,
            SourceKind.ROUTER: self.routers,
            SourceKind.PROMETHEUS: self.fleets,
        }
        self._each_once = EachOnce()
        self._wall_figures = WallFigures()

    def add(self, targets: Iterable[Target]) -> None:
        """Add an empty track for each target, except where its type and name have a track already.

        A backend that has one is updated (`BackendTarget.updated_by`).
        """
        for target in targets:
            if isinstance(target, BackendTarget):
                track = self.backends.get(target.name)
                if track is not None:
                    track.target = track.target.updated_by(target)
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
        return self._by_kind[key.kind].get(key.name)

    def remove(self, key: SourceKey) -> None:
        """Forget the track of a source, if there is one."""
        self._by_kind[key.kind].pop(key.name, None)

    def targets(self) -> tuple[Target, ...]:
        """Return everything that is watched: nodes, backends, routers and each Prometheus."""
        tracks: Iterable[Track] = chain.from_iterable(home.values() for home in self._by_kind.values())
        return tuple(track.target for track in tracks)

    def size(self) -> int:
        """Return the number of sources, and of servers and machines on the walls of Prometheus servers."""
        return len(self.targets()) + sum(fleet.size for fleet in self.fleets.values())

    def identities(self) -> dict[SourceKey, EngineIdentity | NodeIdentity]:
        """Return the newest identity of each backend and node."""
        return {
            **{SourceKey.backend(name): track.identity for name, track in self.backends.items()},
            **{SourceKey.node(name): track.view.identity for name, track in self.nodes.items()},
        }

    def routing(self) -> tuple[Routed, Mapping[str, str]]:
        """Return (each router with the backends behind it, name of the group of each backend by name)."""
        fronts = {address_of(track.target.url) for track in self.routers.values()}
        urls = {
            name: track.target.url
            for name, track in self.backends.items()
            if address_of(track.target.url) not in fronts  # a router is no backend of its own group
        }
        routed = [(track, track.group(urls)) for track in self.routers.values()]
        return routed, group_names(routed)

    def groups_by_name(self, behind: Mapping[str, str]) -> dict[str, str]:
        """Return the name of the group of each backend, by backend name.

        This is the group in `behind`, which has the backends behind a router. For other backends it is the
        group that labels in Prometheus name, else the model; backends of unknown model are left out.
        """
        names = {
            name: behind.get(name) or track.target.group or track.view.model
            for name, track in self.backends.items()
        }
        return {name: group for name, group in names.items() if group is not None}

    def fleet_views(self, at: float, backends: Sequence[BackendView] = ()) -> tuple[FleetView, ...]:
        """Return each Prometheus as shown at `at` (monotonic seconds).

        A server that several of them scrape is shown by one only. A Prometheus all of whose servers are
        polled too, as `backends`, takes their figures from there.
        """
        views = self._each_once.leave_each_once(tuple(track.view(at) for track in self.fleets.values()))
        return self._wall_figures.with_rows(views, backends)

    def note_stale(self, alerts: ActiveAlerts, instant: Instant) -> None:
        """Record a failure of each backend and node whose newest sample through a Prometheus is old by now.

        Its alerts end, and it gets none: where the Prometheus fails, that has one for all that it scrapes.
        """
        for name, backend in self.backends.items():
            if self._record_if_stale(backend, instant):
                alerts.clear_source(SourceKey.backend(name), instant, _STALE)
        for name, node in self.nodes.items():
            if self._record_if_stale(node, instant):
                alerts.clear_source(SourceKey.node(name), instant, _STALE)

    def _record_if_stale(self, track: BackendTrack | NodeTrack, instant: Instant) -> bool:
        """Record a failure LATE if the newest sample through a Prometheus is too old by now.

        Return whether a new one was recorded: not while another failure holds, or the same one is known.
        """
        scrape, good_at = track.target.scrape, track.health.good_at
        if scrape is None or good_at is None or instant.at - good_at <= stale_s(scrape.every_s):
            return False
        failure = track.health.failure
        if failure is not None and failure.kind is not FailureKind.LATE:
            return False
        message = f"no new sample through {scrape.source}"
        fleet = self.fleets.get(scrape.source)
        failed = None if fleet is None else fleet.health.failure
        if failed is not None and failed.kind is not FailureKind.LATE:
            message = f"{message}: {failed.message}"
        if failure is not None and failure.message == message:
            return False
        at = good_at + stale_s(scrape.every_s)  # a gap now would hide samples that come late
        track.accept_failure(Failure(FailureKind.LATE, message, at), instant.wall, None)
        return True

    def set_own_load(self, names: Iterable[str], until: float, since: float | None = None) -> None:
        """Record until when (monotonic seconds) the backends among `names` show a sweep of this program.

        `since` is when it began; None if it has begun before.
        """
        for name in self.backends.keys() & set(names):
            self.backends[name].loaded_until = until
            self.backends[name].loaded_since = self.backends[name].loaded_since if since is None else since

    def poll_ms(self) -> dict[str, float]:
        """Return the duration of the newest poll in ms, by the label of the source; unknown ones left out."""
        took = {
            **{SourceKey.backend(name): track.view.poll_ms for name, track in self.backends.items()},
            **{SourceKey.node(name): track.took_ms for name, track in self.nodes.items()},
            **{SourceKey.router(name): track.poll_ms for name, track in self.routers.items()},
        }
        return {key.label: ms for key, ms in took.items() if ms is not None}


# Of all sources together.


def is_simulated(backends: Iterable[BackendView], nodes: Iterable[NodeView]) -> bool:
    """Return whether any server or agent is simulated.

    A simulated server has a version such as 0.32.0+simulated; an agent reports it in its replies.
    """
    if any(is_simulated_version(view.version) for view in backends):
        return True
    return any(view.identity.simulated for view in nodes)


_CountedServer: TypeAlias = FleetServer | BackendView


def totals(backends: Iterable[BackendView], fleets: Iterable[FleetView] = ()) -> Totals:
    """Return the sums over all servers, each once; the values of one that does not answer are unknown.

    A server that a Prometheus scrapes counts with the figures of its last scrape, unless they are stale. It
    is in the fleet of one Prometheus (see `EachOnce`): servers of two sites with one address are two.
    """

    def address(server: _CountedServer) -> tuple[str, int, str] | str:
        return address_of(server.url) or server.url

    fleets_known = [view.fleet for view in fleets if view.ok and view.fleet is not None]
    scraped = [(server, fleet.late_at) for fleet in fleets_known for server in fleet.servers]
    addresses = {address(server) for server, _ in scraped}
    single_backends = [view for view in backends if not addresses or address(view) not in addresses]
    counted: list[_CountedServer] = [view for view in single_backends if view.ok]
    counted += [
        server
        for server, late_at in scraped
        if not server.down and server.at is not None and server.at >= late_at
    ]
    absent = len(scraped) + len(single_backends) - len(counted)
    return Totals(
        **{
            name: Sum.of_values([getattr(server, name) for server in counted], absent=absent)
            for name in Totals.__struct_fields__
        }
    )
