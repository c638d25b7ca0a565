"""Events about changes of the servers' state words."""

from __future__ import annotations

from msgspec import Struct

from sparktop.model.event import Event, Severity
from sparktop.model.instant import Instant
from sparktop.model.snapshot import BackendState
from sparktop.store.alert_book import AlertBook
from sparktop.store.alerts import failure_id
from sparktop.store.backend.track import BackendTrack
from sparktop.store.keys import SourceKey
from sparktop.store.tracks import Tracks

HELD_S, STILL_HELD_S = 2.0, 5.0
"""Seconds for which a word must be the same before its change is an event; the same for "no progress", which
begins at 10 s."""
_LOAD = frozenset({BackendState.BUSY, BackendState.BORED, BackendState.IDLE, BackendState.QUEUEING})
"""Words of load, which follow the requests: graphs show them, and a change among them is no event."""
_ALERTS = {
    BackendState.ENGINE_DEAD: "engine-dead",
    BackendState.STUCK: "stuck",
    BackendState.SUSPECT: "stuck",
    BackendState.STILL: "blocked",
    BackendState.PREEMPTING: "preempting",
    BackendState.KV_FULL: "kv-full",
}
"""Names of the alerts whose beginning and end are the events about a state."""


class _Word(Struct):
    """The state of one server as last reported, and a newer one that may not last."""

    reported: BackendState
    by_alert: bool
    """Whether an alert is the report."""
    newest: BackendState
    since_s: float


class StateEvents:
    """Reports each change of a server's state that lasts, unless it is of its load or an alert reports it."""

    def __init__(self) -> None:
        """Start without a state; the first of each server is not an event."""
        self._words: dict[str, _Word] = {}

    def judge(self, tracks: Tracks, alerts: AlertBook, when: Instant) -> list[Event]:
        """Return the events about states that have lasted long enough by now."""
        self._words = {name: word for name, word in self._words.items() if name in tracks.backends}
        found = (
            self._changed(track, when, by_alert=_has_alert(track, tracks, alerts))
            for track in tracks.backends.values()
        )
        return [event for event in found if event is not None]

    def _changed(self, track: BackendTrack, when: Instant, *, by_alert: bool) -> Event | None:
        name, state = track.target.name, track.view.state
        if state is BackendState.CONNECTING:
            return None
        word = self._words.setdefault(name, _Word(state, by_alert=False, newest=state, since_s=when.at))
        if state is not word.newest:
            word.newest, word.since_s = state, when.at
        if state is word.reported:
            word.by_alert = word.by_alert or by_alert
            return None
        held_s = STILL_HELD_S if state is BackendState.STILL else HELD_S
        if not by_alert and when.at - word.since_s < held_s:
            return None
        before, was_by_alert = word.reported, word.by_alert
        word.reported, word.by_alert = state, by_alert
        if by_alert or was_by_alert or before is BackendState.STILL or {before, state} <= _LOAD:
            # The beginning or the end of the alert, or of the standstill, is an event of its own.
            return None
        key = SourceKey.backend(name)
        about = f"{key.label}:state/{state.name.lower()}"
        values = {"state": state.value, "before": before.value}
        message = f"{state.value} (was {before.value})"
        return Event(when.wall, Severity.INFO, name, message, values, when.at, about)


def _has_alert(track: BackendTrack, tracks: Tracks, alerts: AlertBook) -> bool:
    """Return whether an alert about the state of a server is active; one about its Prometheus counts too."""
    key, failure = SourceKey.backend(track.target.name), track.health.failure
    if track.view.state is BackendState.STALE and track.target.scrape is not None:
        fleet = tracks.fleets.get(track.target.scrape.source)
        return fleet is not None and fleet.health.failure is not None
    if track.view.state is BackendState.UNREACHABLE and failure is not None:
        return alerts.get(failure_id(key, failure)) is not None
    name = _ALERTS.get(track.view.state)
    return name is not None and alerts.get(f"{key.label}:{name}") is not None
