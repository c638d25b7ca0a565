"""The queue of events: sent one at a time, at most a hundred, failures reported once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from sparktop.events import WAITING, Outbox
from sparktop.model.event import Event, Severity

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def event(number: int) -> Event:
    return Event(NOON, Severity.WARNING, "b", str(number))


class Receiver:
    """A receiver whose sending the test controls, with records of what it sent and reported."""

    def __init__(self) -> None:
        """Start without a failure."""
        self.sent: list[tuple[str, int]] = []
        self.reports: list[tuple[str, bool]] = []
        self.problem: str | None = None
        self.free = asyncio.Event()
        self.free.set()
        self.at_once = self.most_at_once = 0
        self.outbox = Outbox("the hook", self._send, lambda said, bad: self.reports.append((said, bad)))

    async def _send(self, one: Event, dropped: int) -> str | None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.free.wait()
        self.at_once -= 1
        self.sent.append((one.message, dropped))
        return self.problem

    async def put(self, *numbers: int) -> None:
        """Put events into the queue and wait until all are sent."""
        for number in numbers:
            self.outbox.put(event(number))
        await self.outbox.drained()


async def test_events_are_sent_in_order_and_one_at_a_time() -> None:
    """Events are sent in order, one at a time."""
    receiver = Receiver()
    task = asyncio.create_task(receiver.outbox.run())
    await receiver.put(1, 2, 3)
    await receiver.put(4)
    task.cancel()
    assert receiver.sent == [("1", 0), ("2", 0), ("3", 0), ("4", 0)]
    assert receiver.most_at_once == 1
    assert receiver.reports == []


async def test_of_too_many_the_oldest_are_dropped_and_counted() -> None:
    """If more than a hundred events wait, the oldest are dropped, and the next one sent has their number."""
    receiver = Receiver()
    receiver.free.clear()
    task = asyncio.create_task(receiver.outbox.run())
    receiver.outbox.put(event(0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for number in range(1, WAITING + 31):
        receiver.outbox.put(event(number))
    receiver.free.set()
    await receiver.outbox.drained()
    task.cancel()
    assert receiver.sent[0] == ("0", 0)
    assert receiver.sent[1] == ("31", 30)
    assert receiver.sent[2:] == [(str(number), 0) for number in range(32, WAITING + 31)]
    assert receiver.reports == [
        ("the hook is too slow: 100 events wait, older ones are dropped", True),
        ("the hook works again; events not delivered: 30", False),
    ]


async def test_trouble_is_reported_once_and_its_end_once() -> None:
    """A series of failures is reported once, and the success after it once."""
    receiver = Receiver()
    task = asyncio.create_task(receiver.outbox.run())
    receiver.problem = "it ended with exit code 1"
    await receiver.put(*range(5))
    receiver.problem = None
    await receiver.put(5, 6)
    task.cancel()
    assert receiver.reports == [
        ("the hook fails: it ended with exit code 1", True),
        ("the hook works again; events not delivered: 5", False),
    ]
