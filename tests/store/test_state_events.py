"""Events about servers' states: each word that lasts, once, and engines whose processes ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from sparktop.analysis.state import verdict
from sparktop.model.engine import EngineIdentity, EngineSample, LaneSample
from sparktop.model.event import Severity
from sparktop.model.failure import FailureKind
from sparktop.model.node import GpuProcess, GpuReading, NodeSample, Workload, Workloads
from sparktop.model.router import Deployment, RouterSample
from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget, Watch
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
    assert play(world, 40, ASLEEP) == ["asleep (was idle)"]
    assert play(world, 20, IDLE) == ["idle (was asleep)"]
    assert play(world, 40, FailureKind.LOADING) == ["loading (was idle)"]


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


def test_another_model_at_the_same_port_is_an_event(world: World) -> None:
    """Of a page that names it, or of an identity; a second name of the same server is none."""
    for second, models in enumerate([("big",), ("big",), ("tiny",), ("alias", "tiny"), ("tiny",)]):
        world.feed(
            EngineSample(1001.0 + second, "vllm", (IDLE,), models=models, start_time=float(second // 2))
        )
    said = [event.message for event in world.snapshot().events if event.kind == "model"]
    assert said == ["serves tiny (was big)"]


@pytest.mark.parametrize("asked", ["hosted_vllm/org/big", "org/big", "openai/org/big"])
def test_a_deployment_whose_model_is_gone_is_an_alert_of_the_router(
    make_world: MakeWorld, asked: str
) -> None:
    """It is raised by the server's own list of models, and ends when the model is back."""
    router = RouterTarget("proxy", "http://p:4000", "least-busy", ())
    world = make_world(Watch(backends=(BackendTarget("b", "http://b:8000", "vllm"),), routers=(router,)))
    listed = (Deployment("d-1", "http://b:8000/v1", "any", asked),)
    said: list[list[str]] = []
    for model in ("org/big", "tiny", "org/big"):
        world.store.accept(SourceKey.router("proxy"), RouterSample(world.at, deployments=listed))
        world.feed(EngineSample(world.at + 1.0, "vllm", (IDLE,), models=(model,)))
        world.store.identify(SourceKey.backend("b"), EngineIdentity(model=model, models=(model,)))
        world.store.judge()
        said.append([alert.message for alert in world.snapshot().alerts])
    assert said == [[], [f"deployment d-1 asks b for {asked}, which serves tiny"], []]


@pytest.mark.parametrize(
    ("started_s", "uptime_s"),
    [(-3600.0, 3620.0), (-3.0, 23.0), (3.0, 17.0), (600.0, None), (18.0, None), (-1.8e9, None)],
)
def test_an_uptime_that_contradicts_what_was_seen_is_unknown(
    world: World, started_s: float, uptime_s: float | None
) -> None:
    """A server watched for 20 s that says it began in the future, 2 s ago or 57 years ago: clocks differ."""
    start_time = world.wall(1000.0 + started_s)
    for second in range(21):
        world.feed(EngineSample(1000.0 + second, "vllm", (IDLE,), start_time=start_time))
    assert world.view().uptime_s == uptime_s
