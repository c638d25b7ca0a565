"""What happened, newest last; what happens again and again is one line with a count."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from datetime import datetime, timedelta

from sparktop.model.snapshot import Event

EVENTS_KEPT = 200
REPEATS_WITHIN = timedelta(minutes=10)
"""The same event is a repetition where no more time than this lies between two of them."""
FOLDED_FROM = 3
"""Repetitions that become one line; two outages a person wants to see apart."""


class EventLog:
    """The newest events."""

    def __init__(self) -> None:
        """Start with none."""
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._repeats: dict[tuple[str, str], tuple[int, datetime]] = {}
        """How often each subject's message came in a row, and when it came last."""

    def __len__(self) -> int:
        return len(self._events)

    def add(self, *events: Event) -> None:
        """Add events, oldest first; a repetition replaces its forerunners."""
        for event in events:
            self._add(event)

    def note(self, event: Event) -> None:
        """Add an event, unless one that is still kept has the same subject and message."""
        if not any(kept.subject == event.subject and kept.message == event.message for kept in self._events):
            self._events.append(event)

    def view(self) -> tuple[Event, ...]:
        """Return them, newest last."""
        return tuple(self._events)

    def _add(self, event: Event) -> None:
        key = (event.subject, event.message)
        count, last = self._repeats.get(key, (0, event.at))
        count = count + 1 if event.at - last <= REPEATS_WITHIN else 1
        self._repeats = {
            name: seen for name, seen in self._repeats.items() if event.at - seen[1] <= REPEATS_WITHIN
        } | {key: (count, event.at)}
        if count >= FOLDED_FROM:
            old = {event.message, _counted(event.message, count - 1)}
            kept = (one for one in self._events if one.subject != event.subject or one.message not in old)
            self._events = deque(kept, maxlen=EVENTS_KEPT)
            event = replace(event, message=_counted(event.message, count))
        self._events.append(event)


def _counted(message: str, count: int) -> str:
    """Return a message as it is written the `count`th time."""
    return f"{message} (×{count})"
