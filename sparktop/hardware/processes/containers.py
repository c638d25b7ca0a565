"""Containers of processes: IDs from /proc/PID/cgroup, names from Docker or Podman where that is allowed.

A name is read only if this user may use the socket already. Whoever may use Docker's socket can become root,
so this program never asks for that right.
"""

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

from sparktop.hardware.kernel_file import parse_int, read_small
from sparktop.model.text import clean

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
