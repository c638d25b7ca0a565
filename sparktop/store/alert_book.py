"""The alerts that are active now, by alert id such as "backend:spark-a:kv-full"."""

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
        """Raise an alert, or update it and keep its start time; return True if it was not active before."""
        old = self._alerts.get(alert_id)
        alert = Alert(alert_id, severity, subject, message, old.since if old else now)
        if alert != old:
            self._alerts[alert_id] = alert
            self._sorted = None
        return old is None

    def clear(self, alert_id: str) -> bool:
        """Remove an alert; return True if it was active."""
        if self._alerts.pop(alert_id, None) is None:
            return False
        self._sorted = None
        return True

    def severity(self, alert_id: str) -> Severity | None:
        """Return the severity of an alert; None if the alert is not active."""
        alert = self._alerts.get(alert_id)
        return alert.severity if alert else None

    def clear_source(self, key: SourceKey, *, but: frozenset[str] = frozenset()) -> None:
        """Remove all alerts about the source `key`, except the alerts whose name is in `but`.

        A name is the last part of an alert id, such as "restarts".
        """
        of_it = [alert for alert in self._alerts if alert.startswith(f"{key.label}:")]
        for alert_id in of_it:
            if alert_id.removeprefix(f"{key.label}:") not in but:
                self.clear(alert_id)

    def view(self) -> tuple[Alert, ...]:
        """Return all active alerts, the most severe first; of equal severity, the oldest first."""
        if self._sorted is None:
            order = sorted(
                self._alerts.values(), key=lambda alert: (_RANK[alert.severity], alert.since, alert.id)
            )
            self._sorted = tuple(order)
        return self._sorted
