"""The balance of every group over time, judged every 5 s, with its announced verdict and its alert."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import Event, Severity
from sparktop.model.instant import Instant
from sparktop.store.balance_groups import EVERY_S, BalanceWatch, JudgedGroup, period
from sparktop.store.event_log import ActiveAlerts, lasted_s

LOOKED_AT_S = 3 * EVERY_S
"""Groups count as being judged for this many seconds after the last call of `judge_due`."""
MOST_AT_ONCE = 16
"""Backends judged in one call of `judge_due`, but always at least one group. A longer call would stall the
screen."""
LOSS_KEPT_S = 600.0
"""Seconds for which the last known loss of tokens is shown with its age."""


class GroupBalances:
    """The newest balance of each group, with its announced verdict and its alert."""

    def __init__(self) -> None:
        """Start without groups."""
        self._groups: Sequence[JudgedGroup] = ()
        self._lanes_of: dict[str, str] = {}
        """Name of the group of the engine cores of each server that is in a group itself, by server."""
        self._grouped_at_period = -math.inf
        """Number of the period (see `period`) in which the groups were determined."""
        self._judged_at = -math.inf
        """Monotonic time of the last call of `judge_due`."""
        self._watches: dict[str, BalanceWatch] = {}
        self._own_load: frozenset[str] = frozenset()
        """Names of the backends and routers that carry load of a sweep of this program."""
        self._own_load_changed_at = -math.inf
        """Monotonic time of the last call of `judge_due` before these changed."""

    def regroup(self) -> None:
        """Determine the groups again at the next call of `judge_due`, because a target came or went."""
        self._grouped_at_period = -math.inf

    def adopt(self, verdicts: Mapping[str, tuple[str, float]], at: float) -> None:
        """Set the beginnings of announced verdicts from `verdicts`: (verdict, Unix seconds) by group.

        A group whose verdict differs is left unchanged. If it gets the same verdict shortly after `at`
        (monotonic), that verdict gets the beginning too, without an event.
        """
        for group, (word, since) in verdicts.items():
            if word in list(BalanceWord):
                self._watch(group).adopt(BalanceWord(word), datetime.fromtimestamp(since, UTC), at)

    def begin_own_load(self, names: frozenset[str]) -> None:
        """Suppress alerts and events about the groups of these backends and routers.

        A sweep of this program loads them, and its result reports the balance. The suppression lasts until
        `end_own_load`; the balance is still judged and shown.
        """
        self._own_load, self._own_load_changed_at = self._own_load | names, self._judged_at

    def end_own_load(self, names: frozenset[str]) -> None:
        """End the suppression that `begin_own_load` began for these names: the groups are judged anew."""
        self._own_load, self._own_load_changed_at = self._own_load - names, self._judged_at

    def judge_due(
        self,
        when: Instant,
        find_groups: Callable[[], Sequence[JudgedGroup]],
        alerts: ActiveAlerts,
    ) -> list[Event]:
        """Judge each group whose next judgement is due, update its alert, and return the events to announce.

        `find_groups` is called every 5 s.
        """
        self._judged_at = when.at
        now_period = period(when.at)
        if now_period > self._grouped_at_period:
            self._groups = find_groups()
            self._grouped_at_period = now_period
            within = (group for group in self._groups if group.within is not None)
            self._lanes_of = {group.lanes_of: group.name for group in within if group.lanes_of is not None}
            for name in self._watches.keys() - {group.name for group in self._groups}:
                alerts.clear(self._watches.pop(name).alert_id, when)
                alerts.forget_fault(f"balance:{name}", when)
        events: list[Event] = []
        judged = 0
        for group in sorted(self._groups, key=lambda group: self._watch(group.name).judged_at_s):
            if not self._watch(group.name).is_due(when.at):
                continue
            if judged and judged + len(group.members) > MOST_AT_ONCE:
                break
            judged += len(group.members)
            watch, event = self._watch(group.name), None
            judged_before_s = watch.judged_at_s
            with alerts.keep_fault(f"balance:{group.name}", "balance", when):
                event = self._judge_group(group, watch, when, alerts)
            if watch.judged_at_s == judged_before_s:
                watch.fail(when.at)
                alerts.clear(watch.alert_id, when, unknown="it cannot be judged")
            if event is not None:
                events.append(event)
        return events

    def view(self, at: float) -> tuple[Balance, ...]:
        """Return the newest balance of each judged group, in the order of the groups.

        At `at` (monotonic seconds) it is known in how many seconds a verdict is expected.
        """
        watches = [
            (self._watches[group.name], any(member.halted for member in group.members))
            for group in self._groups
            if group.name in self._watches
        ]
        newest = ((watch.balance, None if halted else watch.known_in_s(at)) for watch, halted in watches)
        return tuple(
            balance if left_s is None else replace(balance, known_in_s=left_s)
            for balance, left_s in newest
            if balance is not None
        )

    def groups_at(self, at: float) -> tuple[tuple[str, ...], ...]:
        """Return the backend names of each group that is being judged at `at` (monotonic).

        The result is empty if `judge_due` has not been called recently. Engine cores of a server in a group
        are left out: the server is polled as often as its group.
        """
        if at - self._judged_at > LOOKED_AT_S:
            return ()
        return tuple(group.backends for group in self._groups if group.within is None)

    def of_lanes(self, server: str) -> Balance | None:
        """Return the newest balance of the engine cores (lanes) of a server in a group; None without one."""
        watch = self._watches.get(self._lanes_of.get(server, ""))
        return None if watch is None else watch.balance

    def _watch(self, group: str) -> BalanceWatch:
        return self._watches.setdefault(group, BalanceWatch())

    def _judge_group(
        self, group: JudgedGroup, watch: BalanceWatch, when: Instant, alerts: ActiveAlerts
    ) -> Event | None:
        """Judge a group and update its alert; return the event to announce, or None."""
        # Late: these modules cost 15 ms of a start, and the first judgement comes after seconds.
        from sparktop.store.balance_judging import judge_group, sweep_event, unjudged_in_sweep, verdict_event

        loaded = self._own_load.intersection((group.router_name, *group.backends))
        in_sweep = bool(loaded)
        if in_sweep is not watch.in_sweep:
            watch.restart(self._own_load_changed_at, in_sweep=in_sweep)
        bypasses_router = in_sweep and group.router_name not in loaded
        judged = unjudged_in_sweep(group) if bypasses_router else judge_group(group, watch, when.at)
        balance, replaced_word = watch.update(judged, when.at, when.wall)
        # A hint on the router would be wrong advice where a sweep chose the load.
        balance = replace(balance, in_sweep=in_sweep, hint=None if in_sweep else balance.hint)
        watch.balance = balance = _with_last_loss(balance, watch, when.at)
        held_alert = alerts.get(watch.alert_id)
        held_s = None if held_alert is None else lasted_s(held_alert, when)
        _update_alert(balance, watch, alerts, when)
        if in_sweep:
            return None if held_alert is None else sweep_event(balance, when, held_alert, held_s)
        return None if replaced_word is None else verdict_event(replaced_word, balance, when, held_s)


def _with_last_loss(balance: Balance, watch: BalanceWatch, at: float) -> Balance:
    """Return `balance` with the last known loss of tokens where it is unknown now."""
    if balance.lost_percent is not None:
        watch.last_loss = (at, balance.lost_percent)
    known_at, percent = watch.last_loss
    if balance.lost_percent is not None or not balance.word.bad or at - known_at > LOSS_KEPT_S:
        return balance
    return replace(balance, lost_before_percent=percent, lost_before_s=at - known_at)


def _update_alert(balance: Balance, watch: BalanceWatch, alerts: ActiveAlerts, when: Instant) -> None:
    """Raise or update the group's alert while its announced verdict is bad; clear the alert otherwise.

    Where the newest window has another verdict, the alert says that. In a sweep there is no alert.
    """
    alert_id = f"balance:{balance.group}:{balance.word.value}" if balance.bad else ""
    if alert_id != watch.alert_id:
        alerts.clear(watch.alert_id, when)
        watch.alert_id = alert_id
    if not alert_id:
        return
    from sparktop.store.balance_judging import verdict_values  # late: as above

    parts = (*balance.reasons[:1], balance.hint)
    reason = "; ".join(part for part in parts if part)
    message = f"{balance.word.value}{balance.doubt}: {reason}"
    values = verdict_values(balance, balance.word)
    alerts.hold(alert_id, Severity.WARNING, balance.group, message, values, when, silent=True)
