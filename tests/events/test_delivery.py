"""From a store to a hook and a webhook, through the monitor that every command runs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparktop.events import Delivery, Hook
from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.event import Event, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.targets import BackendTarget, EventSettings, Watch
from sparktop.store import SourceKey, Store
from sparktop.watch.monitor import Monitor
from tests.watch.monitor_fakes import FakeWays, Sleeper

B = SourceKey.backend("b")
APPEND = """
import sys
open(sys.argv[1], "a").write(sys.stdin.read())
"""


def hook(folder: Path, text: str = APPEND) -> tuple[str, ...]:
    path = folder / "hook.py"
    path.write_text(text, encoding="utf-8")
    return (sys.executable, str(path), str(folder / "got"))


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
    await asyncio.gather(*(outbox.drained() for outbox in delivery._outboxes))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.outside
async def test_a_hook_gets_every_announced_event_and_its_end(tmp_path: Path) -> None:
    """The end of a critical alert passes a filter for critical ones; less severe events do not."""
    store = Store(Watch(backends=(BackendTarget("b", "http://b"),)))
    settings = EventSettings(severity=Severity.CRITICAL, hook=hook(tmp_path))
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
    settings = EventSettings(severity=Severity.INFO, hook=hook(tmp_path, f"{APPEND}sys.exit(7)"))
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
    text = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
    store = Store(Watch(backends=(BackendTarget("b", "http://b"),)))
    task = asyncio.create_task(Delivery(EventSettings(hook=hook(tmp_path, text)), store).run())
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
    settings = EventSettings(hook=hook(tmp_path))
    watch = Watch(backends=(BackendTarget("b", "http://b"),), events=settings)
    store = Store(watch)
    monitor = Monitor(watch, store, ways=FakeWays(), sleep=Sleeper())
    await monitor.start()
    await asyncio.sleep(0)
    outage(store, 1e9)
    await until(lambda: len(got(tmp_path)) == 2)
    await monitor.stop()
    assert [one["kind"] for one in got(tmp_path)] == ["unreachable"] * 2


async def test_nothing_is_listened_to_where_nothing_is_configured() -> None:
    """Hook and webhook are off by default, and then nothing listens for events."""
    assert (EventSettings().hook, EventSettings().webhook) == ((), None)
    watch = Watch()
    store = Store(watch)
    monitor = Monitor(watch, store, ways=FakeWays(), sleep=Sleeper())
    await monitor.start()
    await asyncio.sleep(0)
    assert store._events._listeners == ()
    await monitor.stop()


def test_an_event_below_the_severity_is_left_out() -> None:
    """By default events of severity "info" are not delivered."""
    store = Store(Watch())
    delivery = Delivery(EventSettings(hook=("x",)), store)
    for severity in Severity:
        delivery.hear(Event(store.snapshot().taken_at, severity, "a", "b"))
    assert [one.severity for one in delivery._outboxes[0]._waiting] == [Severity.WARNING, Severity.CRITICAL]
