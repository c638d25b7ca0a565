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
    SET_THRESHOLDS = "set_thresholds"
    SET_SEARCHING = "set_searching"
    BEGIN_OWN_LOAD = "begin_own_load"
    END_OWN_LOAD = "end_own_load"
    JUDGE = "judge"
    LEARN_STARTS = "learn_starts"


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


class Journals:
    """A journal that passes each call on to any number of journals, which may change while it is used."""

    def __init__(self) -> None:
        """Start without a journal to pass calls on to."""
        self._journals: tuple[Journal, ...] = ()

    def add(self, journal: Journal) -> None:
        """Pass later calls on to `journal`, too."""
        self._journals = (*self._journals, journal)

    def remove(self, journal: Journal) -> None:
        """Pass no further calls on to `journal`."""
        self._journals = tuple(one for one in self._journals if one is not journal)

    def write(self, instant: Instant, call: Call) -> None:
        """Pass a call on."""
        for journal in self._journals:
            journal.write(instant, call)
