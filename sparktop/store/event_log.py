"""The newest events in order of time; a condition that comes and goes has a single line with a count.

All durations are differences of monotonic times, so a step of the wall clock changes nothing.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.graphics import numbers
from sparktop.model.event import Alert, Event, Phase, Severity, Values, condition_label
from sparktop.model.failure import without_retry_time
from sparktop.model.instant import Instant
from sparktop.store.sources import SourceKey

_log = logging.getLogger(__name__)

EVENTS_KEPT = 200
"""Events that are kept, the newest."""
REPEATS_WITHIN_S = 600.0
"""Occurrences of the last 10 minutes are counted; a line that goes on is announced again after that time."""
FOLDED_FROM = 3
"""Number of occurrences from which on a condition has a single line. Two outages are better shown
separately."""
_LEAST_QUIET_S = 60.0
"""A condition that came and went has settled once nothing has changed for twice the usual time between two
occurrences, and for at least this many seconds."""
_MOST_COUNTED = 1000
"""Occurrences remembered of one condition: more than one a second in `REPEATS_WITHIN_S`."""

Announce = Callable[[Event], None]
"""A listener, called once with each event that is announced; must not raise."""


class _Repeats(Struct):
    """The recent occurrences of one condition."""

    changed_s: float
    """Monotonic time at which the condition last began or ended."""
    times: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_COUNTED))
    """Monotonic times at which the newest occurrence began, and those within `REPEATS_WITHIN_S` before it."""
    newest: Event | None = None
    """The newest occurrence as it was reported."""
    line: Event | None = None
    """The single line for all these occurrences in the log; None while each occurrence has its own line."""
    announced: tuple[float, Severity] = (-math.inf, Severity.INFO)
    """Time and severity of the last announcement of `line`."""


class EventLog:
    """Keeps the newest `EVENTS_KEPT` events, and announces new events to listeners.

    The first two occurrences of a condition have a line each. If a third follows within ten minutes, a single
    line with the number of occurrences replaces them. This line is announced when it appears, when its
    severity rises, and every ten minutes while the condition comes and goes. Once nothing has changed for a
    while, it is announced a last time, with the state that remains.
    """

    def __init__(self) -> None:
        """Start without events."""
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._repeats: dict[str, _Repeats] = {}
        self._listeners: list[Announce] = []

    def __len__(self) -> int:
        return len(self._events)

    def listen(self, listener: Announce) -> Callable[[], None]:
        """Call `listener` with each event that is announced; return a function that stops this."""
        self._listeners.append(listener)
        return partial(self._listeners.remove, listener)

    def add(self, *events: Event) -> None:
        """Add events, oldest first.

        If a condition occurs for the third time or more, its event replaces the condition's earlier lines.
        """
        for event in events:
            if event.at_s is None or event.about is None:
                self._append(event)
            else:
                self._add(event, event.at_s, event.about)

    def adopt(self, events: Sequence[Event]) -> None:
        """Replace all events by `events`, oldest first, without announcing any; do nothing if they are equal.

        If an event counts several occurrences, these are assumed to be equally far apart in time.
        """
        if tuple(events) == tuple(self._events):
            return
        self._events = deque(events, maxlen=EVENTS_KEPT)
        self._repeats = {}
        for event in self._events:
            if event.at_s is None or event.about is None:
                continue
            repeats = self._repeats.setdefault(event.about, _Repeats(event.at_s))
            # A folded line has the time of its last begin, and its end may have followed; others, their own.
            has_ended = event.count > 1 and event.phase is Phase.END
            lasted_s = event.duration_s or 0.0 if has_ended else 0.0
            repeats.changed_s = event.at_s + lasted_s
            if event.count > 1 or event.phase in {None, Phase.BEGIN}:
                count = min(event.count, _MOST_COUNTED)
                step_s = (event.span_s or 0.0) / max(1, count - 1)
                repeats.times.extend(event.at_s - step_s * back for back in reversed(range(count)))
                repeats.newest = event
            repeats.line = event if event.count > 1 else None
            repeats.announced = (event.at_s, event.severity)

    def note(self, event: Event) -> None:
        """Add an event, unless the log still has an earlier event with the same subject and message."""
        if not any(kept.subject == event.subject and kept.message == event.message for kept in self._events):
            self._append(event)

    def settle(self, instant: Instant) -> None:
        """Announce the final state of each condition that came and went repeatedly and no longer changes.

        Called about once a second.
        """
        for about, repeats in list(self._repeats.items()):
            line = repeats.line
            if line is None or instant.at - repeats.changed_s < _settled_after_s(repeats):
                continue
            del self._repeats[about]
            if line.phase is not None:
                self._replace(line, _settled_event(line, repeats, instant))

    def view(self) -> tuple[Event, ...]:
        """Return the events, oldest first."""
        return tuple(self._events)

    def _append(self, event: Event) -> None:
        self._events.append(event)
        self._announce(event)

    def _announce(self, event: Event) -> None:
        for listener in tuple(self._listeners):
            listener(event)

    def _remove(self, matches: Callable[[Event], bool]) -> None:
        others = (event for event in self._events if not matches(event))
        self._events = deque(others, maxlen=EVENTS_KEPT)

    def _replace(self, line: Event, event: Event) -> None:
        """Remove `line` from the log and append and announce `event`."""
        self._remove(lambda logged: logged is line)
        self._append(event)

    def _add(self, event: Event, at_s: float, about: str) -> None:
        """Add an event of the condition `about`, as a line of its own or to the condition's single line."""
        self._repeats = {
            name: recent
            for name, recent in self._repeats.items()
            if at_s - recent.changed_s <= REPEATS_WITHIN_S
        }
        repeats = self._repeats.setdefault(about, _Repeats(-math.inf))
        began_s = max(repeats.changed_s, at_s - (event.duration_s or 0.0))
        repeats.changed_s = at_s
        if event.phase in {None, Phase.BEGIN}:
            repeats.newest = event
            repeats.times.append(began_s)
            while repeats.times[0] < began_s - REPEATS_WITHIN_S:
                repeats.times.popleft()
            if len(repeats.times) >= FOLDED_FROM:
                self._merge_repeats(repeats, event, at_s)
                return
            repeats.line = None
        if repeats.line is None:
            self._append(event)
        else:
            self._change_line(repeats, repeats.line, event, at_s)

    def _merge_repeats(self, repeats: _Repeats, event: Event, at_s: float) -> None:
        """Replace the lines of all recent occurrences of a condition by a single line with their number."""
        first_s, old = repeats.times[0], repeats.line
        self._remove(lambda logged: logged is old or _is_since(logged, event.about, first_s))
        severity = event.severity if old is None else max(old.severity, event.severity, key=_rank)
        span_s = repeats.times[-1] - first_s
        line = replace(event, severity=severity, count=len(repeats.times), span_s=span_s)
        line = replace(line, message=f"{line.counted}{_detail_text(event)}")
        repeats.line = line
        self._events.append(line)
        self._announce_line(repeats, line, at_s)

    def _change_line(self, repeats: _Repeats, line: Event, event: Event, at_s: float) -> None:
        """Update the single line of a condition after `event`: the condition has ended or become worse."""
        severity, held_s = event.severity, line.duration_s
        if event.phase is Phase.END:
            severity, held_s = line.severity, event.duration_s
        changed = replace(line, phase=event.phase, severity=severity, worst=event.worst, duration_s=held_s)
        repeats.line = changed
        lines = (changed if logged is line else logged for logged in self._events)
        self._events = deque(lines, maxlen=EVENTS_KEPT)
        if event.phase is not Phase.END:
            self._announce_line(repeats, changed, at_s)

    def _announce_line(self, repeats: _Repeats, line: Event, at_s: float) -> None:
        announced_s, severity = repeats.announced
        if at_s - announced_s >= REPEATS_WITHIN_S or line.severity.rank > severity.rank:
            repeats.announced = (at_s, line.severity)
            self._announce(line)


