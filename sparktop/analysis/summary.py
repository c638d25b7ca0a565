"""The summary of a snapshot in one line, which a user reads first: its most severe problem."""

from __future__ import annotations

import re
from collections import Counter

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.balance import Balance, BalanceWord, balance_cost, balances_read_first
from sparktop.model.event import Alert, Severity, condition_of, kind_of
from sparktop.model.failure import FailureKind, failure_words
from sparktop.model.snapshot import BackendState, BackendView, Snapshot

_LONGEST = 60
"""Most characters of an alert's message that are part of the verdict."""
_SHORT = 32
"""Most characters of its first clause, where that has a value, in place of the condition's name."""
_CLAUSE = re.compile(r" \(|; |: ")
"""Ends the first clause of a sentence."""
_SENTENCE_END = re.compile(r"(?<!\bvs)(?<!\be\.g)(?<!\bi\.e)(?<!\bapprox)\. |: (?=its log)")
_FIRST_CHOICE = re.compile(r" or |, ")
"""Ends the first of several suggestions."""
_SILENCING = {"start-stuck", "stuck", "engine-dead", "unreachable"}
"""Alerts about a server whose requests then fail at its router too."""
_MUTE = {FailureKind.TIMEOUT, FailureKind.REFUSED, FailureKind.UNREACHABLE}
_WELL = {BackendState.BUSY, BackendState.BORED, BackendState.IDLE}


class Summary(Struct, frozen=True):
    """The most severe problem at present as text, or that all is well."""

    severity: Severity | None
    """Severity of the alert; INFO for a problem without an alert; None if all is well."""
    words: str
    short: str
    """The text of `words` shortened for narrow screens."""
    hint: str = ""
    """What to try; "" if that is not known."""
    key: str = ""
    """The key on the keyboard that shows more about the problem; "" for none."""
    subject: str = ""
    """Name of the backend or node that it is about; "" if it is about none or several."""
    about: str = ""
    """The id of the alert that it names; "" without an alert."""

    @property
    def short_hint(self) -> str:
        """The first of the suggestions in `hint`."""
        return _FIRST_CHOICE.split(self.hint)[0]


def verdict(snapshot: Snapshot) -> Summary:
    """Return the most severe alert of a snapshot as text; without alerts, a summary of the servers' states.

    Among alerts of equal severity, the first choice is uneven load that a user can mend, because all backends
    suffer from it, and the second is the oldest alert. What another alert explains comes after it: a router's
    failing deployments after a server that is down, a hang after the end of a rank. Alerts of severity INFO
    are ignored, and those about the engine cores of a server whose group has a graver verdict.
    """
    groups = {_alert_id(balance): balance for balance in snapshot.balance}
    calm = groups.keys() - {_alert_id(balance) for balance in balances_read_first(snapshot.balance)}
    hinted = {alert_id for alert_id, balance in groups.items() if balance.hint}
    explained = _explained_alerts(snapshot)
    worst = min(
        (alert for alert in snapshot.alerts if alert.severity is not Severity.INFO and alert.id not in calm),
        key=lambda alert: (-alert.severity.rank, alert.id in explained, alert.id not in hinted),
        default=None,
    )
    if worst is None:
        return _verdict_without_alert(snapshot)
    return (
        _verdict_of_balance(worst, groups[worst.id])
        if worst.id in groups
        else _verdict_of_alert(worst, snapshot)
    )


def _explained_alerts(snapshot: Snapshot) -> set[str]:
    """Return the ids of alerts about what another alert explains.

    Deployments fail whose router has a server that cannot answer; an engine hangs whose rank has ended.
    """
    silent = {
        alert.subject
        for alert in snapshot.alerts
        if alert.id.startswith("backend:") and kind_of(alert.id) in _SILENCING
    }
    failing = {
        f"router:{router.name}:deployments"
        for router in snapshot.routers
        if not silent.isdisjoint(router.backends)
    }
    ended = (alert.subject for alert in snapshot.alerts if kind_of(alert.id) == "dead-rank")
    return failing | {f"backend:{name}:stuck" for name in ended}


def _alert_id(balance: Balance) -> str:
    return f"balance:{balance.group}:{balance.word.value}"


def _group_text(balance: Balance) -> str:
    return f"{balance.group} {'is' if balance.lanes_of is None else 'are'} {balance.word.value}"


def _verdict_of_balance(alert: Alert, balance: Balance) -> Summary:
    word, cost = balance.word.value, balance_cost(balance)
    short = f"{'' if balance.lanes_of is None else 'DP ranks '}{word} {cost}".strip()
    line = _group_text(balance) + (f", {cost}" if cost else "") + balance.doubt
    hint = _CLAUSE.split(balance.hint or "")[0]
    return Summary(alert.severity, line, short, hint, "w", about=alert.id)


