"""What a simulated GB10 would tell of itself under a given load: a pure function of time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sparktop.model.node import (
    CACHE_PART,
    CMA_FREE_PART,
    CMA_PART,
    FREE_PART,
    GPU_PART,
    OTHER_PART,
    PROGRAMS_PART,
    CoreGroup,
    CpuReading,
    GpuProcess,
    GpuReading,
    MemoryPart,
    MemoryReading,
    NetworkReading,
    NodeIdentity,
    NodeSample,
    PowerRail,
    ProcessReading,
    ProcessTable,
    SensorReading,
)

IDENTITY = NodeIdentity(
    "Ubuntu 24.04 · kernel 6.11",
    "580.95",
    "NVIDIA DGX Spark",
    maker="NVIDIA",
    cpu="10 x Cortex-X925 + 10 x Cortex-A725",
)
"""What it is."""
_GIB, _MIB = 2**30, 2**20
_TOTAL_BYTES = int(121.6 * _GIB)
_CORES = 20
_BIG, _LITTLE = tuple(range(5, 10)) + tuple(range(15, 20)), tuple(range(5)) + tuple(range(10, 15))
"""Numbers of the cores of each design."""
_BUSY_CORES = {5: 1.0, 6: 0.8, 7: 0.35, 1: 0.2}
"""Cores that feed the GPU, and how busy the full load keeps each."""
_HOT_C = 78.0
"""From here on the simulated firmware slows the clock a little."""
_LIMIT_C = 94
_LINK_BITS_PER_S, _BUS_BITS_PER_S = 200e9, 126e9
"""A QSFP port, and PCIe Gen5 x4 with its encoding: 4 x 32 GT/s x 128/130."""
_PAIR_BYTES_PER_S = 2.4e9
"""What a full load of tensor parallelism over two machines moves over one port."""
_SLOW_MHZ, _SLOW_W = 712, 16.4
"""Clock and power of a machine whose USB-PD negotiation failed."""
_TABLE_EVERY_S = 5.0
_ENGINE_PID, _DISPLAY_PID = 4242, 1811


@dataclass(frozen=True, slots=True)
class Machine:
    """What is special about one simulated machine."""

    rank: int | None = None
    """Its tensor-parallel rank in an engine that spans machines; None: it serves alone."""
    slow_clock: bool = False
    """Whether its power supply pins the clock."""
    leak_bytes_per_s: float = 0.0
    """How fast a program beside the engine takes memory."""

    @property
    def engine(self) -> str:
        """The name of the engine's process on its GPU."""
        return "VLLM::EngineCore" if self.rank is None else f"VLLM::Worker_TP{self.rank}"


ALONE = Machine()


def node_sample(at: float, load: float, machine: Machine = ALONE) -> NodeSample:
    """Give one look at the machine at virtual second `at`; `load` is the share of busy slots, 0 to 1."""
    # The machine warms up slowly: the temperature follows the load's slow part only.
    wave = math.sin(at / 7)
    gpu = _gpu(load, wave, machine)
    cpu = _cpu(at, load)
    return NodeSample(
        at=at,
        cpu=cpu,
        memory=_memory(at, load, machine),
        gpus=(gpu,),
        network=_network(load, wave, machine),
        sensors=_sensors(gpu.temperature_c or 0.0, load),
        cost_ms=1.4,
        rails=_rails(at, gpu.power_w or 0.0, cpu.percent or 0.0),
        processes=_processes(at, load, machine),
    )


