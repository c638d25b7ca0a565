"""A preset with a recorded trace is read beside the screen, which says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparktop.errors import UsageError
from sparktop.model.targets import SweepSpec
from sparktop.ui.screens import preset as module
from sparktop.ui.screens.preset import PresetStart

PRESET = SweepSpec("traffic", trace="day.jsonl")


class FakeDesk:
    """Record the calls; targets are there until `busy` is set."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.said: list[str] = []
        self.announced: list[Any] = []
        self.watch = SimpleNamespace(guard=None)
        self.busy = False

    def targets(self, wanted: Sequence[str], selected: object) -> list[str] | None:
        """Return a target."""
        del wanted, selected
        return None if self.busy else ["spark"]

    def say(self, message: str, severity: object = None) -> None:
        """Note a message."""
        del severity
        self.said.append(message)

    def announce(self, plan: object) -> None:
        """Note a plan."""
        self.announced.append(plan)


async def until(done: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(300):
        while not done():  # noqa: ASYNC110 - a thread ends it
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("ends", ["plan", "error", "busy"])
async def test_the_loop_goes_on_while_a_trace_is_read(
    ends: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One file at a time; then the countdown, or what is wrong, or nothing where another sweep has begun."""
    path = tmp_path / "day.jsonl"
    path.write_bytes(b" " * 2_000_000)
    read = threading.Event()

    def slow_plan(*_: object, **__: object) -> str:
        read.wait(10)
        if ends == "error":
            raise UsageError("no request")
        return "the plan"

    monkeypatch.setattr(module, "make_plan", slow_plan)
    desk = FakeDesk()
    start = PresetStart(desk)  # type: ignore[arg-type] # the part of a desk that is called
    start.start(SweepSpec("traffic", trace=str(path)), None)
    assert desk.said == ["preset traffic: reading day.jsonl (2 MB), then the countdown begins"]
    start.start(PRESET, None)
    assert desk.said[-1] == "the trace of preset traffic is still being read"
    assert desk.announced == []
    desk.busy = ends == "busy"
    read.set()
    await until(lambda: start._reading is None)
    assert desk.announced == (["the plan"] if ends == "plan" else [])
    assert (desk.said[-1] == "preset traffic: no request") is (ends == "error")


def test_a_preset_without_a_trace_starts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs no thread and shows no message."""
    monkeypatch.setattr(module, "make_plan", lambda *_, **__: "the plan")
    desk = FakeDesk()
    PresetStart(desk).start(SweepSpec("quick"), None)  # type: ignore[arg-type] # as above
    assert (desk.announced, desk.said) == (["the plan"], [])
