"""The records of a machine's sample (`NodeSample`), and its identity (`NodeIdentity`)."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple
from zlib import crc32

from msgspec import Struct

GIB = 1 << 30
"""Bytes of a GiB."""
XID, OOM, THERMAL, AER = "xid", "oom", "thermal", "aer"
"""Kinds of lines of the kernel's log: a GPU's fault, a process killed for lack of memory, overheating, and a
fatal fault of a PCIe device."""


class KernelLine(Struct, frozen=True):
    """A line of the kernel's log that says how something ended."""

    since_boot_s: float
    """When, in seconds since the machine booted."""
    kind: str
    text: str
    """The line, cut and cleaned."""
    code: int | None = None
    """Number of an Xid."""
    pid: int | None = None
    """The process that it names."""


class KernelLog(Struct, frozen=True):
    """The lines of this boot that say how something ended, the newest last."""

    lines: tuple[KernelLine, ...] = ()
    unreadable: str | None = None
    """Why the log cannot be read, and which group would allow it; None if it is read."""


class LastBoot(Struct, frozen=True):
    """How the boot before this one ended, as far as this user may read it."""

    clean: bool | None = None
    """Whether it was shut down in order; None where that is not known."""
    last_line: str | None = None
    """Last line of its journal."""
    watchdog: bool | None = None
    """Whether the hardware's watchdog reports that it reset the machine."""
    unreadable: str | None = None
    """What cannot be read, and which group would allow it."""


# Processes of inference engines on a machine: role, rank, model and container.


COMPILERS = frozenset({"nvcc", "cicc", "ptxas", "ninja", "cc1plus"})
"""Names of the programs that compile kernels for an engine."""


class ModelWeights(Struct, frozen=True):
    """What a step of a model reads of its weights."""

    token_gb: float
    """Billions of bytes that a step for a single token reads."""
    mixture: bool = False
    """Whether a step for several tokens reads more: those experts that at least one of them chooses."""
    source: str = "its files"


def end_marks(host: str, port: int) -> tuple[int, int]:
    """Return marks (CRC-32) of a host and of host and port: an end of a connection, without its address.

    An IPv4 address has the same marks when it is written as an IPv6 one.
    """
    plain = host.partition("%")[0].removeprefix("::ffff:")
    return crc32(plain.encode()), crc32(f"{plain} {port}".encode())


class Sockets(Struct, frozen=True):
    """The TCP connections at the port on which a server listens, in the server's own network namespace."""

    clients: tuple[tuple[int, int], ...] = ()
    """`end_marks` of the other end of each established connection, at most `MOST_CLIENTS`."""
    hung_up: int = 0
    """Connections that the client has closed, and the server has not yet."""
    bridged: bool = False
    """Whether the namespace is not the reader's: the server's port can be another one outside."""
    asked_s: tuple[float | None, ...] = ()
    """For each of `clients`: seconds since it last sent a request, as far as what it sent looks like short
    requests; since the machine's start where it does not. None: not known; () where none is."""


MOST_CLIENTS = 32
"""Connections of a server's port of which the other ends are kept."""


class MemoryAsk(Struct, frozen=True):
    """What a server's command line asks of the memory of its machines."""

    share: float | None = None
    """Share of the GPU's memory, above 0 and at most 1: in all (vLLM's --gpu-memory-utilization), or for
    weights and KV cache (SGLang's --mem-fraction-static)."""
    kv_bytes: int | None = None
    """Size of the KV cache on each GPU, which vLLM takes instead of what `share` leaves."""
    ranks: int = 1
    """GPUs among which the weights are divided: tensor times pipeline parallel size."""


class MemoryGuard(Struct, frozen=True):
    """A program that ends processes where memory runs out, before the kernel does."""

    name: str
    available_percent: float | None = None
    """It acts below this share of memory that is available, 0 to 100; None for a limit in bytes."""
    available_bytes: int | None = None
    swap_percent: float | None = None
    """And only below this share of swap that is free; 100: whatever swap is."""


