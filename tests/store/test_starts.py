"""Servers that load: from the processes on their nodes, also while their ports are closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from sparktop.demo.machine import starting
from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import GpuProcess, GpuReading, NodeSample, Workload, Workloads
from sparktop.model.snapshot import BackendState, BackendView, PastStart
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.store import SourceKey, Store

World: TypeAlias = Any  # the class lives in conftest.py, which tests cannot import
MakeWorld = Callable[..., World]

A = NodeTarget("a", "agent", "http://192.168.1.11:9750")
V = BackendTarget("v", "http://192.168.1.11:8000")
NODE, BACKEND = SourceKey.node("a"), SourceKey.backend("v")
T0 = 1000.0


def node_sample(at: float, started_at: float, takes_s: float = 200.0, **server: Any) -> NodeSample:  # noqa: ANN401 - fields of a record
    """Return a sample of a node whose server's process started at `started_at`."""
    shown = starting(at - started_at, takes_s)
    fields = {"port": 8000, **server}
    processes = (
        Workload(10, "vllm", "server", None, "m", server=10, age_s=at - started_at, **fields),
        Workload(11, "vllm", "engine core", None, "m", server=10, age_s=at - started_at),
    )
    gpu = GpuReading(0, processes=(GpuProcess(11, "VLLM::EngineCore", shown.engine_bytes),))
    return NodeSample(at, gpus=(gpu,), workloads=Workloads(processes, 0, 0.0))


def page(at: float, *, start_time: float = 1.0) -> EngineSample:
    return EngineSample(at, "vllm", (LaneSample("0", running=0.0),), ("m",), start_time)


def refused(at: float) -> Failure:
    return Failure(FailureKind.REFUSED, "nothing listens", at)


def at(world: World, second: float) -> Store:
    world.at = T0 + second
    store: Store = world.store
    return store


def start(world: World, until_s: float, *, from_s: float = 0.0, takes_s: float = 200.0) -> BackendView:
    """Poll a server that starts at `from_s`, every 2 s until `until_s`."""
    second = from_s + 2.0
    while second <= until_s:
        store = at(world, second)
        store.accept(NODE, node_sample(world.at, T0 + from_s, takes_s))
        store.accept(BACKEND, refused(world.at))
        second += 2.0
    view: BackendView = world.snapshot().backends[0]
    return view


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world(Watch(nodes=(A,), backends=(V,)))


def test_a_server_whose_port_is_refused_loads_while_its_process_is_young(world: World) -> None:
    """The state is loading, with phase and time; no alert says that it is down."""
    view = start(world, 80)
    assert view.state is BackendState.LOADING
    assert view.state_rule == "vLLM refuses connections while it loads (process 10 on a)"
    assert view.loading is not None
    assert view.loading.words == "weights, phase 3 of 6, 1:20 so far"
    assert (view.loading.node, view.loading.pid) == ("a", 10)
    assert [alert.id for alert in world.snapshot().alerts] == []


def test_the_second_start_of_a_model_has_an_expected_duration(world: World) -> None:
    """Kept apart by machine and model; an event says how long it took, and the last time."""
    start(world, 204)
    at(world, 206).accept(BACKEND, page(world.at))
    finished = world.store.starts.take_finished()
    assert [(one.key, one.warm, round(one.total_s)) for one in finished] == [(("a", "vllm", "m"), False, 206)]
    assert sum(finished[0].phases.values()) == pytest.approx(206)
    assert world.snapshot().events[-1].message == "loaded in 3:26"
    assert world.store.starts.take_finished() == ()
    loading = start(world, 290, from_s=220).loading
    assert loading is not None
    assert loading.words == "weights, phase 3 of 6, 1:10 of ~3:26 last time"
    assert loading.left_s is not None


def test_a_learned_start_is_that_of_the_same_model_on_the_same_machine(world: World) -> None:
    """Another model's says nothing."""
    world.store.learn_starts((PastStart("a", "vllm", "other", 50.0), PastStart("a", "vllm", "m", 400.0)))
    loading = start(world, 20).loading
    assert loading is not None
    assert (loading.expected_s, loading.phase) == (400.0, "start")
    assert world.store.starts.wanted == {("a", "vllm", "m")}


def test_a_process_that_has_answered_before_does_not_load(world: World) -> None:
    """Its port is closed, but it is the same process: it hangs, or it ends."""
    at(world, 0).accept(NODE, node_sample(world.at, T0 - 500))
    at(world, 1).accept(BACKEND, page(world.at))
    at(world, 2).accept(BACKEND, refused(world.at))
    at(world, 3).accept(NODE, node_sample(world.at, T0 - 500))
    at(world, 4).accept(BACKEND, refused(world.at))
    assert world.snapshot().backends[0].state is BackendState.UNREACHABLE


def test_a_start_that_breaks_off_is_unreachable_again(world: World) -> None:
    """Its process has gone."""
    start(world, 50)
    at(world, 52).accept(NODE, NodeSample(world.at, workloads=Workloads((), 0, 0.0)))
    at(world, 53).accept(BACKEND, refused(world.at))
    view = world.snapshot().backends[0]
    assert (view.state, view.loading) == (BackendState.UNREACHABLE, None)


@pytest.mark.parametrize(
    ("server", "loads"),
    [
        ({"port": 8001}, False),
        ({"port": 8001, "container": "0123456789ab"}, True),
        ({"port": None}, False),
    ],
)
def test_a_server_with_another_port_is_another_server(world: World, server: Any, *, loads: bool) -> None:  # noqa: ANN401 - fields of a record
    """Unless it is in a container, whose port can be forwarded, and the only one."""
    at(world, 20).accept(NODE, node_sample(world.at, T0, **server))
    store = at(world, 21)
    store.accept(BACKEND, refused(world.at))
    store.accept(NODE, node_sample(world.at + 0.5, T0, **server))
    at(world, 22).accept(BACKEND, refused(world.at))
    assert (world.snapshot().backends[0].state is BackendState.LOADING) is loads
