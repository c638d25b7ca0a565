"""Roles (names of colours) of backend states, of balance verdicts, and of a group's backends or targets."""

from __future__ import annotations

from string import ascii_uppercase

from sparktop.colors.palette import PARTS
from sparktop.model.balance import BalanceWord
from sparktop.model.event import Severity
from sparktop.model.snapshot import BackendState, BackendView

STATE_ROLES = {
    BackendState.CONNECTING: "muted",
    BackendState.UNREACHABLE: "bad",
    BackendState.ENGINE_DEAD: "bad",
    BackendState.LOADING: "warn",
    BackendState.ASLEEP: "muted",
    BackendState.STUCK: "bad",
    BackendState.SUSPECT: "warn",
    BackendState.STILL: "warn",
    BackendState.PREEMPTING: "bad",
    BackendState.KV_FULL: "bad",
    BackendState.QUEUEING: "warn",
    BackendState.STALE: "warn",
    BackendState.BUSY: "good",
    BackendState.BORED: "info",
    BackendState.IDLE: "muted",
    BackendState.UNKNOWN: "muted",
}
"""The role of each backend state; the state is always written out, too."""

_SHORT_BY_SWEEP = {BackendState.KV_FULL: "full (sweep)", BackendState.QUEUEING: "queue (sweep)"}
"""Words of 13 letters or fewer for states that a sweep of this program causes."""

SHORT_STATES = {
    BackendState.CONNECTING: "connects",
    BackendState.UNREACHABLE: "down",
    BackendState.ENGINE_DEAD: "dead",
    BackendState.PREEMPTING: "preempts",
    BackendState.STILL: "stalled",
}
"""Words of eight letters or fewer for states with longer names, for narrow places."""


def state_role(view: BackendView) -> str:
    """Return the role of a backend's state: calm where a sweep of this program explains it."""
    return "info" if view.is_full_by_sweep else STATE_ROLES[view.state]


def state_words(view: BackendView) -> tuple[str, ...]:
    """Return texts for a backend's state, the longest first."""
    by_sweep = (_SHORT_BY_SWEEP.get(view.state),) if view.is_full_by_sweep else ()
    texts = (view.state_text, *by_sweep, view.state.value, SHORT_STATES.get(view.state))
    return tuple(text for text in texts if text is not None)


def wait_role(view: BackendView, calm: str = "title") -> str:
    """Return the role of a backend's waiting requests; `calm` where none waits, or a sweep lets them wait."""
    return "warn" if view.waiting and not view.in_sweep else calm


def alarm(view: BackendView, role: str) -> str:
    """Return `role`, that of a figure which is too high, or "text" while a sweep of this program loads it."""
    return "text" if view.in_sweep else role


WORD_ROLES = {
    BalanceWord.UNKNOWN: "muted",
    BalanceWord.IDLE: "muted",
    BalanceWord.OSCILLATING: "bad",
    BalanceWord.STARVED: "bad",
    BalanceWord.UNEVEN: "warn",
    BalanceWord.BALANCED: "good",
}
"""The role of each verdict on balance; the verdict is always written out, too."""


SEVERITY_SIGNS = {Severity.INFO: "·", Severity.WARNING: "▲", Severity.CRITICAL: "✖"}
"""The sign of an alert or event: critical is the sign of servers and machines that do not answer, too."""
_BY_SEVERITY = {Severity.INFO: "text", Severity.WARNING: "warn", Severity.CRITICAL: "bad"}
_ALERTED_STATES = {"kv-full": BackendState.KV_FULL, "preempting": BackendState.PREEMPTING}
"""The state that a backend's panel shows while an alert with this condition holds."""


def alert_role(alert_id: str, severity: Severity) -> str:
    """Return the role of an alert: that of the state or verdict that its panel shows, else by severity."""
    kind, _, rest = alert_id.partition(":")
    condition = rest.rpartition(":")[2]
    verdict = next((word for word in BalanceWord if kind == "balance" and word.value == condition), None)
    if severity is Severity.WARNING and verdict is not None:
        return WORD_ROLES[verdict]
    if severity is Severity.WARNING and condition in _ALERTED_STATES:
        return STATE_ROLES[_ALERTED_STATES[condition]]
    return _BY_SEVERITY[severity]


def alerts_sign(worst: Severity | None, count: int) -> str:
    """Return the sign of `count` alerts and their number if there are several, with a blank; "" for none.

    `worst` is the severity of the worst of them; None or INFO if none needs attention.
    """
    sign = SEVERITY_SIGNS[worst if worst is Severity.CRITICAL else Severity.WARNING]
    return "" if not count else f"{sign}{count} " if count > 1 else f"{sign} "


def part_role(index: int) -> str:
    """Return the role (colour name) of the backend or target with this index; roles repeat after eight."""
    return PARTS[index % len(PARTS)]


def part_letter(index: int) -> str:
    """Return the letter of a sweep's target with this index, "A" for 0; letters repeat after "Z".

    A capital, because "c" is the concurrency. Servers have no letters: they are shown by name.
    """
    return ascii_uppercase[index % len(ascii_uppercase)]