class Workload(Struct, frozen=True):
    """A process of an inference engine, or another process that holds GPU memory."""

    pid: int
    engine: str | None = None
    """Name of the engine, such as "vllm"; None if the command line is not that of a known engine."""
    role: str | None = None
    """What the process does in its engine, such as "engine core" or "worker"."""
    rank: str | None = None
    """Its ranks, such as "DP0 TP1"; None where its title names none."""
    model: str | None = None
    """Name of the model from the command line of its server, without the folders of a path."""
    port: int | None = None
    """Port on which the server answers by its command line; only of a server's own process."""
    server: int | None = None
    """Process ID of the server that started it; its own if it is the server."""
    container: str | None = None
    """First 12 digits of the container's ID; None outside of containers."""
    container_name: str | None = None
    """None unless the reader may use the socket of Docker or Podman."""
    age_s: float | None = None
    """Seconds since the process started, at the time of the sample."""
    memory_bytes: int | None = None
    """Resident set size."""
    cpu_percent: float | None = None
    """CPU use since the previous reading; 100 is one core."""
    read_bytes: int | None = None
    """Bytes read from disks since its start; None for processes of other users, which only root may see."""
    checkpoint_bytes: int | None = None
    """Size of the files with the model's weights; only of a server whose folder the reader may list."""
    oom_kills: int | None = None
    """Processes of its container that the kernel has killed for lack of memory; None outside of one."""
    sockets: Sockets | None = None
    """Only of a server's own process; None where it does not listen on `port`, or that cannot be seen."""
    adopted: bool | None = None
    """Whether the process that started its engine has ended, so that an init process is its parent now; None
    where that is unknown."""
    weights: ModelWeights | None = None
    """By the model's config.json and files; only of a server whose files the reader may read."""
    flags: tuple[str, ...] | None = None
    """Options of a server's command line that change its speed; others are not kept, because they can hold
    keys. None of other processes, and from an older agent."""
    revision: str | None = None
    """Commit of the model in the hub's cache."""
    asks: MemoryAsk | None = None
    """What its command line asks of memory; only of a server's own process."""
    command: str | None = None
    """Command line of a server for a shell, "…" in place of what may be secret: of unknown options, paths."""

    @property
    def about(self) -> str:
        """Role and rank in words: "engine core DP0"; "" if neither is known."""
        return " ".join(part for part in (self.role, self.rank) if part)

    @property
    def box(self) -> str | None:
        """Name of the container, else the first digits of its ID; None outside of containers."""
        return self.container_name or self.container


class Workloads(Struct, frozen=True):
    """The workloads of a machine at one time."""

    processes: tuple[Workload, ...] = ()
    """Sorted by process ID."""
    compilers: int | None = None
    """Number of processes of the programs in `COMPILERS`."""
    age_s: float | None = None
    """Seconds since they were read: that happens less often than the rest of the sample."""
    guards: tuple[MemoryGuard, ...] = ()
    """What ends processes where memory runs out."""
    sees_all: bool | None = None
    """Whether the reader sees the processes of the whole machine: not so inside of most containers. None from
    an older agent."""

    def of(self, pid: int) -> Workload | None:
        """Return the workload with this process ID; None if there is none."""
        return next((process for process in self.processes if process.pid == pid), None)


class CoreGroup(Struct, frozen=True):
    """The CPU cores of one design in a machine. A GB10 has two such groups: ten large and ten small cores."""

    name: str
    """The design's name, such as "Cortex-X925", or what the kernel reports instead."""
    cores: tuple[int, ...] = ()
    """Indexes of its logical cores in `CpuReading.core_percent`."""
    percent: float | None = None
    """Use of all cores of the group together, 0 to 100."""
    max_mhz: int | None = None


class CpuReading(Struct, frozen=True):
    """Processor use since the previous sample; percentages are None or empty in the first sample."""

    percent: float | None = None
    """Use of all cores together, 0 to 100."""
    core_percent: tuple[float, ...] = ()
    """Use of each logical core, 0 to 100; empty when unknown."""
    cores: int | None = None
    load1: float | None = None
    """1-minute load average."""
    groups: tuple[CoreGroup, ...] = ()
    """The core designs, fastest first, where cores differ; empty where all are alike or it is unknown."""


