"""Backends and nodes together: where backends run, how long steps take, how servers start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.demo.machine import progress_of_start
from sparktop.model.engine import EngineSample, Histogram, LaneSample
from sparktop.model.event import Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import (
    GpuProcess,
    GpuReading,
    MemoryAsk,
    MemoryReading,
    NodeSample,
    Workload,
    Workloads,
)
from sparktop.model.snapshot import BackendState, BackendView
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.store import SourceKey, Store
from tests.known import known
from tests.store.conftest import World

A = NodeTarget("a", "agent", "http://192.168.1.11:9750")
B = NodeTarget("b", "agent", "http://192.168.1.12:9750")
V = BackendTarget("v", "http://192.168.1.11:8000")
PINNED: dict[str, Any] = {"sm_clock_mhz": 611, "power_w": 16.0}


def gb10(at: float, **told: Any) -> NodeSample:  # noqa: ANN401 - fields
    """Return a sample of a busy GB10 with a healthy clock, and other fields as told."""
    busy = {"utilization_percent": 95.0, "sm_clock_mhz": 2405, "power_w": 40.0}
    return NodeSample(at, gpus=(GpuReading(0, "NVIDIA GB10", **busy | told),))


def page(at: float, steps: float, tokens: float, *running: float) -> EngineSample:
    """Return a page with a lane for each number of running requests."""
    histogram = Histogram((float("inf"),), (steps / len(running),), tokens / len(running))
    lanes = tuple(
        LaneSample(str(index), running=one, kv_cache_percent=40.0, step_tokens=histogram)
        for index, one in enumerate(running)
    )
    return EngineSample(at, "vllm", lanes, start_time=1.0)


def serve(
    world: World, step_ms: float, seconds: Iterable[float], running: float = 8.0, *, state: dict[str, float]
) -> BackendView:
    """Feed a page each second of a backend that makes steps of equal length; return its view."""
    for at in seconds:
        state["steps"] = state.get("steps", 0.0) + 1000 / step_ms
        state["tokens"] = state.get("tokens", 0.0) + running * 1000 / step_ms
        world.feed(page(at, state["steps"], state["tokens"], running), name="v")
    return world.view("v")


def test_a_step_s_time_is_told_where_requests_ran_all_the_time() -> None:
    """A step takes 63 ms in both lanes together; before five seconds, or with an idle lane, it is unknown."""
    world, state = World(Watch(backends=(V,))), dict[str, float]()
    assert serve(world, 63.0, range(1000, 1005), state=state).step_ms is None
    view = serve(world, 63.0, range(1005, 1012), state=state)
    assert view.step_ms == pytest.approx(63)
    assert view.history.step_ms.last == pytest.approx(63)
    state.clear()
    two = World(Watch(backends=(V,)))
    for second in range(12):
        two.feed(page(1000 + second, 32.0 * second, 256.0 * second, 4.0, 4.0), name="v")
    assert two.view("v").step_ms == pytest.approx(2 * 1000 / 32)
    two.feed(page(1012, 32.0 * 12, 256.0 * 12, 8.0, 0.0), name="v")
    assert two.view("v").step_ms is None
    two.feed(page(1013, 32.0 * 13, 256.0 * 13, 4.0, 4.0), name="v")
    assert two.view("v").step_ms is None


def worlds_with_slow_steps(watch: Watch) -> World:
    """Return a world whose backend made steps of 63 ms for a minute, then of 94 ms for a minute."""
    world, state = World(watch), dict[str, float]()
    serve(world, 63.0, range(1000, 1060), state=state)
    serve(world, 94.0, range(1060, 1120), state=state)
    return world


def test_slow_steps_at_a_healthy_clock_raise_an_alert() -> None:
    """94 instead of 63 ms for the same batch: word, figures, cause and fix; healthy steps end it."""
    world = worlds_with_slow_steps(Watch(nodes=(A,), backends=(V,)))
    speed = world.see(gb10(1120), "a").speed
    assert speed.word == "slow steps"
    assert speed.reason.startswith("v: 94 ms a step at 8 running, 63 ms before; 2405 MHz at 95 % load")
    (alert,) = world.snapshot().alerts
    assert alert.id == "node:a:slow-steps"
    assert "hidden state" in alert.message
    assert "→ restart the machine" in alert.message
    idle = world.see(gb10(1121, utilization_percent=0.0, sm_clock_mhz=208), "a")
    assert idle.speed.word == "idle"
    assert [one.id for one in world.snapshot().alerts] == ["node:a:slow-steps"]
    steps = 60e3 / 63 + 60e3 / 94
    serve(world, 63.0, range(1122, 1140), state={"steps": steps, "tokens": 8 * steps})
    assert world.see(gb10(1140), "a").speed.word == "normal"
    assert world.snapshot().alerts == ()


def test_slow_steps_are_not_told_where_something_else_explains_them() -> None:
    """A slow clock on any of its nodes, or a second backend on the GPU, explains slow steps."""
    world = worlds_with_slow_steps(Watch(nodes=(A,), backends=(V,)))
    for at in range(1110, 1122, 2):
        world.see(gb10(at, **PINNED), "a")
    assert world.node("a").speed.word == "slow clock"
    two = Watch(nodes=(A, B), backends=(BackendTarget("v", V.url, nodes=("a", "b")),))
    world = worlds_with_slow_steps(two)
    for at in range(1110, 1122, 2):
        world.see(gb10(at, **PINNED), "b")
    assert world.see(gb10(1122), "a").speed.word == "normal"
    for at in range(1122, 1140, 2):
        world.see(gb10(at), "b")
    assert world.see(gb10(1140), "a").speed.word == "slow steps"
    beside = BackendTarget("w", "http://192.168.1.11:8001")
    world = worlds_with_slow_steps(Watch(nodes=(A,), backends=(V, beside)))
    assert world.see(gb10(1120), "a").speed.word == "normal"


# Servers that load: from the processes on their nodes, also while their ports are closed.

NODE, BACKEND = SourceKey.node("a"), SourceKey.backend("v")
T0 = 1000.0


def node_sample(at: float, started_at: float) -> NodeSample:
    """Return a sample of a node whose server's process started at `started_at`."""
    engine_bytes, _, _ = progress_of_start(at - started_at, 200.0)
    processes = (
        Workload(10, "vllm", "server", None, "m", port=8000, server=10, age_s=at - started_at),
        Workload(11, "vllm", "engine core", None, "m", server=10, age_s=at - started_at),
    )
    gpu = GpuReading(0, processes=(GpuProcess(11, "VLLM::EngineCore", engine_bytes),))
    return NodeSample(at, gpus=(gpu,), workloads=Workloads(processes, 0, 0.0))


