"""What a simulated GB10 would tell of itself under a given load: a pure function of time."""

from __future__ import annotations

import math

from sparktop.model.node import (
    CpuReading,
    GpuProcess,
    GpuReading,
    MemoryReading,
    NetworkReading,
    NodeIdentity,
    NodeSample,
    SensorReading,
)

IDENTITY = NodeIdentity("Ubuntu 24.04 · kernel 6.11", "580.95", "NVIDIA DGX Spark")
"""What it is."""
_GIB = 2**30
_TOTAL_BYTES = int(121.6 * _GIB)
_CORES = 20
_BUSY_CORES = {0: 1.0, 5: 0.8, 6: 0.35, 11: 0.2}
"""Cores that feed the GPU, and how busy the full load keeps each."""
_HOT_C = 78.0
"""From here on the simulated firmware slows the clock a little."""


def node_sample(at: float, load: float) -> NodeSample:
    """Give one look at the machine at virtual second `at`; `load` is the share of busy slots, 0 to 1."""
    # The machine warms up slowly: the temperature follows the load's slow part only.
    wave = math.sin(at / 7)
    temperature_c = round(44 + 36 * load + 2 * wave * load)
    slowed = temperature_c >= _HOT_C
    sm_clock_mhz = round(2405 - (90 if slowed else 0) + 15 * wave) if load else 208
    gpu = GpuReading(
        index=0,
        name="NVIDIA GB10",
        utilization_percent=round(96 * load),
        temperature_c=temperature_c,
        limit_margin_c=94 - temperature_c,
        power_w=round(4 + 66 * load + 1.5 * wave if load else 11.0, 1),
        sm_clock_mhz=sm_clock_mhz,
        sm_clock_max_mhz=3003,
        throttle_reasons=("software thermal",) if slowed else (),
        throttled_percent={
            "software power cap": 0.0,
            "software thermal": round(18 + 6 * wave, 1) if slowed else 0.0,
            "hardware thermal": 0.0,
            "hardware power brake": 0.0,
        },
        processes=(
            GpuProcess(4242, "VLLM::EngineCore", 83 * _GIB),
            GpuProcess(1811, "Xorg", 43 * 2**20),
        ),
    )
    return NodeSample(
        at=at,
        cpu=_cpu(at, load),
        memory=_memory(at, load),
        gpus=(gpu,),
        network=_network(load, wave),
        sensors=_sensors(temperature_c, load),
        cost_ms=1.4,
    )


def _cpu(at: float, load: float) -> CpuReading:
    cores = tuple(
        min(100.0, 3 + 2 * math.sin(at / 3 + core) + 6 * load + 62 * load * _BUSY_CORES.get(core, 0.0))
        for core in range(_CORES)
    )
    return CpuReading(sum(cores) / len(cores), cores, len(cores), 0.4 + 2.2 * load)


def _memory(at: float, load: float) -> MemoryReading:
    cache = 9 * _GIB + round(0.4 * _GIB * math.sin(at / 40))
    available = round((27 - 1.5 * load) * _GIB)
    used = _TOTAL_BYTES - available
    processes = 83 * _GIB + 43 * 2**20
    return MemoryReading(
        unified=True,
        total_bytes=_TOTAL_BYTES,
        used_bytes=used,
        available_bytes=available,
        page_cache_bytes=cache,
        cma_free_bytes=2 * _GIB,
        headroom_bytes=available - 2 * _GIB,
        gpu_processes_bytes=processes,
        unattributed_bytes=3 * _GIB,
        swap_total_bytes=16 * _GIB,
        swap_used_bytes=round(0.4 * _GIB),
        swap_in_bytes_per_s=0.0,
        swap_out_bytes_per_s=0.0,
        pressure_full_avg10=0.0,
    )


def _network(load: float, wave: float) -> tuple[NetworkReading, ...]:
    def link(name: str, kind: str, rx: float, tx: float, gbit: float, *, up: bool = True) -> NetworkReading:
        return NetworkReading(name, kind, up, rx, tx, gbit * 1e9, 0.0)

    return (
        link("enP7s7", "ethernet", 21e3 + 9e3 * load, 48e3 + 160e3 * load, 10),
        link("enp1s0f0np0", "ethernet", 0.0, 0.0, 200),
        link("enp1s0f1np1", "ethernet", 0.0, 0.0, 200, up=False),
        link("rocep1s0f0", "rdma", (0.9 + 0.1 * wave) * 1.9e6 * load, 1.7e6 * load, 200),
    )


def _sensors(gpu_c: float, load: float) -> tuple[SensorReading, ...]:
    return (
        SensorReading("acpitz 1", gpu_c + 6.0, 105.0),
        SensorReading("acpitz 2", gpu_c + 3.5, 105.0),
        SensorReading("nvme Composite", 41.9 + 4 * load, 84.8),
        SensorReading("rocep1s0f0", 52.0 + 3 * load, 105.0),
        SensorReading("mt7925_phy0", 47.0),
    )
