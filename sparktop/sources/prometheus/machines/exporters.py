"""Metrics of exporters on machines, and the fields of a machine's sample that they are.

Four exporters are known: sparktop's agent, NVIDIA's dcgm-exporter, nvidia_gpu_exporter, and node_exporter.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from sparktop.model import node_metrics
from sparktop.model.node_metrics import PREFIX, FieldMetric

AGENT, DCGM, SMI, NODE = "agent", "dcgm", "nvidia-smi", "node"
KINDS = (AGENT, DCGM, SMI, NODE)
"""The exporters; where several report a field, the first of them counts."""
CPU, MEMORY, GPU = "cpu", "memory", "gpu"
_MIB = float(1 << 20)
FREE, SWAP_FREE, REASONS, GPUS = "memory_free_bytes", "swap_free_bytes", "reasons", "gpus"
"""Figures that are no field of a sample, but lead to one; `REASONS` is NVML's mask of throttle reasons."""
_BLANK = float(1 << 47)
"""DCGM marks an unknown value by this number or a larger one."""


class Figure(NamedTuple):
    """The field that a metric is, and the factor from the metric's unit to the field's."""

    kind: str
    part: str
    field: str
    scale: float = 1.0

    def of(self, value: float) -> float | None:
        """Return a value of the metric as one of the field; None where it stands for "unknown"."""
        return None if self.kind == DCGM and value >= _BLANK else value * self.scale


def _agent() -> dict[str, Figure]:
    parts: tuple[tuple[str, tuple[FieldMetric, ...]], ...] = (
        (CPU, node_metrics.CPU),
        (MEMORY, node_metrics.MEMORY),
        (GPU, node_metrics.GPU),
    )
    return {
        one.full_name: Figure(AGENT, part, one.field, one.read(1.0)) for part, some in parts for one in some
    } | {f"{PREFIX}{node_metrics.GPUS}": Figure(AGENT, CPU, GPUS)}


