"""The store's state of one Prometheus: its newest answer, and whether it answers."""

from __future__ import annotations

from datetime import datetime

from sparktop.model.failure import Failure
from sparktop.model.fleet import Fleet, FleetView
from sparktop.model.targets import PrometheusTarget
from sparktop.store.health import Health


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
        self._fleet = fleet
        self._newest = max((one.at for one in fleet.servers if one.at is not None), default=self._newest)

    def view(self, at: float) -> FleetView:
        """Return the Prometheus as shown at `at` (monotonic seconds)."""
        return FleetView(
            self.target.name,
            self.target.url,
            self._fleet,
            self.health.failure,
            self.health.failing_since,
            None if self._newest is None else max(0.0, at - self._newest),
        )