def _verdict_of_alert(alert: Alert, snapshot: Snapshot) -> Summary:
    """Return the verdict on an alert, with what to try and the key that shows more."""
    kind = kind_of(alert.id)
    _, label, hint, key = condition_of(alert.id)
    message, doubt = alert.message, ""
    finding = snapshot.finding_of(alert)
    if finding is not None:
        hint, key = _CLAUSE.split(finding.fix or "")[0], "enter"
        message, doubt = finding.line, finding.doubt
    elif kind in {"slow-clock", "slow-steps"}:
        fixes = (node.speed.fix for node in snapshot.nodes if node.name == alert.subject)
        hint = _CLAUSE.split(next(fixes, None) or "")[0]
    sentence = _SENTENCE_END.split(message)[0]
    if kind == "stuck":
        stuck = (view.progress for view in snapshot.backends if view.name == alert.subject and view.progress)
        for progress in stuck:
            label, sentence = progress.word.in_words, f"{progress.word.in_words} ({progress.fact})"
    clause = _CLAUSE.split(sentence)[0]
    if kind == "dead-rank":
        clause = sentence = sentence.partition(", and")[0]
    has_value = kind not in _SILENCING and any(map(str.isdigit, clause))
    if len(sentence) > _LONGEST:
        why = _why_down(snapshot, alert.subject) if kind == "unreachable" else ""
        sentence = clause if has_value and len(clause) <= _LONGEST else why or label
    short = f": {clause}" if has_value and len(clause) <= _SHORT else f" {label}"
    words, short = f"{alert.subject}: {sentence}{doubt}", f"{alert.subject}{short}{doubt}"
    return Summary(alert.severity, words, short, hint, key, alert.subject, alert.id)


def _why_down(snapshot: Snapshot, name: str) -> str:
    """Return in a few words why a server or machine fails; "" if it does not."""
    nodes = ((node.name, node.failure, node.via) for node in snapshot.nodes)
    failing = (*nodes, *((backend.name, backend.failure, "") for backend in snapshot.backends))
    answer = (failure_words(failure, via) for other, failure, via in failing if other == name and failure)
    return next(answer, "")


def _standstill_verdict(snapshot: Snapshot) -> Summary | None:
    """Return the verdict where an engine holds requests without progress; None if none does."""
    standing = [
        (backend.progress.seconds, backend.name, backend.progress)
        for backend in snapshot.backends
        if backend.progress is not None
    ]
    if not standing:
        return None
    _, name, progress = max(standing, key=lambda entry: entry[:2])
    has_figures = any(map(str.isdigit, progress.why))  # these change with each sample
    sentence = progress.fact if has_figures else progress.sentence
    short = f"{name}: no progress for {progress.seconds:.0f} s"
    return Summary(Severity.INFO, f"{name}: {sentence}", short, key="z", subject=name)


def _verdict_without_alert(snapshot: Snapshot) -> Summary:
    """Return the verdict where no alert holds: silence, no server, a swing, queues, else the states."""
    backends = snapshot.backends
    silent = _verdict_of_silence(snapshot)
    if silent is not None:
        return silent
    if not backends:
        result = "no inference server found" if snapshot.searching else "no backend to watch"
        return Summary(Severity.INFO, result, "no server")
    swinging = next((balance for balance in balances_read_first(snapshot.balance) if balance.bad), None)
    if swinging is not None:
        word = swinging.word.value
        return Summary(Severity.INFO, _group_text(swinging), word, key="w")
    awake = (view for view in backends if view.state is not BackendState.ASLEEP)
    queueing = [view for view in awake if view.waiting and not view.in_sweep and not _is_passing(view)]
    if queueing:
        return _verdict_of_queues(queueing, alone=len(backends) == 1)
    return _verdict_of_states(snapshot)


def _is_passing(view: BackendView) -> bool:
    """Return whether a single request waits while slots are free: it has just come."""
    running, slots = view.running, view.slots
    return view.waiting == 1 and running is not None and slots is not None and running < slots


def _verdict_of_queues(queueing: list[BackendView], *, alone: bool) -> Summary:
    """Return the verdict where requests wait: at which server, and whether it is full.

    The header has their number already. `alone` is True if only one server is watched.
    """
    longest = max(queueing, key=lambda view: view.waiting or 0.0)
    name, slots, running = longest.name, longest.slots, longest.running
    if len(queueing) > 1:
        words, short = (
            f"longest queue: {longest.waiting:.0f} at {name}",
            f"{name}: {longest.waiting:.0f} wait",
        )
    elif slots and running is not None and running >= slots:
        words, short = f"{name} is full: {running:.0f} of {slots} slots run", f"{name} is full"
    else:
        words, short = f"{'' if alone else 'only '}{name} has a queue", f"{name} has a queue"
    return Summary(Severity.INFO, words, short, subject=name)


