"""What held a server back during a level, from the samples of its runs."""

from __future__ import annotations

import pytest

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.node import GpuReading, NodeSample
from sparktop.model.snapshot import LimitKind
from sparktop.sweep.generator.wire import WorkerTarget
from sparktop.sweep.plan.plan import SweepTarget, TargetKind
from sparktop.sweep.run.level import limit_side
from sparktop.sweep.run.preparation import PreparedTarget
from sparktop.sweep.run.server_side import LimitLog, Part, level_limit


def logged(*servers: tuple[str, float, float]) -> LimitLog:
    """Return a log of two runs of 15 s with a pause of 20 s, for servers with (running, waiting) requests."""
    log = LimitLog()
    for second in range(60):
        for name, running, waiting in servers:
            busy = second < 15 or 35 <= second < 50
            lane = LaneSample(
                "0",
                running=running if busy else 0.0,
                waiting=waiting if busy else 0.0,
                kv_cache_percent=40.0,
                generation_tokens=100.0 * second,
                prompt_tokens=20.0 * second,
            )
            log.accept_server(name, EngineSample(float(second), "vllm", (lane,)))
    return log


RUNS = [(0.0, 14.5), (35.0, 49.5)]


def test_a_level_with_full_slots_names_them() -> None:
    """Both runs count, and the pause between them does not."""
    log = logged(("a", 16.0, 9.0))
    log.accept_machine("spark-1", NodeSample(5.0, gpus=(GpuReading(0, sm_clock_mhz=2400),)))
    found = log.judge([Part("a", ("spark-1",), slots=16)], RUNS, None)
    assert found["a"].kind is LimitKind.SLOTS
    assert found["a"].words == "16 of 16 run, 9 wait; KV cache 40 %; room for about 22 more of this length"


def test_a_router_that_leaves_one_server_idle_speaks_for_the_level() -> None:
    """The loaded server and the idle one agree; the level names the one with the larger batch."""
    parts = [Part("a", slots=16), Part("b", slots=16)]
    found = logged(("a", 16.0, 9.0), ("b", 1.0, 0.0)).judge(parts, RUNS, "proxy")
    chosen = level_limit(found, {"a": 16.0, "b": 1.0})
    assert chosen is not None
    assert (chosen[0], chosen[1].kind) == ("a", LimitKind.ROUTER)


@pytest.mark.parametrize(
    ("at_once", "reason"),
    [
        (1, "one request at a time cannot keep 2 servers busy"),
        (2, "no request in the last 49 s"),
    ],
)
def test_fewer_requests_than_servers_are_no_fault_of_the_router(at_once: int, reason: str) -> None:
    """At c = 1 one of two servers is always idle: the load is the limit, and no router is suspected."""
    target = SweepTarget("proxy", "http://proxy", TargetKind.ROUTER)
    prepared = PreparedTarget(target, WorkerTarget("http://proxy"), backends=("a", "b"))
    found = limit_side(prepared, logged(("a", 0.0, 0.0), ("b", 0.0, 0.0)), RUNS, {}, at_once)
    assert found is not None
    assert found.reason == reason
    assert found.kind == ("client" if at_once == 1 else "client or router")
