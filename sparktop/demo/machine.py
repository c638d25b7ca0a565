"""A simulated GB10 machine: its samples, from what its engine did since the previous sample."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping

from msgspec import Struct, structs
from msgspec.structs import replace

from sparktop.hardware.processes import read_sockets
from sparktop.model import node
from sparktop.model.failure import Failure, FailureKind
from sparktop.simulation.engine import Engine
from sparktop.simulation.thermal import (
    AMBIENT_C,
    BARE_W,
    IDLE_CLOCK_MHZ,
    LOADED_W,
    PINNED_W,
    REFERENCE_CLOCK_MHZ,
    RISE_C_PER_W,
    SAG_FROM_C,
    SAG_PER_C,
    THROTTLED_PER_C,
    NodeThermal,
)

SERVER_PID, ENGINE_PID = 4001, 4242
MODEL = "openai/gpt-oss-120b"
_AGE_S = 5400.0
"""Age of an engine's processes at the time 0."""
_READ_EVERY_S = 10.0
"""Seconds between two readings of an engine's processes."""
_GIB, _MIB = 2**30, 2**20


def workloads_at(
    at: float, machine: SimulatedMachine, cpu_percent: float, *, age_s: float | None, compilers: int
) -> node.Workloads:
    """Return the processes of a vLLM server at the time `at` in seconds, as an agent reads them.

    Only rank 0 has the server itself. `age_s` is the age of the processes, `compilers` the number of compiler
    processes.
    """
    rank = machine.rank
    age_s = _AGE_S + at if age_s is None else age_s
    container = "5d1c0ffee5aa"
    container_role = {None: "solo", 0: "head"}.get(rank, "worker")
    container_name = f"sparkrun_{container}_{container_role}"
    worker = node.Workload(
        ENGINE_PID,
        "vllm",
        role="engine core" if rank is None else "worker",
        rank=None if rank is None else f"TP{rank}",
        model=MODEL,
        server=SERVER_PID if not rank else None,
        container=container,
        container_name=container_name,
        age_s=age_s,
        memory_bytes=5310 * _MIB,
        cpu_percent=cpu_percent,
        read_bytes=58_700 * _MIB,
        oom_kills=0,
    )
    options = ("--gpu-memory-utilization 0.7", *machine.limits)
    options += () if rank is None else ("--tensor-parallel-size 2",)
    server = node.Workload(
        SERVER_PID,
        "vllm",
        role="server",
        model=MODEL,
        server=SERVER_PID,
        container=container,
        container_name=container_name,
        age_s=age_s + 2,
        memory_bytes=1480 * _MIB,
        cpu_percent=2.0,
        read_bytes=310 * _MIB,
        oom_kills=0,
        flags=options,
        asks=node.MemoryAsk(0.7, None, 1 if rank is None else 2),
        command=" ".join(("vllm serve", MODEL, "--port 8000", *options)),
    )
    return node.Workloads((worker,) if rank else (server, worker), compilers, round(at % _READ_EVERY_S, 1))


IDENTITY = node.NodeIdentity(
    "Ubuntu 24.04 · Linux 6.11",
    "580.95",
    "NVIDIA DGX Spark",
    maker="NVIDIA",
    cpu="10 x Cortex-X925 + 10 x Cortex-A725",
)
"""Identity of every simulated machine."""
_TOTAL_BYTES = int(121.6 * _GIB)
_BIG, _LITTLE = tuple(range(5, 10)) + tuple(range(15, 20)), tuple(range(5)) + tuple(range(10, 15))
"""Core numbers of the large cores (Cortex-X925), and of the small cores (Cortex-A725)."""
_BUSY_CORES = {5: 1.0, 6: 0.8, 7: 0.35, 1: 0.2}
"""By core number: fraction of time in use at full GPU load. These cores feed the GPU."""
_STEP_CORE = 5
"""The core that runs the engine's scheduler and sampler."""
_LIMIT_C = 94
"""Temperature in °C at which a GB10 slows down."""
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
"""Seconds between two readings of the process table."""
_DISPLAY_PID, _ORPHAN_PID, _LEAK_PID = 1811, 3377, 5120
"""Process ids of the simulated display server and of an engine that was left behind."""
_DISPLAY_BYTES = 43 * _MIB
_ENERGY_BEFORE_J = 1.8e6
"""Energy that a machine's GPU had used before the simulation began."""
_MEAN_CPU_W = (5.0, 1.5)
"""Mean power of the big and of the little cores."""


