"""The processes of a machine and their containers."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import socket
import stat
import threading
import time
from pathlib import Path
from typing import NamedTuple

from sparktop.hardware.kernel_file import entries, parse_int, read_bytes, read_small
from sparktop.model.node import ProcessReading, ProcessTable
from sparktop.model.text import clean

# The file /proc/PID/stat of a process: name, parent, processor time, start and memory.

_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of include/linux/sched.h."""
_PARENT, _FLAGS, _UTIME, _STIME, _START, _RSS = 1, 6, 11, 12, 19, 21
"""Indexes into the fields of /proc/PID/stat after the name (their numbers in man 5 proc_pid_stat, less 3)."""


class Process(NamedTuple):
    """One process, as its stat file describes it.

    It is a named tuple because creating one takes 0.23 µs; a frozen dataclass takes 0.58 µs.
    """

    pid: int
    comm: bytes
    ticks: int
    """Processor time since the process started, in clock ticks of the kernel."""
    start: int
    """Start in clock ticks since the machine booted."""
    rss_pages: int
    parent: int = 0


def parse_stat(pid: int, content: bytes) -> Process | None:
    """Parse a stat file; None for a kernel thread and for content that is not a stat file.

    The process's name stands in parentheses and can itself hold spaces and parentheses.
    """
    head, _, tail = content.rpartition(b")")
    fields = tail.split(None, _RSS + 1)
    try:
        if int(fields[_FLAGS]) & _KERNEL_THREAD:
            return None
        ticks = int(fields[_UTIME]) + int(fields[_STIME])
        rss_pages = max(0, int(fields[_RSS]))
        return Process(
            pid, head.partition(b"(")[2], ticks, int(fields[_START]), rss_pages, int(fields[_PARENT])
        )
    except (ValueError, IndexError):
        return None


# Containers of processes: IDs from /proc/PID/cgroup, names from Docker or Podman where that is allowed.
#
# A name is read only if this user may use the socket already. Whoever may use Docker's socket can become
# root, so this program never asks for that right.

_log = logging.getLogger(__name__)

ID_DIGITS = 12
"""Digits of a container's ID that are shown, as Docker does."""
_ID = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_ASK_AGAIN_S = 30.0
_ANSWER_S = 2.0
"""Longest time of one request; it runs in a thread of its own, so that no sample waits."""
_MOST_BYTES = 1 << 20
_MOST_NAMES = 512
_MOST_CACHED = 4096
"""Processes whose containers are remembered."""
_REQUEST = b"GET /containers/json HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\r\n"
_SOCKETS = ("run/docker.sock", "var/run/docker.sock", "run/podman/podman.sock")


def container_id(cgroup: bytes | None) -> str | None:
    """Return the ID of the container in the content of /proc/PID/cgroup; None outside of containers.

    Of nested containers it is the innermost. Inside of a container the file does not name it.
    """
    for line in (cgroup or b"").splitlines():
        if found := _ID.findall(line.rpartition(b":")[2]):
            return str(found[-1], "ascii")
    return None


