"""The store's state of one Prometheus: its newest answer, and whether it answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from sparktop.model.failure import Failure
from sparktop.model.fleet import Fleet, FleetNode, FleetServer, FleetView, stale_s
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
