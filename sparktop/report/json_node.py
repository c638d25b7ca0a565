"""A node as JSON: part of the schema "sparktop.snapshot/1".

The keys of the schema's first release come first. Later ones follow: the parts of the memory bar, energy and
MIG, the capacity of a link's bus, errors by name, power rails, the process table, the speed state, the trend
of the headroom, the processes of engines, and the digest of the reader sent over ssh. `workloads` is null
where an older agent reads the node, `processes` unless the process table is on screen when the snapshot is
taken.
"""

from __future__ import annotations

from sparktop.model.ending import KernelLog
from sparktop.model.node import GpuReading, NodeSample, ProcessTable
from sparktop.model.snapshot import NodeView
from sparktop.model.workload import Workloads

_MEMORY_KEYS = (
    "unified",
    "total_bytes",
    "used_bytes",
    "available_bytes",
    "page_cache_bytes",
    "cma_free_bytes",
    "headroom_bytes",
    "gpu_processes_bytes",
    "unattributed_bytes",
    "swap_total_bytes",
    "swap_used_bytes",
    "swap_in_bytes_per_s",
    "swap_out_bytes_per_s",
    "pressure_full_avg10",
    "overlap_bytes",
    "oom_kills",
    "cma_total_bytes",
    "gpu_nodes_bytes",
)
_GPU_KEYS = (
    "index",
    "name",
    "uuid",
    "utilization_percent",
    "temperature_c",
    "limit_margin_c",
    "slowdown_c",
    "power_w",
    "power_limit_w",
    "energy_j",
    "sm_clock_mhz",
    "sm_clock_max_mhz",
    "memory_total_bytes",
    "memory_used_bytes",
    "memory_note",
    "mig",
)
_LOST_KEYS = ("index", "name", "uuid", "reason")
_MIG_KEYS = ("index", "name", "uuid", "memory_total_bytes", "memory_used_bytes")
_NETWORK_KEYS = (
    "name",
    "kind",
    "up",
    "rx_bytes_per_s",
    "tx_bytes_per_s",
    "rx_packets_per_s",
    "tx_packets_per_s",
    "link_bits_per_s",
    "bus_bits_per_s",
    "errors_per_s",
    "errors",
    "netdev",
)
_GROUP_KEYS = ("name", "cores", "percent", "max_mhz")
_SENSOR_KEYS = ("name", "temperature_c", "critical_c")
_RAIL_KEYS = ("name", "power_w", "energy_j")
_PROCESS_KEYS = ("pid", "name", "memory_bytes", "cpu_percent", "container", "container_name")
_WORKLOAD_KEYS = (
    "pid",
    "engine",
    "role",
    "rank",
    "model",
    "port",
    "server",
    "container",
    "container_name",
    "age_s",
    "memory_bytes",
    "cpu_percent",
    "read_bytes",
    "checkpoint_bytes",
    "oom_kills",
)
_GPU_PROCESS_KEYS = ("pid", "name", "memory_bytes", "kind")
_ENGINE_PROCESS_KEYS = ("pid", "name", "engine", "backend")
_LAST_BOOT_KEYS = ("clean", "last_line", "watchdog", "unreadable")
_KERNEL_LINE_KEYS = ("since_boot_s", "kind", "code", "pid", "text")
_HEADROOM_KEYS = ("slope_bytes_per_s", "window_s", "until_limit_s", "limit_bytes")
_SPEED_KEYS = ("word", "reason", "cause", "fix")


def fields_of(thing: object, keys: tuple[str, ...]) -> dict[str, object]:
    """Return the attributes of `thing` that are listed in `keys`, by name."""
    return {key: getattr(thing, key) for key in keys}


def node_json(node: NodeView) -> dict[str, object]:
    """Return a node as a mapping with every key of the schema; unknown values are None."""
    sample, identity = node.sample or NodeSample(at=0.0), node.identity
    return {
        "name": node.name,
        "via": node.via,
        "ok": node.ok,
        "error": node.failure.message if node.failure else None,
        "age_s": node.age_s,
        "os": identity.os,
        "driver": identity.driver,
        "product": identity.product,
        "maker": identity.maker,
        "processor": identity.cpu,
        "cpu": {
            **fields_of(sample.cpu, ("percent", "cores", "load1", "core_percent")),
            "groups": [fields_of(group, _GROUP_KEYS) for group in sample.cpu.groups],
        },
        "memory": {
            **fields_of(sample.memory, _MEMORY_KEYS),
            "parts": [fields_of(part, ("name", "size_bytes")) for part in sample.memory.parts],
        },
        "headroom": fields_of(node.headroom, _HEADROOM_KEYS),
        "speed": {**fields_of(node.speed, _SPEED_KEYS), "reason": node.speed.reason or None},
        "gpus": [_gpu(gpu) for gpu in sample.gpus],
        "gpus_lost": [fields_of(gpu, _LOST_KEYS) for gpu in node.gpus_lost],
        "gpu_note": sample.gpu_note,
        "reader_sha256": identity.reader_sha256,
        "boot_id": identity.boot_id,
        "booted_at": identity.booted_at,
        "last_boot": None if identity.last_boot is None else fields_of(identity.last_boot, _LAST_BOOT_KEYS),
        "kernel": None if sample.kernel is None else _kernel(sample.kernel),
        "throttled_60s_percent": node.throttled_percent,
        "network": [fields_of(link, _NETWORK_KEYS) for link in sample.network],
        "sensors": [fields_of(sensor, _SENSOR_KEYS) for sensor in sample.sensors],
        "rails": [fields_of(rail, _RAIL_KEYS) for rail in sample.rails],
        "processes": _processes(sample.processes),
        "workloads": _workloads(sample.workloads),
        "engine_processes": [fields_of(process, _ENGINE_PROCESS_KEYS) for process in node.engine_processes],
    }


def _kernel(log: KernelLog) -> dict[str, object]:
    return {"unreadable": log.unreadable, "lines": [fields_of(line, _KERNEL_LINE_KEYS) for line in log.lines]}


def _gpu(gpu: GpuReading) -> dict[str, object]:
    processes = None
    if gpu.processes is not None:
        processes = [fields_of(process, _GPU_PROCESS_KEYS) for process in gpu.processes]
    return {
        **fields_of(gpu, _GPU_KEYS),
        "mig_instances": [fields_of(instance, _MIG_KEYS) for instance in gpu.mig_instances],
        "throttle_reasons": gpu.throttle_reasons,
        "throttled_percent": gpu.throttled_percent,
        "processes": processes,
    }


def _workloads(found: Workloads | None) -> dict[str, object] | None:
    if found is None:
        return None
    return {
        "age_s": found.age_s,
        "compilers": found.compilers,
        "processes": [fields_of(workload, _WORKLOAD_KEYS) for workload in found.processes],
    }


def _processes(table: ProcessTable | None) -> dict[str, object] | None:
    if table is None:
        return None
    return {
        "count": table.count,
        "age_s": table.age_s,
        "largest": [fields_of(process, _PROCESS_KEYS) for process in table.processes],
    }
