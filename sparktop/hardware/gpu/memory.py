"""A GPU's memory: its size and use, and whether it is the machine's memory."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable
from typing import Any

from sparktop.hardware.nvml import Nvml
from sparktop.values import dataclass

_ATS = 2
"""NVML_DEVICE_ADDRESSING_MODE_ATS: CPU and GPU share page tables."""
_CLOCK_MEMORY = 2
"""NVML_CLOCK_MEM."""
_UNIFIED_NAME = re.compile(r"\bGB10\b")
"""Names of GPUs that use the machine's memory and have none of their own, whatever their driver reports."""
_NEAR = 0.10
"""A GPU whose memory size differs from the machine's by at most this fraction may be using the machine's
memory."""
_UNIFIED_AGAIN_S = 30.0
"""Seconds between two memory queries to a GPU that uses the machine's memory: the result is not shown."""
_VERSION_1, _VERSION_2, _MEMORY_CLOCK = "memory v1", "memory v2", "memory clock"
"""Keys of fields that are read with the same function."""


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.1f} GiB"


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """A GPU's memory as the NVIDIA driver reports it."""

    unified: bool | None = None
    """Whether the GPU uses the machine's memory; None until the driver has reported."""
    total_bytes: int | None = None
    """Size of the GPU's own memory; None if the GPU uses the machine's memory, even if the driver reports a
    size."""
    used_bytes: int | None = None
    note: str | None = None
    """What contradicts itself in the driver's answers; None if nothing does."""


def ask_memory(nvml: Nvml, now: float, index: int, handle: object, *, place: Hashable = None) -> Any:  # noqa: ANN401 - the library's own structure
    """Return NVML's structure with `total` and `used` bytes of a GPU; None on an error.

    With `place`, `handle` belongs to the GPU's MIG instance number `place`.
    """
    version, keys = nvml.constant("nvmlMemory_v2"), ((_VERSION_2, place), (_VERSION_1, place))
    answer = None
    if version is not None:
        answer = nvml.ask(now, index, "nvmlDeviceGetMemoryInfo", handle, version, key=keys[0])
    # Version 1 counts what the driver reserves as used: only for drivers without version 2.
    if answer is None and (version is None or nvml.is_unknown(now, index, keys[0])):
        answer = nvml.ask(now, index, "nvmlDeviceGetMemoryInfo", handle, key=keys[1])
    return answer


class GpuMemoryReader:
    """Reads the memory of one GPU, and detects whether the GPU uses the machine's memory."""

    def __init__(self, index: int, handle: object) -> None:
        """Create a reader for the GPU with the index `index` and the NVML handle `handle`."""
        self._index = index
        self._handle = handle
        self._unified: bool | None = None
        self._again_at: float | None = None
        self._note: str | None = None

    def read(
        self,
        nvml: Nvml,
        now: float,
        name: str | None,
        machine_bytes: int | None,
        *,
        has_own_node: bool = False,
    ) -> GpuMemory:
        """Return the memory of the GPU called `name`, in a machine with `machine_bytes` of memory.

        A coherent GPU (addressing mode ATS) without a NUMA node of its own (`has_own_node`) and without a
        memory clock uses the machine's memory, whatever size the driver reports.

        The driver of a GB10, which has no memory of its own, reports NOT_SUPPORTED, a total of 0 or the
        machine's total. Other GPUs can give the same answers for other reasons: a discrete GPU without the
        function, or an H200 in a machine of 128 GiB. For these GPUs the memory clock decides, because only a
        GPU with its own memory has a memory clock.
        """
        if _UNIFIED_NAME.search(name or ""):
            self._unified = True
            return GpuMemory(unified=True)
        if self._again_at is not None and now < self._again_at:
            return GpuMemory(self._unified, note=self._note)
        self._again_at = None
        answer = ask_memory(nvml, now, self._index, self._handle)
        if answer is None:
            # A transient error does not reveal the kind of memory; a memory clock does.
            if self._unified is None or nvml.says_unsupported(self._index, (_VERSION_1, None)):
                self._decide(nvml, now, hinted=nvml.says_unsupported(self._index, (_VERSION_1, None)))
            return GpuMemory(self._unified)
        total = int(answer.total)
        if total and not has_own_node and self._is_coherent(nvml, now):
            self._decide(nvml, now, hinted=True)
            if self._unified and machine_bytes and abs(total - machine_bytes) > _NEAR * machine_bytes:
                self._note = f"the driver reports {_gib(total)} of its own, but it uses the machine's memory"
        elif total and (machine_bytes is None or abs(total - machine_bytes) > _NEAR * machine_bytes):
            self._unified = False
        else:
            self._decide(nvml, now, hinted=True)
        if self._unified:
            self._again_at = now + _UNIFIED_AGAIN_S
        if self._unified or not total:
            return GpuMemory(self._unified, note=self._note)
        # Where the memory clock could not be read this time, a reported total is still used.
        return GpuMemory(unified=False, total_bytes=total, used_bytes=int(answer.used))

    def checked(self, memory: GpuMemory, held_bytes: int, machine_bytes: int | None) -> GpuMemory:
        """Return `memory`, corrected where processes hold more than the driver says that there is.

        What does not fit into the GPU's memory is in the machine's, if that is large enough.
        """
        total = memory.total_bytes
        if total is None or held_bytes <= (1 + _NEAR) * total:
            return memory
        note = f"contradictory: the driver reports {_gib(total)}, but processes hold {_gib(held_bytes)}"
        if machine_bytes is None or held_bytes > machine_bytes:
            return GpuMemory(memory.unified, total, memory.used_bytes, note)
        self._unified, self._note = True, f"{note}; taken as the machine's memory"
        self._again_at = math.inf
        return GpuMemory(unified=True, note=self._note)

    def _is_coherent(self, nvml: Nvml, now: float) -> bool:
        """Return whether CPU and GPU share page tables (addressing mode ATS)."""
        mode: int | None = nvml.ask_seldom(now, self._index, "nvmlDeviceGetAddressingMode", self._handle)
        return mode == _ATS

    def _decide(self, nvml: Nvml, now: float, *, hinted: bool) -> None:
        """Set `_unified` to False if the GPU has a memory clock, and to True if its memory clock is 0.

        Only a GPU with its own memory has a memory clock. If the driver does not support the query for the
        clock, set `_unified` to True if `hinted`, and leave it unchanged otherwise. `hinted` is true if the
        driver's answer about memory fits a GPU without its own memory.
        """
        args = (self._handle, _CLOCK_MEMORY)
        clock = nvml.ask_seldom(now, self._index, "nvmlDeviceGetMaxClockInfo", *args, key=_MEMORY_CLOCK)
        if clock is not None:
            self._unified = not clock
        elif hinted and nvml.is_unknown(now, self._index, _MEMORY_CLOCK):
            self._unified = True