def _rank(severity: Severity) -> int:
    return severity.rank


def _is_since(event: Event, about: str | None, first_s: float) -> bool:
    return event.about == about and event.at_s is not None and event.at_s >= first_s


def _detail_text(event: Event) -> str:
    """Return ": " and the part of the event's message after the condition's name; "" if there is none."""
    label = condition_label(event.about or "")
    told = event.message.removeprefix(event.counted if event.count > 1 else label)
    detail = told.lstrip().removeprefix("begins").removeprefix(": ")
    return f": {detail}" if detail else ""


def _settled_after_s(repeats: _Repeats) -> float:
    """Return after how many seconds without a change a condition that came and went counts as settled."""
    between_s = (repeats.times[-1] - repeats.times[0]) / max(1, len(repeats.times) - 1)
    return min(REPEATS_WITHIN_S, max(_LEAST_QUIET_S, 2 * between_s))


def _settled_event(line: Event, repeats: _Repeats, instant: Instant) -> Event:
    """Return the event with the final state of a condition that came and went repeatedly.

    Its message says for how long the condition has not changed, as of `instant`.
    """
    quiet_s = instant.at - repeats.changed_s
    newest = repeats.newest or line
    since = numbers.age(quiet_s)
    settled = replace(line, at=instant.wall, at_s=instant.at)
    if line.phase is Phase.END:
        message = f"quiet for {since} ({line.counted} before)"
        return replace(settled, message=message, severity=Severity.INFO, count=1, span_s=None)
    message = f"{line.counted}, the last for {since} now{_detail_text(newest)}"
    return replace(settled, message=message, duration_s=quiet_s)


