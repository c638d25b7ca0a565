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
from sparktop.model.targets import SweepSpec, Watch
from sparktop.sweep.plan import presets as module
from sparktop.sweep.plan.plan import SweepTarget
from sparktop.ui.sweep_desk import SweepDesk

PRESET = SweepSpec("traffic", trace="day.jsonl")


class Desk(SweepDesk):
    """Keeps what is said and announced; targets are there until `occupied` is set."""

    def __init__(self) -> None:
        """Start with nothing."""
        app = SimpleNamespace()
        super().__init__(app, app, watch=Watch(), store=None, env=None, state=None)  # type: ignore[arg-type]  # not used
        self.said: list[str] = []
        self.announced: list[Any] = []
        self.occupied = False

    def targets(self, wanted: Sequence[str], selected: object) -> list[SweepTarget] | None:
        """Return a target."""
        del wanted, selected
        return None if self.occupied else [SweepTarget("spark", "http://127.0.0.1:1")]

    def say(self, message: str, severity: object = None) -> None:
        """Note a message."""
        del severity
        self.said.append(message)

    def announce(self, plan: object, note: str = "") -> None:
        """Note a plan."""
        del note
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
    desk = Desk()
    desk.watch = Watch(sweeps=(SweepSpec("traffic", trace=str(path)), PRESET))
    desk.start_preset(0, None)
    assert desk.said == ["preset traffic: reading day.jsonl, then the countdown begins"]
    desk.start_preset(1, None)
    assert desk.said[-1] == "the trace of preset traffic is still being read"
    assert desk.announced == []
    desk.occupied = ends == "busy"
    read.set()
    await until(lambda: desk._reading is None)
    assert desk.announced == (["the plan"] if ends == "plan" else [])
    assert (desk.said[-1] == "preset traffic: no request") is (ends == "error")