def at(world: World, second: float) -> Store:
    world.at = T0 + second
    return world.store


def refuse(world: World, second: float) -> None:
    refused = Failure(FailureKind.REFUSED, "nothing listens", T0 + second)
    at(world, second).accept(BACKEND, refused)


def load(world: World, second: float) -> None:
    """Feed the first page of a server that has loaded its model."""
    answers = EngineSample(T0 + second, "vllm", (LaneSample("0", running=0.0),), ("m",), 1.0)
    at(world, second).accept(BACKEND, answers)


def start(world: World, until_s: int, *, from_s: int = 0) -> BackendView:
    """Poll a server that starts at `from_s`, every 2 s until `until_s`."""
    for second in range(from_s + 2, until_s + 1, 2):
        at(world, second).accept(NODE, node_sample(world.at, T0 + from_s))
        refuse(world, second)
    return world.view("v")


@pytest.fixture
def world() -> World:
    return World(Watch(nodes=(A,), backends=(V,)))


def test_a_server_whose_port_is_refused_loads_while_its_process_is_young(world: World) -> None:
    """The state is loading, with phase and time; no alert says that it is down."""
    view = start(world, 80)
    assert view.state is BackendState.LOADING
    assert view.state_rule == "connections are refused while it loads (process 10 on a)"
    loading = known(view.loading)
    assert loading.words == "weights, phase 3 of 6, 1:20 since its start"
    assert (loading.node, loading.pid) == ("a", 10)
    assert [alert.id for alert in world.snapshot().alerts] == []


