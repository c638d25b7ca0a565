"""What one look at a machine told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_NOTHING: Mapping[str, float | None] = MappingProxyType({})


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


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds GPU memory."""

    pid: int
    name: str
    memory_bytes: int | None = None


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
    throttled_percent: Mapping[str, float | None] = field(default_factory=lambda: _NOTHING)
    """Share of the time since the last sample, by reason."""
    processes: tuple[GpuProcess, ...] | None = None


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
    errors_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class SensorReading:
    """A temperature sensor beside the GPU's."""

    name: str
    temperature_c: float
    critical_c: float | None = None


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
    network: tuple[NetworkReading, ...] = ()
    sensors: tuple[SensorReading, ...] = ()
    cost_ms: float | None = None
    """What taking this sample cost, wall time."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """What a machine is; read once."""

    os: str | None = None
    driver: str | None = None
    product: str | None = None
    boot_id: str | None = None
