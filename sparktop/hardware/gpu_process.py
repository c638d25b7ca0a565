"""Processes that hold GPU memory, as the driver lists them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparktop.hardware.kernel_file import read_text
from sparktop.hardware.nvml import GpuLostError, Nvml
from sparktop.model.node import GpuProcess
from sparktop.model.text import clean

_LISTS = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")
_MOST = 256
"""Processes of one GPU shown, at most."""
_NOT_KNOWN = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE."""


class GpuProcessReader:
    """Lists the processes of GPUs; looks a name up once, as long as its process is there."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc = root / "proc"
        self._names: dict[tuple[int, int], str] = {}

    def read(self, nvml: Nvml, index: int, handle: object, now: float) -> tuple[GpuProcess, ...] | None:
        """Give the GPU's processes, largest first; None when the driver lists none of either kind."""
        lists = [nvml.ask(now, index, function, handle) for function in _LISTS]
        if all(listed is None for listed in lists):
            return None
        held: dict[int, int | None] = {}
        for process in (process for listed in lists for process in (listed or ())[:_MOST]):
            pid, memory = int(process.pid), _memory_bytes(process)
            # One that computes and draws stands in both lists, with the same memory.
            held[pid] = max((size for size in (held.get(pid), memory) if size is not None), default=None)
        names = {(index, pid): self._names.get((index, pid)) or self._name(nvml, pid, now) for pid in held}
        self._names = {key: name for key, name in self._names.items() if key[0] != index} | names
        found = [GpuProcess(pid, names[index, pid], memory) for pid, memory in held.items()]
        return tuple(sorted(found, key=lambda process: (-(process.memory_bytes or 0), process.pid)))

    def _name(self, nvml: Nvml, pid: int, now: float) -> str:
        """What the process calls itself: the driver knows it across containers, /proc only here."""
        try:
            name = nvml.ask(now, None, "nvmlSystemGetProcessName", pid)
        except GpuLostError:
            name = None
        if not name:
            name = read_text(str(self._proc / str(pid) / "comm")) or ""
        if name.startswith("/"):
            name = name.split()[0].rsplit("/", 1)[-1]
        return clean(name) or f"pid {pid}"


def _memory_bytes(process: Any) -> int | None:  # noqa: ANN401 - the library's own structure
    """The memory that a process holds; None when the driver does not say."""
    used = getattr(process, "usedGpuMemory", None)
    return None if used is None or used >= _NOT_KNOWN or used < 0 else int(used)
