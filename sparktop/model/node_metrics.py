"""Metrics of a machine that are plain fields of its sample: names, help texts, fields and units.

`sparktop agent` writes them, and what a Prometheus has scraped of them becomes a sample again. Names are
without `PREFIX`, and those of counters without `_total`; units are base units, and ratios from 0 to 1 where
fields have percent.
"""

from __future__ import annotations

from typing import NamedTuple

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

    def written(self, value: float | None) -> float | None:
        """Return a value of the field as one of the metric."""
        return None if value is None else value * self.times / self.per

    def read(self, value: float) -> float:
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
