"""Alerts: what holds now and wants a person's eye. Each is raised at one level and cleared at another."""

from __future__ import annotations

from datetime import datetime

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.snapshot import Alert, Severity
from sparktop.model.targets import StateThresholds
from sparktop.store.backend import BackendTrack
from sparktop.store.health import Health
from sparktop.store.keys import SourceKey

KV_CLEARS_BELOW = 3.0
"""Percentage points under the threshold."""
PREEMPTING_CLEARS_AFTER_S = 30.0
"""Without a preemption."""

_RANK = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}
_MILD = frozenset({FailureKind.METRICS_DISABLED, FailureKind.UNSUPPORTED})
"""Failures that say that we cannot see, not that something is down."""
_OUTLIVES = frozenset({"restarts"})
"""Alerts that hold although their source does not answer at present."""


class AlertBook:
    """The alerts that hold."""

    def __init__(self) -> None:
        self._alerts: dict[str, Alert] = {}
        self._sorted: tuple[Alert, ...] | None = ()

    def hold(self, alert_id: str, severity: Severity, subject: str, message: str, now: datetime) -> bool:
        """Raise an alert, or renew its words; its `since` stays. True when it is new."""
        old = self._alerts.get(alert_id)
        alert = Alert(alert_id, severity, subject, message, old.since if old else now)
        if alert != old:
            self._alerts[alert_id] = alert
            self._sorted = None
        return old is None

    def clear(self, alert_id: str) -> bool:
        """Drop an alert; True when it held."""
        if self._alerts.pop(alert_id, None) is None:
            return False
        self._sorted = None
        return True

    def severity(self, alert_id: str) -> Severity | None:
        """Give how grave an alert is; None when it does not hold."""
        alert = self._alerts.get(alert_id)
        return alert.severity if alert else None

    def clear_source(self, key: SourceKey, *, but: frozenset[str] = frozenset()) -> None:
        """Drop all alerts about a source, but those of these names."""
        of_it = [one for one in self._alerts if one.startswith(f"{key.label}:")]
        for alert_id in of_it:
            if alert_id.removeprefix(f"{key.label}:") not in but:
                self.clear(alert_id)

    def view(self) -> tuple[Alert, ...]:
        """Give them all, the gravest first, then the oldest."""
        if self._sorted is None:
            order = sorted(self._alerts.values(), key=lambda one: (_RANK[one.severity], one.since, one.id))
            self._sorted = tuple(order)
        return self._sorted


def failure_id(key: SourceKey, failure: Failure) -> str:
    """Return the id of the alert that a source fails in this way: a dead engine still answers."""
    return f"{key.label}:{'engine-dead' if failure.kind is FailureKind.ENGINE_DEAD else 'unreachable'}"


def judge_health(book: AlertBook, key: SourceKey, health: Health, now: datetime) -> bool | None:
    """Hold or clear "unreachable" and "engine dead".

    Return True when the source went down just now, or in another way than before; False when it came back,
    else None.
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
        book.clear_source(key, but=_OUTLIVES)  # what was known before is no longer known to hold
    since = health.failing_since or now
    return True if book.hold(alert_id, severity, key.name, failure.message, since) else None


def judge_backend(
    book: AlertBook, key: SourceKey, track: BackendTrack, thresholds: StateThresholds, now: datetime
) -> None:
    """Hold or clear "KV-full" and "preempting" after a good sample."""
    kv_id, preempting_id = f"{key.label}:kv-full", f"{key.label}:preempting"
    kv_percent, limit = track.view.kv_fullest_percent, thresholds.kv_full_percent
    if kv_percent is not None:
        if kv_percent >= limit:
            book.hold(kv_id, Severity.WARNING, key.name, f"KV cache at or above {limit:g} % of its room", now)
        elif kv_percent < limit - KV_CLEARS_BELOW:
            book.clear(kv_id)
    at, preempted_at = track.health.good_at, track.preempted_at
    if at is None or preempted_at is None or at - preempted_at > PREEMPTING_CLEARS_AFTER_S:
        book.clear(preempting_id)
    elif preempted_at == at or book.severity(preempting_id):
        message = "preempts running requests: the KV cache is too small for the load"
        book.hold(preempting_id, Severity.WARNING, key.name, message, now)
