"""Processes that hold GPU memory, as the driver lists them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparktop.hardware.gpu.mig import MigSlice
from sparktop.hardware.kernel_file import read_text
from sparktop.hardware.nvml import GpuLostError, Nvml
from sparktop.model.node import GpuProcess
from sparktop.model.text import clean
from sparktop.values import dataclass

_COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
_GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses"
_GRAPHICS_AGAIN_S = 5.0
"""Seconds between two reads of the graphics processes, which hold little memory and serve no requests."""
_MOST = 256
"""Upper limit of processes shown per GPU."""
_NOT_KNOWN = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE: the driver does not report the memory of this process."""


@dataclass(slots=True)
class _Held:
    """GPU memory and type of one process, merged from all NVML lists that contain the process."""

    memory_bytes: int | None
    kind: str
    mig_index: int | None


class GpuProcessReader:
    """Reads the processes of GPUs; caches the name of each process while the process holds GPU memory."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc = root / "proc"
        self._names: dict[tuple[int, int], str] = {}

    def read(
        self, nvml: Nvml, index: int, handle: object, now: float, slices: Sequence[MigSlice] = ()
    ) -> tuple[GpuProcess, ...] | None:
        """Return the processes of the GPU `index`, sorted by memory, largest first.

        None if the driver lists neither compute nor graphics processes. On a GPU in MIG mode, the driver
        lists all processes only to privileged programs. For other programs, the process lists of the GPU's
        MIG instances (`slices`) are joined.
        """
        computing = nvml.ask(now, index, _COMPUTE, handle)
        if computing is None and slices:
            computing = _of_slices(nvml, index, now, slices)
        drawing = nvml.ask_seldom(now, index, _GRAPHICS, handle, every_s=_GRAPHICS_AGAIN_S)
        if computing is None and drawing is None:
            return None
        places = {one.ids: one.reading.index for one in slices if one.ids is not None}
        held: dict[int, _Held] = {}
        for kind, listed in (("compute", computing), ("graphics", drawing)):
            for process in (listed or ())[:_MOST]:
                _add(held, process, kind, places)
        names = {(index, pid): self._names.get((index, pid)) or self._name(nvml, pid, now) for pid in held}
        self._names = {key: name for key, name in self._names.items() if key[0] != index} | names
        found = [
            GpuProcess(pid, names[index, pid], one.memory_bytes, one.kind, one.mig_index)
            for pid, one in held.items()
        ]
        return tuple(sorted(found, key=lambda process: (-(process.memory_bytes or 0), process.pid)))

    def _name(self, nvml: Nvml, pid: int, now: float) -> str:
        """Return the name of a process, from the driver or else from /proc.

        The driver also knows the names of processes in other containers.
        """
        try:
            name = nvml.ask(now, None, "nvmlSystemGetProcessName", pid)
        except GpuLostError:
            name = None
        if not name:
            name = read_text(str(self._proc / str(pid) / "comm")) or ""
        if name.startswith("/"):
            name = name.split()[0].rsplit("/", 1)[-1]
        return clean(name) or f"pid {pid}"


def _of_slices(nvml: Nvml, index: int, now: float, slices: Sequence[MigSlice]) -> list[Any] | None:
    """Return the joined process lists of all MIG instances; None when no instance's list can be read."""
    lists = []
    for one in slices:
        try:
            lists.append(nvml.ask(now, index, _COMPUTE, one.handle, key=(_COMPUTE, one.reading.index)))
        except GpuLostError:
            continue  # an instance that was removed just now
    if all(listed is None for listed in lists):
        return None
    return [process for listed in lists for process in listed or ()]


def _add(held: dict[int, _Held], process: Any, kind: str, places: dict[tuple[int, int], int]) -> None:  # noqa: ANN401 - the library's own structure
    """Add the NVML process entry `process` to `held`, which has one entry for each process id.

    `kind` is the NVML list that has the entry, "compute" or "graphics". A process in both lists gets the kind
    "both", and its memory is counted once. `places` has the number of each MIG instance by its two ids.
    """
    pid, memory = int(process.pid), _memory_bytes(process)
    known = held.get(pid)
    if known is None:
        ids = (getattr(process, "gpuInstanceId", -1), getattr(process, "computeInstanceId", -1))
        held[pid] = _Held(memory, kind, places.get(ids))
        return
    if known.kind != kind:
        known.kind = "both"
    known.memory_bytes = max(
        (size for size in (known.memory_bytes, memory) if size is not None), default=None
    )


def _memory_bytes(process: Any) -> int | None:  # noqa: ANN401 - the library's own structure
    """Return the GPU memory that a process holds; None when the driver does not report it."""
    used = getattr(process, "usedGpuMemory", None)
    return None if used is None or used >= _NOT_KNOWN or used < 0 else int(used)