def setup_of(
    mtu: int = 9000, nccl: str = "2.28.9", build: str = "5e1f7a90", memlock: int = node.UNLIMITED
) -> node.MachineSetup:
    """Return the set-up of a machine; those of one engine should have the same."""
    rail = node.Rail(
        "rocep1s0f0",
        netdev="enp1s0f0np0",
        link_layer="Ethernet",
        firmware="28.45.4028",
        mtu=mtu,
        carrier_changes=2,
        lanes=4,
        lanes_max=4,
        lane_gt_per_s=32.0,
        subnets=("192.168.100.0/24",),
    )
    library = "/opt/venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2"
    engine = node.EngineSetup(
        ENGINE_PID, library, nccl, f"build {build}", {"NCCL_IB_HCA": "rocep1s0f0"}, memlock
    )
    return node.MachineSetup(
        bios="5.36", gpu_firmware="9A.0B.18.00.2D", kho="", huge_pages=0, rails=(rail,), engines=(engine,)
    )


class SimulatedMachine(Struct, frozen=True):
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
    setup: node.MachineSetup = setup_of()
    orphan_bytes: int = 0
    """GPU memory of an engine process that is left of an earlier server; 0 without one."""
    held_bytes: int = 0
    """Memory that its engine's container keeps when its processes have ended; 0 where all is given back."""
    leak_from_s: float = 0.0
    """Time (seconds of the samples' clock) from which the program behind `leak_bytes_per_s` allocates
    memory."""
    limits: tuple[str, ...] = ()
    """Options of its server's command line for the context and the slots."""

    @property
    def engine(self) -> str:
        """Name of the engine's process on the GPU."""
        return "VLLM::EngineCore" if self.rank is None else f"VLLM::Worker_TP{self.rank}"


ALONE = SimulatedMachine()


class Symptoms(Struct, frozen=True):
    """What a fault changes in the samples of one machine."""

    engine_cpu_percent: float | None = None
    """CPU use of the engine's process in percent of a core; None: as without a fault."""
    engine_gone: bool = False
    """Whether the engine's process on this machine has ended."""
    rank_lags: bool = False
    """Whether NCCL reports that this machine's rank has launched one AllReduce fewer than the others."""
    programs: tuple[node.ProcessReading, ...] = ()
    """Processes that run in addition."""
    swap_in_bytes_per_s: float = 0.0
    engine_bytes: int | None = None
    """GPU memory that the engine keeps; None: all of it."""
    others_bytes: int = 0
    """Memory that another program has taken."""


NO_SYMPTOMS = Symptoms()


class LoadEffects(Struct, frozen=True):
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
    symptoms: Symptoms = NO_SYMPTOMS
    """What a fault or the start of a server changes; the CPU use of the engine else follows from `busy`."""
    age_s: float | None = None
    """Age of the engine's processes, if they started while the simulation ran."""
    host_share: float = 0.0
    """Fraction of the time in which the GPU waited for one CPU core of the engine, 0 to 1."""
    energy_j: float | None = None
    """Energy that the GPU has used since the simulation began; None: at `power_w` all the time."""


def node_sample(at: float, load: float, machine: SimulatedMachine = ALONE) -> node.NodeSample:
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
    condition = LoadEffects(
        load, power_w, temperature_c, clock_mhz if load else IDLE_CLOCK_MHZ, THROTTLED_PER_C * over_c, pair
    )
    return sample_of(at, condition, machine)


