"""The alerts that hold now and want a person's eye, by their ids."""

from __future__ import annotations

from datetime import datetime

from sparktop.model.snapshot import Alert, Severity
from sparktop.store.keys import SourceKey

_RANK = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}


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
