"""Snapshots to report: one of nothing, one with everything in it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from msgspec.structs import replace

from sparktop.demo.machine import IDENTITY, node_sample
from sparktop.model.event import Alert, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import MigInstance
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

GIB = 1 << 30
NOON = datetime(2026, 3, 4, 12, 0, 0, 123456, tzinfo=UTC)


def full_node() -> NodeView:
    """Return a machine of which everything is known, with a GPU that is split."""
    sample = node_sample(100.0, 1.0)
    gpu, port = sample.gpus[0], next(one for one in sample.network if one.kind == "rdma")
    gpu = replace(
        gpu,
        throttle_reasons=("power",),
        mig=True,
        mig_instances=(MigInstance(0, "1g.10gb", "MIG-0", GIB, GIB),),
    )
    return NodeView(
        "spark-a",
        "local",
        replace(sample, gpus=(gpu,), network=(replace(port, errors={"out_of_sequence": 2.5}),)),
        IDENTITY,
        age_s=0.5,
        speed=SpeedState("slow clock", "712 MHz at 97 % load", "USB-PD power delivery", "check the cable"),
        headroom=Headroom(-1e7, 120.0, 840.0, 8 * GIB),
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