GPU_PART, PROGRAMS_PART, CACHE_PART, CMA_PART, HUGE_PART, OTHER_PART, CMA_FREE_PART, FREE_PART = (
    "GPU processes",
    "programs and kernel",
    "cache",
    "CMA in use",
    "huge pages free",
    "unattributed",
    "CMA free",
    "free",
)
"""Names of the parts of the memory bar in data, from left to right; a newer agent may send other names."""
_PART_TITLES = {
    GPU_PART: "GPU",
    PROGRAMS_PART: "programs",
    CMA_PART: "CMA used",
    HUGE_PART: "hugepages",
    OTHER_PART: "other",
}
"""What people read instead, at every width and in every report: 9 cells, the room of a narrow column."""


class MemoryPart(Struct, frozen=True):
    """One part of the memory bar: a use of the machine's memory, such as cache, and its size."""

    name: str
    size_bytes: int

    @property
    def title(self) -> str:
        """What the part is called on screens and in reports."""
        return _PART_TITLES.get(self.name, self.name)


_LEAST_HANDOVER_BYTES = 1 << 28
"""Fewer bytes, a quarter of a GiB, are not mentioned."""


class MemoryReading(Struct, frozen=True):
    """Memory of the machine; if `unified` is true, the GPU uses the same memory (GB10)."""

    unified: bool | None = None
    """None: unknown, because no GPU has reported."""
    total_bytes: int | None = None
    used_bytes: int | None = None
    """MemTotal - MemAvailable (with HugePages: total - free huge pages)."""
    available_bytes: int | None = None
    """MemAvailable (with HugePages: HugePages_Free x Hugepagesize)."""
    page_cache_bytes: int | None = None
    """Buffers + Cached - Shmem: reclaimable."""
    cma_free_bytes: int | None = None
    cma_total_bytes: int | None = None
    """Size of the areas reserved for CMA."""
    headroom_bytes: int | None = None
    """available - CmaFree: what can still be allocated before the kernel starts to kill processes
    (MemAvailable counts CMA pages that ordinary allocations cannot use)."""
    gpu_processes_bytes: int | None = None
    """Sum over NVML's processes; only on unified memory."""
    unattributed_bytes: int | None = None
    """Memory in use that belongs neither to a GPU process nor to anything that /proc/meminfo names."""
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    swap_in_bytes_per_s: float | None = None
    swap_out_bytes_per_s: float | None = None
    pressure_full_avg10: float | None = None
    """Percent of the last 10 s in which every task waited for memory (PSI)."""
    huge_pages: bool = False
    """Whether `available_bytes` is counted from HugePages."""
    parts: tuple[MemoryPart, ...] = ()
    """The parts of the memory bar, which add up to `total_bytes` exactly; empty when they are unknown."""
    oom_kills: int | None = None
    """Processes that the kernel has killed for lack of memory since the machine booted."""
    overlap_bytes: int | None = None
    """Bytes that two parts counted both and that were subtracted once, so that the parts add up: GPU pages
    that the host counts too."""
    gpu_nodes_bytes: int | None = None
    """Memory of GPUs that the kernel counts as memory of NUMA nodes without CPUs, and that is left out here:
    it is shown as the GPUs' own. None where there is none."""

    @property
    def left_bytes(self) -> int | None:
        """What programs can still allocate: the headroom, or what is available where that is not known."""
        return self.headroom_bytes if self.headroom_bytes is not None else self.available_bytes

    @property
    def handover_bytes(self) -> int | None:
        """Free CMA pages beyond all areas reserved for CMA; None if they are less than a quarter of a GiB.

        Kernels with kexec handover (KHO) keep scratch memory for the next kernel as such pages.
        """
        if self.cma_free_bytes is None or self.cma_total_bytes is None:
            return None
        beyond = self.cma_free_bytes - self.cma_total_bytes
        return beyond if beyond >= _LEAST_HANDOVER_BYTES else None

    @property
    def handover_words(self) -> str | None:
        """Size and owner of `handover_bytes` in words; None without such pages."""
        if self.handover_bytes is None:
            return None
        return f"{self.handover_bytes / GIB:.1f} GiB are scratch memory of kexec handover (KHO)"

    @property
    def handover_cause(self) -> str | None:
        """`handover_words`, and what gives these pages back; None without such pages."""
        words = self.handover_words
        return None if words is None else f"{words}: kho=off on the kernel's command line"


