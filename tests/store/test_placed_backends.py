"""Backends and nodes together: where backends run, whose processes are whose, and how long steps take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import pytest

from sparktop.model.engine import EngineSample, Histogram, LaneSample
from sparktop.model.node import GpuProcess, GpuReading, NodeIdentity, NodeSample
from sparktop.model.snapshot import BackendView, NodeView
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.store import SourceKey

World: TypeAlias = Any  # the class lives in conftest.py, which tests cannot import
MakeWorld = Callable[..., World]

A = NodeTarget("a", "agent", "http://192.168.1.11:9750")
B = NodeTarget("b", "agent", "http://192.168.1.12:9750")
V = BackendTarget("v", "http://192.168.1.11:8000")


def backend(world: World, name: str = "v") -> BackendView:
    view: BackendView = next(one for one in world.snapshot().backends if one.name == name)
    return view


def node(world: World, name: str = "a") -> NodeView:
    view: NodeView = next(one for one in world.snapshot().nodes if one.name == name)
    return view


def gb10(at: float, *processes: str, clock: int = 2405, power: float = 40.0, use: float = 95.0) -> NodeSample:
    gpu = GpuReading(
        0,
        "NVIDIA GB10",
        utilization_percent=use,
        sm_clock_mhz=clock,
        power_w=power,
        processes=tuple(GpuProcess(100 + number, name) for number, name in enumerate(processes)),
    )
    return NodeSample(at, gpus=(gpu,))


def see(world: World, sample: NodeSample, name: str = "a") -> NodeView:
    world.at = max(float(world.at), sample.at)
    world.store.accept(SourceKey.node(name), sample)
    return node(world, name)


def page(at: float, steps: float, tokens: float, *running: float) -> EngineSample:
    """Return a page with a lane for each number of running requests."""
    histogram = Histogram((float("inf"),), (steps / len(running),), tokens / len(running))
    lanes = tuple(
        LaneSample(str(index), running=one, kv_cache_percent=40.0, step_tokens=histogram)
        for index, one in enumerate(running)
    )
    return EngineSample(at, "vllm", lanes, start_time=1.0)


def test_a_backend_is_on_the_node_of_its_address(make_world: MakeWorld) -> None:
    """It is known from the agent's URL at once, else from the node's interfaces, and lost with the node."""
    other = BackendTarget("w", "http://10.0.0.2:8000")
    world = make_world(Watch(nodes=(A, B), backends=(V, other)))
    assert (backend(world).nodes, backend(world, "w").nodes) == (("a",), ())
    world.store.identify(SourceKey.node("b"), NodeIdentity(addresses=("10.0.0.2",)))
    assert backend(world, "w").nodes == ("b",)
    world.store.remove(SourceKey.node("b"))
    assert backend(world, "w").nodes == ()
    world.store.add(NodeTarget("c", "agent", "http://10.0.0.2:9750"))
    assert backend(world, "w").nodes == ("c",)


def test_engine_processes_get_their_backend_when_its_engine_is_known(make_world: MakeWorld) -> None:
    """Before the first page the engine is unknown; afterwards the process is the backend's."""
    world = make_world(Watch(nodes=(A,), backends=(V,)))
    (process,) = see(world, gb10(1000, "VLLM::EngineCore", "Xorg")).engine_processes
    assert (process.pid, process.engine, process.backend) == (100, "vllm", None)
    world.feed(page(1001, 10, 80, 8.0), name="v")
    assert [one.backend for one in node(world).engine_processes] == ["v"]
    world.store.remove(SourceKey.backend("v"))
    assert [one.backend for one in node(world).engine_processes] == [None]
    assert see(world, gb10(1002)).engine_processes == ()


def test_a_backend_over_two_nodes_is_seen_by_its_ranks(make_world: MakeWorld) -> None:
    """Rank 1 on another node belongs to the one backend that has rank 0, and goes when it goes."""
    world = make_world(Watch(nodes=(A, B), backends=(V,)))
    world.feed(page(1000, 10, 80, 8.0), name="v")
    see(world, gb10(1001, "VLLM::Worker_TP0"))
    see(world, gb10(1001, "VLLM::Worker_TP1"), "b")
    assert backend(world).nodes == ("a", "b")
    assert [one.backend for one in node(world, "b").engine_processes] == ["v"]
    see(world, gb10(1003), "b")
    assert backend(world).nodes == ("a",)


