"""Finds the processes of inference engines at little cost: only new processes are read.

The list of process IDs takes 0.1 ms; a command line takes 8 µs. So every few seconds the IDs are listed, and
only command lines that are new, or that may still change (a Python process gets its title seconds after its
start), are read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path

from sparktop.hardware.kernel_file import parse_int, read_small
from sparktop.hardware.processes.checkpoint import CheckpointReader
from sparktop.hardware.processes.containers import ContainerReader
from sparktop.hardware.processes.stat import Process, parse_stat
from sparktop.hardware.processes.titles import UNSETTLED, Title, arguments_of, program_of, read_title
from sparktop.model.workload import COMPILERS, Workload, Workloads
from sparktop.values import dataclass

_READ_AGAIN_S, _SETTLED_AGAIN_S = 5.0, 10.0
"""Seconds between two readings; the second where no process of an engine is young, and none ended lately."""
_LIST_AGAIN_S, _LIST_IDLE_S = 60.0, 20.0
"""Seconds after which a settled machine's processes are listed again, with and without an engine; in between,
only known processes are read."""
_AFTER_END_S = 300.0
"""Seconds after the end of an engine's process in which its next start is expected."""
_STARTING_S = 1800.0
"""Age up to which a process of an engine may still be loading a model."""
_YOUNG_S, _UNSETTLED_S = 12.0, 180.0
"""Seconds since it was first seen for which a process' command line is read again: of any process that
started meanwhile, and of one that may become an engine's."""
_MOST = 64
"""Upper limit of workloads in a sample."""
_NOT_ENGINE = Title("", "")


@dataclass(slots=True)
class _Seen:
    """A process whose command line was read."""

    title: Title | None
    compiler: bool
    until: float
    """Time up to which the command line is read again."""


@dataclass(slots=True)
class _Use:
    """CPU time and start of a workload at the previous reading."""

    start: int
    ticks: int
    at: float
    may_read_io: bool = True