def sample_of(at: float, condition: LoadEffects, machine: SimulatedMachine = ALONE) -> node.NodeSample:
    """Return a sample of a machine in the given condition, at the time `at` in seconds."""
    wave = math.sin(at / 7)
    load = condition.busy
    gpu = _gpu(condition, wave, machine)
    spinning = (condition.symptoms.engine_cpu_percent or 0.0) / 100
    cpu = _cpu(at, load, condition.host_share, spinning)
    return node.NodeSample(
        at=at,
        cpu=cpu,
        memory=_memory(at, condition, machine),
        gpus=(gpu,),
        network=_network(condition, wave, machine),
        sensors=_sensors(gpu.temperature_c or 0.0, load),
        cost_ms=1.4,
        rails=_rails(at, gpu.power_w or 0.0, cpu.percent or 0.0, condition.energy_j),
        processes=_processes(at, condition, machine),
        workloads=_workloads(at, condition, machine),
    )


def _gpu(condition: LoadEffects, wave: float, machine: SimulatedMachine) -> node.GpuReading:
    load, temperature_c = condition.busy, round(condition.temperature_c)
    slowed = condition.throttled_share > 0
    display = node.GpuProcess(_DISPLAY_PID, "Xorg", _DISPLAY_BYTES, "graphics")
    engine = node.GpuProcess(ENGINE_PID, machine.engine, condition.engine_bytes, "compute")
    orphan = node.GpuProcess(_ORPHAN_PID, "VLLM::EngineCore", machine.orphan_bytes, "compute")
    return node.GpuReading(
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
        processes=tuple(process for process in (engine, orphan, display) if process.memory_bytes),
    )


def _cpu(at: float, load: float, host: float, spinning: float) -> node.CpuReading:
    """Return the use of the cores; `host` is the share of the time in which steps wait for core 5.

    `spinning` is the share in which the engine keeps it busy while it stands still.
    """
    cores = tuple(
        min(
            100.0,
            3
            + 2 * math.sin(at / 3 + core)
            + 6 * load
            + 62 * load * _BUSY_CORES.get(core, 0.0)
            + (100 * max(host, spinning) if core == _STEP_CORE else 0.0),
        )
        for core in range(len(_BIG) + len(_LITTLE))
    )

    def group(name: str, members: tuple[int, ...], max_mhz: int) -> node.CoreGroup:
        return node.CoreGroup(name, members, sum(cores[core] for core in members) / len(members), max_mhz)

    groups = (group("Cortex-X925", _BIG, 3900), group("Cortex-A725", _LITTLE, 2808))
    return node.CpuReading(sum(cores) / len(cores), cores, len(cores), 0.4 + 2.2 * load + spinning, groups)


def _leaked_bytes(at: float, machine: SimulatedMachine) -> int:
    """Return what the program that leaks holds at the time `at`."""
    leaked_bytes = round(machine.leak_bytes_per_s * (at - machine.leak_from_s))
    return min(machine.leak_most_bytes, max(0, leaked_bytes))


