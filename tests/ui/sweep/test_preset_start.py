"""A preset with a recorded trace is read beside the screen, which says so.

The key that asks how many agents the selection can take.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparktop.errors import UsageError
from sparktop.model.load import LoadKind
from sparktop.model.snapshot import BackendView
from sparktop.model.targets import SweepSpec, Watch
from sparktop.sweep.plan import presets as module
from sparktop.sweep.plan.plan import SweepTarget
from sparktop.ui.sweep_desk import SweepDesk
from tests.waiting import until

PRESET = SweepSpec("traffic", trace="day.jsonl")


class Desk(SweepDesk):
    """Keeps what is said and announced; its target is there until `occupied` is set."""

    def __init__(self, *views: BackendView) -> None:
        """Start with these servers on the screen."""
        app = SimpleNamespace(overview=SimpleNamespace(shown=SimpleNamespace(backends=views)))
        super().__init__(app, app, watch=Watch(), store=None, env=None, state=None)  # type: ignore[arg-type]  # what it calls
        self.said: list[str] = []
        self.announced: list[Any] = []
        self.occupied = False

    def targets(self, wanted: Sequence[str], selected: object) -> list[SweepTarget] | None:
        """Return a target."""
        del wanted, selected
        return None if self.occupied else [SweepTarget("spark", "http://127.0.0.1:1")]

    def say(self, message: str, severity: object = None) -> None:
        """Keep a message."""
        del severity
        self.said.append(message)

    def announce(self, plan: object, note: str = "") -> None:
        """Keep a plan, and what is said with it."""
        self.said += [note] if note else []
        self.announced.append(plan)


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


def test_the_key_announces_a_search_for_agents_whose_context_fits() -> None:
    """With the default conditions; a short context is asked about chats, as nothing longer is answered."""
    desk = Desk()
    desk.occupied = True
    desk.start_capacity(None)
    assert desk.announced == []
    for context, workload in ((4096, "chat"), (131_072, "coder-quick")):
        desk = Desk(BackendView("spark", "http://127.0.0.1:1", "g", max_model_len=context))
        desk.start_capacity(None)
        (plan,) = desk.announced
        assert (plan.kind, plan.preset, plan.conversations.name) == (LoadKind.AGENTS, "capacity", workload)
        words = "workload chat instead of coder-quick, which needs about 8,796 tokens a request: "
        assert desk.said == ([f"{words}spark takes at most 4,096"] if context < 8796 else [])
