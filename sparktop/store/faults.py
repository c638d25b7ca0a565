"""Judging that goes on where a rule fails by an error of this program."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sparktop.model.event import Severity
from sparktop.model.instant import Instant
from sparktop.store.event_log import ActiveAlerts

_log = logging.getLogger(__name__)


class JudgingFaults:
    """What cannot be judged at present, each with an alert "not-judged"."""

    def __init__(self, alerts: ActiveAlerts) -> None:
        """Start without faults; raise and clear those alerts in `alerts`."""
        self._alerts = alerts
        self._failed: dict[str, set[str]] = {}
        """The rules that failed last time, by what they judge."""

    @contextmanager
    def kept_to(self, label: str, rule: str, when: Instant) -> Iterator[None]:
        """Keep an error of a block that judges `label` by `rule` to this block.

        `label` begins the ids of alerts, such as "backend:spark-a". Its alert holds while any rule fails.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a fault in one rule must not end all judging
            failed = self._failed.setdefault(label, set())
            if rule not in failed:
                _log.exception("%s cannot be judged by %s", label, rule)
            failed.add(rule)
            subject, name = label.partition(":")[2], type(error).__name__
            message = f"not judged by {rule}: {name} in sparktop (see its log)"
            self._alerts.hold(f"{label}:not-judged", Severity.WARNING, subject, message, {}, when)
        else:
            if label in self._failed:
                self._failed[label].discard(rule)
                if not self._failed[label]:
                    self.forget(label, when)

    def forget(self, label: str, when: Instant) -> None:
        """Clear the alert about `label`, which is judged again, or not watched any more."""
        self._failed.pop(label, None)
        self._alerts.clear(f"{label}:not-judged", when)
