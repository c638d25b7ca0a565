"""From a store to a hook and a webhook: the document, the queue, and the monitor that delivers."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.events import SCHEMA, WAITING, Delivery, Hook, Outbox, event_document
from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.event import Event, Phase, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.targets import BackendTarget, EventSettings, Watch
from sparktop.store import SourceKey, Store
from sparktop.watch.monitor import Monitor
from tests.events.test_receivers import program
from tests.watch.monitor_fakes import FakeWays, Sleeper

B = SourceKey.backend("b")
APPEND = """
import sys
open(sys.argv[1] + "/got", "a").write(sys.stdin.read())
"""


def content(folder: Path) -> str:
    path = folder / "got"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def got(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content(folder).splitlines() if line.endswith("}")]


async def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition on another process holds."""
    async with asyncio.timeout(300):
        while not holds():  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.01)


def outage(store: Store, at: float) -> None:
    for second in range(4):
        store.accept(B, Failure(FailureKind.REFUSED, "nothing listens there", at + second))
    store.accept(B, EngineSample(at + 4, "vllm", (LaneSample("0", running=1.0),)))


async def delivered(settings: EventSettings, store: Store) -> None:
    """Deliver the events of two outages, then end as the program does."""
    delivery = Delivery(settings, store)
    task = asyncio.create_task(delivery.run())
    await asyncio.sleep(0)
    outage(store, 1000)
    outage(store, 1100)
    await asyncio.gather(*(outbox.wait_until_sent() for outbox in delivery._outboxes))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.outside
async def test_a_hook_gets_every_announced_event_and_its_end(tmp_path: Path) -> None:
    """The end of a critical alert passes a filter for critical ones; less severe events do not."""
    store = Store(Watch(backends=(BackendTarget("b", "http://b"),)))
    settings = EventSettings(severity=Severity.CRITICAL, hook=program(tmp_path, APPEND))
    store.note("sweep", "began", Severity.WARNING)
    await delivered(settings, store)
    assert [(one["message"], one["phase"], one["severity"]) for one in got(tmp_path)] == [
        ("nothing listens there", "begin", "critical"),
        ("answers again after 4 s", "end", "info"),
    ] * 2


@pytest.mark.outside
async def test_a_hook_that_fails_is_one_event_and_no_loop(tmp_path: Path) -> None:
    """A failing hook is reported as one event, which is not sent to the hook."""
    store = Store(Watch(backends=(BackendTarget("b", "http://b"),)))
    settings = EventSettings(severity=Severity.INFO, hook=program(tmp_path, f"{APPEND}sys.exit(7)"))
    await delivered(settings, store)
    own = [one.message for one in store.snapshot().events if one.subject == "sparktop"]
    assert len(own) == 1
    assert own[0].endswith(" fails: it ended with exit code 7")
    assert len(got(tmp_path)) == 4


