"""What the machines of an engine do while the engine makes no progress: its GPUs, processes and swapping."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sparktop.analysis.placement import engine_of
from sparktop.analysis.progress import GpuWork, Standstill, all_quiet
from sparktop.model.engine import LaneSample
from sparktop.model.node import GpuReading, NodeSample
from sparktop.model.snapshot import EngineProcess
from sparktop.model.workload import COMPILERS

SWAPPING_BYTES_PER_S = 1000 * 4096.0
"""From so many bytes swapped in per second on, a machine has no time for anything else."""
_BUSY_CORE_PERCENT = 90.0
_TABLE_AGE_S = 15.0
"""A reading of processes that is older says nothing about now."""


def engine_gpus(
    name: str, gpus: Sequence[GpuReading], processes: Iterable[EngineProcess], *, alone: bool
) -> tuple[GpuReading, ...] | None:
    """Return the GPUs of one machine that the backend `name` uses; None if that is unknown.

    They are those on which its processes run. If no process is known to be its own, they are all GPUs,
    provided that the backend is `alone` on the machine.
    """
    own = {one.pid for one in processes if one.backend == name}
    found = tuple(gpu for gpu in gpus if any(one.pid in own for one in gpu.processes or ()))
    return found or (tuple(gpus) if alone and gpus else None)


def engine_cpu(sample: NodeSample, engine: str | None, gpus: Iterable[GpuReading]) -> tuple[float, ...]:
    """Return the CPU use of each of the engine's processes on a machine, in percent of one core.

    The result is empty if it is unknown.
    """
    pids = {one.pid for gpu in gpus for one in gpu.processes or () if one.kind != "graphics"}
    loads, table = sample.workloads, sample.processes
    known: list[float | None] = []
    if loads is not None and _is_fresh(loads.age_s):
        known = [one.cpu_percent for one in loads.processes if one.pid in pids or one.engine == engine]
    elif table is not None and _is_fresh(table.age_s):
        rows = (one for one in table.processes if one.pid in pids or engine_of(one.name) == engine)
        known = [one.cpu_percent for one in rows]
    return tuple(percent for percent in known if percent is not None)


def full_core_percent(percents: Iterable[float]) -> float | None:
    """Return the highest of these CPU uses if it fills a core; None if none does."""
    highest = max(percents, default=0.0)
    return highest if highest >= _BUSY_CORE_PERCENT else None


def compiler(samples: Iterable[NodeSample]) -> str | None:
    """Return which compiler runs on one of the machines, by its name if known; None if none does."""
    for sample in samples:
        table, loads = sample.processes, sample.workloads
        names = {one.name for one in table.processes} & COMPILERS if table is not None else set()
        if names:
            return min(names)
        if loads is not None and loads.compilers:
            return "a compiler runs"
    return None


def _is_fresh(age_s: float | None) -> bool:
    return age_s is not None and age_s <= _TABLE_AGE_S


def excuse_of(lane: LaneSample, samples: Collection[NodeSample]) -> str | None:
    """Return why an engine whose GPUs rest stands still without being stuck; None if no reason is known."""
    gauges = lane.gauges
    if gauges.get("sleep_operations"):
        return "it falls asleep or wakes up"
    if gauges.get("weight_updates"):
        return "its weights are being updated"
    if not lane.running and (gauges.get("deferred") or gauges.get("kv_fetching")):
        return "its requests wait for the KV cache of another server"
    program = compiler(samples)
    if program is not None:
        return f"a kernel is being compiled ({program})"
    swapped = max((one.memory.swap_in_bytes_per_s or 0.0 for one in samples), default=0.0)
    if swapped > SWAPPING_BYTES_PER_S:
        return f"its machine swaps {swapped / 1e6:.0f} MB/s in"
    return None


def rdma_mb_per_s(samples: Iterable[NodeSample]) -> float | None:
    """Return the traffic of the busiest machine's RDMA ports in MB/s, both ways together; None if unknown."""
    rates: list[float] = []
    for sample in samples:
        links = [link for link in sample.network if link.kind == "rdma" and link.up is not False]
        known = [one for link in links for one in (link.rx_bytes_per_s, link.tx_bytes_per_s)]
        measured = [one for one in known if one is not None]
        if not measured:
            return None
        rates.append(sum(measured) / 1e6)
    return max(rates, default=None)


def gpu_words(works: Sequence[GpuWork], verb: str) -> str:
    """Return what the GPUs do, such as "2 GPUs wait: 97 %, 19–20 W, 2,405 MHz"; "" if that is unknown.

    `verb` is "wait" or "work"; "" if neither is certain.
    """
    used = _span([one.utilization_percent for one in works])
    power, clock = _span([one.power_w for one in works]), _span([one.clock_mhz for one in works])
    if not used and not power:
        return ""
    several = len(works) > 1
    head = f"{len(works)} GPUs" if several else "GPU"
    head += f" {verb}{'' if several else 's'}:" if verb else ""
    parts = [f"{used} %"] if used else []
    parts += [f"{power} W"] if power else []
    parts += [f"{clock} MHz"] if clock else []
    return f"{head} {', '.join(parts)}"


def _span(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return ""
    low, high = f"{min(known):,.0f}", f"{max(known):,.0f}"
    return low if low == high else f"{low}–{high}"


def why(found: Standstill, now: Sequence[GpuWork], core_percent: float | None) -> str:
    """Return in words what speaks for the verdict on a standstill.

    `now` are the GPUs at the newest sample, `core_percent` the CPU use of a process of the engine that fills
    a core. "" where nothing is known.
    """
    if found.excuse is not None:
        return found.excuse
    if not found.made_token:
        return "no token since its start: it may still warm up"
    if found.ranks_apart is not None:
        return found.ranks_apart
    verb = "wait" if all_quiet(found) else "work" if any(gpu.busy for gpu in now) else ""
    words = gpu_words(now, "" if found.core_busy else verb)
    if not words:
        return "" if found.gpus else "only its metrics are known"
    if core_percent is not None and found.core_busy:
        return f"{words}; one core of the engine {core_percent:.0f} % busy"
    rdma = found.rdma_mb_per_s
    link = "" if rdma is None or not found.several_machines else f", RDMA {rdma:,.3g} MB/s"
    return f"{words}{link}"
