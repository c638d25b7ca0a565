"""Roles (names of colours) of backend states, of balance verdicts, and of a group's backends or targets."""

from __future__ import annotations

from string import ascii_lowercase

from sparktop.colors.derived import PARTS
from sparktop.model.balance import BalanceWord
from sparktop.model.snapshot import BackendState

STATE_ROLES = {
    BackendState.CONNECTING: "muted",
    BackendState.UNREACHABLE: "bad",
    BackendState.ENGINE_DEAD: "bad",
    BackendState.LOADING: "warn",
    BackendState.ASLEEP: "muted",
    BackendState.STUCK: "bad",
    BackendState.SUSPECT: "warn",
    BackendState.PREEMPTING: "bad",
    BackendState.KV_FULL: "bad",
    BackendState.QUEUEING: "warn",
    BackendState.BUSY: "good",
    BackendState.BORED: "info",
    BackendState.IDLE: "muted",
    BackendState.UNKNOWN: "muted",
}
"""The role of each backend state; the state is always written out, too."""

SHORT_STATES = {
    BackendState.CONNECTING: "connects",
    BackendState.UNREACHABLE: "down",
    BackendState.ENGINE_DEAD: "dead",
    BackendState.PREEMPTING: "preempts",
}
"""Words of eight letters or fewer for states with longer names, for narrow places."""

WORD_ROLES = {
    BalanceWord.UNKNOWN: "muted",
    BalanceWord.IDLE: "muted",
    BalanceWord.OSCILLATING: "bad",
    BalanceWord.STARVED: "bad",
    BalanceWord.UNEVEN: "warn",
    BalanceWord.BALANCED: "good",
}
"""The role of each verdict on balance; the verdict is always written out, too."""


def part_role(index: int) -> str:
    """Return the role (colour name) of the backend or target with this index; roles repeat after eight."""
    return PARTS[index % len(PARTS)]


def part_letter(index: int) -> str:
    """Return the letter of the backend or target with this index, "a" for 0; letters repeat after "z"."""
    return ascii_lowercase[index % len(ascii_lowercase)]
