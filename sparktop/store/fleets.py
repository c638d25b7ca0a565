"""Each Prometheus: its servers and machines as a wall, each of them through one Prometheus only.

A *wall* shows many servers and machines by group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from sparktop.analysis.wall import kv_percent, ttft_s
from sparktop.model.failure import Failure
from sparktop.model.known import known_max
from sparktop.model.router import Fleet, FleetNode, FleetServer, FleetView, stale_s
from sparktop.model.snapshot import BackendView
from sparktop.model.targets import PrometheusTarget
from sparktop.store.sources import Health


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
        self._fleet = _without_stale_figures(fleet)
        newest = known_max(server.at for server in fleet.servers)
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
            nodes = tuple(FleetNode(node.name, node.at, backends=node.backends) for node in fleet.nodes)
            fleet = self._fleet = _without_stale_figures(replace(fleet, at=at, nodes=nodes))
        age_s = None if newest is None else max(0.0, at - newest)
        failure, since = self.health.failure, self.health.failing_since
        return FleetView(self.target.name, self.target.url, fleet, failure, since, age_s)


def _without_stale_figures(fleet: Fleet) -> Fleet:
    """Return an answer without the figures of servers whose newest scrape is too old."""
    late_at = fleet.late_at
    if all(server.at is None or server.at >= late_at for server in fleet.servers):
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

    def leave_each_once(self, views: tuple[FleetView, ...]) -> tuple[FleetView, ...]:
        """Return the views without what stands in another one."""
        if len(views) < 2:  # noqa: PLR2004 - two share
            return views
        answers = tuple((view.fleet, view.ok) for view in views)
        if len(answers) != len(self._from) or any(
            new[0] is not old[0] or new[1] != old[1] for new, old in zip(answers, self._from, strict=True)
        ):
            self._from, self._made = answers, _each_server_once(views)
        return tuple(
            view if fleet is view.fleet else replace(view, fleet=fleet)
            for view, fleet in zip(views, self._made, strict=True)
        )


_Key = tuple[str, str, str]


def _server_key(one: FleetServer) -> _Key:
    """Return what says that a server is the same; pods of two clusters may have equal addresses."""
    return one.url, one.name, one.group


def _each_server_once(views: Sequence[FleetView]) -> tuple[Fleet | None, ...]:
    """Return the answers without servers that stand in another one, and without the machines beside these."""
    servers: dict[_Key, tuple[bool, int]] = {}
    nodes: dict[str, tuple[bool, int]] = {}
    shared: set[int] = set()
    answered = [(index, view.fleet, view.ok) for index, view in enumerate(views) if view.fleet is not None]
    for index, fleet, is_ok in answered:
        for one in fleet.servers:
            key, known = _server_key(one), servers.get(_server_key(one))
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
    result = [view.fleet for view in views]
    for index, fleet, _ in answered:
        if index not in shared:
            continue
        kept = tuple(server for server in fleet.servers if servers[_server_key(server)][1] == index)
        machines = tuple(one for one in fleet.nodes if nodes[one.name][1] == index)
        left_out = len(fleet.servers) - len(kept)
        said = f"{left_out:,} of its servers are shown by another Prometheus" if left_out else ""
        note = "; ".join(part for part in (said, fleet.note) if part) or None
        result[index] = replace(fleet, servers=kept, nodes=machines, note=note)
    return tuple(result)


# The figures of a wall whose servers are all read one by one: those of their rows, so that sums agree.
#
# A Prometheus computes rates over a minute, rows have theirs over 10 s. The answer of a Prometheus with
# more servers than are read one by one stays as it is.


class WallFigures:
    """Returns walls with the figures of rows."""

    def __init__(self) -> None:
        """Start without answers."""
        self._made: dict[str, tuple[Fleet, Fleet]] = {}
        """By Prometheus: its newest answer, and what was made of it; equal ones stay the same object."""

    def with_rows(self, views: Sequence[FleetView], backends: Sequence[BackendView]) -> tuple[FleetView, ...]:
        """Return the views; where each server has a row, with the figures of the rows."""
        rows: dict[str, BackendView] | None = None
        result: list[FleetView] = []
        for view in views:
            fleet = view.fleet
            if fleet is None or not 0 < len(fleet.servers) <= len(backends):
                result.append(view)
                continue
            rows = {backend.url: backend for backend in backends} if rows is None else rows
            if all(server.url in rows for server in fleet.servers):
                result.append(replace(view, fleet=self._with_rows(view.name, fleet, rows), by_rows=True))
            else:
                result.append(view)
        return tuple(result)

    def _with_rows(self, name: str, fleet: Fleet, rows: Mapping[str, BackendView]) -> Fleet:
        servers = tuple(
            _with_figures_of_row(server, rows[server.url], fleet.late_at) for server in fleet.servers
        )
        answer, made = self._made.get(name, (None, None))
        if answer is fleet and made is not None and made.servers == servers:
            return made
        made = replace(fleet, servers=servers)
        self._made[name] = fleet, made
        return made


def _with_figures_of_row(one: FleetServer, row: BackendView, late_at: float) -> FleetServer:
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
