"""Samples of a simulated GB10 machine, as a pure function of time and load."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from msgspec import Struct

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
from sparktop.model.workload import COMPILERS, Workload, Workloads
from sparktop.simulation.thermal import (
    AMBIENT_C,
    IDLE_CLOCK_MHZ,
    LOADED_W,
    PINNED_W,
    REFERENCE_CLOCK_MHZ,
    RISE_C_PER_W,
    SAG_FROM_C,
    SAG_PER_C,
    THROTTLED_PER_C,
)

SERVER_PID, ENGINE_PID = 4001, 4242
MODEL = "openai/gpt-oss-120b"
_AGE_S = 5400.0
_READ_EVERY_S = 10.0
_WORKLOADS_MIB = 2**20


def workloads_at(
    at: float, rank: int | None, cpu_percent: float, *, age_s: float | None = None, compilers: int = 0
) -> Workloads:
    """Return the processes of a vLLM server at the time `at` in seconds, as an agent reads them.

    `rank` is the machine's rank in an engine that spans several machines, None for an engine on this one
    alone; only rank 0 has the server itself. `age_s` is the age of the processes,
    `compilers` the number of compiler processes.
    """
    age_s = _AGE_S + at if age_s is None else age_s
    solo = "sparkrun_5d1c0ffee5aa_"
    box = ("5d1c0ffee5aa", solo + ("solo" if rank is None else "head" if not rank else "worker"))
    worker = Workload(
        ENGINE_PID,
        "vllm",
        "engine core" if rank is None else "worker",
        None if rank is None else f"TP{rank}",
        MODEL,
        None,
        SERVER_PID if not rank else None,
        *box,
        age_s=age_s,
        memory_bytes=5310 * _WORKLOADS_MIB,
        cpu_percent=cpu_percent,
        oom_kills=0,
    )
    server = Workload(
        SERVER_PID,
        "vllm",
        "server",
        None,
        MODEL,
        None,
        SERVER_PID,
        *box,
        age_s=age_s + 2,
        memory_bytes=1480 * _WORKLOADS_MIB,
        cpu_percent=2.0,
        oom_kills=0,
    )
    return Workloads((worker,) if rank else (server, worker), compilers, round(at % _READ_EVERY_S, 1))


IDENTITY = NodeIdentity(
    "Ubuntu 24.04 · kernel 6.11",
    "580.95",
    "NVIDIA DGX Spark",
    maker="NVIDIA",
    cpu="10 x Cortex-X925 + 10 x Cortex-A725",
)
"""Identity of every simulated machine."""
_GIB, _MIB = 2**30, 2**20
_TOTAL_BYTES = int(121.6 * _GIB)
_CORES = 20
_BIG, _LITTLE = tuple(range(5, 10)) + tuple(range(15, 20)), tuple(range(5)) + tuple(range(10, 15))
"""Core numbers of the large cores (Cortex-X925), and of the small cores (Cortex-A725)."""
_BUSY_CORES = {5: 1.0, 6: 0.8, 7: 0.35, 1: 0.2}
"""By core number: fraction of time in use at full GPU load. These cores feed the GPU."""
_STEP_CORE = 5
"""The core that runs the engine's scheduler and sampler."""
_LIMIT_C = 94
_LINK_BITS_PER_S, BUS_BITS_PER_S = 200e9, 100.8e9
"""Rate of a QSFP port, and the data rate of its PCIe Gen5 x4 link: 4 x 32 GT/s x 128/130, less a fifth for
packets."""
_PAIR_BYTES_PER_S, _ALONE_BYTES_PER_S = 2.4e9, 1.9e6
"""Traffic of one port at full load: with an engine over two machines, and with one on a single machine."""
SLOW_MHZ = 712
"""SM clock of a machine after a failed USB-PD negotiation."""
MOST_LEAK_BYTES = 18 * _GIB
"""Most memory that the simulated leak allocates: a GiB or two less than would freeze a real machine."""
ENGINE_BYTES = 83 * _GIB
"""GPU memory of an engine: 57 GiB of weights and 26 GiB of KV pool, allocated at its start."""
_TABLE_EVERY_S = 5.0
_ENGINE_PID, _DISPLAY_PID = ENGINE_PID, 1811
_DISPLAY_BYTES = 43 * _MIB


