"""The findings of all rules about servers and machines, and their alerts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from sparktop.model.event import Alert, Finding, FindingKind, kind_of
from sparktop.model.instant import Instant
from sparktop.model.snapshot import EachServer, Rule, Situation
from sparktop.model.text import clean
from sparktop.store.event_log import ActiveAlerts
from sparktop.store.sources import SourceKey

_LONGEST = 400
"""Most characters of an alert's message."""
_MOST = 64
"""Findings about one server or machine."""


class CurrentFindings:
    """The findings that hold now, by server and machine."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        """Start without findings; judge by `rules`, by default those of `every_rule`."""
        self._rules = rules
        self._findings: dict[SourceKey, tuple[Finding, ...]] = {}
        self._alerts: set[str] = set()

    def of(self, key: SourceKey) -> tuple[Finding, ...]:
        """Return the findings about a server or machine."""
        return self._findings.get(key, ())

    def alerting_by_server(self, kind: str) -> dict[str, Finding]:
        """Return the findings of a kind about servers that need attention, by server."""
        every = (finding for findings in self._findings.values() for finding in findings)
        return {
            finding.subject: finding
            for finding in every
            if finding.kind == kind and finding.severity and not finding.of_machine
        }

    def judge(self, now: Situation, alerts: ActiveAlerts, when: Instant) -> None:
        """Apply all rules; raise, update and clear their alerts."""
        self._rules = self._rules or every_rule()
        by_subject: dict[SourceKey, list[Finding]] = {}
        for label, name, look in self._looks(now):
            with alerts.keep_fault(label, name, when):
                for finding in look():
                    key_of = SourceKey.node if finding.of_machine else SourceKey.backend
                    by_subject.setdefault(key_of(finding.subject), []).append(finding)
        self._findings = {key: _most_severe(findings) for key, findings in by_subject.items()}
        held_ids: set[str] = set()
        for findings in self._findings.values():
            for finding in findings:
                if finding.severity is None:
                    continue
                alert_id = finding.alert_id
                message = clean(finding.said, _LONGEST)
                since = None if finding.lasted_s is None else when.before(finding.lasted_s)
                subject, values = finding.subject, finding.values
                alerts.hold(
                    alert_id, finding.severity, subject, message, values, when, since=since, unseen=True
                )
                held_ids.add(alert_id)
        for alert_id in self._alerts - held_ids:
            alerts.clear(alert_id, when, unknown=_why_unknown(alerts.get(alert_id), now))
        self._alerts = held_ids

    def _looks(self, now: Situation) -> Iterator[tuple[str, str, Callable[[], Iterable[Finding]]]]:
        """Yield (what it judges, name, a function that applies it) of each rule, by server where it can."""
        for rule in self._rules:
            if isinstance(rule, EachServer):
                for server, its_rule in rule.servers(now).items():
                    look = partial(its_rule.look, now, now.backends[server])
                    yield SourceKey.backend(server).label, type(its_rule).__name__, look
            else:
                yield "rules:machines", type(rule).__name__, partial(rule.look, now)


def _why_unknown(alert: Alert | None, now: Situation) -> str | None:
    """Return why requests without a client may still run, though no rule finds them any more; None if not."""
    if alert is None or kind_of(alert.id) != FindingKind.FOR_NOBODY or alert.subject not in now.backends:
        return None
    held, running = alert.values.get("running_requests"), now.backends[alert.subject].running
    still = isinstance(held, float) and running is not None and running > held
    return "requests with a client run beside them" if still else None


def every_rule() -> Sequence[Rule]:
    """Return all rules about servers and machines, each new."""
    # Late: the first picture needs no judgement.
    from sparktop.analysis.abandoned import ForNobody, Orphans
    from sparktop.analysis.loading import StartStallRule
    from sparktop.analysis.machines_compared import MachinesCompared
    from sparktop.analysis.prefix_cache import PrefixCacheRule
    from sparktop.analysis.slow_link import SlowLink
    from sparktop.analysis.speculation import DraftLengthRule
    from sparktop.analysis.start_memory import HeldMemoryRule, StartMemoryRule
    from sparktop.analysis.yardsticks import Yardsticks

    return (
        EachServer(Yardsticks),
        ForNobody(),
        Orphans(),
        EachServer(StartMemoryRule),
        HeldMemoryRule(),
        EachServer(PrefixCacheRule),
        MachinesCompared(),
        EachServer(SlowLink),
        EachServer(StartStallRule),
        EachServer(DraftLengthRule),
    )


def _most_severe(findings: list[Finding]) -> tuple[Finding, ...]:
    """Return all findings, in their order; of more than `_MOST` the most severe ones, these first."""
    if len(findings) <= _MOST:
        return tuple(findings)

    def rank(finding: Finding) -> int:
        return -1 if finding.severity is None else finding.severity.rank

    return tuple(sorted(findings, key=rank, reverse=True)[:_MOST])