def serve(
    world: World, step_ms: float, seconds: Iterable[float], running: float = 8.0, *, state: dict[str, float]
) -> BackendView:
    """Feed a page each second of a backend that makes steps of equal length; return its view."""
    for at in seconds:
        state["steps"] = state.get("steps", 0.0) + 1000 / step_ms
        state["tokens"] = state.get("tokens", 0.0) + running * 1000 / step_ms
        world.feed(page(at, state["steps"], state["tokens"], running), name="v")
    return backend(world)


def test_a_step_s_time_is_told_where_requests_ran_all_the_time(make_world: MakeWorld) -> None:
    """A step takes 63 ms in both lanes together; before five seconds, or with an idle lane, it is unknown."""
    world, state = make_world(Watch(backends=(V,))), dict[str, float]()
    assert serve(world, 63.0, range(1000, 1005), state=state).step_ms is None
    view = serve(world, 63.0, range(1005, 1012), state=state)
    assert view.step_ms == pytest.approx(63)
    assert view.history.step_ms.last == pytest.approx(63)
    state.clear()
    two = make_world(Watch(backends=(V,)))
    for second in range(12):
        two.feed(page(1000 + second, 32.0 * second, 256.0 * second, 4.0, 4.0), name="v")
    assert backend(two).step_ms == pytest.approx(2 * 1000 / 32)
    two.feed(page(1012, 32.0 * 12, 256.0 * 12, 8.0, 0.0), name="v")
    assert backend(two).step_ms is None
    two.feed(page(1013, 32.0 * 13, 256.0 * 13, 4.0, 4.0), name="v")
    assert backend(two).step_ms is None


def worlds_with_slow_steps(make_world: MakeWorld, watch: Watch) -> World:
    """Return a world whose backend made steps of 63 ms for a minute, then of 94 ms for a minute."""
    world, state = make_world(watch), dict[str, float]()
    serve(world, 63.0, range(1000, 1060), state=state)
    serve(world, 94.0, range(1060, 1120), state=state)
    return world


def test_slow_steps_at_a_healthy_clock_raise_an_alert(make_world: MakeWorld) -> None:
    """94 instead of 63 ms for the same batch: word, figures, cause and fix; healthy steps end it."""
    world = worlds_with_slow_steps(make_world, Watch(nodes=(A,), backends=(V,)))
    speed = see(world, gb10(1120)).speed
    assert speed.word == "slow steps"
    assert speed.reason.startswith("v: 94 ms a step at 8 running, 63 ms before; 2405 MHz at 95 % load")
    (alert,) = world.snapshot().alerts
    assert alert.id == "node:a:slow-steps"
    assert "hidden state" in alert.message
    assert "Fix: restart the machine" in alert.message
    idle = see(world, gb10(1121, use=0.0, clock=208))
    assert idle.speed.word == "idle"
    assert [one.id for one in world.snapshot().alerts] == ["node:a:slow-steps"]
    serve(
        world,
        63.0,
        range(1122, 1140),
        state={"steps": 60e3 / 63 + 60e3 / 94, "tokens": 8 * 60e3 / 63 + 8 * 60e3 / 94},
    )
    assert see(world, gb10(1140)).speed.word == "normal"
    assert world.snapshot().alerts == ()


def test_slow_steps_are_not_told_where_something_else_explains_them(make_world: MakeWorld) -> None:
    """A slow clock on any of its nodes, or a second backend on the GPU, explains slow steps."""
    world = worlds_with_slow_steps(make_world, Watch(nodes=(A,), backends=(V,)))
    for at in range(1110, 1122, 2):
        see(world, gb10(at, clock=611, power=16.0))
    assert node(world).speed.word == "slow clock"
    two = Watch(nodes=(A, B), backends=(BackendTarget("v", V.url, nodes=("a", "b")),))
    world = worlds_with_slow_steps(make_world, two)
    for at in range(1110, 1122, 2):
        see(world, gb10(at, clock=611, power=16.0), "b")
    assert see(world, gb10(1122)).speed.word == "normal"
    for at in range(1122, 1140, 2):
        see(world, gb10(at), "b")
    assert see(world, gb10(1140)).speed.word == "slow steps"
    beside = BackendTarget("w", "http://192.168.1.11:8001")
    world = worlds_with_slow_steps(make_world, Watch(nodes=(A,), backends=(V, beside)))
    assert see(world, gb10(1120)).speed.word == "normal"