def _gpu(load: float, wave: float, machine: Machine) -> GpuReading:
    temperature_c = round(44 + 36 * load + 2 * wave * load)
    slowed = temperature_c >= _HOT_C
    gpu = GpuReading(
        index=0,
        name="NVIDIA GB10",
        utilization_percent=round(96 * load),
        temperature_c=temperature_c,
        limit_margin_c=_LIMIT_C - temperature_c,
        power_w=round(4 + 66 * load + 1.5 * wave if load else 11.0, 1),
        sm_clock_mhz=round(2405 - (90 if slowed else 0) + 15 * wave) if load else 208,
        sm_clock_max_mhz=3003,
        throttle_reasons=("software thermal",) if slowed else (),
        throttled_percent={
            "software power cap": 0.0,
            "software thermal": round(18 + 6 * wave, 1) if slowed else 0.0,
            "hardware thermal": 0.0,
            "hardware power brake": 0.0,
        },
        processes=(
            GpuProcess(_ENGINE_PID, machine.engine, 83 * _GIB, "compute"),
            GpuProcess(_DISPLAY_PID, "Xorg", 43 * _MIB, "graphics"),
        ),
    )
    if not machine.slow_clock or not load:
        return gpu
    cool_c = round(46 + 5 * load)
    return replace(
        gpu,
        utilization_percent=round(90 + 8 * load),
        temperature_c=cool_c,
        limit_margin_c=_LIMIT_C - cool_c,
        power_w=round(_SLOW_W + 0.4 * wave, 1),
        sm_clock_mhz=round(_SLOW_MHZ + 4 * wave),
        throttle_reasons=(),  # nothing tells of this state: that is what makes it one
        throttled_percent=dict.fromkeys(gpu.throttled_percent, 0.0),
    )


def _cpu(at: float, load: float) -> CpuReading:
    cores = tuple(
        min(100.0, 3 + 2 * math.sin(at / 3 + core) + 6 * load + 62 * load * _BUSY_CORES.get(core, 0.0))
        for core in range(_CORES)
    )

    def group(name: str, members: tuple[int, ...], max_mhz: int) -> CoreGroup:
        return CoreGroup(name, members, sum(cores[core] for core in members) / len(members), max_mhz)

    groups = (group("Cortex-X925", _BIG, 3900), group("Cortex-A725", _LITTLE, 2808))
    return CpuReading(sum(cores) / len(cores), cores, len(cores), 0.4 + 2.2 * load, groups)


def _memory(at: float, load: float, machine: Machine) -> MemoryReading:
    leaked = min(12 * _GIB, round(machine.leak_bytes_per_s * at))
    cache = 9 * _GIB + round(0.4 * _GIB * math.sin(at / 40))
    available = round((27 - 1.5 * load) * _GIB) - leaked
    cma_free, cma, other = 2 * _GIB, 256 * _MIB, 3 * _GIB
    gpu = 83 * _GIB + 43 * _MIB
    free = available - cache - cma_free
    programs = _TOTAL_BYTES - gpu - cache - cma - other - cma_free - free
    sizes: Mapping[str, int] = {
        GPU_PART: gpu,
        PROGRAMS_PART: programs,
        CACHE_PART: cache,
        CMA_PART: cma,
        OTHER_PART: other,
        CMA_FREE_PART: cma_free,
        FREE_PART: free,
    }
    return MemoryReading(
        unified=True,
        total_bytes=_TOTAL_BYTES,
        used_bytes=_TOTAL_BYTES - available,
        available_bytes=available,
        page_cache_bytes=cache,
        cma_free_bytes=cma_free,
        headroom_bytes=available - cma_free,
        gpu_processes_bytes=gpu,
        unattributed_bytes=other,
        swap_total_bytes=16 * _GIB,
        swap_used_bytes=round(0.4 * _GIB),
        swap_in_bytes_per_s=0.0,
        swap_out_bytes_per_s=0.0,
        pressure_full_avg10=0.0,
        parts=tuple(MemoryPart(name, size) for name, size in sizes.items()),
        overlap_bytes=0,
    )


