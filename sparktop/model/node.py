"""What one look at a machine told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CoreGroup:
    """Cores of one design: a GB10 has ten big and ten little ones."""

    name: str
    """The design's name, "Cortex-X925", or what the kernel tells instead."""
    cores: tuple[int, ...] = ()
    """Numbers of its logical cores: places in `CpuReading.core_percent`."""
    percent: float | None = None
    """All its cores together, 0 to 100."""
    max_mhz: int | None = None


@dataclass(frozen=True, slots=True)
class CpuReading:
    """Processor use over the time since the sample before (None in a first sample)."""

    percent: float | None = None
    """All cores together, 0 to 100."""
    core_percent: tuple[float, ...] = ()
    """Each logical core, 0 to 100; empty when unknown."""
    cores: int | None = None
    load1: float | None = None
    """1-minute load average."""
    groups: tuple[CoreGroup, ...] = ()
    """Where cores differ, each design; the fastest first. Empty where all are alike or nobody knows."""


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
"""Names of the parts of the memory bar, in its order; a newer machine may send others."""


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One stretch of the memory bar."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Memory of the machine; `unified` means that the GPU lives in it too (GB10)."""

    unified: bool | None = None
    """None: no GPU was asked, so nobody knows."""
    total_bytes: int | None = None
    used_bytes: int | None = None
    """MemTotal - MemAvailable (with HugePages: total - free huge pages)."""
    available_bytes: int | None = None
    """MemAvailable (with HugePages: HugePages_Free x Hugepagesize)."""
    page_cache_bytes: int | None = None
    """Buffers + Cached - Shmem: reclaimable."""
    cma_free_bytes: int | None = None
    headroom_bytes: int | None = None
    """available - CmaFree: what can still be taken before the kernel starts to kill (MemAvailable counts CMA
    pages that ordinary allocations cannot use)."""
    gpu_processes_bytes: int | None = None
    """Sum over NVML's processes; only on unified memory."""
    unattributed_bytes: int | None = None
    """Used, yet neither of a GPU process nor of anything that /proc/meminfo names."""
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    swap_in_bytes_per_s: float | None = None
    swap_out_bytes_per_s: float | None = None
    pressure_full_avg10: float | None = None
    """Percent of the last 10 s in which every task waited for memory (PSI)."""
    huge_pages: bool = False
    """True: available is counted from HugePages."""
    parts: tuple[MemoryPart, ...] = ()
    """The bar: parts that add up to `total_bytes` exactly; empty when they cannot be told."""
    overlap_bytes: int | None = None
    """What the parts counted twice and had to be cut by to add up: GPU pages that the host counts as well."""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds GPU memory."""

    pid: int
    name: str
    memory_bytes: int | None = None
    kind: str | None = None
    """compute, graphics or both; None when not told."""
    mig_index: int | None = None
    """The MIG instance that it runs in; None without MIG."""


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A slice of a GPU in MIG mode."""

    index: int
    name: str | None = None
    """As NVIDIA names profiles: "1g.10gb"; or the device's name."""
    uuid: str | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU; every field alone may be unknown to its driver."""

    index: int
    name: str | None = None
    uuid: str | None = None
    utilization_percent: float | None = None
    temperature_c: float | None = None
    limit_margin_c: float | None = None
    """Degrees left to the thermal limit (a margin, not a ceiling)."""
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_total_bytes: int | None = None
    """None on unified memory: the machine's memory is the GPU's."""
    memory_used_bytes: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    """Words; empty: none is active; None: the driver does not say."""
    throttled_percent: Mapping[str, float | None] = field(default_factory=dict)
    """Share of the time since the last sample, by reason."""
    processes: tuple[GpuProcess, ...] | None = None
    energy_j: float | None = None
    """Since the driver was loaded; None on most GB10 drivers."""
    slowdown_c: float | None = None
    """Where the hardware slows the clock; for drivers that tell this and no margin."""
    mig: bool | None = None
    """True: split into instances; None: the GPU cannot be, or nobody knows."""
    mig_instances: tuple[MigInstance, ...] = ()


@dataclass(frozen=True, slots=True)
class LostGpu:
    """A GPU that was there, or that the driver lists, and that does not answer."""

    index: int
    name: str | None = None
    uuid: str | None = None
    reason: str | None = None
    """Why, as far as the driver tells."""

    @property
    def label(self) -> str:
        """The GPU in words: "GPU 3 (NVIDIA H200, GPU-1111…)"."""
        known = ", ".join(part for part in (self.name, self.uuid) if part)
        return f"GPU {self.index} ({known})" if known else f"GPU {self.index}"


@dataclass(frozen=True, slots=True)
class NetworkReading:
    """One network interface."""

    name: str
    kind: str
    """ethernet, rdma, wifi or other."""
    up: bool | None = None
    rx_bytes_per_s: float | None = None
    tx_bytes_per_s: float | None = None
    link_bits_per_s: float | None = None
    """What the port agreed on with its peer."""
    errors_per_s: float | None = None
    """All errors that are counted here, together."""
    bus_bits_per_s: float | None = None
    """What its PCIe link can carry: a 200 Gb/s port behind Gen5 x4 moves half of that."""
    errors: Mapping[str, float] = field(default_factory=dict)
    """Errors per second by the counter's name, of those that moved since the look before."""
    rx_packets_per_s: float | None = None
    tx_packets_per_s: float | None = None
    netdev: str | None = None
    """Of an RDMA port: the network interface on the same hardware."""

    @property
    def capacity_bits_per_s(self) -> float | None:
        """What can pass: the lower of link and bus; None when neither is known."""
        known = [rate for rate in (self.link_bits_per_s, self.bus_bits_per_s) if rate is not None]
        return min(known) if known else None