def _verdict_of_states(snapshot: Snapshot) -> Summary:
    """Return the verdict where nothing is wrong: how many servers have which state, and what is noteworthy.

    The order: a sweep, a slow router, a balance that is not known or in doubt, a host without a server, an
    alert that is a remark, and that all is well.
    """
    backends = snapshot.backends
    order = list(BackendState)
    states = Counter(view.state_text for view in sorted(backends, key=lambda view: order.index(view.state)))
    line = ", ".join(f"{count} {state}" for state, count in states.items())
    groups = [balance for balance in snapshot.balance if balance.within is None]
    swept = [balance for balance in groups if balance.in_sweep]
    if swept or any(view.in_sweep for view in backends):
        return _verdict_in_sweep(swept, line, several=len(groups) > 1)
    for router in snapshot.routers:
        if router.slow is not None and router.failure is None:
            return Summary(Severity.INFO, f"{router.name} is slow: {router.slow}", f"{router.name} is slow")
    is_calm = all(view.state in _WELL or view.is_full_by_sweep for view in backends)
    unsettled = [balance for balance in groups if _is_unsettled(balance)]
    remarks = [alert for alert in snapshot.alerts if alert.severity is Severity.INFO]
    if unsettled and any(view.running for view in backends):
        # What has too few requests lasts, and nothing is wrong: whatever else there is to say comes first.
        doubt = min(unsettled, key=lambda balance: balance.too_few)
        if not remarks or doubt.word_now.bad or not doubt.too_few:
            return _verdict_of_doubt(doubt, line, is_calm=is_calm)
    if snapshot.searching:
        missing = f"no server found on {', '.join(snapshot.searching)} yet"
        return Summary(Severity.INFO, f"{line}; {missing}", missing)
    if remarks:
        told = _verdict_of_alert(remarks[0], snapshot)
        return replace(told, words=f"{line}; {told.words}")
    return Summary(None, f"all well: {line}", "all well") if is_calm else Summary(Severity.INFO, line, line)


def _verdict_in_sweep(swept: list[Balance], line: str, *, several: bool) -> Summary:
    """Return the verdict on servers in the states `line` during a sweep, and on the groups that it loads.

    `several` is whether there are several groups.
    """
    swung = next((balance for balance in balances_read_first(swept) if balance.word.bad), None)
    if swung is None:
        return Summary(Severity.INFO, line, line)
    # The sweep may load another target than the group's router, which is not named.
    of_group = f" of {swung.group}" if several else ""
    return Summary(Severity.INFO, f"{line}; balance{of_group} during the sweep: {swung.word.value}", line)


def _is_unsettled(balance: Balance) -> bool:
    """Return whether a balance outside a sweep is not known yet, or may be turning bad."""
    is_unknown = balance.word is BalanceWord.UNKNOWN and not balance.is_slow
    return not balance.in_sweep and (is_unknown or balance.word_now.bad)


def _verdict_of_doubt(balance: Balance, line: str, *, is_calm: bool) -> Summary:
    """Return the verdict on servers in the states `line`, of which one group's balance is not known.

    `is_calm` is whether all states are well.
    """
    group, doubt = balance.group, balance.word_now
    if balance.too_few and not doubt.bad:
        head, short = (f"all well: {line}", "all well") if is_calm else (line, line)
        severity = None if is_calm else Severity.INFO
        return Summary(severity, f"{head}; {group}: balance {balance.title}", short)
    wait = f"verdict on balance in {balance.known_in_words}"
    judged = "load balance unknown" if balance.known_in_s is None else wait
    judged = f"perhaps {doubt.value}" if doubt.bad else judged
    return Summary(Severity.INFO, f"{line}; {group}: {judged}", f"{group}: {judged}", key="w")


def _verdict_of_silence(snapshot: Snapshot) -> Summary | None:
    """Return the verdict where a server or machine does not answer, is stale, loads or stands still."""
    loads = [view for view in snapshot.backends if view.state is BackendState.LOADING]
    failures = [(view.name, view.failure) for view in snapshot.backends if view not in loads and view.failure]
    failures += [(view.name, view.failure) for view in snapshot.nodes if view.failure]
    if failures:
        name, failure = failures[0]
        if failure.kind in _MUTE:
            line = f"{name} does not answer"
        elif failure.kind is FailureKind.LATE:
            line = f"{name} is stale"
        else:
            line = f"{name}: {_why_down(snapshot, name)}"
        return Summary(Severity.INFO, line, line, key="e")
    if not loads:
        return _standstill_verdict(snapshot)
    words = loads[0].loading.words if loads[0].loading is not None else ""
    line = f"{loads[0].name} loads its model"
    full = f"{line}: {words}" if words else line
    return Summary(Severity.INFO, full, line, key="z", subject=loads[0].name)