_DCGM = {
    "DCGM_FI_DEV_GPU_UTIL": Figure(DCGM, GPU, "utilization_percent"),
    "DCGM_FI_DEV_GPU_TEMP": Figure(DCGM, GPU, "temperature_c"),
    "DCGM_FI_DEV_SLOWDOWN_TEMP": Figure(DCGM, GPU, "slowdown_c"),
    "DCGM_FI_DEV_POWER_USAGE": Figure(DCGM, GPU, "power_w"),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": Figure(DCGM, GPU, "power_limit_w"),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": Figure(DCGM, GPU, "energy_j", 1e-3),
    "DCGM_FI_DEV_SM_CLOCK": Figure(DCGM, GPU, "sm_clock_mhz"),
    "DCGM_FI_DEV_MAX_SM_CLOCK": Figure(DCGM, GPU, "sm_clock_max_mhz"),
    "DCGM_FI_DEV_FB_USED": Figure(DCGM, GPU, "memory_used_bytes", _MIB),
    "DCGM_FI_DEV_FB_FREE": Figure(DCGM, GPU, FREE, _MIB),
    "DCGM_FI_DEV_FB_TOTAL": Figure(DCGM, GPU, "memory_total_bytes", _MIB),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": Figure(DCGM, GPU, REASONS),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": Figure(DCGM, GPU, REASONS),
    # Newer names of the same fields, as their identifiers were renamed.
    "DCGM_FI_DEV_GPU_UTIL_RATIO": Figure(DCGM, GPU, "utilization_percent"),
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS": Figure(DCGM, GPU, "temperature_c"),
    "DCGM_FI_DEV_GPU_TEMP_MARGIN_CELSIUS": Figure(DCGM, GPU, "limit_margin_c"),
    "DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS": Figure(DCGM, GPU, "slowdown_c"),
    "DCGM_FI_DEV_BOARD_POWER_WATTS": Figure(DCGM, GPU, "power_w"),
    "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS": Figure(DCGM, GPU, "power_limit_w"),
}
_SMI = {
    "nvidia_smi_utilization_gpu_ratio": Figure(SMI, GPU, "utilization_percent", 100.0),
    "nvidia_smi_temperature_gpu": Figure(SMI, GPU, "temperature_c"),
    "nvidia_smi_temperature_gpu_tlimit": Figure(SMI, GPU, "limit_margin_c"),
    "nvidia_smi_power_draw_watts": Figure(SMI, GPU, "power_w"),
    "nvidia_smi_enforced_power_limit_watts": Figure(SMI, GPU, "power_limit_w"),
    "nvidia_smi_clocks_current_sm_clock_hz": Figure(SMI, GPU, "sm_clock_mhz", 1e-6),
    "nvidia_smi_clocks_max_sm_clock_hz": Figure(SMI, GPU, "sm_clock_max_mhz", 1e-6),
    "nvidia_smi_memory_used_bytes": Figure(SMI, GPU, "memory_used_bytes"),
    "nvidia_smi_memory_free_bytes": Figure(SMI, GPU, FREE),
    "nvidia_smi_memory_total_bytes": Figure(SMI, GPU, "memory_total_bytes"),
    "nvidia_smi_clocks_event_reasons_active": Figure(SMI, GPU, REASONS),
    "nvidia_smi_clocks_throttle_reasons_active": Figure(SMI, GPU, REASONS),
}
SMI_INFO = "nvidia_smi_gpu_info"
"""nvidia_gpu_exporter's series with index and name of each GPU; its figures have only the label `uuid`."""
_NODE = {
    "node_memory_MemTotal_bytes": Figure(NODE, MEMORY, "total_bytes"),
    "node_memory_MemAvailable_bytes": Figure(NODE, MEMORY, "available_bytes"),
    "node_memory_CmaFree_bytes": Figure(NODE, MEMORY, "cma_free_bytes"),
    "node_memory_SwapTotal_bytes": Figure(NODE, MEMORY, "swap_total_bytes"),
    "node_memory_SwapFree_bytes": Figure(NODE, MEMORY, SWAP_FREE),
    "node_load1": Figure(NODE, CPU, "load1"),
}
FIGURES: Mapping[str, Figure] = MappingProxyType({**_agent(), **_DCGM, **_SMI, **_NODE})
"""The figure of each metric, by its full name."""
MARKS: Mapping[str, str] = MappingProxyType(
    {
        node_metrics.INFO: AGENT,
        "DCGM_FI_DEV_GPU_TEMP": DCGM,
        "DCGM_FI_DEV_GPU_TEMP_CELSIUS": DCGM,
        SMI_INFO: SMI,
        "node_uname_info": NODE,
    }
)
"""The exporter by the name of the metric that marks it."""
AGENT_REASON = f"{PREFIX}{node_metrics.THROTTLE_REASON}"
"""The agent's series for each active throttle reason, which is its label `reason`."""
AGENT_REASONS = f"{PREFIX}{node_metrics.THROTTLE_REASONS}"
"""The agent's number of these reasons: where it has a series, no reason is known to be active."""
AGENT_PART = f"{PREFIX}{node_metrics.MEMORY_PART}"
"""The agent's series for each part of the memory bar, which is its label `part`."""
AGENT_MORE = (AGENT_REASON, AGENT_REASONS, AGENT_PART, node_metrics.GPU_INFO)
"""Series of the agent that a sample needs beside those of `FIGURES`."""
IDLE_CPU = "node_cpu_seconds_total"
MIG = "GPU_I_ID"
"""dcgm-exporter's label of a part of a GPU in MIG mode, of which it then writes only the parts. With time
slicing it writes the same figures once for each share (label `vgpu`)."""
GPU_LABELS = ("gpu", "UUID", "uuid")
"""Labels that tell the GPUs of a machine apart."""


def names_of(kinds: frozenset[str], *fields: str) -> list[str]:
    """Return the metrics of these exporters that are one of these fields; without fields, all metrics."""
    return [
        name for name, one in FIGURES.items() if one.kind in kinds and (not fields or one.field in fields)
    ]