class GpuProcess(Struct, frozen=True):
    """A process that holds GPU memory."""

    pid: int
    name: str
    memory_bytes: int | None = None
    kind: str | None = None
    """compute, graphics or both; None when not reported."""
    mig_index: int | None = None
    """Index of the MIG instance in which the process runs; None without MIG."""


class MigInstance(Struct, frozen=True):
    """A part of a GPU that is split by NVIDIA's Multi-Instance GPU (MIG) mode."""

    index: int
    name: str | None = None
    """NVIDIA's profile name, such as "1g.10gb", or the device's name."""
    uuid: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None


class GpuReading(Struct, frozen=True):
    """One GPU. Any field may be None, where the GPU's driver does not report it."""

    index: int
    name: str | None = None
    uuid: str | None = None
    utilization_percent: float | None = None
    temperature_c: float | None = None
    limit_margin_c: float | None = None
    """Degrees Celsius between the temperature and the thermal limit."""
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_total_bytes: int | None = None
    """None on unified memory: the machine's memory is the GPU's."""
    memory_used_bytes: int | None = None
    memory_note: str | None = None
    """What contradicts itself in the driver's answers about memory; None if nothing does."""
    throttle_reasons: tuple[str, ...] | None = None
    """Active reasons in words; empty: none is active; None: the driver does not report them."""
    throttled_percent: Mapping[str, float | None] = {}
    """Percent of the time since the last sample in which the GPU was throttled, by reason."""
    processes: tuple[GpuProcess, ...] | None = None
    energy_j: float | None = None
    """Energy used since the driver was loaded; None on most GB10 drivers."""
    slowdown_c: float | None = None
    """Temperature at which the hardware slows the clock; for drivers that report this instead of the
    margin."""
    mig: bool | None = None
    """True: the GPU is split into MIG instances. None: it cannot be split, or this is unknown."""
    mig_instances: tuple[MigInstance, ...] = ()

    def bytes_of(self, pids: Container[int]) -> int:
        """Return the memory that these processes hold on the GPU, as far as it is listed."""
        return sum(process.memory_bytes or 0 for process in self.processes or () if process.pid in pids)

    @property
    def margin_c(self) -> float | None:
        """Degrees Celsius to the thermal limit, or to where the hardware slows the clock; None if unknown."""
        if self.limit_margin_c is not None:
            return self.limit_margin_c
        if self.slowdown_c is None or self.temperature_c is None:
            return None
        return self.slowdown_c - self.temperature_c


class LostGpu(Struct, frozen=True):
    """A GPU that does not answer, although the driver lists it or an earlier sample had it."""

    index: int
    name: str | None = None
    uuid: str | None = None
    reason: str | None = None
    """Why, as far as the driver reports it."""

    @property
    def label(self) -> str:
        """Index, name and UUID of the GPU in words, as far as known: "GPU 3 (NVIDIA H200, GPU-1111…)"."""
        parts = ", ".join(part for part in (self.name, self.uuid) if part)
        return f"GPU {self.index} ({parts})" if parts else f"GPU {self.index}"


class NetworkReading(Struct, frozen=True):
    """Traffic, link rate and errors of one network interface or RDMA port."""

    name: str
    kind: str
    """ethernet, rdma, wifi or other."""
    up: bool | None = None
    rx_bytes_per_s: float | None = None
    tx_bytes_per_s: float | None = None
    link_bits_per_s: float | None = None
    """The rate that the port negotiated with its peer."""
    errors_per_s: float | None = None
    """Sum of all error counters of this interface, per second."""
    bus_bits_per_s: float | None = None
    """Payload rate of the PCIe link behind the port: a 200 Gb/s port behind Gen5 x4 moves half of that."""
    errors: Mapping[str, float] = {}
    """Errors per second by counter name, for counters that moved since the previous sample."""
    rx_packets_per_s: float | None = None
    tx_packets_per_s: float | None = None
    netdev: str | None = None
    """The network interface on the same hardware, for an RDMA port."""

    @property
    def capacity_bits_per_s(self) -> float | None:
        """The lower of `link_bits_per_s` and `bus_bits_per_s`; None when neither is known."""
        rates = [rate for rate in (self.link_bits_per_s, self.bus_bits_per_s) if rate is not None]
        return min(rates) if rates else None


