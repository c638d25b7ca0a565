"""A program in a terminal of its own: what it draws, when, and what that costs."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import psutil

_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-9;:?<=>]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>78DEHMNOZc])"
)
_MOVES = re.compile(rb"\x1b\[(\d+);(\d+)H")
_ANSWERS = {
    b"\x1b[c": b"\x1b[?62;c",  # device attributes
    b"\x1b[6n": b"\x1b[1;1R",  # cursor position
    b"\x1b[?2026$p": b"\x1b[?2026;2$y",  # synchronised output: known, off
}
"""Answers to queries, by query: a real terminal answers these, and some programs wait for it."""
_READ_BYTES = 1 << 16
_SEEN_BYTES = 1 << 20
_END_S = 3.0


@dataclass(frozen=True, slots=True)
class Window:
    """The cost of a program over a time window."""

    cpu_percent: float
    """User and system time of its whole process tree, in percent of one core."""
    bytes_per_s: float
    """Output to the terminal."""
    writes_per_s: float
    rss_start_mib: float
    """Resident memory, summed over the tree, at the start."""
    rss_end_mib: float


class EndedError(Exception):
    """The program ended before it was measured; the message has its last output."""


class PtyProgram:
    """A program in its own pseudo-terminal, for as long as the context lasts."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        columns: int = 200,
        rows: int = 50,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare the program; entering the context starts it."""
        self._command = list(command)
        self._size = struct.pack("HHHH", rows, columns, 0, 0)
        self._env = {
            **os.environ,
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LC_ALL": "C.UTF-8",
            **(env or {}),
        }
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            self._env.pop(name, None)
        self._pid = 0
        self._fd = -1
        self.started_s = 0.0
        self._seen = b""
        self._unplaced = b""
        """What `line_with` has not read yet."""
        self._lines: dict[int, list[str]] = {}
        self._bytes = 0
        self._writes = 0

    def __enter__(self) -> Self:
        """Start the program."""
        self.started_s = time.monotonic()
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            # The size is set before the program can ask for it.
            with suppress(OSError):
                fcntl.ioctl(0, termios.TIOCSWINSZ, self._size)
                os.execvpe(self._command[0], self._command, self._env)  # noqa: S606 - no shell is wanted
            os._exit(127)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the program and its children, with SIGTERM and then with SIGKILL."""
        tree = self._tree()
        for signum in (signal.SIGTERM, signal.SIGKILL):
            for process in tree:
                with suppress(psutil.Error):
                    process.send_signal(signum)
            _, tree = psutil.wait_procs(tree, timeout=_END_S)
        os.close(self._fd)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, os.WNOHANG)

    def wait_until(self, is_shown: Callable[[], object], timeout_s: float) -> float | None:
        """Read until it is shown; return the monotonic time, None after the timeout.

        Raises:
            EndedError: the program ended first.
        """
        end = time.monotonic() + timeout_s
        while (left_s := end - time.monotonic()) > 0:
            if self._read(left_s) and is_shown():
                return time.monotonic()
        return None

    def has(self, texts: Sequence[str]) -> bool:
        """Return whether all texts have been output."""
        plain = _ESCAPES.sub(b"", self._seen)
        return all(text.encode() in plain for text in texts)

    def line_with(self, text: str) -> str:
        """Return the first line on the screen that has `text`, "" if none has; of sparktop alone.

        It moves the cursor to where it writes, so that what follows a move is a part of a line.
        """
        # An escape sequence may be cut at the end of what was read.
        whole, escape, rest = self._unplaced.rpartition(b"\x1b")
        _, *parts = _MOVES.split(whole)
        move = b""
        for row, column, part in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            words = _ESCAPES.sub(b"", part).decode(errors="replace")
            start, end = int(column) - 1, int(column) - 1 + len(words)
            self._lines.setdefault(int(row), [" "] * 200)[start:end] = words
            move = b"\x1b[%b;%dH" % (row, end + 1)
        self._unplaced = move + escape + rest
        return next((found for cells in self._lines.values() if text in (found := "".join(cells))), "")

    def idle(self, seconds: float) -> None:
        """Read the program's output for `seconds`."""
        end = time.monotonic() + seconds
        while (left_s := end - time.monotonic()) > 0:
            self._read(left_s)

    def measure(self, seconds: float) -> Window:
        """Measure the program's cost over the next `seconds`."""
        began = time.monotonic()
        bytes_before, writes_before = self._bytes, self._writes
        cpu_before, rss_start = self._cpu_s(), self._rss_mib()
        self.idle(seconds)
        took = time.monotonic() - began
        return Window(
            cpu_percent=100 * (self._cpu_s() - cpu_before) / took,
            bytes_per_s=(self._bytes - bytes_before) / took,
            writes_per_s=(self._writes - writes_before) / took,
            rss_start_mib=rss_start,
            rss_end_mib=self._rss_mib(),
        )

    def _read(self, timeout_s: float) -> bool:
        """Read what the program writes; return False if it writes nothing in time."""
        ready, _, _ = select.select([self._fd], [], [], timeout_s)
        if not ready:
            return False
        try:
            data = os.read(self._fd, _READ_BYTES)
        except OSError:
            data = b""  # on Linux, the other side is closed
        if not data:
            last = _ESCAPES.sub(b"", self._seen)[-500:].decode(errors="replace").strip()
            raise EndedError(f"{self._command[0]} ended: {last}")
        for question, answer in _ANSWERS.items():
            if question in data:
                os.write(self._fd, answer)
        self._bytes += len(data)
        self._writes += 1
        self._seen = (self._seen + data)[-_SEEN_BYTES:]
        self._unplaced += data
        return True

    def _tree(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._pid)
            return [root, *root.children(recursive=True)]
        except psutil.Error:
            return []

    def _cpu_s(self) -> float:
        """Return the CPU seconds of the process tree, including children that were waited for."""
        total = 0.0
        for process in self._tree():
            with suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

    def _rss_mib(self) -> float:
        total = 0
        for process in self._tree():
            with suppress(psutil.Error):
                total += process.memory_info().rss
        return total / 2**20
