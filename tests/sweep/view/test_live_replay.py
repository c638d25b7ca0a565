"""The live view of a replay: how far it is, and how many requests are sent and completed each second."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.commands.sweep.run import progress_line
from sparktop.model.load import EndReason, LoadEvent, RequestEnded, RequestStarted, RunStarted
from sparktop.model.targets import SweepSpec
from sparktop.panels.sweep.screen import now_rows
from sparktop.sweep.plan.plan import Plan, SweepTarget, loads
from sparktop.sweep.plan.presets import make_plan
from sparktop.sweep.run.progress import LoadTold, Phase, PhaseChanged, ProgressFold
from sparktop.sweep.view.live import LiveView

TRACE = Path(__file__).parents[2] / "data" / "traffic" / "mooncake.jsonl"


def plan() -> Plan:
    return make_plan(SweepSpec(trace=str(TRACE), trace_speed=0.01), [SweepTarget("a", "http://x")])


def events(until_s: int) -> tuple[LoadEvent, ...]:
    """Return two requests a second from 100 s on, of which every second one completes."""
    found: list[LoadEvent] = [RunStarted(100.0, 0)]
    for number in range(2 * until_s):
        at = 100.0 + number / 2
        found.append(RequestStarted(f"r{number}", at, 0, 10, at))
        if number % 2:
            found.append(RequestEnded(f"r{number}", at, EndReason.STOP))
    return tuple(found)


def test_the_board_says_how_far_the_replay_is() -> None:
    """After 60 of 675 s: the time, and the rates of the last 30 s, at 80 columns."""
    chosen = plan()
    view = LiveView(chosen, clock=lambda: 160.0)
    (load,) = loads(chosen)
    view.take(PhaseChanged(Phase.RUNNING, "a", load, 0, 1))
    view.take(LoadTold("a", load, events(60), at=160.0, in_flight=3))
    moment = view.view().moment
    assert moment is not None
    assert moment.trace_at_s == 60.0
    assert moment.trace_s == pytest.approx(675.0)
    assert moment.requests_per_s == pytest.approx((2.0, 1.0), rel=0.05)
    text = " ".join("".join(word for word, _ in row) for row in now_rows(view.view(), 76))
    assert "replayed 1 min of 11 min 15 s" in text
    assert "2.00 /s sent, 1.00 /s completed" in text
    assert "a, 0.00741 /s of mooncake.jsonl: run 1 of 1" in text


def test_the_line_of_the_command_says_the_same() -> None:
    """Position in the trace, then what is sent and completed."""
    chosen = plan()
    fold = ProgressFold()
    (load,) = loads(chosen)
    fold.take(PhaseChanged(Phase.RUNNING, "a", load, 0, 1))
    now = fold.take(LoadTold("a", load, events(60), at=160.0, in_flight=3))
    assert chosen.trace is not None
    line = progress_line(now, chosen.trace.measured_s)
    assert "1 min of 11 min 15 s · 2.0 /s sent, 1.0 /s completed · 3 in flight" in line
    assert "of 11 min" not in progress_line(now)