class SensorReading(Struct, frozen=True):
    """Reading of a temperature sensor other than the GPU's."""

    name: str
    temperature_c: float
    critical_c: float | None = None


class PowerRail(Struct, frozen=True):
    """Reading of a power rail (on a DGX Spark by the third-party hwmon driver spbm)."""

    name: str
    power_w: float | None = None
    energy_j: float | None = None


class ProcessReading(Struct, frozen=True):
    """A process as the process table lists it."""

    pid: int
    name: str
    memory_bytes: int | None = None
    """Resident set size, including pages shared with other processes."""
    cpu_percent: float | None = None
    """CPU use since the previous table; 100 is one core. None in the first table."""
    container: str | None = None
    """First 12 digits of the container's ID; None outside of containers."""
    container_name: str | None = None
    """None unless the reader may use the socket of Docker or Podman."""


class ProcessTable(Struct, frozen=True):
    """The processes that use the most memory of a machine, largest first."""

    processes: tuple[ProcessReading, ...] = ()
    count: int | None = None
    """Number of all processes of the machine, of which the table holds only the largest."""
    age_s: float | None = None
    """Seconds since the table was read: it is read less often than the rest of the sample."""


class ClockGap(Struct, frozen=True):
    """How far a machine's wall clock is ahead of the viewer's, measured over one request and its answer."""

    ahead_s: float
    """The answer's time less the middle of request and receipt."""
    error_s: float
    """The true gap is at most this far from `ahead_s`: half of the time between request and receipt."""


class NodeSample(Struct, frozen=True):
    """One sample of a machine: processor, memory, GPUs, network, sensors and processes."""

    at: float
    """Monotonic time of the sample in seconds, on the clock of the machine that holds this record."""
    cpu: CpuReading = CpuReading()
    memory: MemoryReading = MemoryReading()
    gpus: tuple[GpuReading, ...] = ()
    gpu_note: str | None = None
    """Why there is no GPU to show, in one line: no driver, no device, driver lost."""
    gpus_lost: tuple[LostGpu, ...] = ()
    """GPUs that the driver lists or listed and reports as lost or in need of a reset."""
    network: tuple[NetworkReading, ...] = ()
    sensors: tuple[SensorReading, ...] = ()
    cost_ms: float | None = None
    """Milliseconds that reading this sample took."""
    rails: tuple[PowerRail, ...] = ()
    processes: ProcessTable | None = None
    """None unless a viewer shows the process table."""
    workloads: Workloads | None = None
    """Processes of inference engines; None from an older agent."""
    kernel: KernelLog | None = None
    """What the kernel's log says about endings; None from an older agent."""
    clock: ClockGap | None = None
    """None for the viewer's own machine, and from an older agent."""
    missed: tuple[NodeSample, ...] = ()
    """Older samples that arrived with this one and were not seen before, oldest first; empty inside
    `missed`."""

    @property
    def hottest_c(self) -> float | None:
        """Temperature of the hottest GPU."""
        return max((gpu.temperature_c for gpu in self.gpus if gpu.temperature_c is not None), default=None)

    @property
    def gpu_power_w(self) -> float | None:
        """Power of all GPUs together, as far as known; None where none is."""
        powers = [gpu.power_w for gpu in self.gpus if gpu.power_w is not None]
        return sum(powers) if powers else None


# The set-up of a machine: what an operator chose or a reboot may change, and what machines of one engine
# should have in common.

UNLIMITED = 1 << 59
"""Bytes of a limit that is not set."""


