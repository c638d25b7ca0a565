"""Records of the method calls that change a store, so that another store can repeat the calls."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol

from sparktop.model.instant import Instant


class Change(StrEnum):
    """The methods of the store that change its state; each value is the name of a method."""

    ADD = "add"
    REMOVE = "remove"
    ACCEPT = "accept"
    IDENTIFY = "identify"
    NOTE = "note"
    MEASURE_SELF = "measure_self"
    SET_INTERVAL = "set_interval"
    SET_SEARCHING = "set_searching"
    BEGIN_OWN_LOAD = "begin_own_load"
    END_OWN_LOAD = "end_own_load"
    JUDGE = "judge"


class Call(NamedTuple):
    """One call of a method that changes the store."""

    change: Change
    arguments: tuple[object, ...] = ()
    """Positional arguments of the call."""


class Journal(Protocol):
    """Receives every call that changes a store, in order, before the call takes effect."""

    def write(self, instant: Instant, call: Call) -> None:
        """Record a call made at the time `instant`; return at once and do not raise."""
        ...
