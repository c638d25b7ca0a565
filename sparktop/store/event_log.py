"""The newest events in order of time; an event that is repeated often becomes a single line with a count."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from datetime import datetime, timedelta

from sparktop.model.snapshot import Event

EVENTS_KEPT = 200
REPEATS_WITHIN = timedelta(minutes=10)
"""Two equal events count as a repetition if at most this time lies between them."""
FOLDED_FROM = 3
"""Number of occurrences from which on equal events become one line. Two outages are better shown
separately."""


class EventLog:
    """The newest `EVENTS_KEPT` events."""

    def __init__(self) -> None:
        """Start without events."""
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._repeats: dict[tuple[str, str], tuple[int, datetime]] = {}
        """By (subject, message): how often that event has occurred in a row, and when it last occurred."""

    def __len__(self) -> int:
        return len(self._events)

    def add(self, *events: Event) -> None:
        """Add events, oldest first. From the third occurrence on, an event replaces its earlier ones."""
        for event in events:
            self._add(event)

    def note(self, event: Event) -> None:
        """Add an event, unless the log still has an event with the same subject and message."""
        if not any(kept.subject == event.subject and kept.message == event.message for kept in self._events):
            self._events.append(event)

    def view(self) -> tuple[Event, ...]:
        """Return the events, oldest first."""
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
    """Return a message with the number of its occurrences appended, such as "restarted (×3)"."""
    return f"{message} (×{count})"