class Rail(Struct, frozen=True):
    """An RDMA port and its network interface; whether it is up, and its rate, has `NetworkReading`."""

    name: str
    """As in `NetworkReading.name`."""
    netdev: str | None = None
    link_layer: str | None = None
    """"Ethernet" (RoCE) or "InfiniBand"."""
    firmware: str | None = None
    mtu: int | None = None
    """Of the network interface, in bytes."""
    carrier_changes: int | None = None
    """Times that the link came or went since boot."""
    lanes: int | None = None
    """PCIe lanes in use."""
    lanes_max: int | None = None
    """PCIe lanes that the device has; its slot may have fewer."""
    lane_gt_per_s: float | None = None
    """Speed of each lane."""
    subnets: tuple[str, ...] = ()
    """IPv4 networks of the interface, such as "10.0.0.0/24"."""
    gids: Mapping[str, str] | None = None
    """By index what each entry of its GID table is: "RoCE v2 over IPv4"; None where some cannot be read."""


class EngineSetup(Struct, frozen=True):
    """What a process of an engine on a GPU has loaded, and its limits; None where this user may not read."""

    pid: int
    nccl: str | None = None
    """Path of the NCCL library that it has mapped."""
    nccl_version: str | None = None
    """From the name of the library or of its package."""
    nccl_mark: str | None = None
    """What tells the library from others of its version: "build 5e1f7a90" by its build ID, else its size."""
    variables: Mapping[str, str] | None = None
    """The `NCCL_*` variables of its environment that a list names; never another one."""
    memlock_bytes: int | None = None
    """Most memory that it may lock; `UNLIMITED` without a limit."""
    memory_max_bytes: int | None = None
    """Limit of its control group; `UNLIMITED` without a limit."""
    image: str | None = None
    """A digest of the layers of its container's image, as this machine names them: another elsewhere."""


class MachineSetup(Struct, frozen=True):
    """The set-up of a machine; read about once a minute."""

    bios: str | None = None
    gpu_firmware: str | None = None
    """VBIOS version of the first GPU."""
    kho: str | None = None
    """Value of `kho=` on the kernel's command line, "" without it; None where that cannot be read."""
    huge_pages: int | None = None
    """Reserved huge pages."""
    rails: tuple[Rail, ...] | None = None
    """None where the kernel has no RDMA."""
    engines: tuple[EngineSetup, ...] = ()


class NodeIdentity(Struct, frozen=True):
    """What identifies a machine: operating system, driver, product, processors and addresses.

    Mostly constant.
    """

    os: str | None = None
    driver: str | None = None
    product: str | None = None
    boot_id: str | None = None
    maker: str | None = None
    """The manufacturer (sys_vendor of DMI)."""
    cpu: str | None = None
    """The processors in one line, such as "10 x Cortex-X925 + 10 x Cortex-A725"."""
    addresses: tuple[str, ...] = ()
    """IP addresses of the machine's interfaces without loopback; they show which backends run on it."""
    hostname: str | None = None
    booted_at: float | None = None
    """When it booted, as Unix time by its own clock."""
    last_boot: LastBoot | None = None
    """How the boot before this one ended; None until that is read."""
    sparktop: str | None = None
    """Version of the sparktop that reads the machine; None if that is this version."""
    simulated: bool = False
    """Whether the machine's agent reports that its readings are simulated."""
    reader_sha256: str | None = None
    """SHA-256 of the reader that this viewer sent to the machine over ssh, in hexadecimal digits; None where
    an installed sparktop reads it."""
    setup: MachineSetup | None = None
    """None from an older agent."""

    @property
    def reader_label(self) -> str | None:
        """The first 12 digits of `reader_sha256` in words, "reader 1a2b3c4d5e6f"; None without them."""
        return None if self.reader_sha256 is None else f"reader {self.reader_sha256[:12]}"


# Metrics of a machine that are plain fields of its sample: names, help texts, fields and units.
#
# `sparktop agent` writes them, and what a Prometheus has scraped of them becomes a sample again. Names are
# without `PREFIX`, and those of counters without `_total`; units are base units, and ratios from 0 to 1
# where fields have percent.


PREFIX = "sparktop_node_"
INFO, GPU_INFO = f"{PREFIX}info", f"{PREFIX}gpu_info"
"""Series with the value 1 whose labels identify the machine, and each of its GPUs."""
THROTTLE_REASON = "gpu_throttle_reason_active"
"""A series with the value 1 for each reason that slows a GPU; `THROTTLE_REASONS` counts them."""
THROTTLE_REASONS = "gpu_throttle_reasons"
GPUS = "gpus"
"""The number of GPUs that are read."""
MEMORY_PART = "memory_part_bytes"
"""A series for each part of the memory bar."""