class Machine(Struct, frozen=True):
    """Fixed properties of one simulated machine."""

    rank: int | None = None
    """The machine's tensor-parallel rank in an engine that spans several machines; None: the engine runs on
    this machine alone."""
    slow_clock: bool = False
    """Whether a faulty power supply holds the GPU clock at `SLOW_MHZ`."""
    link_bits_per_s: float = _LINK_BITS_PER_S
    """Rate of the link to the other machines of the same engine."""
    leak_bytes_per_s: float = 0.0
    """Rate at which a simulated program other than the engine allocates memory."""
    leak_most_bytes: int = MOST_LEAK_BYTES
    leak_from_s: float = 0.0
    """Time (seconds of the samples' clock) from which the program behind `leak_bytes_per_s` allocates
    memory."""

    @property
    def engine(self) -> str:
        """Name of the engine's process on the GPU."""
        return "VLLM::EngineCore" if self.rank is None else f"VLLM::Worker_TP{self.rank}"


ALONE = Machine()


class Condition(Struct, frozen=True):
    """Effects of the load on a machine since the previous sample; the next sample is computed from them."""

    busy: float
    """Fraction of the time spent in engine steps, 0 to 1."""
    power_w: float
    """Mean power of the GPU in watts since the previous sample."""
    temperature_c: float
    clock_mhz: float
    throttled_share: float = 0.0
    """Fraction of the time since the previous sample in software thermal slowdown, 0 to 1."""
    pair_bytes_per_s: float = 0.0
    """Bytes per second that the machine sends to the other machines of the same engine."""
    engine_bytes: int = ENGINE_BYTES
    """GPU memory held by the engine; 0 without an engine."""
    engine_cpu_percent: float | None = None
    """CPU use of the engine's process in percent of a core; None: it follows from `busy`."""
    programs: tuple[ProcessReading, ...] = ()
    """Processes that a fault adds to the process table."""
    swap_in_bytes_per_s: float = 0.0
    age_s: float | None = None
    """Age of the engine's processes, if they started while the simulation ran."""
    host_share: float = 0.0
    """Fraction of the time in which the GPU waited for one CPU core of the engine, 0 to 1."""


def node_sample(at: float, load: float, machine: Machine = ALONE) -> NodeSample:
    """Return a sample of a machine whose temperature has settled, at the time `at` in seconds.

    `load` is the fraction of time spent in engine steps, 0 to 1.
    """
    power_w = LOADED_W if not load else 4 + 66 * load
    if machine.slow_clock:
        power_w = min(power_w, PINNED_W)
    temperature_c = AMBIENT_C + RISE_C_PER_W * power_w
    over_c = 0.0 if machine.slow_clock else max(0.0, temperature_c - SAG_FROM_C)
    clock_mhz = SLOW_MHZ if machine.slow_clock else REFERENCE_CLOCK_MHZ * (1 - SAG_PER_C * over_c)
    pair = (_ALONE_BYTES_PER_S if machine.rank is None else _PAIR_BYTES_PER_S) * load
    condition = Condition(
        load, power_w, temperature_c, clock_mhz if load else IDLE_CLOCK_MHZ, THROTTLED_PER_C * over_c, pair
    )
    return sample_of(at, condition, machine)


def sample_of(at: float, condition: Condition, machine: Machine = ALONE) -> NodeSample:
    """Return a sample of a machine in the given condition, at the time `at` in seconds."""
    wave = math.sin(at / 7)
    load = condition.busy
    gpu = _gpu(condition, wave, machine)
    cpu = _cpu(at, load, condition.host_share)
    return NodeSample(
        at=at,
        cpu=cpu,
        memory=_memory(at, condition, machine),
        gpus=(gpu,),
        network=_network(condition, wave, machine),
        sensors=_sensors(gpu.temperature_c or 0.0, load),
        cost_ms=1.4,
        rails=_rails(at, gpu.power_w or 0.0, cpu.percent or 0.0),
        processes=_processes(at, condition, machine),
        workloads=_workloads(at, condition, machine),
    )


def _gpu(condition: Condition, wave: float, machine: Machine) -> GpuReading:
    load, temperature_c = condition.busy, round(condition.temperature_c)
    slowed = condition.throttled_share > 0
    display = GpuProcess(_DISPLAY_PID, "Xorg", _DISPLAY_BYTES, "graphics")
    engine = GpuProcess(_ENGINE_PID, machine.engine, condition.engine_bytes, "compute")
    return GpuReading(
        index=0,
        name="NVIDIA GB10",
        utilization_percent=round(97 * load),
        temperature_c=temperature_c,
        limit_margin_c=_LIMIT_C - temperature_c,
        power_w=round(condition.power_w + 0.4 * wave * load, 1),
        sm_clock_mhz=round(condition.clock_mhz + 3 * wave * load),
        sm_clock_max_mhz=3003,
        # After a power-delivery fault no reason is reported, which makes it hard to detect.
        throttle_reasons=("software thermal",) if slowed else (),
        throttled_percent={
            "software power cap": 0.0,
            "software thermal": round(100 * condition.throttled_share, 1),
            "hardware thermal": 0.0,
            "hardware power brake": 0.0,
        },
        processes=(engine, display) if condition.engine_bytes else (display,),
    )