@pytest.mark.outside
async def test_a_hook_that_hangs_delays_the_end_for_a_second_and_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ending waits a second for a hanging hook, not for its limit, which is an hour here, and kills it."""
    monkeypatch.setattr(Hook.__init__, "__kwdefaults__", {"limit_s": 3600.0})
    text = "import os, sys, time; open(sys.argv[1] + '/got', 'w').write(str(os.getpid())); time.sleep(600)"
    store = Store(Watch(backends=(BackendTarget("b", "http://b"),)))
    task = asyncio.create_task(Delivery(EventSettings(hook=program(tmp_path, text)), store).run())
    await asyncio.sleep(0)
    outage(store, 1000)
    await until(lambda: content(tmp_path) != "")
    pid = content(tmp_path)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not os.path.exists(f"/proc/{pid}")  # noqa: ASYNC240, PTH110 - procfs does not block


@pytest.mark.outside
async def test_every_monitor_delivers_without_a_screen(tmp_path: Path) -> None:
    """The monitor of headless commands starts the delivery, and stops it at its end."""
    settings = EventSettings(hook=program(tmp_path, APPEND))
    watch = Watch(backends=(BackendTarget("b", "http://b"),), events=settings)
    store = Store(watch)
    monitor = Monitor(watch, store, ways=FakeWays(), sleep=Sleeper())
    await monitor.start()
    await asyncio.sleep(0)
    outage(store, 1e9)
    await until(lambda: len(got(tmp_path)) == 2)
    await monitor.stop()
    assert [one["kind"] for one in got(tmp_path)] == ["unreachable"] * 2


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def event(number: int) -> Event:
    return Event(NOON, Severity.WARNING, "b", str(number))


class Receiver:
    """A receiver whose sending the test controls, with records of what it sent and reported."""

    def __init__(self) -> None:
        """Start without a failure."""
        self.sent: list[tuple[str, int]] = []
        self.reports: list[tuple[str, Severity]] = []
        self.problem: str | None = None
        self.free = asyncio.Event()
        self.free.set()
        self.at_once = self.most_at_once = 0
        self.outbox = Outbox("the hook", self._send, lambda *report: self.reports.append(report))

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
        await self.outbox.wait_until_sent()


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
    await receiver.outbox.wait_until_sent()
    task.cancel()
    assert receiver.sent[0] == ("0", 0)
    assert receiver.sent[1] == ("31", 30)
    assert receiver.sent[2:] == [(str(number), 0) for number in range(32, WAITING + 31)]
    assert receiver.reports == [
        ("the hook is too slow: 100 events wait, older ones are dropped", Severity.WARNING),
        ("the hook works again; events not delivered: 30", Severity.INFO),
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
        ("the hook fails: it ended with exit code 1", Severity.WARNING),
        ("the hook works again; events not delivered: 5", Severity.INFO),
    ]


KEYS = {
    *("schema", "sparktop", "simulated", "dropped", "at", "severity", "subject", "message", "id", "kind"),
    *("phase", "worst", "duration_s", "count", "span_s", "per_minute", "values"),
}


def read(event: Event, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - arguments of the function
    document = event_document(event, simulated=more.pop("simulated", False), **more)
    assert document.endswith(b"}\n")
    assert document.count(b"\n") == 1
    result: dict[str, Any] = json.loads(document)
    return result


def test_a_flapping_source_has_its_count_and_its_rate() -> None:
    """Seven outages in four minutes have the count 7 and a rate of 1.5 per minute."""
    event = Event(
        NOON,
        Severity.CRITICAL,
        "spark-a",
        "down 7 times in 4 min: nothing listens",
        {"failures": 3, "limit_failures": 3, "window_s": 2.0, "odd": float("nan")},
        5.0,
        "backend:spark-a:unreachable",
        Phase.BEGIN,
        count=7,
        span_s=240.0,
    )
    seen = read(event, simulated=True, dropped=2)
    assert seen.keys() == KEYS
    assert (seen["schema"], seen["simulated"], seen["dropped"]) == (SCHEMA, True, 2)
    assert (seen["kind"], seen["id"], seen["phase"]) == (
        "unreachable",
        "backend:spark-a:unreachable",
        "begin",
    )
    assert (seen["count"], seen["span_s"], seen["per_minute"]) == (7, 240.0, 1.5)
    assert (seen["at"], seen["severity"]) == ("2026-01-01T12:00:00.000Z", "critical")
    assert seen["values"] == {"failures": 3, "limit_failures": 3, "window_s": 2.0, "odd": None}


@given(st.text(max_size=2000), st.text(max_size=2000))
def test_hostile_text_is_one_clean_line(subject: str, message: str) -> None:
    """With control characters, escape sequences, markup and bidi marks, the document stays one line."""
    hostile = f"\x1b]52;c;aGk=\a\x1b[31m[red]{message}\u202e\n\x00"
    seen = read(
        Event(NOON, Severity.INFO, subject, hostile, {hostile: hostile}, about=f"backend:{subject}:x")
    )
    texts = (seen["subject"], seen["message"], seen["id"], *seen["values"], *seen["values"].values())
    assert all(char.isprintable() for text in texts for char in text)
    assert len(seen["message"]) <= 1000