def _memory(at: float, condition: LoadEffects, machine: SimulatedMachine) -> node.MemoryReading:
    available = round((27 - 1.5 * condition.busy) * _GIB) + ENGINE_BYTES - condition.engine_bytes
    available -= machine.orphan_bytes + _leaked_bytes(at, machine)
    held_bytes = 0 if condition.engine_bytes or condition.age_s is not None else machine.held_bytes
    available -= condition.symptoms.others_bytes + held_bytes
    cma_free, cma, other_bytes = 2 * _GIB, 256 * _MIB, 3 * _GIB + held_bytes
    # Under pressure, the kernel reclaims page cache first.
    cache = min(9 * _GIB + round(0.4 * _GIB * math.sin(at / 40)), available - cma_free - _GIB // 2)
    gpu = condition.engine_bytes + machine.orphan_bytes + _DISPLAY_BYTES
    free_bytes = available - cache - cma_free
    programs = _TOTAL_BYTES - gpu - cache - cma - other_bytes - cma_free - free_bytes
    sizes: Mapping[str, int] = {
        node.GPU_PART: gpu,
        node.PROGRAMS_PART: programs,
        node.CACHE_PART: cache,
        node.CMA_PART: cma,
        node.OTHER_PART: other_bytes,
        node.CMA_FREE_PART: cma_free,
        node.FREE_PART: free_bytes,
    }
    return node.MemoryReading(
        unified=True,
        total_bytes=_TOTAL_BYTES,
        used_bytes=_TOTAL_BYTES - available,
        available_bytes=available,
        page_cache_bytes=cache,
        cma_free_bytes=cma_free,
        headroom_bytes=available - cma_free,
        gpu_processes_bytes=gpu,
        unattributed_bytes=other_bytes,
        swap_total_bytes=16 * _GIB,
        swap_used_bytes=round(0.4 * _GIB),
        swap_in_bytes_per_s=condition.symptoms.swap_in_bytes_per_s,
        swap_out_bytes_per_s=0.0,
        pressure_full_avg10=0.0,
        parts=tuple(node.MemoryPart(name, size) for name, size in sizes.items()),
        overlap_bytes=0,
    )


def _network(
    condition: LoadEffects, wave: float, machine: SimulatedMachine
) -> tuple[node.NetworkReading, ...]:
    """Return the readings of all network interfaces and RDMA ports.

    An engine that spans several machines uses the RDMA ports; their Ethernet interfaces count no traffic.
    """
    load = condition.busy if machine.rank in {None, 0} else 0.0

    # Each of a pair receives what the other sends.
    rx, tx = (0.97 + 0.03 * wave) * condition.pair_bytes_per_s, condition.pair_bytes_per_s
    port = node.NetworkReading(
        "rocep1s0f0",
        "rdma",
        up=True,
        rx_bytes_per_s=rx,
        tx_bytes_per_s=tx,
        link_bits_per_s=machine.link_bits_per_s,
        errors_per_s=0.0,
        bus_bits_per_s=BUS_BITS_PER_S,
        rx_packets_per_s=rx / 4096,
        tx_packets_per_s=tx / 4096,
        netdev="enp1s0f0np0",
    )

    def link(name: str, rx: float, tx: float, gbit: float) -> node.NetworkReading:
        return node.NetworkReading(
            name,
            "ethernet",
            up=True,
            rx_bytes_per_s=rx,
            tx_bytes_per_s=tx,
            link_bits_per_s=gbit * 1e9,
            errors_per_s=0.0,
            rx_packets_per_s=rx / 900,
            tx_packets_per_s=tx / 900,
        )

    idle, bus = "enp1s0f1np1", BUS_BITS_PER_S
    return (
        link("enP7s7", 21e3 + 9e3 * load, 48e3 + 160e3 * load, 10),
        link("enp1s0f0np0", 0.0, 0.0, 200),
        node.NetworkReading(idle, "ethernet", up=False, errors_per_s=0.0),
        port,
        node.NetworkReading(
            "rocep1s0f1", "rdma", up=False, errors_per_s=0.0, bus_bits_per_s=bus, netdev=idle
        ),
    )


def _sensors(gpu_c: float, load: float) -> tuple[node.SensorReading, ...]:
    return (
        node.SensorReading("acpitz 1", gpu_c + 6.0, 105.0),
        node.SensorReading("acpitz 2", gpu_c + 3.5, 105.0),
        node.SensorReading("nvme Composite", 41.9 + 4 * load, 84.8),
        node.SensorReading("rocep1s0f0", 52.0 + 3 * load, 105.0),
        node.SensorReading("mt7925_phy0", 47.0),
    )


def _rails(at: float, gpu_w: float, cpu_percent: float, gpu_j: float | None) -> tuple[node.PowerRail, ...]:
    """Return the readings of the power rails, as the third-party driver spbm reports them.

    The chip package draws 3.5 W more than GPU and CPU together, and the machine 17 W more than the package.
    The energy of the CPU is that of its mean power.
    """
    energy_j = gpu_w * at if gpu_j is None else _ENERGY_BEFORE_J + gpu_j

    def rails(gpu: float, big: float, little: float, *, watt: float) -> dict[str, float]:
        """Return each rail's value in watts or joules; `watt` is the value of a constant draw of 1 W."""
        package = gpu + big + little + 3.5 * watt
        total = package + 17.0 * watt
        return {
            "sys_total": total,
            "soc_pkg": package,
            "gpu": gpu,
            "cpu_p": big,
            "cpu_e": little,
            "dc_input": total / 0.94,
        }

    watts = rails(gpu_w, 1.2 + 0.35 * cpu_percent, 0.6 + 0.08 * cpu_percent, watt=1.0)
    big_w, little_w = _MEAN_CPU_W
    joules = rails(energy_j, big_w * at, little_w * at, watt=at)
    return tuple(node.PowerRail(name, round(watts[name], 1), round(joules[name], 0)) for name in watts)


def _workloads(at: float, condition: LoadEffects, machine: SimulatedMachine) -> node.Workloads:
    compilers = sum(program.name in node.COMPILERS for program in condition.symptoms.programs)
    if not condition.engine_bytes and condition.age_s is None:
        return node.Workloads((), compilers, 0.0, sees_all=True)
    fixed_percent = condition.symptoms.engine_cpu_percent
    percent = 12 + 88 * condition.busy if fixed_percent is None else fixed_percent
    workloads = workloads_at(at, machine, round(percent, 1), age_s=condition.age_s, compilers=compilers)
    if not machine.orphan_bytes:
        return workloads
    killed_workload = node.Workload(
        _ORPHAN_PID, "vllm", "engine core", age_s=2 * _AGE_S + at, cpu_percent=0.0, adopted=True
    )
    return replace(workloads, processes=(killed_workload, *workloads.processes))


def _processes(at: float, condition: LoadEffects, machine: SimulatedMachine) -> node.ProcessTable:
    """Return the process table, largest process first, as it was at the last multiple of 5 seconds."""
    age_s = at % _TABLE_EVERY_S
    wave = 1 + 0.1 * math.sin((at - age_s) / 9)

    def one(pid: int, name: str, mib: float, percent: float) -> node.ProcessReading:
        return node.ProcessReading(pid, name, round(mib * _MIB), round(percent * wave, 1))

    load, fixed_percent = condition.busy, condition.symptoms.engine_cpu_percent
    engine = one(ENGINE_PID, machine.engine, 5310, 12 + 88 * load)
    if fixed_percent is not None:
        engine = structs.replace(engine, cpu_percent=fixed_percent)
    front = SERVER_PID if machine.rank in {None, 0} else None
    leaked = _leaked_bytes(at - age_s, machine)
    rows = (
        *((engine,) if condition.engine_bytes else ()),
        *((one(_LEAK_PID, "python3", leaked / _MIB, 20),) if leaked else ()),
        *condition.symptoms.programs,
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
    return node.ProcessTable(tuple(largest), 231, round(age_s, 1))


_SHORTEST_S = 0.05
"""Seconds; a sample sooner than this after the previous one repeats the previous condition of the machine."""
_START_W = 32.0
"""Power of the GPU's work during a start, in watts above that at rest."""
_SPINNING_W = 9.0
"""The same of a kernel that never ends."""
_USUAL_S = 80.0
"""Seconds that a start takes unless it hangs."""


class MachineReader:
    """Reads samples of one simulated GB10 machine for its agent; implements the agent's `NodeReader`."""

    def __init__(
        self,
        thermal: NodeThermal,
        machine: SimulatedMachine,
        *,
        name: str,
        clock: Callable[[], float] = time.monotonic,
        address: str | None = None,
    ) -> None:
        """Start without an engine.

        `thermal` is the machine's thermal model, which uses the times of `clock`. `machine` has the machine's
        fixed properties, `name` is its host name, and `address` its IP address.
        """
        self.show_processes = False
        """Whether samples include the process table."""
        addresses = () if address is None else (address,)
        self._identity = structs.replace(
            IDENTITY, hostname=name, boot_id=f"simulated-{name}", addresses=addresses, setup=machine.setup
        )
        self.address = address
        """The machine's IP address on the link between the machines; None if it has none."""
        self.symptoms = NO_SYMPTOMS
        """What a fault changes in the samples."""
        self.thermal = thermal
        """The machine's thermal model."""
        self.port: int | None = None
        """The server's port, whose connections are shown; None: they are not."""
        self._machine = machine
        self._clock = clock
        self._engine: Engine | None = None
        self._down_until, self._boots = self._clock(), 1
        self._hangs = False
        self._start: tuple[float, float] | None = None
        """When the engine's processes started, in seconds of `clock`, and how long their start takes."""
        self._at = clock()
        self._totals_before = self._totals_until(self._at)
        self._condition: LoadEffects | None = None
        self._read_at = self._at
        """When the engine's processes were read last."""

    @property
    def identity(self) -> node.NodeIdentity | None:
        """Identity of the machine; None while it reboots."""
        return None if self._clock() < self._down_until else self._identity

    @property
    def steps(self) -> int:
        """Number of steps that the machine's engine has completed."""
        return 0 if self._engine is None else self._engine.tally.steps

    def attach(self, engine: Engine | None) -> None:
        """Run `engine` on the machine from now on.

        If `engine` is None, remove the current engine, which frees its memory and lets the GPU cool.
        """
        now_s = self._clock()
        self._engine = engine
        self._start = None if engine is None else self._start
        self.thermal.idle_w = BARE_W if engine is None else LOADED_W
        self.thermal.draw(now_s, None)
        self._at, self._totals_before, self._condition = now_s, self._totals_until(now_s), None

    def begin_start(self, takes_s: float, *, hangs: bool = False) -> None:
        """Show a server that starts now; `attach` is called with its engine after `takes_s` seconds.

        With `hangs`, it reaches its last phase as if it took at most `_USUAL_S`, and stays there.
        """
        self._start = (self._clock(), min(takes_s, _USUAL_S) if hangs else takes_s)
        self._read_at = self._clock()  # a reading shows the process at once: demos are short
        self._hangs = hangs
        self._condition = None

    def reboot(self, down_s: float) -> None:
        """Simulate a reboot: the machine is down for `down_s` seconds from now, then has a new boot id."""
        now_s = self._clock()
        self._down_until, self._boots = now_s + down_s, self._boots + 1
        self._machine = replace(self._machine, leak_from_s=now_s + down_s)
        name = self._identity.hostname
        self._identity = structs.replace(
            self._identity,
            boot_id=f"simulated-{name}-{self._boots}",
            booted_at=time.time() + down_s,
            last_boot=node.LastBoot(clean=False),
        )

    def sample(self) -> node.NodeSample:
        """Return a sample of the machine at the current time."""
        now_s = self._clock()
        if self._condition is None or now_s - self._at >= _SHORTEST_S:
            self._condition = self._condition_since_last(now_s)
            self._at, self._totals_before = now_s, self._totals_until(now_s)
        sample = sample_of(now_s, self._condition, self._machine)
        if sample.workloads is not None and sample.workloads.processes:
            if now_s // _READ_EVERY_S != self._read_at // _READ_EVERY_S:
                self._read_at = now_s  # whatever the pace of samples, one of them is the reading itself
            old_s = now_s - self._read_at
            # As old as they were when they were read.
            processes = tuple(
                replace(one, age_s=(one.age_s or 0.0) - old_s) for one in sample.workloads.processes
            )
            sample = replace(sample, workloads=replace(sample.workloads, processes=processes, age_s=old_s))
        if self.port is not None and sample.workloads is not None:  # the port is one of this program's
            sockets = read_sockets("/proc", os.getpid(), self.port, contained=False)
            processes = tuple(
                replace(process, port=self.port, sockets=sockets) if process.role == "server" else process
                for process in sample.workloads.processes
            )
            sample = replace(sample, workloads=replace(sample.workloads, processes=processes))
        return sample if self.show_processes else replace(sample, processes=None)

    async def poll(self, deadline_s: float) -> node.NodeSample | Failure:
        """Return a sample of the machine at the current time, without waiting."""
        del deadline_s
        now_s = self._clock()
        if now_s < self._down_until:
            return Failure(FailureKind.UNREACHABLE, "the simulated machine is down", now_s)
        return self.sample()

    async def close(self) -> None:
        """Do nothing, because no resource is held."""

    def _totals_until(self, now: float) -> tuple[float, float, float, float, int]:
        """Return (energy in joules, throttled seconds, GPU seconds, CPU seconds of steps, processed tokens).

        All five are totals up to the time `now`.
        """
        heat = self.thermal
        rows = 0 if self._engine is None else self._engine.tally.rows
        return heat.energy_j(now), heat.throttled_s(now), heat.busy_s(now), heat.host_s(now), rows

    def _condition_since_last(self, now: float) -> LoadEffects:
        thermal, engine = self.thermal, self._engine
        if engine is None and self._start is not None:
            return self._condition_of_start(now, *self._start)
        took_s = now - self._at
        if took_s < _SHORTEST_S:
            in_step = thermal.clock_mhz(now) > IDLE_CLOCK_MHZ
            power_w, throttled, busy, host, rows_per_s = thermal.power_w(), 0.0, float(in_step), 0.0, 0.0
        else:
            power_w, throttled, busy, host, rows_per_s = (
                (total - total_before) / took_s
                for total, total_before in zip(self._totals_until(now), self._totals_before, strict=True)
            )
        busy = min(1.0, busy)
        pair = _ALONE_BYTES_PER_S * busy
        if engine is not None and engine.profile.nodes > 1:
            pair = engine.profile.link_bytes_per_row * rows_per_s
        symptoms = self.symptoms
        holds_memory = engine is not None and not symptoms.engine_gone
        engine_bytes = ENGINE_BYTES if symptoms.engine_bytes is None else symptoms.engine_bytes
        return LoadEffects(
            busy,
            power_w,
            thermal.temperature_c(now),
            thermal.load_clock_mhz(now) if busy else IDLE_CLOCK_MHZ,
            throttled_share=min(1.0, throttled),
            pair_bytes_per_s=pair,
            engine_bytes=engine_bytes if holds_memory else 0,
            symptoms=symptoms,
            age_s=None if self._start is None else now - self._start[0],
            host_share=min(1.0, host),
            energy_j=thermal.energy_j(now),
        )

    def _condition_of_start(self, now: float, started_at: float, takes_s: float) -> LoadEffects:
        """Return the condition of a machine whose server starts."""
        engine_bytes, busy_share, cpu_percent = progress_of_start(now - started_at, takes_s)
        thermal, power_w = self.thermal, _START_W * busy_share
        if self._hangs and now - started_at > _GRAPHS * takes_s:
            busy_share, power_w, cpu_percent = 1.0, _SPINNING_W, 100.0
        return LoadEffects(
            busy_share,
            thermal.power_w() + power_w,
            thermal.temperature_c(now),
            thermal.load_clock_mhz(now) if busy_share else IDLE_CLOCK_MHZ,
            engine_bytes=engine_bytes,
            symptoms=Symptoms(engine_cpu_percent=cpu_percent),
            age_s=now - started_at,
            energy_j=thermal.energy_j(now),
        )


CONTEXT_BYTES, WEIGHTS_BYTES = _GIB // 2, 57 * _GIB
"""GPU memory of an engine that starts: of its CUDA context, and once its weights are loaded."""
_CONTEXT, _WEIGHTS, _COMPILE, _POOL, _GRAPHS = 0.12, 0.2, 0.52, 0.78, 0.82
"""Shares of the start at which a phase begins."""
_BURST_S, _BURSTS_EVERY_S = 1.5, 4.0
"""Duration and distance of the GPU's work while graphs are captured, in seconds."""


def progress_of_start(passed_s: float, takes_s: float) -> tuple[int, float, float]:
    """Return what a machine shows `passed_s` seconds after the begin of a start that takes `takes_s`.

    Returns:
        (GPU memory of the engine in bytes, share of the time in which the GPU works, CPU use of the engine's
        process in percent of a core).
    """
    share = passed_s / takes_s if takes_s > 0 else 1.0
    burst = float(passed_s % _BURSTS_EVERY_S < _BURST_S)
    if share < _CONTEXT:
        return (0, 0.0, 94.0)
    if share < _WEIGHTS:
        return (CONTEXT_BYTES, 0.0, 60.0)
    if share < _COMPILE:
        read_share = (share - _WEIGHTS) / (_COMPILE - _WEIGHTS)
        return (CONTEXT_BYTES + round(read_share * (WEIGHTS_BYTES - CONTEXT_BYTES)), 0.05, 100.0)
    if share < _POOL:
        return (WEIGHTS_BYTES, 0.0, 100.0)
    if share < _GRAPHS:
        pool_share = (share - _POOL) / (_GRAPHS - _POOL)
        return (WEIGHTS_BYTES + round(pool_share * (ENGINE_BYTES - WEIGHTS_BYTES)), 0.3, 100.0)
    return (ENGINE_BYTES, burst, 98.0)