def _network(load: float, wave: float, machine: Machine) -> tuple[NetworkReading, ...]:
    """Give the interfaces; two ports carry an engine that spans machines, past their interfaces."""

    def link(name: str, rx: float, tx: float, gbit: float, *, up: bool = True) -> NetworkReading:
        return NetworkReading(
            name,
            "ethernet",
            up,
            rx if up else None,
            tx if up else None,
            gbit * 1e9 if up else None,
            0.0,
            rx_packets_per_s=rx / 900 if up else None,
            tx_packets_per_s=tx / 900 if up else None,
        )

    def port(name: str, netdev: str, share: float, *, up: bool = True) -> NetworkReading:
        spans = machine.rank is not None
        full = _PAIR_BYTES_PER_S if spans else 1.9e6
        rx, tx = (0.9 + 0.1 * wave) * full * load * share, 0.9 * full * load * share
        return NetworkReading(
            name,
            "rdma",
            up,
            rx if up else None,
            tx if up else None,
            _LINK_BITS_PER_S if up else None,
            0.0,
            bus_bits_per_s=_BUS_BITS_PER_S,
            rx_packets_per_s=rx / 4096 if up else None,
            tx_packets_per_s=tx / 4096 if up else None,
            netdev=netdev,
        )

    return (
        link("enP7s7", 21e3 + 9e3 * load, 48e3 + 160e3 * load, 10),
        link("enp1s0f0np0", 0.0, 0.0, 200),
        link("enp1s0f1np1", 0.0, 0.0, 200, up=False),
        port("rocep1s0f0", "enp1s0f0np0", 1.0),
        port("rocep1s0f1", "enp1s0f1np1", 0.0, up=False),
    )


def _sensors(gpu_c: float, load: float) -> tuple[SensorReading, ...]:
    return (
        SensorReading("acpitz 1", gpu_c + 6.0, 105.0),
        SensorReading("acpitz 2", gpu_c + 3.5, 105.0),
        SensorReading("nvme Composite", 41.9 + 4 * load, 84.8),
        SensorReading("rocep1s0f0", 52.0 + 3 * load, 105.0),
        SensorReading("mt7925_phy0", 47.0),
    )


def _rails(at: float, gpu_w: float, cpu_percent: float) -> tuple[PowerRail, ...]:
    """Give the rails of the third-party driver; what the rest of the machine takes is about 17 W."""
    big, little = 1.2 + 0.35 * cpu_percent, 0.6 + 0.08 * cpu_percent
    package = gpu_w + big + little + 3.5
    watts = {
        "sys_total": package + 17.0,
        "soc_pkg": package,
        "gpu": gpu_w,
        "cpu_p": big,
        "cpu_e": little,
        "dc_input": (package + 17.0) / 0.94,
    }
    return tuple(PowerRail(name, round(power, 1), round(power * at, 0)) for name, power in watts.items())


def _processes(at: float, load: float, machine: Machine) -> ProcessTable:
    """Give the table of the last whole 5 seconds, the largest first."""
    age_s = at % _TABLE_EVERY_S
    wave = 1 + 0.1 * math.sin((at - age_s) / 9)

    def one(pid: int, name: str, mib: float, percent: float) -> ProcessReading:
        return ProcessReading(pid, name, round(mib * _MIB), round(percent * wave, 1))

    front = 4001 if machine.rank in {None, 0} else None
    rows = (
        one(_ENGINE_PID, machine.engine, 5310, 12 + 88 * load),
        *((one(front, "vllm", 1480, 2 + 41 * load),) if front is not None else ()),
        one(3120, "gnome-shell", 412, 1.5),
        one(2277, "dockerd", 188, 0.4),
        one(_DISPLAY_PID, "Xorg", 131, 0.9),
        one(2291, "containerd", 97, 0.3),
        one(6120, "sparktop", 74, 1.3),
        one(1402, "earlyoom", 6, 0.1),
        one(911, "systemd-journald", 61, 0.1),
        one(1530, "NetworkManager", 23, 0.0),
        one(1533, "wpa_supplicant", 12, 0.0),
        one(1, "systemd", 15, 0.0),
        one(1611, "sshd", 9, 0.0),
        one(1399, "nvidia-persistenced", 3, 0.0),
    )
    largest = sorted(rows, key=lambda row: -(row.memory_bytes or 0))
    return ProcessTable(tuple(largest), 231, round(age_s, 1))
