"""Alerts about backends, and about any source that does not answer.

An alert is cleared at another level than it is raised at, so that it does not flap.
"""

from __future__ import annotations

from datetime import datetime

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.snapshot import Severity
from sparktop.model.targets import StateThresholds
from sparktop.store.alert_book import AlertBook
from sparktop.store.backend import BackendTrack
from sparktop.store.health import Health
from sparktop.store.keys import SourceKey

KV_CLEARS_BELOW = 3.0
"""The "KV-full" alert clears this many percentage points below its threshold."""
PREEMPTING_CLEARS_AFTER_S = 30.0
"""The "preempting" alert clears after this many seconds without a preemption."""

_MILD = frozenset({FailureKind.METRICS_DISABLED, FailureKind.UNSUPPORTED})
"""Failures which mean that the source cannot be observed, not that it is down."""
RESTARTS = "restarts"
RESTARTS_WITHIN_S = 600.0
RESTARTS_WARN, RESTARTS_CRITICAL = 2, 4
"""Restarts within `RESTARTS_WITHIN_S` seconds that raise a warning, and a critical alert. A single restart is
only an event."""
_OUTLIVES = frozenset({RESTARTS})
"""Alerts that stay active while their source does not answer."""


def failure_id(key: SourceKey, failure: Failure) -> str:
    """Return the id of the alert for `failure`.

    It ends in "engine-dead" if the server still answers while its engine has died, else in "unreachable".
    """
    return f"{key.label}:{'engine-dead' if failure.kind is FailureKind.ENGINE_DEAD else 'unreachable'}"


def judge_health(book: AlertBook, key: SourceKey, health: Health, now: datetime) -> bool | None:
    """Raise or clear the alerts "unreachable" and "engine-dead" of the source `key`.

    Return True if the source has just gone down, or changed between these two alerts; False if it has just
    come back; None if nothing changed.
    """
    failure = health.failure
    ids = (f"{key.label}:unreachable", f"{key.label}:engine-dead")
    if failure is None or failure.kind is FailureKind.LOADING:
        return False if [one for one in ids if book.clear(one)] else None
    if not health.down:
        return None
    severity = Severity.WARNING if failure.kind in _MILD else Severity.CRITICAL
    alert_id = failure_id(key, failure)
    if book.severity(alert_id) is None:
        book.clear_source(key, but=_OUTLIVES)  # other alerts may no longer apply
    since = health.failing_since or now
    return True if book.hold(alert_id, severity, key.name, failure.message, since) else None


def judge_backend(
    book: AlertBook, key: SourceKey, track: BackendTrack, thresholds: StateThresholds, now: datetime
) -> None:
    """Raise, update or clear "kv-full", "preempting" and "restarts" after a successful poll of a backend."""
    kv_id, preempting_id = f"{key.label}:kv-full", f"{key.label}:preempting"
    kv_percent, limit = track.view.kv_fullest_percent, thresholds.kv_full_percent
    if kv_percent is None or kv_percent < limit - KV_CLEARS_BELOW:
        book.clear(kv_id)  # what is no longer reported may no longer be full
    elif kv_percent >= limit:
        book.hold(kv_id, Severity.WARNING, key.name, f"KV cache at or above {limit:g} % of its room", now)
    _judge_restarts(book, key, track, now)
    at, preempted_at = track.health.good_at, track.preempted_at
    if at is None or preempted_at is None or at - preempted_at > PREEMPTING_CLEARS_AFTER_S:
        book.clear(preempting_id)
    elif preempted_at == at or book.severity(preempting_id):
        message = "preempts running requests: the KV cache is too small for the load"
        book.hold(preempting_id, Severity.WARNING, key.name, message, now)


def _judge_restarts(book: AlertBook, key: SourceKey, track: BackendTrack, now: datetime) -> None:
    """Raise, update or clear the "restarts" alert; its message has the number of recent restarts."""
    at, restarted_at = track.health.good_at, track.restarted_at
    while at is not None and restarted_at and restarted_at[0] <= at - RESTARTS_WITHIN_S:
        restarted_at.popleft()
    count, restarts_id = len(restarted_at), f"{key.label}:{RESTARTS}"
    if count < RESTARTS_WARN:
        book.clear(restarts_id)
        return
    severity = Severity.CRITICAL if count >= RESTARTS_CRITICAL else Severity.WARNING
    message = f"restarted {count} times in {RESTARTS_WITHIN_S / 60:.0f} min: its log says why it ends"
    book.hold(restarts_id, severity, key.name, message, now)
