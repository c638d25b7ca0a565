"""The balance of every group over time: judged every 5 s.

Hysteresis comes before a verdict is announced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import Event, Severity
from sparktop.model.instant import Instant
from sparktop.store.balance_groups import EVERY_S, BalanceWatch, JudgedGroup, period
from sparktop.store.event_log import AlertBook, lasted_s

LOOKED_AT_S = 3 * EVERY_S
"""Groups count as being judged for this many seconds after the last call of `look`."""
MOST_AT_ONCE = 16
"""Backends judged in one call of `look`, but always at least one group. A longer call would stall the
screen."""
_AFTER_SWEEP_S = 60.0
LOSS_KEPT_S = 600.0
"""Seconds for which the last known loss of tokens is shown with its age."""


class BalanceBook:
    """The newest balance of each group, with its announced verdict, alert and history of verdicts."""

    def __init__(self) -> None:
        """Start without groups."""
        self._groups: Sequence[JudgedGroup] = ()
        self._lanes_of: dict[str, str] = {}
        """Name of the group of the engine cores of each server that is in a group itself, by server."""
        self._grouped_in = -math.inf
        self._looked_at = -math.inf
        self._watches: dict[str, BalanceWatch] = {}
        self._found: dict[str, Balance] = {}
        self._judged_at: dict[str, float] = {}
        self._lost: dict[str, tuple[float, float]] = {}
        """The last known percentage of tokens lost and its monotonic time, by group."""
        self._alerts: dict[str, str] = {}
        """Id of the active alert by group name."""
        self._quiet: set[str] = set()
        """Groups whose alerts are suppressed by a sweep of this program."""
        self._own_load: dict[str, float] = {}
        """By name of a backend or router: the monotonic time until which it carries load of a sweep of this
        program, or what that sweep left behind."""

    def regroup(self) -> None:
        """Determine the groups again at the next call of `look`, because a target was added or removed."""
        self._grouped_in = -math.inf

    def adopt(self, verdicts: Mapping[str, tuple[str, float]], at: float) -> None:
        """Set the beginnings of announced verdicts from `verdicts`: (verdict, Unix seconds) by group.

        A group whose verdict differs is left unchanged. If it gets the same verdict shortly after `at`
        (monotonic), that verdict gets the beginning too, without an event.
        """
        for group, (word, since) in verdicts.items():
            begin = datetime.fromtimestamp(since, UTC)
            if word in list(BalanceWord) and self._watch(group).adopt(BalanceWord(word), begin, at):
                self._found[group] = replace(self._found[group], since=begin)

    def begin_own_load(self, names: frozenset[str]) -> None:
        """Suppress alerts and events about the groups of these backends and routers.

        A sweep of this program loads them, and its result reports the balance. The suppression lasts until a
        minute after `end_own_load`; the balance is still judged and shown.
        """
        self._own_load |= dict.fromkeys(names, math.inf)

    def end_own_load(self, names: frozenset[str]) -> None:
        """End the suppression that `begin_own_load` began for these names.

        Alerts and events return one minute after the last call of `look`.
        """
        self._own_load |= dict.fromkeys(names, self._looked_at + _AFTER_SWEEP_S)

    def _is_own_load(self, group: JudgedGroup, at: float) -> bool:
        names = {group.router_name, *group.backends}
        return any(at < until for name, until in self._own_load.items() if name in names)

    def look(
        self,
        at: float,
        now: datetime,
        groups: Callable[[], Sequence[JudgedGroup]],
        alerts: AlertBook,
    ) -> list[Event]:
        """Judge each group whose next judgement is due, update its alert, and return the events to announce.

        `at` is monotonic, `now` the same time in UTC. `groups` determines the groups; it is called every
        5 s.
        """
        self._looked_at = at
        if period(at) > self._grouped_in:
            self._groups, self._grouped_in = groups(), period(at)
            within = (group for group in self._groups if group.within is not None)
            self._lanes_of = {group.lanes_of: group.name for group in within if group.lanes_of is not None}
            self._forget({group.name for group in self._groups}, alerts, Instant(at, now))
        events: list[Event] = []
        judged = 0
        for group in sorted(self._groups, key=lambda group: self._judged_at.get(group.name, -math.inf)):
            if not self._watch(group.name).due(at):
                continue
            if judged and judged + len(group.members) > MOST_AT_ONCE:
                break
            judged += len(group.members)
            event = self._judge(group, at, now, alerts)
            if event is not None:
                events.append(event)
        return events

    def view(self) -> tuple[Balance, ...]:
        """Return the newest balance of each judged group, in the order of the groups."""
        return tuple(self._found[group.name] for group in self._groups if group.name in self._found)

    def watched(self, at: float) -> tuple[tuple[str, ...], ...]:
        """Return the backend names of each group that is being judged at `at` (monotonic).

        The result is empty if `look` has not been called recently. Engine cores of a server in a group are
        left out: the server is polled as often as its group.
        """
        if at - self._looked_at > LOOKED_AT_S:
            return ()
        return tuple(group.backends for group in self._groups if group.within is None)

    def of_lanes(self, server: str) -> Balance | None:
        """Return the newest balance of the engine cores (lanes) of a server in a group; None without one."""
        return self._found.get(self._lanes_of.get(server, ""))

    def _with_last_loss(self, found: Balance, name: str, at: float) -> Balance:
        """Return `found` with the last known loss of tokens where it is unknown now."""
        if found.lost_percent is not None:
            self._lost[name] = (at, found.lost_percent)
        known_at, percent = self._lost.get(name, (-math.inf, 0.0))
        if found.lost_percent is not None or not found.word.bad or at - known_at > LOSS_KEPT_S:
            return found
        return replace(found, lost_before_percent=percent, lost_before_s=at - known_at)

    def _watch(self, name: str) -> BalanceWatch:
        return self._watches.setdefault(name, BalanceWatch())

    def _judge(self, group: JudgedGroup, at: float, now: datetime, alerts: AlertBook) -> Event | None:
        # Late: these modules cost 15 ms of a start, and the first judgement comes after seconds.
        from sparktop.store.balance_judging import judge_group, sweep_event, verdict_event

        watch = self._watch(group.name)
        found, change = watch.update(judge_group(group, watch, at), at, now)
        quiet, when = self._is_own_load(group, at), Instant(at, now)
        # A hint on the router would be wrong advice where a sweep chose the load.
        found = replace(found, in_sweep=quiet, hint=None if quiet else found.hint)
        found = self._with_last_loss(found, group.name, at)
        self._found[group.name], self._judged_at[group.name] = found, at
        held = alerts.get(self._alerts.get(group.name, ""))
        held_s = None if held is None else lasted_s(held, when)
        self._hold(found, alerts, when, quiet=quiet)
        returns = group.name in self._quiet and not quiet and found.bad
        (self._quiet.add if quiet else self._quiet.discard)(group.name)
        if quiet:
            return None if held is None else sweep_event(found, when, held, held_s)
        if change is None:
            return sweep_event(found, when) if returns else None
        return verdict_event(change, found, when, held_s)

    def _hold(self, found: Balance, alerts: AlertBook, when: Instant, *, quiet: bool) -> None:
        """Raise or update the group's alert while its announced verdict is bad; clear the alert otherwise.

        Where the newest window has another verdict, the alert says that. With `quiet` there is no alert.
        """
        alert_id = f"balance:{found.group}:{found.word.value}" if found.bad and not quiet else None
        before = self._alerts.get(found.group)
        if before is not None and before != alert_id:
            alerts.clear(before, when)
            del self._alerts[found.group]
        if alert_id is None:
            return
        self._alerts[found.group] = alert_id
        from sparktop.store.balance_judging import verdict_values  # late: as above

        said = "; ".join(filter(None, (*found.reasons[:1], found.hint)))
        message = f"{found.word.value}{found.doubt}: {said}"
        values = verdict_values(found, found.word)
        alerts.hold(alert_id, Severity.WARNING, found.group, message, values, when, silent=True)

    def _forget(self, names: set[str], alerts: AlertBook, when: Instant) -> None:
        for gone in self._watches.keys() - names:
            del self._watches[gone]
            self._found.pop(gone, None)
            self._judged_at.pop(gone, None)
            self._lost.pop(gone, None)
            alerts.clear(self._alerts.pop(gone, ""), when)