def _names(folder: str) -> list[str]:
    """Return the names in a folder in any order; [] if it cannot be read."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are wanted, not a Path object for each
    except OSError:
        return []


def _boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class WorkloadReader:
    """Reads the workloads of a machine every few seconds; returns the previous ones in between."""

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        containers: ContainerReader | None = None,
        since_boot: Callable[[], float] = _boot_s,
        page_bytes: int | None = None,
        ticks_per_s: int | None = None,
    ) -> None:
        """Create a reader of /proc below `root`; `since_boot` returns seconds since the machine booted."""
        self._proc = str(root / "proc")
        self._containers = containers or ContainerReader(root)
        self._checkpoints = CheckpointReader(root)
        self._since_boot = since_boot
        self._page_bytes = page_bytes or os.sysconf("SC_PAGE_SIZE")
        self._ticks_per_s = ticks_per_s or os.sysconf("SC_CLK_TCK")
        self._read_at: float | None = None
        self._wait_s = _READ_AGAIN_S
        self._titled: set[int] = set()
        self._compilers = 0
        self._listed_at: float | None = None
        self._ended_at: float | None = None
        """When a workload was last found to have ended."""
        self._workloads = Workloads()
        self._seen: dict[int, _Seen] = {}
        self._used: dict[int, _Use] = {}

    def read(self, now: float, on_gpu: Collection[int] = ()) -> Workloads:
        """Return the workloads at `now` (seconds); `on_gpu` are the IDs of processes that hold GPU memory."""
        age_s = None if self._read_at is None else now - self._read_at
        if age_s is not None and 0 <= age_s < self._wait_s:
            known = self._workloads
            return Workloads(known.processes, known.compilers, age_s)
        self._read_at = now
        before = self._workloads.processes
        found = [] if self._is_list_due(now, on_gpu) else self._known(on_gpu)
        if len(found) < len(before) or self._is_list_due(now, on_gpu):
            first, self._listed_at = self._listed_at is None, now
            pids = [int(name) for name in _names(self._proc) if name.isdecimal()]
            self._look(pids, now, first=first)
            found = self._known(on_gpu)
        if len(found) < len(before):
            self._ended_at = now
        self._used = {one.pid: self._used[one.pid] for one in found if one.pid in self._used}
        workloads = tuple(self._workload(process, now) for process in found)
        self._workloads = Workloads(
            _with_servers(workloads, {process.pid: process.parent for process in found}),
            self._compilers,
            0.0,
        )
        starting = (self._ended_at is not None and now - self._ended_at < _AFTER_END_S) or any(
            one.age_s is not None and one.age_s < _STARTING_S for one in workloads
        )
        settled_s = _SETTLED_AGAIN_S if workloads else _LIST_IDLE_S
        self._wait_s = _READ_AGAIN_S if starting else settled_s
        self._containers.learn_names(now)
        return self._workloads

    def _is_list_due(self, now: float, on_gpu: Collection[int]) -> bool:
        fast = self._wait_s == _READ_AGAIN_S or self._listed_at is None
        new = any(pid not in self._seen for pid in on_gpu)
        wait_s = _LIST_AGAIN_S if self._workloads.processes else _LIST_IDLE_S
        return fast or new or not 0 <= now - (self._listed_at or 0.0) < wait_s

    def _known(self, on_gpu: Collection[int]) -> list[Process]:
        wanted = self._titled | set(on_gpu)
        return [process for pid in sorted(wanted)[:_MOST] if (process := self._stat(pid)) is not None]

    def _look(self, pids: Iterable[int], now: float, *, first: bool) -> None:
        """Read the command lines that are new or may have changed; forget processes that ended."""
        seen, kept = self._seen, {}
        for pid in pids:
            known = seen.get(pid)
            if known is None:
                kept[pid] = self._meet(pid, now, first=first)
            else:
                kept[pid] = known
                if now < known.until:
                    _, known.title, known.compiler = self._command(pid)
        self._seen = kept
        self._titled = {pid for pid, one in kept.items() if one.title is not None}
        self._compilers = sum(one.compiler for one in kept.values())

    def _meet(self, pid: int, now: float, *, first: bool) -> _Seen:
        """Read the command line of a new process; `first` is true in the first reading of all."""
        program, title, compiler = self._command(pid)
        wait_s = _UNSETTLED_S if program.startswith(UNSETTLED) else 0.0 if first else _YOUNG_S
        return _Seen(title, compiler, now + wait_s)

    def _command(self, pid: int) -> tuple[str, Title | None, bool]:
        """Return (program, title, whether it is a compiler) of a process."""
        content = read_small(f"{self._proc}/{pid}/cmdline")
        arguments = arguments_of(content) if content else []
        program = program_of(arguments)
        return program, read_title(arguments), program in COMPILERS

    def _stat(self, pid: int) -> Process | None:
        content = read_small(f"{self._proc}/{pid}/stat")
        return None if content is None else parse_stat(pid, content)

    def _workload(self, process: Process, now: float) -> Workload:
        pid = process.pid
        seen = self._seen.get(pid)
        title = (seen.title if seen is not None else None) or _NOT_ENGINE
        container, name = self._containers.find(pid, process.start)
        used = self._used.get(pid)
        percent = None
        if used is not None and used.start == process.start and now > used.at:
            ticks = process.ticks - used.ticks
            percent = max(0.0, 100.0 * ticks / self._ticks_per_s / (now - used.at))
        may_read_io = used is None or used.start != process.start or used.may_read_io
        read_bytes = self._read_bytes(pid) if may_read_io else None
        self._used[pid] = _Use(process.start, process.ticks, now, read_bytes is not None)
        return Workload(
            pid,
            title.engine or None,
            title.role or None,
            title.rank,
            title.model,
            title.port,
            None,
            container,
            name,
            max(0.0, self._since_boot() - process.start / self._ticks_per_s),
            process.rss_pages * self._page_bytes,
            percent,
            read_bytes,
            self._checkpoints.find(pid, process.start, title.path),
            self._containers.oom_kills(pid, process.start) if title.engine else None,
        )

    def _read_bytes(self, pid: int) -> int | None:
        content = read_small(f"{self._proc}/{pid}/io") or b""
        for line in content.splitlines():
            if line.startswith(b"read_bytes:"):
                return parse_int(line.partition(b":")[2].strip())
        return None


def _with_servers(workloads: tuple[Workload, ...], parents: dict[int, int]) -> tuple[Workload, ...]:
    """Return the workloads, each with its server, and with the server's model where it names none.

    The server is the first ancestor that is a server; else the only server in the same container.
    """
    by_pid = {one.pid: one for one in workloads}

    def server_of(one: Workload) -> Workload | None:
        place: Workload | None = one
        for _ in range(8):
            if place is None or place.role == "server":
                return place
            place = by_pid.get(parents.get(place.pid, 0))
        return None

    def in_container(one: Workload) -> Workload | None:
        if one.container is None:
            return None
        servers = [
            each
            for each in workloads
            if (each.role, each.engine, each.container) == ("server", one.engine, one.container)
        ]
        return servers[0] if len(servers) == 1 else None

    found: list[Workload] = []
    for one in workloads:
        server = None if one.engine is None else server_of(one) or in_container(one)
        known = None if server is None else server.pid
        found.append(replace(one, server=known, model=one.model or (server.model if server else None)))
    return tuple(found)
