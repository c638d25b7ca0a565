"""The instances of a GPU in MIG mode: their profile names and their memory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from sparktop.hardware.gpu.memory import ask_memory
from sparktop.hardware.nvml import GpuLostError, Nvml
from sparktop.model.node import MigInstance
from sparktop.model.text import clean
from sparktop.values import dataclass

_LAYOUT_AGAIN_S = 30.0
"""Seconds between two reads of the list of instances, which only an administrator changes."""
_MEMORY_AGAIN_S = 5.0
"""Seconds between two reads of the instances' memory, which take up to seven calls per GPU."""
_MOST_SLICES = 7
"""Most instances that any GPU so far supports; used when the driver does not report the maximum."""
_ENABLED = 1
"""NVML_DEVICE_MIG_ENABLE."""
_MARK = " MIG "
"""Separates the GPU's name from the profile name in an instance's name: "NVIDIA H100 80GB HBM3 MIG
1g.10gb"."""
_MIB, _GIB = 1024**2, 1024**3
_MEMORY_EIGHTHS = 8
"""A profile's memory is counted in eighths of the GPU's memory, rounded up."""


@dataclass(frozen=True, slots=True)
class MigSlice:
    """A MIG instance with its NVML handle and its ids."""

    reading: MigInstance
    handle: object
    ids: tuple[int, int] | None = None
    """(GPU instance id, compute instance id), as NVML's process lists name the instance."""


class MigReader:
    """Reads the MIG instances of one GPU."""

    def __init__(self, index: int, handle: object) -> None:
        """Create a reader for the GPU with the index `index` and the NVML handle `handle`."""
        self._index = index
        self._handle = handle
        self._slices: tuple[MigSlice, ...] = ()
        self._layout_again_at: float | None = None
        self._memory_again_at: float | None = None

    def read(self, nvml: Nvml, now: float, gpu_bytes: int | None) -> tuple[bool | None, tuple[MigSlice, ...]]:
        """Return whether MIG mode is on (None: the GPU does not support it), and the GPU's MIG instances.

        `gpu_bytes` is the GPU's memory. Raises GpuLostError when the GPU itself is lost.
        """
        mode = nvml.ask_seldom(
            now, self._index, "nvmlDeviceGetMigMode", self._handle, every_s=_LAYOUT_AGAIN_S
        )
        if mode is None or int(mode[0]) != _ENABLED:
            self._slices, self._layout_again_at = (), None
            return (None if mode is None else False), ()
        if self._layout_again_at is None or now >= self._layout_again_at:
            self._layout_again_at, self._memory_again_at = now + _LAYOUT_AGAIN_S, None
            self._slices = self._layout(nvml, now, gpu_bytes)
        if self._memory_again_at is None or now >= self._memory_again_at:
            self._memory_again_at = now + _MEMORY_AGAIN_S
            self._slices = tuple(self._with_memory(nvml, now, instance) for instance in self._slices)
        return True, self._slices

    def _layout(self, nvml: Nvml, now: float, gpu_bytes: int | None) -> tuple[MigSlice, ...]:
        """Return the GPU's current MIG instances.

        An instance that was known before keeps its name and ids. NVML asks for instances by numbers from 0 up
        to a maximum; numbers in between may be without an instance.
        """
        count = nvml.ask_seldom(now, self._index, "nvmlDeviceGetMaxMigDeviceCount", self._handle)
        known = {instance.reading.index: instance for instance in self._slices}
        found = []
        for place in range(_MOST_SLICES if count is None else int(count)):
            handle = self._ask(nvml, now, place, "nvmlDeviceGetMigDeviceHandleByIndex", self._handle, place)
            if handle is None:
                continue
            uuid = clean(self._ask(nvml, now, place, "nvmlDeviceGetUUID", handle) or "", 96) or None
            old = known.get(place)
            if old is not None and uuid is not None and old.reading.uuid == uuid:
                found.append(replace(old, handle=handle))
            else:
                found.append(self._meet(nvml, now, place, handle, uuid, gpu_bytes))
        return tuple(found)

    def _meet(
        self, nvml: Nvml, now: float, place: int, handle: object, uuid: str | None, gpu_bytes: int | None
    ) -> MigSlice:
        """Return a MIG instance that was not known before, with its profile name and ids."""
        name = clean(self._ask(nvml, now, place, "nvmlDeviceGetName", handle) or "") or None
        if name is None or _MARK not in name:
            attributes = self._ask(nvml, now, place, "nvmlDeviceGetAttributes", handle)
            name = profile_name(attributes, gpu_bytes) or name
        else:
            name = name.rpartition(_MARK)[2]
        ids = [
            self._ask(nvml, now, place, f"nvmlDeviceGet{kind}InstanceId", handle)
            for kind in ("Gpu", "Compute")
        ]
        known = None if None in ids else (int(ids[0]), int(ids[1]))
        return MigSlice(MigInstance(place, name, uuid), handle, known)

    def _with_memory(self, nvml: Nvml, now: float, instance: MigSlice) -> MigSlice:
        """Return a copy of a MIG instance with its current memory sizes; None for an unreadable size."""
        place = instance.reading.index
        try:
            answer = ask_memory(nvml, now, self._index, instance.handle, place=place)
        except GpuLostError:
            self._layout_again_at = now
            answer = None
        total, used = (None, None) if answer is None else (int(answer.total) or None, int(answer.used))
        return replace(
            instance, reading=replace(instance.reading, memory_total_bytes=total, memory_used_bytes=used)
        )

    def _ask(self, nvml: Nvml, now: float, place: int, function: str, *args: object) -> Any:  # noqa: ANN401 - as Nvml.ask
        """Call an NVML function for the MIG instance at `place`; return its result, or None on an error.

        If NVML reports the GPU as lost, only this instance has been removed: return None, and read the list
        of instances again at the next reading.
        """
        try:
            return nvml.ask(now, self._index, function, *args, key=(function, place))
        except GpuLostError:
            self._layout_again_at = now
            return None


def profile_name(attributes: Any, gpu_bytes: int | None) -> str | None:  # noqa: ANN401 - the library's own structure
    """Return the profile name, such as "1c.3g.40gb", of a MIG instance with these NVML attributes.

    The name states how many slices of the GPU the instance has, and its memory in GB. The memory is rounded
    to eighths of the GPU's memory (`gpu_bytes`), as in NVIDIA's device plugin. None if an attribute is
    missing.
    """
    slices = int(getattr(attributes, "gpuInstanceSliceCount", 0))
    compute = int(getattr(attributes, "computeInstanceSliceCount", 0))
    held_bytes = int(getattr(attributes, "memorySizeMB", 0)) * _MIB
    if not slices or not held_bytes or not gpu_bytes:
        return None
    eighths = math.ceil(held_bytes / gpu_bytes * _MEMORY_EIGHTHS)
    gigabytes = round(eighths / _MEMORY_EIGHTHS * math.ceil(gpu_bytes / _GIB))
    part = f"{compute}c." if compute and compute != slices else ""
    return f"{part}{slices}g.{gigabytes}gb"
