"""The alerts that are active now, by their ids."""

from __future__ import annotations

from datetime import datetime

from sparktop.model.snapshot import Alert, Severity
from sparktop.store.keys import SourceKey

_RANK = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}


class AlertBook:
    """The active alerts."""

    def __init__(self) -> None:
        self._alerts: dict[str, Alert] = {}
        self._sorted: tuple[Alert, ...] | None = ()

    def hold(self, alert_id: str, severity: Severity, subject: str, message: str, now: datetime) -> bool:
        """Raise an alert, or update its severity and message; `since` stays. Return True when it is new."""
        old = self._alerts.get(alert_id)
        alert = Alert(alert_id, severity, subject, message, old.since if old else now)
        if alert != old:
            self._alerts[alert_id] = alert
            self._sorted = None
        return old is None

    def clear(self, alert_id: str) -> bool:
        """Drop an alert; return True when it was active."""
        if self._alerts.pop(alert_id, None) is None:
            return False
        self._sorted = None
        return True

    def severity(self, alert_id: str) -> Severity | None:
        """Return the severity of an alert; None when it is not active."""
        alert = self._alerts.get(alert_id)
        return alert.severity if alert else None

    def clear_source(self, key: SourceKey, *, but: frozenset[str] = frozenset()) -> None:
        """Drop all alerts about a source except those named in `but`."""
        of_it = [alert for alert in self._alerts if alert.startswith(f"{key.label}:")]
        for alert_id in of_it:
            if alert_id.removeprefix(f"{key.label}:") not in but:
                self.clear(alert_id)

    def view(self) -> tuple[Alert, ...]:
        """Return all alerts, the most severe first, then the oldest."""
        if self._sorted is None:
            order = sorted(
                self._alerts.values(), key=lambda alert: (_RANK[alert.severity], alert.since, alert.id)
            )
            self._sorted = tuple(order)
        return self._sorted