# The active alerts by id; the event log reports the beginning and the end of each alert.


CONFIRMED_WITHIN_S = 15.0
"""What a recording says was announced is forgotten if the samples do not confirm it within these seconds."""


class ActiveAlerts:
    """The active alerts."""

    def __init__(self, log: EventLog) -> None:
        """Start without alerts; `log` receives an event when an alert begins, becomes more severe or ends."""
        self._log = log
        self._alerts: dict[str, Alert] = {}
        self._silent: set[str] = set()
        self._adopted: dict[str, tuple[Alert, float]] = {}
        """Alerts of a recording, by id, each with the time at which it was active there."""
        self._faults: dict[str, set[str]] = {}
        """The rules that failed last time, by what they judge."""

    @contextmanager
    def keep_fault(self, label: str, rule: str, when: Instant) -> Iterator[None]:
        """Keep an error of a block that judges `label` by `rule` to this block.

        `label` begins the ids of alerts, such as "backend:spark-a". Its alert "not-judged" holds while any
        rule fails.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a fault in one rule must not end all judging
            failed_rules = self._faults.setdefault(label, set())
            if rule not in failed_rules:
                _log.exception("%s cannot be judged by %s", label, rule)
            failed_rules.add(rule)
            subject, name = label.partition(":")[2], type(error).__name__
            message = f"not judged by {rule}: {name} in sparktop (see its log)"
            self.hold(f"{label}:not-judged", Severity.WARNING, subject, message, {}, when)
        else:
            if label in self._faults:
                self._faults[label].discard(rule)
                if not self._faults[label]:
                    self.forget_fault(label, when)

    def forget_fault(self, label: str, when: Instant) -> None:
        """Clear the alert about `label`, which is judged again, or not watched any more."""
        self._faults.pop(label, None)
        self.clear(f"{label}:not-judged", when)

    def hold(
        self,
        alert_id: str,
        severity: Severity,
        subject: str,
        message: str,
        values: Values,
        when: Instant,
        *,
        since: Instant | None = None,
        unseen: bool = False,
        begins: str | None = None,
        silent: bool = False,
    ) -> None:
        """Raise the alert `alert_id` about `subject`, or update it if it is active.

        `values` are the numbers that show the condition, `when` is the time of the sample that showed it,
        `since` the time at which it began (None: `when`); an active alert keeps its beginning. With `unseen`,
        nothing has shown the condition before `when`: only since then it has its severity. `begins` is the
        message of the event at the beginning (None: `message`). With `silent`, no event is added here or
        by `clear`; the caller adds the events.
        """
        start = since or when
        old = self._alerts.get(alert_id) or self._adopted_alert(alert_id, start)
        most_severe: Severity = severity
        worst_since: datetime | None = when.wall
        if old is None:
            worst_since = when.wall if unseen else start.wall
        elif old.worst is not None and old.worst.rank >= severity.rank:
            most_severe, worst_since = old.worst, old.worst_since
        alert = Alert(
            alert_id,
            severity,
            subject,
            message,
            start.wall if old is None else old.since,
            values,
            start.at if old is None else old.since_s,
            most_severe,
            worst_since,
        )
        self._alerts[alert_id] = alert
        if silent:
            self._silent.add(alert_id)
        elif old is None:
            self._report(alert, when, Phase.BEGIN, without_retry_time(begins or message))
        elif most_severe is not old.worst:
            words = f"now {most_severe.value}: {message}"
            self._report(alert, when, Phase.WORSE, without_retry_time(words))

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

        `when` is the time of the sample that showed the end. The event's message is `message`, or "alert
        ended" with the alert's name if that is None, with the alert's duration unless `timed` is false. Pass
        `unknown`, a reason, if it can no longer be determined whether the condition holds: the message then
        says so.
        """
        alert = self._alerts.pop(alert_id, None)
        if alert is None:
            return
        if alert_id in self._silent:
            self._silent.discard(alert_id)
            return
        duration_s = lasted_s(alert, when)
        after = "" if duration_s is None or not timed else f" after {numbers.age(duration_s)}"
        label = condition_label(alert_id)
        if unknown is not None:
            text = f"alert dropped{after}: {label}, unknown now ({unknown})"
        else:
            text = f'alert "{label}" ended{after}' if message is None else f"{message}{after}"
        self._log.add(
            Event(
                when.wall,
                Severity.INFO,
                alert.subject,
                text,
                alert.values if message is None else {},
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
        active = self._alerts.get(alert.id)
        self._adopted[alert.id] = (alert, at)
        if active is None:
            return False
        before = alert.worst or alert.severity
        worst = max(active.severity, before, key=_rank)
        worst_since = alert.worst_since if worst is before else active.worst_since
        self._alerts[alert.id] = replace(
            active, since=alert.since, since_s=alert.since_s, worst=worst, worst_since=worst_since
        )
        return True

    def _adopted_alert(self, alert_id: str, start: Instant) -> Alert | None:
        """Return the adopted alert with this id if that which the samples show began in time, at `start`."""
        alert, at = self._adopted.pop(alert_id, (None, 0.0))
        return alert if start.at - at <= CONFIRMED_WITHIN_S else None

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
        """Drop all alerts about the source `key`, except those whose names are in `but`.

        `why` is the reason why it can no longer be determined whether the conditions of these alerts hold.
        """
        prefix = f"{key.label}:"
        for alert_id in [alert for alert in self._alerts if alert.startswith(prefix)]:
            name = alert_id.removeprefix(prefix)
            # A name with a colon is that of another source, such as "spark-a:8001" beside "spark-a".
            if ":" not in name and name.partition("/")[0] not in but:
                self.clear(alert_id, when, unknown=why)

    def view(self) -> tuple[Alert, ...]:
        """Return all alerts, the most severe first, then the oldest."""
        alerts = self._alerts.values()
        return tuple(sorted(alerts, key=lambda alert: (-alert.severity.rank, alert.since_s or 0.0, alert.id)))

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
                lasted_s(alert, when) if phase is Phase.BEGIN else None,
            )
        )


def lasted_s(alert: Alert, when: Instant) -> float | None:
    """Return the seconds from an alert's beginning to `when`; None where its beginning is not known."""
    return None if alert.since_s is None else max(0.0, when.at - alert.since_s)
