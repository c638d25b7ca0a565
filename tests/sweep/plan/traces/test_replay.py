"""Recorded traffic as the level of a sweep: its point, its lengths, and the part that is replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.errors import UsageError
from sparktop.model.load import LoadKind, LoadMode, LoadPoint
from sparktop.model.targets import SweepSpec
from sparktop.sweep.plan.plan import SweepTarget
from sparktop.sweep.plan.presets import find_preset, make_plan
from sparktop.sweep.plan.traces import Replay, TraceChoice, parse_range, summarise

DATA = Path(__file__).parents[3] / "data" / "traffic"


def replay(name: str, speed: float = 1.0, to_s: float | None = None) -> Replay:
    choice = TraceChoice(str(DATA / name), speed=speed, to_s=to_s)
    return Replay(choice, summarise(choice))


def test_the_level_is_the_mean_rate_of_the_trace() -> None:
    """Five requests in 5.4 s; at twice the speed the rate is twice as high. Lengths are means."""
    spec = find_preset("quick") | SweepSpec(trace=str(DATA / "mooncake.jsonl"))
    plan = make_plan(spec, (SweepTarget("a", "http://x"),))
    assert plan.axis == (LoadPoint(LoadKind.RATE, 0.741, trace="mooncake.jsonl"),)
    assert plan.axis[0].label == "0.741 /s of mooncake.jsonl"
    assert (plan.mode, plan.kind, plan.runs, plan.climb_to) == (LoadMode.OPEN, LoadKind.RATE, 1, None)
    assert (plan.lengths, plan.tg, plan.concurrency) == ((1320,), 61, ())
    assert plan.duration_s == pytest.approx(5.4 * 5 / 4)
    assert replay("mooncake.jsonl", speed=2.0).point.value == pytest.approx(1.48)


def test_requests_beyond_a_context_are_counted() -> None:
    """Of 1,240 to 2,155 tokens with their answers, two of five requests exceed 2,000 tokens."""
    found = replay("mooncake.jsonl")
    words = found.too_long(2000)
    assert words is not None
    assert words.startswith("2 of 5 requests of mooncake.jsonl are longer than its context of 2,000 tokens")
    assert found.too_long(2155) is None
    assert found.too_long(None) is None


def test_a_preset_may_replay_a_trace() -> None:
    """It keeps its name; another load that the user chose takes the place of the trace."""
    preset = SweepSpec("night", trace=str(DATA / "azure.csv"), trace_speed=4.0, trace_range="..90")
    targets = (SweepTarget("a", "http://x"),)
    plan = make_plan(preset, targets)
    assert plan.trace is not None
    assert (plan.preset, plan.trace.choice.speed, plan.trace.choice.to_s) == ("night", 4.0, 90.0)
    assert make_plan(preset | SweepSpec(concurrency=(4,)), targets).trace is None
    assert make_plan(find_preset("arena") | SweepSpec(trace=preset.trace), targets).preset is None
    with pytest.raises(UsageError, match="No such file"):
        make_plan(SweepSpec("night", trace="/nowhere/a.csv"), targets)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("600..1200", (600.0, 1200.0)),
        ("10m..1h", (600.0, 3600.0)),
        ("..90", (0.0, 90.0)),
        ("1h..", (3600.0, None)),
        (" 5s .. 1d ", (5.0, 86400.0)),
    ],
)
def test_parts_are_seconds_minutes_hours(text: str, part: tuple[float, float]) -> None:
    """Either end may be left out."""
    assert parse_range(text) == part


@pytest.mark.parametrize("text", ["", "5", "5..5", "9..1", "a..b", "-1..5", "1..nan", "1..inf", "1..2..3"])
def test_what_is_no_part_is_refused(text: str) -> None:
    """One line says what is wrong."""
    with pytest.raises(UsageError) as error:
        parse_range(text)
    assert "\n" not in str(error.value)
