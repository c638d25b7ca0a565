"""When a running sweep stops itself."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import MemoryReading, NodeSample
from sparktop.model.snapshot import NodeView
from sparktop.sweep.plan.plan import Guard
from sparktop.sweep.run.guard import SILENT_S, GuardWatch, guard_words
from sparktop.sweep.run.server_side import NodePoint

GIB = 2**30
WATCH = GuardWatch(Guard(min_headroom_gib=8.0, max_gpu_c=92.0, max_error_share=0.5))
GONE = Failure(FailureKind.REFUSED, "nothing listens there", 100.0)


def point(headroom_gib: float | None = 40.0, gpu_c: float | None = 60.0) -> NodePoint:
    headroom = None if headroom_gib is None else int(headroom_gib * GIB)
    return NodePoint(1.0, gpu_c, 50.0, 2000.0, 0.0, headroom)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (point(headroom_gib=7.9), "7.9 GiB of memory left, the limit is 8 GiB"),
        (point(gpu_c=93.0), "93 °C, the limit is 92 °C"),
    ],
)
def test_memory_and_heat_have_limits(seen: NodePoint, words: str) -> None:
    """Beyond its limit each gives a sentence with the machine, the figure and the limit."""
    reason = WATCH.check_node("spark-a", seen)
    assert reason is not None
    assert "spark-a" in reason
    assert words in reason


@pytest.mark.parametrize("seen", [point(), point(8.0, 92.0), point(None, None)])
def test_what_is_at_its_limit_or_unknown_stops_nothing(seen: NodePoint) -> None:
    """A limit may be reached, and a figure that no driver reports is not a reason to stop."""
    assert WATCH.check_node("spark-a", seen) is None


@pytest.mark.parametrize(
    ("guard", "seen", "words"),
    [
        (Guard(), point(7.9), "7.9 GiB of memory left, the limit is 8 GiB"),
        (Guard(), point(gpu_c=93.0), "93 °C, the limit is 92 °C"),
        (Guard(min_headroom_gib=2.0), point(7.9), None),
        (Guard(0.0, 0.0), point(0.1, 120.0), None),
    ],
)
def test_unified_memory_is_guarded_unless_switched_off(
    guard: Guard, seen: NodePoint, words: str | None
) -> None:
    """Below 8 GiB or above 92 °C without any setting; another limit takes its place, 0 switches one off."""
    reason = GuardWatch(guard).check_node("spark-a", replace(seen, unified=True))
    assert (reason is None) == (words is None)
    assert words is None or words in (reason or "")


def node(name: str, *, unified: bool | None = True, answers: bool = True) -> NodeView:
    sample = NodeSample(1.0, memory=MemoryReading(unified=unified))
    return NodeView(name, "agent", sample if answers else None)


@pytest.mark.parametrize(
    ("guard", "nodes", "words"),
    [
        (Guard(), [node("a"), node("b")], "guard: stops below 8 GiB of headroom or above 92 °C on a, b"),
        (Guard(0.0, 0.0), [node("a"), node("b")], "no guard: it is switched off"),
        (Guard(), [], "no guard: no node is watched"),
        (
            Guard(max_gpu_c=85.0),
            [node("a"), node("b", unified=False)],
            "guard: stops below 8 GiB of headroom or above 85 °C on a; above 85 °C on b",
        ),
        (
            Guard(),
            [node("a"), node("b", answers=False)],
            "guard: stops below 8 GiB of headroom or above 92 °C on a; not guarded: b (does not answer)",
        ),
        (
            Guard(),
            [node("a")] * 3,
            "memory and temperature are not guarded: proxy (no node of it is watched)",
        ),
        (
            Guard(),
            [node("b", unified=None)],
            (
                "memory and temperature are not guarded: b (no memory shared with a GPU, "
                "no temperature limit set), solo (no node of it is watched)"
            ),
        ),
    ],
)
def test_the_header_states_what_stops_the_sweep_and_where(
    guard: Guard, nodes: list[NodeView], words: str
) -> None:
    """The limits by machine, and every machine and target that nothing guards."""
    targets = {"proxy": ["a", "b"]} if len(nodes) < 3 else {"proxy": []}
    if words.startswith("memory and temperature are not guarded: b"):
        targets["solo"] = []
    assert guard_words(guard, targets, nodes) == words


@pytest.mark.parametrize(
    ("ended", "failed", "stops"), [(9, 9, False), (10, 5, False), (10, 6, True), (1000, 400, False)]
)
def test_failures_have_a_share(ended: int, failed: int, *, stops: bool) -> None:
    """More than half of ten and more stop the sweep; a few at the start do not."""
    reason = WATCH.check_requests("solo", ended, failed, "HTTP 500")
    assert (reason is not None) == stops
    if reason:
        assert f"{failed} of {ended}" in reason
        assert "HTTP 500" in reason


@pytest.mark.parametrize(
    ("ok", "words", "stops"),
    [
        (0, ["refused"], True),
        (0, ["refused", "truncated", "timeout:connect"], True),
        (1, ["refused"], False),
        (0, ["refused", "http:500"], False),
        (0, [], False),
    ],
)
def test_a_run_without_a_server_is_the_last(ok: int, words: list[str], *, stops: bool) -> None:
    """Only where nothing was answered, and nothing but a missing server explains it."""
    assert (WATCH.check_run("solo", ok, words, "refused") is not None) == stops


def test_silence_needs_both_page_and_stream() -> None:
    """A page that does not come stops the sweep only when no token comes either, for long enough."""
    silence = (100.0, GONE)
    late = 100.0 + SILENT_S
    assert WATCH.check_silence("solo", None, 0.0, late) is None
    assert WATCH.check_silence("solo", silence, newest_data_at=90.0, now=late - 1) is None
    assert WATCH.check_silence("solo", silence, newest_data_at=late - 2, now=late) is None
    reason = WATCH.check_silence("solo", silence, newest_data_at=90.0, now=late)
    assert reason is not None
    assert "nothing listens there" in reason
