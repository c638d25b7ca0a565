"""The findings of all rules about servers and machines, and their alerts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sparktop.analysis.abandoned import ForNobody, Orphans
from sparktop.analysis.loading import StartStallRule
from sparktop.analysis.machines_compared import MachinesCompared
from sparktop.analysis.prefix_cache import PrefixCacheRule
from sparktop.analysis.slow_link import SlowLink
from sparktop.analysis.speculation import DraftLengthRule
from sparktop.analysis.start_memory import HeldMemoryRule, StartMemoryRule
from sparktop.analysis.yardsticks import Yardsticks
from sparktop.model.event import Finding
from sparktop.model.instant import Instant
from sparktop.model.snapshot import EachServer, Rule, Situation
from sparktop.model.text import clean
from sparktop.store.event_log import ActiveAlerts
from sparktop.store.sources import SourceKey

RULES: tuple[Callable[[], Rule], ...] = (
    partial(EachServer, Yardsticks),
    ForNobody,
    Orphans,
    partial(EachServer, StartMemoryRule),
    HeldMemoryRule,
    partial(EachServer, PrefixCacheRule),
    MachinesCompared,
    partial(EachServer, SlowLink),
    partial(EachServer, StartStallRule),
    partial(EachServer, DraftLengthRule),
)
"""Makes each rule anew for a store."""
_LONGEST = 400
_MOST = 64
"""Findings about one server or machine."""


class FindingBook:
    """The findings that hold now, by server and machine."""

    def __init__(self, rules: tuple[Callable[[], Rule], ...] = RULES) -> None:
        """Start without findings."""
        self._rules = [make() for make in rules]
        self._findings: dict[SourceKey, tuple[Finding, ...]] = {}
        self._alerts: set[str] = set()

    def of(self, key: SourceKey) -> tuple[Finding, ...]:
        """Return the findings about a server or machine."""
        return self._findings.get(key, ())

    def alerting(self, kind: str) -> dict[str, Finding]:
        """Return the findings of a kind about servers that need attention, by server."""
        every = (one for findings in self._findings.values() for one in findings)
        return {one.subject: one for one in every if one.kind == kind and one.severity and not one.of_machine}

    def judge(self, now: Situation, alerts: ActiveAlerts, when: Instant) -> None:
        """Apply all rules; raise, update and clear their alerts."""
        by_subject: dict[SourceKey, list[Finding]] = {}
        for rule in self._rules:
            for one in rule.look(now):
                of = SourceKey.node if one.of_machine else SourceKey.backend
                by_subject.setdefault(of(one.subject), []).append(one)
        self._findings = {key: tuple(found[:_MOST]) for key, found in by_subject.items()}
        held: set[str] = set()
        for key, found in self._findings.items():
            for one in found:
                if one.severity is None:
                    continue
                part = f"/{one.key.replace(':', '.')}" if one.key else ""
                alert_id = f"{key.label}:{one.kind}{part}"
                message = clean(one.line, _LONGEST)
                alerts.hold(alert_id, one.severity, one.subject, message, one.values, when)
                held.add(alert_id)
        for alert_id in self._alerts - held:
            alerts.clear(alert_id, when)
        self._alerts = held