def _cpu(at: float, load: float, host: float) -> CpuReading:
    """Return the use of the cores; `host` is the share of the time in which steps wait for core 5."""
    cores = tuple(
        min(
            100.0,
            3
            + 2 * math.sin(at / 3 + core)
            + 6 * load
            + 62 * load * _BUSY_CORES.get(core, 0.0)
            + (100 * host if core == _STEP_CORE else 0.0),
        )
        for core in range(_CORES)
    )

    def group(name: str, members: tuple[int, ...], max_mhz: int) -> CoreGroup:
        return CoreGroup(name, members, sum(cores[core] for core in members) / len(members), max_mhz)

    groups = (group("Cortex-X925", _BIG, 3900), group("Cortex-A725", _LITTLE, 2808))
    return CpuReading(sum(cores) / len(cores), cores, len(cores), 0.4 + 2.2 * load, groups)


def _memory(at: float, condition: Condition, machine: Machine) -> MemoryReading:
    leaked = min(
        machine.leak_most_bytes, max(0, round(machine.leak_bytes_per_s * (at - machine.leak_from_s)))
    )
    available = round((27 - 1.5 * condition.busy) * _GIB) - leaked + ENGINE_BYTES - condition.engine_bytes
    cma_free, cma, other = 2 * _GIB, 256 * _MIB, 3 * _GIB
    # Under pressure, the kernel reclaims page cache first.
    cache = min(9 * _GIB + round(0.4 * _GIB * math.sin(at / 40)), available - cma_free - _GIB // 2)
    gpu = condition.engine_bytes + _DISPLAY_BYTES
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
        swap_in_bytes_per_s=condition.swap_in_bytes_per_s,
        swap_out_bytes_per_s=0.0,
        pressure_full_avg10=0.0,
        parts=tuple(MemoryPart(name, size) for name, size in sizes.items()),
        overlap_bytes=0,
    )


def _network(condition: Condition, wave: float, machine: Machine) -> tuple[NetworkReading, ...]:
    """Return the readings of all network interfaces and RDMA ports.

    An engine that spans several machines uses the RDMA ports; their Ethernet interfaces count no traffic.
    """
    load = condition.busy if machine.rank in {None, 0} else 0.0

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
        # Each of a pair receives what the other sends.
        rx, tx = (0.97 + 0.03 * wave) * condition.pair_bytes_per_s * share, condition.pair_bytes_per_s * share
        return NetworkReading(
            name,
            "rdma",
            up,
            rx if up else None,
            tx if up else None,
            machine.link_bits_per_s if up else None,
            0.0,
            bus_bits_per_s=BUS_BITS_PER_S,
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
    """Return the readings of the power rails, as the third-party driver spbm reports them.

    The chip package draws 3.5 W more than GPU and CPU together, and the machine 17 W more than the package.
    """
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


def _workloads(at: float, condition: Condition, machine: Machine) -> Workloads:
    compilers = sum(one.name in COMPILERS for one in condition.programs)
    if not condition.engine_bytes and condition.age_s is None:
        return Workloads((), compilers, 0.0)
    own = condition.engine_cpu_percent
    percent = 12 + 88 * condition.busy if own is None else own
    return workloads_at(at, machine.rank, round(percent, 1), age_s=condition.age_s, compilers=compilers)


def _processes(at: float, condition: Condition, machine: Machine) -> ProcessTable:
    """Return the process table, largest process first, as it was at the last multiple of 5 seconds."""
    age_s = at % _TABLE_EVERY_S
    wave = 1 + 0.1 * math.sin((at - age_s) / 9)

    def one(pid: int, name: str, mib: float, percent: float) -> ProcessReading:
        return ProcessReading(pid, name, round(mib * _MIB), round(percent * wave, 1))

    load, own = condition.busy, condition.engine_cpu_percent
    engine = one(_ENGINE_PID, machine.engine, 5310, 12 + 88 * load)
    if own is not None:
        engine = replace(engine, cpu_percent=own)
    front = SERVER_PID if machine.rank in {None, 0} else None
    rows = (
        *((engine,) if condition.engine_bytes else ()),
        *condition.programs,
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
