"""Roles that several panels share: of backend states, verdicts on balance, parts of a group."""

from __future__ import annotations

from string import ascii_lowercase

from sparktop.model.balance import BalanceWord
from sparktop.model.snapshot import BackendState

STATE_ROLES = {
    BackendState.CONNECTING: "muted",
    BackendState.UNREACHABLE: "bad",
    BackendState.ENGINE_DEAD: "bad",
    BackendState.LOADING: "warn",
    BackendState.ASLEEP: "muted",
    BackendState.PREEMPTING: "bad",
    BackendState.KV_FULL: "bad",
    BackendState.QUEUEING: "warn",
    BackendState.BUSY: "good",
    BackendState.BORED: "accent",
    BackendState.IDLE: "muted",
    BackendState.UNKNOWN: "muted",
}
"""The role of each state's word; the word itself always stands beside the colour."""

WORD_ROLES = {
    BalanceWord.UNKNOWN: "muted",
    BalanceWord.IDLE: "muted",
    BalanceWord.OSCILLATING: "bad",
    BalanceWord.STARVED: "bad",
    BalanceWord.UNEVEN: "warn",
    BalanceWord.BALANCED: "good",
}
"""The role of each verdict's word; the word itself always stands beside the colour."""


PART_ROLES = ("generation", "prompt", "memory", "network", "gpu", "cpu", "waiting", "running")
"""Roles of a group's parts in turn; parts have letters, too, so that they differ without colour."""


def part_role(index: int) -> str:
    """Return the role of part `index`."""
    return PART_ROLES[index % len(PART_ROLES)]


def part_letter(index: int) -> str:
    """Return the letter that identifies a part without its colour."""
    return ascii_lowercase[index % len(ascii_lowercase)]