@dataclass(frozen=True, slots=True)
class SensorReading:
    """A temperature sensor beside the GPU's."""

    name: str
    temperature_c: float
    critical_c: float | None = None


@dataclass(frozen=True, slots=True)
class PowerRail:
    """A power rail that the machine measures (the third-party hwmon driver spbm on a DGX Spark)."""

    name: str
    power_w: float | None = None
    energy_j: float | None = None


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """One line of the process table."""

    pid: int
    name: str
    memory_bytes: int | None = None
    """Resident set, pages shared with others included."""
    cpu_percent: float | None = None
    """Of one core, since the table before; None in a first table."""


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """The processes of a machine, the largest first."""

    processes: tuple[ProcessReading, ...] = ()
    count: int | None = None
    """How many there are; the table holds the largest of them only."""
    age_s: float | None = None
    """Seconds since it was read: it is read more seldom than the rest."""


@dataclass(frozen=True, slots=True)
class NodeSample:
    """One look at a machine."""

    at: float
    """Monotonic seconds of this viewer, beside the reading."""
    cpu: CpuReading = CpuReading()
    memory: MemoryReading = MemoryReading()
    gpus: tuple[GpuReading, ...] = ()
    gpu_note: str | None = None
    """One honest line when there is no GPU to show: no driver, no device, driver lost."""
    gpus_lost: tuple[LostGpu, ...] = ()
    """GPUs that the driver lists or listed, and that it calls lost or in need of a reset."""
    network: tuple[NetworkReading, ...] = ()
    sensors: tuple[SensorReading, ...] = ()
    cost_ms: float | None = None
    """What taking this sample cost, wall time."""
    rails: tuple[PowerRail, ...] = ()
    processes: ProcessTable | None = None
    """None unless somebody looks at it."""
    missed: tuple[NodeSample, ...] = ()
    """Older samples that came with this one and were not seen before, oldest first; empty inside `missed`."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """What a machine is; read once."""

    os: str | None = None
    driver: str | None = None
    product: str | None = None
    boot_id: str | None = None
    maker: str | None = None
    """Who built it (sys_vendor of DMI)."""
    cpu: str | None = None
    """The processors in a line: "10 x Cortex-X925 + 10 x Cortex-A725"."""
    addresses: tuple[str, ...] = ()
    """IP addresses of its interfaces, loopback left out: which backends run here."""
    hostname: str | None = None
    sparktop: str | None = None
    """Version of the sparktop that reads it, where that is not this one."""
    simulated: bool = False
    """Its agent says that it makes the readings up."""
