"""The store's state of one Prometheus: its newest answer, and whether it answers."""

from __future__ import annotations

from datetime import datetime

from sparktop.model.failure import Failure
from sparktop.model.fleet import Fleet, FleetNode, FleetServer, FleetView, stale_s
from sparktop.model.targets import PrometheusTarget
from sparktop.store.health import Health
from sparktop.values import replace


class FleetTrack:
    """One Prometheus: the servers that it scrapes, and whether it answers."""

    def __init__(self, target: PrometheusTarget) -> None:
        """Start without any answer."""
        self.target = target
        self.health = Health()
        self._fleet: Fleet | None = None
        self._newest: float | None = None
        """Monotonic time of the newest scrape of any server."""

    def accept_failure(self, failure: Failure, now: datetime, took_ms: float | None) -> None:  # noqa: ARG002 - as of all tracks
        """Record failed queries; the last answer is kept."""
        self.health.bad(failure, now)

    def accept_fleet(self, fleet: Fleet) -> None:
        """Record an answer."""
        self.health.good(fleet.at)
        self._fleet = _current(fleet)
        self._newest = max((one.at for one in fleet.servers if one.at is not None), default=self._newest)

    @property
    def size(self) -> int:
        """Number of servers and machines in the newest answer."""
        return 0 if self._fleet is None else len(self._fleet.servers) + len(self._fleet.nodes)

    def view(self, at: float) -> FleetView:
        """Return the Prometheus as shown at `at` (monotonic seconds).

        Once the newest scrape of all servers is too old, the figures of all servers and machines are unknown.
        """
        fleet, newest = self._fleet, self._newest
        if fleet is not None and newest is not None and fleet.at <= newest + stale_s(fleet.every_s) < at:
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