def test_the_second_start_of_a_model_has_an_expected_duration(world: World) -> None:
    """Kept apart by machine and model; an event says how long it took, and the last time."""
    start(world, 204)
    load(world, 206)
    finished = world.store.starts.take_finished()
    assert [(one.key, one.warm, round(one.total_s)) for one in finished] == [(("a", "vllm", "m"), False, 206)]
    assert sum(finished[0].phases.values()) == pytest.approx(206)
    assert world.snapshot().events[-1].message == "loaded in 3:26"
    assert world.store.starts.take_finished() == ()
    loading = known(start(world, 290, from_s=220).loading)
    assert loading.words == "weights, phase 3 of 6, 1:10 of ~3:26 last time"
    assert loading.left_s is not None


def test_a_process_that_has_answered_before_does_not_load(world: World) -> None:
    """Its port is closed, but it is the same process: it hangs, or it ends."""
    at(world, 0).accept(NODE, node_sample(world.at, T0 - 500))
    load(world, 1)
    refuse(world, 2)
    at(world, 3).accept(NODE, node_sample(world.at, T0 - 500))
    refuse(world, 4)
    assert world.view("v").state is BackendState.UNREACHABLE


def test_a_start_that_breaks_off_is_unreachable_again(world: World) -> None:
    """Its process has gone."""
    start(world, 50)
    at(world, 52).accept(NODE, NodeSample(world.at, workloads=Workloads((), 0, 0.0)))
    refuse(world, 53)
    view = world.view("v")
    assert (view.state, view.loading) == (BackendState.UNREACHABLE, None)


# What a start takes of memory, and whether a sleeping engine can take it back.


GIB = 1 << 30
ASKS = MemoryAsk(0.5)


def spark(at_s: float, servers: dict[int, int], headroom: int) -> NodeSample:
    """Return a sample of a GB10 with servers: GiB of GPU memory by process ID of the server."""
    processes = tuple(
        one
        for pid in servers
        for one in (
            Workload(pid, "vllm", "server", None, f"m{pid}", 8000 + pid, pid, age_s=at_s - T0, asks=ASKS),
            Workload(pid + 1, "vllm", "engine core", None, f"m{pid}", None, pid, age_s=at_s - T0),
        )
    )
    held = tuple(GpuProcess(pid + 1, "VLLM::EngineCore", gib * GIB) for pid, gib in servers.items())
    memory = MemoryReading(
        unified=True, total_bytes=122 * GIB, headroom_bytes=headroom * GIB, page_cache_bytes=GIB
    )
    gpu = GpuReading(0, "NVIDIA GB10", processes=held)
    return NodeSample(at_s, memory=memory, gpus=(gpu,), workloads=Workloads(processes, 0, 0.0))


def test_a_start_leaves_what_it_took_of_memory(world: World) -> None:
    """What could be allocated at its lowest, GPU memory at its highest and at the end, what was asked for."""
    for second, gpu, headroom in ((0, 0, 100), (2, 1, 99), (6, 40, 55), (8, 44, 40), (10, 40, 52)):
        at(world, second).accept(NODE, spark(world.at, {0: gpu}, headroom))
        refuse(world, second + 1)
    load(world, 12)
    (done,) = world.store.starts.take_finished()
    assert (done.peak_bytes, done.gpu_peak_bytes, done.gpu_bytes) == (60 * GIB, 44 * GIB, 40 * GIB)
    assert done.asks == MemoryAsk(0.5)


