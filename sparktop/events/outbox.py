"""The queue of events for one receiver (the hook or the webhook), which are sent one at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from sparktop.model.event import Event

WAITING = 100
"""Most events that wait; the oldest is dropped for a newer one."""

Send = Callable[[Event, int], Awaitable[str | None]]
"""Sends an event, with the number of events dropped before it; returns why that failed, None for success."""
Report = Callable[[str, bool], None]
"""Receives a sentence about the deliveries, and whether it reports trouble."""


class Outbox:
    """The queue of events that wait to be sent to one receiver, the hook or the webhook.

    A failed delivery or a full queue is reported once when the trouble begins. Once sending works again, this
    is reported with the number of lost events.
    """

    def __init__(self, name: str, send: Send, report: Report) -> None:
        """Start with an empty queue.

        `report` receives sentences about failing deliveries, in which `name` names the receiver.
        """
        self._name = name
        self._send = send
        self._report = report
        self._waiting: deque[Event] = deque()
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._dropped = 0
        """Events dropped since the last one that was sent."""
        self._lost = 0
        """Events dropped or not delivered since the last success."""

    def put(self, event: Event) -> None:
        """Append an event to the queue and return at once; drop the oldest event if the queue is full."""
        if len(self._waiting) >= WAITING:
            self._waiting.popleft()
            self._dropped += 1
            self._lose(f"is too slow: {WAITING} events wait, older ones are dropped")
        self._waiting.append(event)
        self._idle.clear()
        self._more.set()

    async def run(self) -> None:
        """Send the events of the queue, and those added later, until cancelled."""
        while True:
            await self._more.wait()
            while self._waiting:
                event, dropped = self._waiting.popleft(), self._dropped
                self._dropped = 0
                problem = await self._send(event, dropped)
                if problem is not None:
                    self._lose(f"fails: {problem}")
                elif self._lost and not self._dropped:
                    self._report(f"{self._name} works again; events not delivered: {self._lost}", False)  # noqa: FBT003 - no trouble
                    self._lost = 0
            self._more.clear()
            self._idle.set()

    async def drained(self) -> None:
        """Wait until the queue is empty and no event is being sent."""
        await self._idle.wait()

    def _lose(self, why: str) -> None:
        if not self._lost:
            self._report(f"{self._name} {why}", True)  # noqa: FBT003 - trouble
        self._lost += 1
