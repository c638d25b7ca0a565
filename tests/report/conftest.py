"""Snapshots to report: one of nothing, one with everything in it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from sparktop.model.event import Alert, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import (
    CoreGroup,
    CpuReading,
    GpuProcess,
    GpuReading,
    MemoryPart,
    MemoryReading,
    MigInstance,
    NetworkReading,
    NodeIdentity,
    NodeSample,
    PowerRail,
    ProcessReading,
    ProcessTable,
    SensorReading,
    Workload,
    Workloads,
)
from sparktop.model.router import SelfView, Sum, Totals
from sparktop.model.snapshot import (
    BackendState,
    BackendView,
    EngineProcess,
    Headroom,
    LaneView,
    Latency,
    NodeView,
    Quantile,
    Snapshot,
    SpeedState,
)

BOX = "5d1c0ffee5aa"
"""First digits of the ID of a container."""
NOON = datetime(2026, 3, 4, 12, 0, 0, 123456, tzinfo=UTC)


def full_gpu() -> GpuReading:
    gib = 1 << 30
    return GpuReading(
        index=0,
        name="NVIDIA GB10",
        uuid="GPU-1",
        utilization_percent=97.0,
        temperature_c=71.0,
        limit_margin_c=14.0,
        power_w=63.5,
        power_limit_w=140.0,
        sm_clock_mhz=2400,
        sm_clock_max_mhz=3003,
        memory_total_bytes=None,
        memory_used_bytes=None,
        throttle_reasons=("power",),
        throttled_percent={"power": 12.0, "thermal": None},
        processes=(GpuProcess(4242, "VLLM::EngineCore", 60 * gib, "compute"),),
        energy_j=3.6e6,
        slowdown_c=92.0,
        mig=True,
        mig_instances=(MigInstance(0, "1g.10gb", "MIG-0", 10 * gib, 3 * gib),),
    )


def full_node() -> NodeView:
    gib = 1 << 30
    sample = NodeSample(
        at=100.0,
        cpu=CpuReading(12.5, (10.0, 15.0), 20, 1.25, (CoreGroup("Cortex-X925", (0, 1), 12.5, 3900),)),
        memory=MemoryReading(
            unified=True,
            total_bytes=128 * gib,
            used_bytes=90 * gib,
            available_bytes=38 * gib,
            headroom_bytes=37 * gib,
            swap_in_bytes_per_s=1.5,
            parts=(MemoryPart("GPU processes", 60 * gib), MemoryPart("free", 68 * gib)),
            overlap_bytes=0,
        ),
        gpus=(full_gpu(),),
        network=(
            NetworkReading(
                "rocep1s0f0",
                "rdma",
                up=True,
                rx_bytes_per_s=1e9,
                bus_bits_per_s=1e11,
                errors={"out_of_sequence": 2.5},
                netdev="enp1s0f0np0",
            ),
        ),
        sensors=(SensorReading("nvme", 44.0, 84.0),),
        rails=(PowerRail("sys_total", 82.5, 990.0),),
        processes=ProcessTable((ProcessReading(4242, "VLLM::EngineCore", 5 * gib, 88.0, BOX),), 231, 1.5),
        workloads=Workloads(
            (Workload(4242, "vllm", "engine core", "DP0", "org/m", None, 4001, BOX),), 0, 1.0
        ),
    )
    identity = NodeIdentity(
        "Ubuntu 24.04", "580.95", "NVIDIA DGX Spark", "boot", maker="NVIDIA", cpu="10 x Cortex-X925"
    )
    return NodeView(
        "spark-a",
        "local",
        sample,
        identity,
        age_s=0.5,
        speed=SpeedState("slow clock", "712 MHz at 97 % load", "USB-PD power delivery", "check the cable"),
        headroom=Headroom(-1e7, 120.0, 840.0, 8 * gib),
        engine_processes=(EngineProcess(4242, "VLLM::EngineCore", "vllm", "vllm-a"),),
        throttled_percent={"software thermal": 18.0},
    )


def full_backend() -> BackendView:
    latency = Latency(
        0.0425,
        Quantile(0.01, below=True),
        Quantile(0.2),
        Quantile(0.25),
        Quantile(10.0, above=True),
        60.0,
        59.5,
    )
    return BackendView(
        name="vllm-a",
        url="http://127.0.0.1:8000",
        group="g",
        state=BackendState.KV_FULL,
        age_s=0.25,
        engine="vllm",
        version="0.32.0",
        model="openai/gpt-oss-120b",
        max_model_len=131072,
        nodes=("spark-a",),
        slots=256,
        lanes=(LaneView("0", 3.0, 1.0, 99.0), LaneView("1", 4.0, None, 98.5)),
        running=7.0,
        waiting=1.0,
        kv_cache_percent=98.75,
        kv_capacity_tokens=400000.0,
        prompt_tps=1234.5,
        generation_tps=250.25,
        generation_tps_1s=260.0,
        requests_per_s=1.5,
        preemptions_per_s=0.0,
        prefix_cache_hit_percent=40.0,
        spec_decode_accept_percent=61.5,
        estimated_read_gb_per_s=180.0,
        counter_figures={"external_cache_hit_percent": 12.5},
        ttft=latency,
        itl=latency,
        e2e=latency,
        queue=latency,
        prompt_tokens=1e6,
        generation_tokens=5e5,
        preemptions=2.0,
        finished={"stop": 90.0, "length": 10.0},
    )


def dead_backend() -> BackendView:
    """Return a view whose name and error hold characters that no terminal should receive."""
    return BackendView(
        name="b\x1b[31mad\u202e",
        url="http://127.0.0.1:8001",
        group="g",
        state=BackendState.UNREACHABLE,
        failure=Failure(FailureKind.REFUSED, "connection\x07 refused\nby [red]it[/red]", 90.0),
        failing_since=NOON,
        age_s=12.25,
    )


@pytest.fixture
def empty_snapshot() -> Snapshot:
    return Snapshot(taken_at=NOON, at=100.0, interval_s=1.0, node_interval_s=2.0)


@pytest.fixture
def full_snapshot() -> Snapshot:
    return Snapshot(
        taken_at=NOON.astimezone(timezone(timedelta(hours=2))),
        at=100.0,
        interval_s=1.0,
        node_interval_s=2.0,
        nodes=(full_node(), NodeView("spark-b", "agent")),
        backends=(full_backend(), dead_backend()),
        alerts=(Alert("down:b", Severity.CRITICAL, "b", "no answer", NOON),),
        totals=Totals(*(Sum(value, 1, 1) for value in (250.25, 1234.5, 7.0, 1.0))),
        self_cost=SelfView(0.5, 1 << 26, None, {"vllm-a": 1.25}),
        simulated=True,
    )
