"""The roles of words that several panels show: states, words of balance, parts of a group."""

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
"""The colour of each state word; the word itself always stands beside it."""

WORD_ROLES = {
    BalanceWord.UNKNOWN: "muted",
    BalanceWord.IDLE: "muted",
    BalanceWord.OSCILLATING: "bad",
    BalanceWord.STARVED: "bad",
    BalanceWord.UNEVEN: "warn",
    BalanceWord.BALANCED: "good",
}
"""The colour of each word; the word itself always stands beside it."""


PART_ROLES = ("generation", "prompt", "memory", "network", "gpu", "cpu", "waiting", "running")
"""Colours of a group's parts in turn, as in the panel of a router; letters tell parts apart without colour.
"""


def part_role(index: int) -> str:
    """Return the role of part `index`."""
    return PART_ROLES[index % len(PART_ROLES)]


def part_letter(index: int) -> str:
    """Return the letter that identifies a part without its colour."""
    return ascii_lowercase[index % len(ascii_lowercase)]
