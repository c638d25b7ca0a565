"""Machines to draw that the rehearsal does not have: many GPUs, none, and one in trouble."""

from __future__ import annotations

from msgspec.structs import replace

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import (
    CpuReading,
    GpuProcess,
    GpuReading,
    MemoryReading,
    MigInstance,
    NodeIdentity,
    NodeSample,
)
from sparktop.model.snapshot import NodeHistory, NodeView, SpeedState
from sparktop.model.targets import NodeTarget, Watch
from sparktop.store import SourceKey, Store

GIB = 2**30
CAUSE = "USB-PD power delivery: the clock is pinned at 712 MHz"
FIX = "use the supplied 240 W adapter, unplug it from the mains for a minute, check the cable"
SLOW = SpeedState("slow clock", "712 of 3003 MHz at 97 % load and 16 W for 40 s", CAUSE, FIX)


def h100(index: int) -> GpuReading:
    """Return one of eight GPUs: the fourth is split, the last is slowed, the sixth reports little."""
    if index == 5:
        return GpuReading(index, "NVIDIA H100 80GB HBM3", memory_total_bytes=80 * GIB)
    split = index == 3
    return GpuReading(
        index,
        "NVIDIA H100 80GB HBM3",
        f"GPU-{index}",
        utilization_percent=None if split else 90.0 - 7 * index,
        temperature_c=60.0 + 3 * index,
        limit_margin_c=27.0 - 3 * index,
        power_w=650.0 - 20 * index,
        power_limit_w=700.0,
        sm_clock_mhz=1980 - 15 * index,
        sm_clock_max_mhz=1980,
        memory_total_bytes=80 * GIB,
        memory_used_bytes=(71 - index) * GIB,
        throttle_reasons=("hardware thermal",) if index == 7 else (),
        throttled_percent={"hardware thermal": 12.0 if index == 7 else 0.0},
        processes=(GpuProcess(9000 + index, f"VLLM::Worker_TP{index}", (70 - index) * GIB, "compute"),),
        energy_j=3.6e9 + index,
        mig=split,
        mig_instances=tuple(
            MigInstance(number, "3g.40gb", f"MIG-{number}", 40 * GIB, 9 * GIB) for number in range(2)
        )
        if split
        else (),
    )


def many_gpus() -> NodeView:
    """Return a server with eight GPUs with their own memory and 144 cores."""
    cores = tuple(float(index % 101) for index in range(144))
    gpus = tuple(h100(index) for index in range(8))
    view = shown("big", NodeSample(100.0, CpuReading(37.0, cores, 144, 53.0), gpus=gpus))
    throttled = {"software power cap": 0.0, "hardware thermal": 12.0}
    return replace(view, age_s=0.4, throttled_percent=throttled)


def shown(name: str, sample: NodeSample) -> NodeView:
    """Return the view that the store makes of one sample."""
    store = Store(Watch(nodes=(NodeTarget(name),)), clock=lambda: 100.4)
    store.accept(SourceKey.node(name), sample, 1.0)
    return store.snapshot().nodes[0]


def no_gpu() -> NodeView:
    """Return a small machine without a driver, network or swap."""
    memory = MemoryReading(total_bytes=8 * GIB, used_bytes=3 * GIB, swap_total_bytes=0)
    sample = NodeSample(100.0, CpuReading(4.0, (4.0, 4.0), 2, 0.1), memory, gpu_note="no NVIDIA driver here")
    return NodeView("head", "ssh", sample, NodeIdentity("Debian 12"), age_s=0.2)


def dead() -> NodeView:
    """Return a machine that was never reached."""
    words = "Host key verification failed: add the host to known_hosts by hand"
    return NodeView("gone", "ssh", failure=Failure(FailureKind.REFUSED, words, 90.0), history=NodeHistory())
