"""Copies the beginnings of alerts from a recording to a store that was filled from a later moment on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from sparktop.model.event import Alert
from sparktop.store.alert_book import AlertBook
from sparktop.store.backend.track import BackendTrack
from sparktop.store.fleet import FleetTrack
from sparktop.store.keys import SourceKey, SourceKind
from sparktop.store.node.track import NodeTrack
from sparktop.store.router import RouterTrack

Track = BackendTrack | NodeTrack | RouterTrack | FleetTrack
_DOWN = ("unreachable", "engine-dead")


def adopt_alerts(
    book: AlertBook,
    alerts: Iterable[Alert],
    at: float,
    track_of: Callable[[SourceKey], Track | None],
    served: Callable[[str, float], None],
) -> None:
    """Set the beginnings and highest severities of the active alerts of `book` to those in `alerts`.

    Alerts that the store's own samples do not confirm shortly after `at` (monotonic) are ignored. `track_of`
    returns the state of a watched source. If its alert is that it does not answer, the state gets the time
    since when. `served` is called with the name of each such backend and that time.
    """
    for alert in alerts:
        label, _, name = alert.id.rpartition(":")
        kind, _, source = label.partition(":")
        if name in _DOWN and kind == SourceKind.BACKEND and alert.since_s is not None:
            served(source, alert.since_s)
        if not book.adopt(alert, at):
            continue
        if name in _DOWN and kind in list(SourceKind):
            track = track_of(SourceKey(SourceKind(kind), source))
            if track is not None:
                _adopt_failures(track, alert)


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
