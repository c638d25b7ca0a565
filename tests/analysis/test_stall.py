"""For how long an engine has made no progress, and whether it is stuck."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.analysis.stall import (
    LONGEST_STEP_S,
    WAITING_HELD_S,
    GpuWork,
    Standstill,
    StandstillClock,
    excuse_of,
    judge_standstill,
    power_limits,
    rdma_mb_per_s,
    reason_of_standstill,
)
from sparktop.model.engine import EngineSample, Histogram, LaneSample
from sparktop.model.event import Progress
from sparktop.model.node import MemoryReading, NetworkReading, NodeSample

MOVING = LaneSample("0", running=3.0, waiting=1.0, kv_cache_percent=12.5, generation_tokens=900.0)


def clock_of(
    *lanes: LaneSample | tuple[LaneSample, ...], step_s: float = 1.0, engine: str = "vllm"
) -> tuple[StandstillClock, list[float]]:
    """Feed a clock with samples of these lanes; return it and its seconds after each sample."""
    clock = StandstillClock()
    seconds: list[float] = []
    for index, lane in enumerate(lanes):
        several = lane if isinstance(lane, tuple) else (lane,)
        clock.note(EngineSample(at=index * step_s, engine=engine, lanes=several), 2.5 * step_s)
        seconds.append(clock.seconds)
    return clock, seconds


def test_any_counter_is_progress() -> None:
    """Tokens, finished requests, KV blocks of a chunk or a histogram: any increase restarts the time."""
    chunk = replace(MOVING, kv_cache_percent=12.5000001)
    ended = replace(chunk, finished={"stop": 1.0})
    stepped = replace(ended, step_tokens=Histogram((float("inf"),), (1.0,), 4.0))
    _, seconds = clock_of(MOVING, MOVING, chunk, ended, ended, stepped)
    assert seconds == [0.0, 1.0, 0.0, 0.0, 1.0, 0.0]


def test_an_idle_engine_never_stands_still() -> None:
    """Without requests the time stays 0, and it begins at 0 with the first request."""
    idle = replace(MOVING, running=0.0, waiting=0.0)
    _, seconds = clock_of(*[idle] * 50, *[MOVING] * 5)
    assert seconds == [0.0] * 51 + [1.0, 2.0, 3.0, 4.0]


def test_waiting_requests_alone_are_held_after_a_minute() -> None:
    """Waiting requests alone count after a minute, so that a short queue does not."""
    queue = replace(MOVING, running=0.0, waiting=4.0)
    _, seconds = clock_of(*[queue] * 12, step_s=10.0)
    begun = int(WAITING_HELD_S / 10.0)
    assert seconds == [0.0] * (begun + 1) + [10.0 * index for index in range(1, 12 - begun)]


def test_one_of_several_ranks_may_hang() -> None:
    """Each rank is measured on its own: one may hang while the other progresses."""
    other = [replace(MOVING, lane="1", generation_tokens=float(index)) for index in range(40)]
    clock, seconds = clock_of(*[(MOVING, one) for one in other])
    assert seconds == [float(index) for index in range(40)]
    assert clock.lane is not None
    assert clock.lane.lane == "0"


def test_a_rank_of_sglang_at_rest_is_no_standstill() -> None:
    """Any rank of SGLang makes progress for all; a constant number of running requests may be outdated."""
    other = [replace(MOVING, lane="1", generation_tokens=float(index)) for index in range(40)]
    _, seconds = clock_of(*[(MOVING, one) for one in other], engine="sglang")
    assert set(seconds) == {0.0}
    rest = (replace(MOVING, waiting=0.0), replace(MOVING, lane="1", waiting=0.0))
    for lanes, samples, may_be_stale in ((rest, 200, True), (rest[:1], 20, True), (rest[:1], 50, False)):
        clock, _ = clock_of(*[lanes] * samples, engine="sglang")
        assert clock.may_be_stale is may_be_stale
    stale = Standstill(200.0, has_answered=True, gpus=(BLOCKED,), may_be_stale=True)
    assert judge_standstill(stale) is Progress.MOVING
    assert judge_standstill(replace(stale, gpus=(SPINNING,))) is Progress.STUCK


def test_swap_is_an_excuse_and_traffic_is_that_of_links_that_are_up() -> None:
    """From 4.1 MB/s on; the traffic of a machine that reports none is unknown, and so is that of all."""
    for bytes_per_s, excuse in ((4e6, None), (5e6, "its machine swaps 5 MB/s in")):
        memory = MemoryReading(swap_in_bytes_per_s=bytes_per_s)
        assert excuse_of(MOVING, [NodeSample(0.0, memory=memory)]) == excuse
    up, down = (
        NetworkReading(name, "rdma", up=is_up, rx_bytes_per_s=1e6, tx_bytes_per_s=2e6)
        for name, is_up in (("a", True), ("b", False))
    )
    linked = NodeSample(0.0, network=(up, down))
    assert rdma_mb_per_s([linked]) == 3.0
    assert rdma_mb_per_s([linked, NodeSample(0.0)]) is None


def test_what_the_http_side_counts_is_no_progress() -> None:
    """Aborts, errors, refusals, looked-up images, times of aborted requests, numbers of requests are none."""
    ended = Histogram((float("inf"),), (9.0,), 80.0)
    hung = replace(MOVING, finished={"stop": 5.0, "abort": 0.0}, e2e=ended)
    noise = [
        replace(
            hung,
            running=float(3 - index % 2),
            waiting=float(index % 3),
            finished={"stop": 5.0, "abort": float(index), "error": float(index), "failure": float(index)},
            media_cache_queries=float(index),
            counts={"refused": float(index), "http_5xx": float(index)},
            e2e=Histogram((float("inf"),), (9.0 + index,), 80.0 + index),
        )
        for index in range(40)
    ]
    _, seconds = clock_of(*noise)
    assert seconds == [float(index) for index in range(40)]


# Progress of an engine with requests: what is a long step, and what is stuck.

SPINNING = GpuWork(19.0, 96.0, 2400.0, 30.0, 35.0)
BLOCKED = GpuWork(13.0, 0.0, 208.0, 30.0, 35.0)


def test_gpus_at_rest_are_evidence_only_if_the_processes_are_known() -> None:
    """A GPU at rest counts only if processes are known, because it may wait for a compiler or a core."""
    resting = Standstill(130.0, has_answered=True, gpus=(BLOCKED,), processes_known=False)
    assert judge_standstill(resting) is Progress.STILL
    assert judge_standstill(replace(resting, processes_known=True)) is Progress.STUCK
    assert judge_standstill(replace(resting, gpus=(SPINNING, BLOCKED))) is Progress.STUCK
    busy = replace(resting, processes_known=True, core_busy=True)
    assert judge_standstill(busy) is Progress.LONG_STEP
    assert judge_standstill(replace(busy, seconds=LONGEST_STEP_S)) is Progress.SUSPECT


def test_bursts_of_work_stay_one_word() -> None:
    """Once work was seen in a standstill, samples between bursts do not change the word or the reason."""
    part = replace(SPINNING, utilization_percent=37.0)
    between = Standstill(100.0, has_answered=True, gpus=(part,) * 3, unexplained_s=50.0)
    assert judge_standstill(between) is Progress.LONG_STEP
    assert judge_standstill(replace(between, unexplained_s=None)) is Progress.STILL
    assert judge_standstill(replace(between, gpus=(SPINNING,) * 3)) is Progress.STILL
    words = "its GPU works in bursts, as while CUDA graphs are captured"
    assert reason_of_standstill(between, (part,), None) == words
    assert reason_of_standstill(between, (replace(part, power_w=38.0),), None) == words
    two = replace(between, gpus=(SPINNING, BLOCKED) * 3)
    assert "bursts" not in reason_of_standstill(two, (SPINNING, BLOCKED), None), "two machines that differ"


def test_limits_of_power_are_learned() -> None:
    """Limits of power need 60 values of each kind; usual values of a GB10 give its known limits."""
    assert power_limits([60.0] * 59, [10.0] * 100) == (None, None)
    assert power_limits([60.0] * 60, [10.0] * 59) == (60.0, None)
    quiet, busy = power_limits([45.0 + index % 40 for index in range(400)], [12.0] * 400)
    assert quiet == pytest.approx(49.0, abs=1)
    assert busy == pytest.approx(38.0, abs=1)
