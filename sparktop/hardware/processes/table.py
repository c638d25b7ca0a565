"""The processes of a machine, sorted by memory, from /proc/*/stat.

A stat file holds a process' name, state, processor time, start and memory. Reading it for 329 processes takes
2.8 ms. Reading only statm, which has just the memory, takes 1.9 ms; reading statm, comm and stat takes 6.5
ms. psutil takes 14 ms for name and memory (2-core AMD EPYC, Linux 6.18, medians of thread time).
"""

from __future__ import annotations

import os
from pathlib import Path

from sparktop.hardware.kernel_file import entries, read_bytes, read_small
from sparktop.hardware.processes.containers import ContainerReader
from sparktop.hardware.processes.stat import Process, parse_stat
from sparktop.model.node import ProcessReading, ProcessTable
from sparktop.model.text import clean

_READ_AGAIN_S = 5.0
"""Seconds after which the table is read again: it costs more than the rest of a sample."""
_FORGOTTEN_S = 60.0
"""If the previous table is older than this many seconds, CPU use since then is not reported: it is not
current."""
_MOST = 200
"""Upper limit of processes in the table; `ProcessTable.count` counts all processes."""
_CUT_NAME_BYTES = 15
"""Length to which the kernel cuts a name (TASK_COMM_LEN - 1): "VLLM::Worker_TP0" loses its number."""
_Life = tuple[int, int]
"""(pid, start): identifies a process for its lifetime, because a pid can be reused."""


class ProcessTableReader:
    """Reads the process table; returns the previous table while it is less than a few seconds old."""

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        containers: ContainerReader | None = None,
        page_bytes: int | None = None,
        ticks_per_s: int | None = None,
    ) -> None:
        """Create a reader of /proc below `root`.

        `containers` finds the containers of processes (None: a reader of its own). `page_bytes` is the size
        of a memory page, `ticks_per_s` the kernel's clock ticks per second (None: those of this machine).
        """
        self._proc = root / "proc"
        self._containers = containers or ContainerReader(root)
        self._page_bytes = page_bytes or os.sysconf("SC_PAGE_SIZE")
        self._ticks_per_s = ticks_per_s or os.sysconf("SC_CLK_TCK")
        self._read_at: float | None = None
        self._table = ProcessTable()
        self._ticks: dict[_Life, int] = {}
        self._names: dict[tuple[_Life, bytes], str] = {}

    def read(self, now: float) -> ProcessTable:
        """Return the process table at `now` (seconds), or the previous table if that is less than 5 s old.

        The CPU use of processes is None in the first table, and after a pause of a minute.
        """
        elapsed_s = None if self._read_at is None else now - self._read_at
        if elapsed_s is not None and 0 <= elapsed_s < _READ_AGAIN_S:
            table = self._table
            return ProcessTable(table.processes, table.count, elapsed_s)
        if elapsed_s is None or not 0 < elapsed_s < _FORGOTTEN_S:
            elapsed_s, self._ticks = None, {}
        processes = self._list_processes()
        before, self._ticks = (
            self._ticks,
            {(process.pid, process.start): process.ticks for process in processes},
        )
        largest = sorted(processes, key=lambda process: (-process.rss_pages, process.pid))[:_MOST]
        names = {((process.pid, process.start), process.comm): self._name(process) for process in largest}
        self._names = names
        self._read_at = now
        self._table = ProcessTable(
            processes=tuple(
                self._reading(
                    process,
                    names[(process.pid, process.start), process.comm],
                    self._cpu_percent(process, before.get((process.pid, process.start)), elapsed_s),
                )
                for process in largest
            ),
            count=len(processes) or None,
            age_s=0.0,
        )
        self._containers.learn_names(now)
        return self._table

    def _reading(self, process: Process, name: str, cpu_percent: float | None) -> ProcessReading:
        memory_bytes = process.rss_pages * self._page_bytes
        container, named = self._containers.find(process.pid, process.start)
        return ProcessReading(process.pid, name, memory_bytes, cpu_percent, container, named)

    def _list_processes(self) -> list[Process]:
        """Return every process whose stat file can be read, without kernel threads."""
        proc = str(self._proc)
        found: list[Process] = []
        for name in entries(self._proc):
            if name.isdecimal() and (content := read_small(f"{proc}/{name}/stat")) is not None:
                process = parse_stat(int(name), content)
                if process is not None:
                    found.append(process)
        return found

    def _cpu_percent(self, process: Process, before: int | None, elapsed_s: float | None) -> float | None:
        """Return the CPU use of a process since the previous table, in percent of one core.

        `before` is the process's ticks in the previous table, and `elapsed_s` the seconds since that table.
        Return None if one of them is None, or if the ticks fell.
        """
        if before is None or elapsed_s is None or process.ticks < before:
            return None
        return 100.0 * (process.ticks - before) / self._ticks_per_s / elapsed_s

    def _name(self, process: Process) -> str:
        """Return the name of a process; if the kernel has cut it, complete it from the command line."""
        known = self._names.get(((process.pid, process.start), process.comm))
        if known is not None:
            return known
        name = process.comm
        if len(name) >= _CUT_NAME_BYTES:
            command = (read_bytes(f"{self._proc}/{process.pid}/cmdline") or b"").partition(b"\0")[0]
            words = command.rpartition(b"/")[2].split(None, 1)
            if words and words[0].startswith(name):
                name = words[0]
        return clean(name.decode("utf-8", "replace"), 64) or f"pid {process.pid}"