class FieldMetric(NamedTuple):
    """A metric whose value is a field of a record, in base units."""

    name: str
    text: str
    field: str
    per: float = 1.0
    """Units of the field in one unit of the metric: 100 for percent."""
    times: float = 1.0
    """Units of the metric in one unit of the field: 1e6 for MHz."""
    is_counter: bool = False

    def metric_value(self, value: float | None) -> float | None:
        """Return a value of the field as one of the metric."""
        return None if value is None else value * self.times / self.per

    def field_value(self, value: float) -> float:
        """Return a value of the metric as one of the field."""
        return value * self.per / self.times

    @property
    def full_name(self) -> str:
        """The name as it is on the page."""
        return f"{PREFIX}{self.name}{'_total' if self.is_counter else ''}"


CPU = (
    FieldMetric("cpu_usage_ratio", "Share of all cores' time in use.", "percent", per=100),
    FieldMetric("cpu_cores", "Logical cores.", "cores"),
    FieldMetric("load1", "Load average of one minute.", "load1"),
)
"""Fields of `CpuReading`."""
MEMORY = (
    FieldMetric("memory_unified", "1 where GPUs live in the machine's memory.", "unified"),
    FieldMetric("memory_total_bytes", "Memory of the machine.", "total_bytes"),
    FieldMetric("memory_used_bytes", "Total less available.", "used_bytes"),
    FieldMetric("memory_available_bytes", "What programs could still take.", "available_bytes"),
    FieldMetric("memory_page_cache_bytes", "Cache of files.", "page_cache_bytes"),
    FieldMetric("memory_cma_free_bytes", "Free in the contiguous area.", "cma_free_bytes"),
    FieldMetric("memory_headroom_bytes", "Available less CMA free.", "headroom_bytes"),
    FieldMetric("memory_gpu_processes_bytes", "Held by GPU processes.", "gpu_processes_bytes"),
    FieldMetric("memory_unattributed_bytes", "Used, by an unknown consumer.", "unattributed_bytes"),
    FieldMetric("memory_overlap_bytes", "Counted by two parts of the bar.", "overlap_bytes"),
    FieldMetric(
        "memory_pressure_full_ratio",
        "Share of 10 s in which every task waited for memory.",
        "pressure_full_avg10",
        per=100,
    ),
    FieldMetric("swap_total_bytes", "Swap space.", "swap_total_bytes"),
    FieldMetric("swap_used_bytes", "Swap in use.", "swap_used_bytes"),
    FieldMetric("swap_in_bytes_per_second", "Read from swap.", "swap_in_bytes_per_s"),
    FieldMetric("swap_out_bytes_per_second", "Written to swap.", "swap_out_bytes_per_s"),
)
"""Fields of `MemoryReading`."""
GPU = (
    FieldMetric("gpu_usage_ratio", "Share of time in which a kernel ran.", "utilization_percent", per=100),
    FieldMetric("gpu_temperature_celsius", "Temperature of the GPU.", "temperature_c"),
    FieldMetric("gpu_limit_margin_celsius", "Degrees left to the limit.", "limit_margin_c"),
    FieldMetric("gpu_slowdown_celsius", "Where the hardware slows down.", "slowdown_c"),
    FieldMetric("gpu_power_watts", "Power that the GPU draws.", "power_w"),
    FieldMetric("gpu_power_limit_watts", "Power that it may draw.", "power_limit_w"),
    FieldMetric("gpu_energy_joules", "Since the driver was loaded.", "energy_j", is_counter=True),
    FieldMetric("gpu_sm_frequency_hertz", "Clock of the SMs.", "sm_clock_mhz", times=1e6),
    FieldMetric("gpu_sm_max_frequency_hertz", "Highest clock.", "sm_clock_max_mhz", times=1e6),
    FieldMetric("gpu_memory_total_bytes", "Memory of its own.", "memory_total_bytes"),
    FieldMetric("gpu_memory_used_bytes", "Of that, in use.", "memory_used_bytes"),
)
"""Fields of `GpuReading`."""
