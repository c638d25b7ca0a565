"""The active alerts by id; the event log reports the beginning and the end of each alert."""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.graphics import numbers
from sparktop.model.event import NO_VALUES, Alert, Event, Phase, Severity, Values
from sparktop.model.failure import lasting
from sparktop.model.instant import Instant
from sparktop.store.event_log import EventLog, condition_label
from sparktop.store.keys import SourceKey

CONFIRMED_WITHIN_S = 15.0
"""What a recording says was announced is forgotten if the samples do not confirm it within these seconds."""


class Finding(Struct, frozen=True):
    """The content of an alert: its severity, subject and message, and the numbers that show the condition."""

    severity: Severity
    subject: str
    message: str
    values: Values = field(default_factory=lambda: NO_VALUES)


class AlertBook:
    """The active alerts."""

    def __init__(self, log: EventLog) -> None:
        """Start without alerts; `log` receives an event when an alert begins, becomes more severe or ends."""
        self._log = log
        self._alerts: dict[str, Alert] = {}
        self._silent: set[str] = set()
        self._adopted: dict[str, tuple[Alert, float]] = {}
        """Alerts of a recording, by id, each with the time at which it was active there."""
        self._sorted: tuple[Alert, ...] | None = ()

    def hold(
        self,
        alert_id: str,
        found: Finding,
        when: Instant,
        *,
        since: Instant | None = None,
        begins: str | None = None,
        silent: bool = False,
    ) -> None:
        """Raise the alert `alert_id` with the content of `found`, or update the alert if it is active.

        `when` is the time of the sample that showed the condition, `since` the time at which the condition
        began (None: `when`); an active alert keeps its beginning. `begins` is the message of the event at the
        beginning (None: the alert's own message). With `silent`, no event is added here or by `clear`; the
        caller adds the events.
        """
        start, old = since or when, self._alerts.get(alert_id) or self._expected(alert_id, when)
        worst = found.severity
        if old is not None and old.worst is not None and old.worst.rank > worst.rank:
            worst = old.worst
        alert = Alert(
            alert_id,
            found.severity,
            found.subject,
            found.message,
            start.wall if old is None else old.since,
            found.values,
            start.at if old is None else old.since_s,
            worst,
        )
        if alert != old:
            self._alerts[alert_id] = alert
            self._sorted = None
        if silent:
            self._silent.add(alert_id)
        elif old is None:
            self._report(alert, when, Phase.BEGIN, lasting(begins or found.message))
        elif worst is not old.worst:
            self._report(alert, when, Phase.WORSE, lasting(found.message))

    def clear(
        self,
        alert_id: str,
        when: Instant,
        message: str | None = None,
        *,
        unknown: str | None = None,
        timed: bool = True,
    ) -> None:
        """Drop the alert `alert_id` and add an event that it ended; do nothing if the alert is not active.

        The event has the alert's last numbers, unless `message` says what holds now.

        `when` is the time of the sample that showed the end. The event's message is `message`, or "ended"
        with the alert's name if that is None, followed by the alert's duration unless `timed` is false. Pass
        `unknown`, a reason, if it can no longer be determined whether the condition holds: the message then
        says so.
        """
        alert = self._alerts.pop(alert_id, None)
        if alert is None:
            return
        self._sorted = None
        if alert_id in self._silent:
            self._silent.discard(alert_id)
            return
        duration_s = lasted_s(alert, when)
        after = "" if duration_s is None or not timed else f" after {numbers.age(duration_s)}"
        label = condition_label(alert_id)
        if unknown is not None:
            said = f"unknown{after}: {label} ({unknown})"
        else:
            said = f"ended{after}: {label}" if message is None else f"{message}{after}"
        self._log.add(
            Event(
                when.wall,
                Severity.INFO,
                alert.subject,
                said,
                alert.values if message is None else NO_VALUES,
                when.at,
                alert_id,
                Phase.END,
                duration_s,
                alert.worst,
            )
        )

    def adopt(self, alert: Alert, at: float) -> bool:
        """Set the beginning and highest severity of the active alert with this id to those of `alert`.

        Return False if no such alert is active. If one then begins within `CONFIRMED_WITHIN_S` of `at`
        (monotonic seconds), it gets that beginning and severity, and no event is added.
        """
        own = self._alerts.get(alert.id)
        self._adopted[alert.id] = (alert, at)
        if own is None:
            return False
        worst = max(own.severity, alert.worst or alert.severity, key=_rank)
        self._alerts[alert.id] = replace(own, since=alert.since, since_s=alert.since_s, worst=worst)
        self._sorted = None
        return True

    def _expected(self, alert_id: str, when: Instant) -> Alert | None:
        """Return the adopted alert with this id if it is confirmed in time by a sample at `when`."""
        alert, at = self._adopted.pop(alert_id, (None, 0.0))
        return alert if when.at - at <= CONFIRMED_WITHIN_S else None

    def severity(self, alert_id: str) -> Severity | None:
        """Return the severity of an alert; None when it is not active."""
        alert = self._alerts.get(alert_id)
        return alert.severity if alert else None

    def get(self, alert_id: str) -> Alert | None:
        """Return an alert; None when it is not active."""
        return self._alerts.get(alert_id)

    def clear_source(
        self, key: SourceKey, when: Instant, why: str, *, but: frozenset[str] = frozenset()
    ) -> None:
        """Drop all alerts about the source `key`, except those whose ids end in a name in `but`.

        `why` is the reason why it can no longer be determined whether the conditions of these alerts hold.
        """
        prefix = f"{key.label}:"
        for alert_id in [one for one in self._alerts if one.startswith(prefix)]:
            name = alert_id.removeprefix(prefix)
            # A name with a colon is that of another source, such as "spark-a:8001" beside "spark-a".
            if ":" not in name and name not in but:
                self.clear(alert_id, when, unknown=why)

    def view(self) -> tuple[Alert, ...]:
        """Return all alerts, the most severe first, then the oldest."""
        if self._sorted is None:
            order = sorted(
                self._alerts.values(),
                key=lambda alert: (-alert.severity.rank, alert.since_s or 0.0, alert.id),
            )
            self._sorted = tuple(order)
        return self._sorted

    def _report(self, alert: Alert, when: Instant, phase: Phase, message: str) -> None:
        self._log.add(
            Event(
                when.wall,
                alert.severity,
                alert.subject,
                message,
                alert.values,
                when.at,
                alert.id,
                phase,
            )
        )


def lasted_s(alert: Alert, when: Instant) -> float | None:
    """Return the seconds from an alert's beginning to `when`; None where its beginning is not known."""
    return None if alert.since_s is None else max(0.0, when.at - alert.since_s)


def _rank(severity: Severity) -> int:
    return severity.rank


def _order(alert: Alert) -> tuple[int, float, str]:
    return -alert.severity.rank, alert.since_s or 0.0, alert.id