def test_of_two_engines_on_a_machine_the_one_that_sleeps_is_judged() -> None:
    """By what its own processes held awake; the machine has the same finding, without an alert of its own."""
    other = replace(V, name="w", url="http://192.168.1.11:8010")
    world = World(Watch(nodes=(A,), backends=(replace(V, url="http://192.168.1.11:8000"), other)))
    keys = (SourceKey.backend("v"), SourceKey.backend("w"))

    def poll(second: float, sample: NodeSample, *, asleep: bool) -> None:
        store = at(world, second)
        store.accept(NODE, sample)
        for key, sleeps in zip(keys, (asleep, False), strict=True):
            lane = LaneSample("0", running=0.0, generation_tokens=second, asleep=sleeps)
            store.accept(key, EngineSample(world.at, "vllm", (lane,), ("m",)))
        store.judge()

    poll(10, spark(T0 + 10, {0: 50, 10: 30}, 20), asleep=False)
    assert [view.findings for view in world.snapshot().backends] == [(), ()]
    poll(12, spark(T0 + 12, {0: 2, 10: 45}, 30), asleep=True)
    first, second = world.snapshot().backends
    (found,) = first.findings
    assert found.line == "waking needs 48 GiB, can get 30 GiB: 18 GiB short"
    assert second.findings == ()
    (machine,) = world.snapshot().nodes
    assert [(one.line, one.severity) for one in machine.findings] == [(f"v: {found.line}", None)]
    assert [alert.id for alert in world.snapshot().alerts] == ["backend:v:start-short"]
    poll(14, spark(T0 + 14, {0: 2, 10: 10}, 65), asleep=True)
    assert [one.line for one in world.view("v").findings] == ["waking fits: needs 48 GiB, can get 65 GiB"]
    assert world.snapshot().alerts == ()


def capturing(at_s: float, gib: float, *, power: float, cpu: float) -> NodeSample:
    """Return a sample of a GB10 whose engine holds `gib` GiB and keeps its GPU at 96 %."""
    processes = (
        Workload(10, "vllm", "server", None, "m", 8000, 10, age_s=at_s - T0, cpu_percent=1.0),
        Workload(11, "vllm", "engine core", None, "m", None, 10, age_s=at_s - T0, cpu_percent=cpu),
    )
    held = (GpuProcess(11, "VLLM::EngineCore", round(gib * GIB)),)
    gpus = gb10(at_s, utilization_percent=96, power_w=power, processes=held).gpus
    memory = MemoryReading(unified=True, page_cache_bytes=9 * GIB)
    return NodeSample(at_s, memory=memory, gpus=gpus, workloads=Workloads(processes, 0, 0.0))


@pytest.mark.parametrize(("power", "found"), [(19.0, True), (41.0, False)])
def test_a_start_that_hangs_is_named_and_critical_in_time(world: World, power: float, *, found: bool) -> None:
    """A GPU that waits in a kernel for minutes hangs, one at work tries kernels; an answer ends it."""
    for second in range(5, 1200, 5):
        gib = min(57.0, max(0.0, second - 40)) + (26 if second > 160 else 0)
        at(world, second).accept(NODE, capturing(world.at, gib, power=power, cpu=101.0))
        refuse(world, second)
        world.store.judge()
        alerts = {one.id: one.severity for one in world.snapshot().alerts}
        stuck = alerts.get("backend:v:start-stuck")
        assert stuck is None or (found and second > 160 + 300)
    assert stuck is (Severity.CRITICAL if found else None)
    if found:
        lines = [one.line for one in world.view("v").findings if one.kind == "start-stuck"]
        assert lines == ["CUDA graphs: nothing moved for 17 min, GPU load 96 % at 19 W, CPU 101 %"]
    load(world, 1201)
    world.store.judge()
    assert [one for one in world.view("v").findings if one.kind == "start-stuck"] == []
