"""Events about servers' states: each word that lasts, once, and engines whose processes ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from sparktop.analysis.verdict import verdict
from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.event import Severity
from sparktop.model.failure import FailureKind
from sparktop.model.node import GpuProcess, GpuReading, NodeSample
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.model.workload import Workload, Workloads
from sparktop.store import SourceKey

World: TypeAlias = Any  # the class lives in conftest.py, which tests cannot import
MakeWorld = Callable[..., World]
BUSY = LaneSample("0", running=9.0, waiting=0.0, kv_cache_percent=20.0, generation_tokens=100.0)
IDLE = LaneSample("0", running=0.0, waiting=0.0, kv_cache_percent=0.0, generation_tokens=100.0)
ASLEEP = LaneSample("0", running=0.0, waiting=0.0, asleep=True, generation_tokens=100.0)


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    nodes = (NodeTarget("n", "agent", "http://n:9750"), NodeTarget("m", "agent", "http://m:9750"))
    return make_world(
        Watch(nodes=nodes, backends=(BackendTarget("b", "http://b:8000", "vllm", nodes=("n", "m")),))
    )


def play(world: World, seconds: int, lane: LaneSample | FailureKind) -> list[str]:
    """Poll and judge once a second; return the messages of new events."""
    before = len(world.snapshot().events)
    for _ in range(seconds):
        at = world.at + 1.0
        if isinstance(lane, FailureKind):
            world.fail(at, lane)
        else:
            world.feed(EngineSample(at, "vllm", (lane,)))
        world.store.judge()
    return [event.message for event in world.snapshot().events[before:]]


def test_each_word_that_lasts_is_one_event(world: World) -> None:
    """Sleep, a load of the model and what comes after; a word of a second, or of load alone, is none."""
    assert play(world, 30, IDLE) == []
    assert play(world, 1, ASLEEP) == []
    assert play(world, 30, IDLE) == []
    assert play(world, 40, ASLEEP) == ["asleep, before idle"]
    assert play(world, 20, IDLE) == ["idle, before asleep"]
    assert play(world, 40, FailureKind.LOADING) == ["loading, before idle"]


def test_a_state_that_an_alert_reports_is_not_reported_twice(world: World) -> None:
    """The beginning and the end of the alert are the events."""
    play(world, 30, IDLE)
    assert play(world, 30, FailureKind.REFUSED) == ["nothing listens there"]
    assert play(world, 30, IDLE) == ["answers again after 30 s"]


def processes(at: float, *running: Workload) -> NodeSample:
    held = tuple(GpuProcess(one.pid, "VLLM::Worker", 1 << 30) for one in running)
    return NodeSample(at, gpus=(GpuReading(0, processes=held),), workloads=Workloads(running, 0, 0.0))


def test_a_dead_rank_is_in_the_top_line_while_its_server_answers(world: World) -> None:
    """One event for both machines, a critical alert after five seconds, and its end with the next token."""
    one, two = (Workload(pid, "vllm", "worker", f"TP{pid - 40}", "m") for pid in (40, 41))
    play(world, 20, BUSY)
    for name, worker in (("n", one), ("m", two)):
        world.store.accept(SourceKey.node(name), processes(world.at, worker))
    play(world, 1, BUSY)
    world.store.accept(SourceKey.node("m"), processes(world.at))
    world.store.accept(SourceKey.node("n"), processes(world.at + 0.5))
    ended = [event for event in world.snapshot().events if event.kind == "engine-ended"]
    assert len(ended) == 1
    play(world, 8, BUSY)
    top = verdict(world.snapshot())
    assert top.severity is Severity.CRITICAL
    assert top.words == "b: its worker TP1 41 ended, and its server still answers"
    for tokens in (200.0, 300.0, 400.0):
        play(world, 1, LaneSample("0", running=9.0, waiting=0.0, generation_tokens=tokens))
    assert "dead-rank" not in {alert.id.rpartition(":")[2] for alert in world.snapshot().alerts}
