"""Checks of this machine: NVIDIA driver, GPUs, and memory."""

from __future__ import annotations

from dataclasses import fields

from sparktop.doctor.check import Check, Status
from sparktop.graphics import numbers
from sparktop.hardware.nvml import NvmlModule
from sparktop.model.failure import Failure
from sparktop.model.node import GpuReading, NodeIdentity, NodeSample
from sparktop.model.text import clean
from sparktop.sources.local import LocalSource

_DEADLINE_S = 8.0
"""Seconds for reading this machine: waking the driver can take a few; a driver that hangs is not waited
for."""
_SPARK = ("DGX Spark", "GB10")
_WORDS = {
    "utilization_percent": "use",
    "temperature_c": "temperature",
    "power_w": "power",
    "power_limit_w": "power limit",
    "sm_clock_mhz": "SM clock",
    "memory_used_bytes": "memory",
    "throttle_reasons": "throttling",
    "processes": "processes",
}
_NOT_THERE = "no NVIDIA"
"""Beginning of the notes in `sparktop.hardware.nvml` that mean that the machine has no GPU, which is not a
fault."""


async def look_at_machine(nvml: NvmlModule | None = None) -> tuple[NodeSample | Failure, NodeIdentity]:
    """Read a sample of this machine, as the monitor does; return the sample and the machine's identity.

    If the driver hangs, a `Failure` is returned instead of the sample.
    """
    source = LocalSource("this machine", nvml=nvml)
    try:
        reading = await source.poll(_DEADLINE_S)
        return reading, source.identity or NodeIdentity()
    finally:
        await source.close()


def check_machine(reading: NodeSample | Failure, identity: NodeIdentity) -> list[Check]:
    """Return the checks of the driver, each GPU and the memory, from a sample of this machine."""
    if isinstance(reading, Failure):
        advice = "does nvidia-smi hang too? then reload the driver or restart the machine"
        return [Check("driver", Status.FAIL, reading.message, advice)]
    return [*_check_driver(reading, identity), _check_memory(reading, identity)]


def _is_spark(reading: NodeSample, identity: NodeIdentity) -> bool:
    names = (identity.product or "", *(gpu.name or "" for gpu in reading.gpus))
    return any(word in name for word in _SPARK for name in names)


def _check_driver(reading: NodeSample, identity: NodeIdentity) -> list[Check]:
    version = f"driver {clean(identity.driver, 40)}" if identity.driver else "driver without a version"
    checks = [_check_gpu(gpu, version) for gpu in reading.gpus]
    note = reading.gpu_note
    if note is None:
        return checks
    return [*checks, check_missing_gpu("driver", note, reading, identity)]


def check_missing_gpu(name: str, note: str, reading: NodeSample, identity: NodeIdentity) -> Check:
    """Return the check `name` of a machine, here or elsewhere, of which `note` says why it reports no GPU.

    A machine may have no NVIDIA driver, unless it is a DGX Spark.
    """
    if note.startswith(_NOT_THERE) and not _is_spark(reading, identity):
        return Check(name, Status.SKIP, note)
    return Check(name, Status.FAIL, note, "sudo nvidia-smi shows what the driver itself says")


def _check_gpu(gpu: GpuReading, version: str) -> Check:
    name = f"gpu {gpu.index}"
    model = clean(gpu.name or "without a name", 60)
    missing = [
        _WORDS[one.name] for one in fields(gpu) if one.name in _WORDS and getattr(gpu, one.name) is None
    ]
    if len(missing) == len(_WORDS):
        advice = "sudo nvidia-smi shows what the driver itself says"
        return Check(name, Status.WARN, f"{model}, {version}: reports no figures", advice)
    gaps = f"; not reported: {', '.join(missing)}" if missing else ""
    return Check(name, Status.OK, f"{model}, {version}{gaps}")


def _check_memory(reading: NodeSample, identity: NodeIdentity) -> Check:
    name = "memory"
    memory = reading.memory
    total = numbers.data(memory.total_bytes, 12).strip()
    notes = [clean(gpu.memory_note, 200) for gpu in reading.gpus if gpu.memory_note]
    if memory.handover_cause is not None:
        seen = f"{total}; {memory.handover_cause.partition(':')[0]}, which no program can use"
        advice = "kho=off on the kernel's command line: RDMA registration can fail with ENOMEM"
        return Check(name, Status.WARN, seen, advice)
    if notes:
        advice = "nvidia-smi -q shows what the driver says"
        return Check(name, Status.WARN, f"{total}; {'; '.join(notes)}", advice)
    if memory.unified:
        headroom = numbers.data(memory.headroom_bytes, 12).strip()
        return Check(name, Status.OK, f"{total} shared with the GPU (unified), headroom {headroom}")
    if _is_spark(reading, identity):
        advice = "headroom is judged as on a machine with GPU memory of its own: please report the driver"
        return Check(name, Status.WARN, f"{total}, not recognised as shared with the GPU", advice)
    if memory.unified is None:
        return Check(name, Status.OK, f"{total}; no GPU reports whether it shares this memory")
    return Check(name, Status.OK, f"{total}; the GPU has memory of its own")