class ContainerReader:
    """Finds the container of a process and its name; IDs are cached while the process lives."""

    def __init__(self, root: Path = Path("/")) -> None:
        """Read /proc below `root`, and the sockets of Docker and Podman there."""
        self._root = root
        self._ids: dict[tuple[int, int], str | None] = {}
        self._names: dict[str, str] = {}
        self._unknown: set[str] = set()
        """IDs whose names were not requested yet."""
        self._asked_at = -_ASK_AGAIN_S
        self._thread: threading.Thread | None = None

    def find(self, pid: int, start: int) -> tuple[str | None, str | None]:
        """Return (first digits of the ID, name) of a process' container; None for what is not known.

        `start` is the process' start in clock ticks, because a process ID can be reused.
        """
        key = (pid, start)
        if key not in self._ids:
            if len(self._ids) >= _MOST_CACHED:
                self._ids.clear()
            found = self._ids[key] = container_id(read_small(f"{self._root}/proc/{pid}/cgroup"))
            if found is not None and found not in self._names:
                self._unknown.add(found)
        found = self._ids[key]
        return (None, None) if found is None else (found[:ID_DIGITS], self._names.get(found))

    def oom_kills(self, pid: int, start: int) -> int | None:
        """Return how many processes of a process' container the kernel has killed for lack of memory.

        Return None outside of containers, and where the container's memory.events cannot be read.
        """
        if self._ids.get((pid, start)) is None:
            return None
        cgroup = read_small(f"{self._root}/proc/{pid}/cgroup") or b""
        path = next((line[3:] for line in cgroup.splitlines() if line.startswith(b"0::/")), None)
        if path is None:
            return None
        events = (
            read_small(f"{self._root}/sys/fs/cgroup{path.decode('utf-8', 'replace')}/memory.events") or b""
        )
        found = [line.partition(b" ")[2] for line in events.splitlines() if line.startswith(b"oom_kill ")]
        return parse_int(found[0]) if found else None

    def learn_names(self, now: float) -> None:
        """Request the names of new containers in the background, at most every 30 s."""
        busy = self._thread is not None and self._thread.is_alive()
        if not self._unknown or busy or now - self._asked_at < _ASK_AGAIN_S:
            return
        self._asked_at = now
        self._unknown.clear()
        sockets = [path for path in self._sockets() if _is_usable(path)]
        if sockets:
            self._thread = threading.Thread(
                target=self._ask, args=(sockets,), name="sparktop-containers", daemon=True
            )
            self._thread.start()

    def _sockets(self) -> list[str]:
        own = os.environ.get("XDG_RUNTIME_DIR", "")
        paths = [str(self._root / one) for one in _SOCKETS]
        return [*paths, f"{own}/podman/podman.sock"] if own.startswith("/") else paths

    def _ask(self, sockets: list[str]) -> None:
        names: dict[str, str] = {}
        for path in sockets:
            names |= ask_names(path)
        if names:
            self._names = names


def _is_usable(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode) and os.access(path, os.R_OK | os.W_OK)  # noqa: PTH116 - as Path.stat, without a Path
    except OSError:
        return False


def ask_names(path: str) -> dict[str, str]:
    """Return {ID: name} of the running containers by the socket at `path`; {} if it does not answer."""
    end = time.monotonic() + _ANSWER_S
    answer = b""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as line:
        try:
            line.settimeout(_ANSWER_S)
            line.connect(path)
            line.sendall(_REQUEST)
            while len(answer) <= _MOST_BYTES and (left_s := end - time.monotonic()) > 0:
                line.settimeout(left_s)
                if not (part := line.recv(1 << 16)):
                    return read_names(answer)
                answer += part
        except OSError as error:
            _log.debug("container names at %s: %s", path, error)
    return {}


def read_names(answer: bytes) -> dict[str, str]:
    """Return {ID: name} from an HTTP answer to /containers/json; {} if it is anything else."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.partition(b"\r\n")[0]:
        return {}
    try:
        listed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    found: dict[str, str] = {}
    for one in listed[:_MOST_NAMES] if isinstance(listed, list) else ():
        if isinstance(one, dict) and isinstance(one.get("Id"), str) and isinstance(one.get("Names"), list):
            words = [name for name in one["Names"] if isinstance(name, str)]
            if words and (name := clean(words[0].lstrip("/"), 64)):
                found[one["Id"]] = name
    return found


# The processes of a machine, sorted by memory, from /proc/*/stat.
#
# A stat file holds a process' name, state, processor time, start and memory. Reading it for 329 processes
# takes 2.8 ms. Reading only statm, which has just the memory, takes 1.9 ms; reading statm, comm and stat
# takes 6.5 ms. psutil takes 14 ms for name and memory (2-core AMD EPYC, Linux 6.18, medians of thread
# time).

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
