"""Reads a file or named pipe that another program writes, from its beginning and as it grows.

Reading never blocks: each poll returns the data that are available, up to a limit. A file that was
truncated, replaced or rewritten is read from its beginning again, and the result of the poll says so.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

from sparktop.model.text import clean
from sparktop.values import dataclass

MOST_AT_ONCE = 1 << 17
"""Maximum bytes that a poll returns: about a thousand lines."""
_HEAD = 256
"""Number of bytes at the beginning of a file that are compared to detect that the file was rewritten. The
first line has the start time, so it differs."""
_PIPE_BYTES = 1 << 20
"""Requested size of a pipe's buffer instead of 64 KiB, so that a writer of 10,000 lines/s never blocks."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The result of one poll of a followed file: new data, or why there are none."""

    data: bytes = b""
    anew: str | None = None
    """Why the file is read from its beginning again, so that all earlier data are void; None if it is not."""
    waits: str | None = None
    """Why nothing could be read so far, as text; None once something could be read."""


class FileTail:
    """Reads the file or pipe at one path as it grows. Calls of `read` must not overlap."""

    def __init__(self, path: Path) -> None:
        """Store the path; the first `read` opens the file."""
        self.path = path
        self._fd: int | None = None
        self._is_pipe = False
        self._place = 0
        self._head = b""

    def read(self) -> Piece:
        """Poll the file and return up to `MOST_AT_ONCE` new bytes.

        If nothing could be read so far, the field `waits` of the result says why.
        """
        try:
            if self._fd is None:
                waits = self._open()
                if waits is not None:
                    return Piece(waits=waits)
            return self._read_pipe() if self._is_pipe else self._read_file()
        except OSError as error:
            self.close()
            return Piece(waits=f"it cannot be read: {clean(error.strerror or error)}")

    def close(self) -> None:
        """Close the file; the next `read` opens it again, from its beginning."""
        fd, self._fd = self._fd, None
        self._place = 0
        if fd is not None:
            with suppress(OSError):
                os.close(fd)

    def _open(self) -> str | None:
        """Open the file or pipe; return None on success, else as text why it cannot be opened now."""
        try:
            # Non-blocking, because a pipe may not have a writer.
            fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return "there is no such file yet"
        self._fd = fd
        mode = os.fstat(fd).st_mode
        self._is_pipe = stat.S_ISFIFO(mode)
        if not (self._is_pipe or stat.S_ISREG(mode)):
            self.close()
            return "it is neither a file nor a pipe"
        if self._is_pipe:
            with suppress(OSError, AttributeError):  # where the system allows it
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        return None

    def _read_pipe(self) -> Piece:
        assert self._fd is not None  # noqa: S101 - `read` opened it
        try:
            data = os.read(self._fd, MOST_AT_ONCE)
        except BlockingIOError:
            return Piece(waits="nothing came through the pipe yet")
        return Piece(data, waits=None if data else "no program writes into the pipe")

    def _read_file(self) -> Piece:
        assert self._fd is not None  # noqa: S101 - as above
        anew = self._why_anew()
        if anew is not None:
            self.close()
            self._head = b""
            waits = self._open()
            if waits is not None or self._fd is None or self._is_pipe:
                return Piece(anew=anew, waits=waits)
        data = os.read(self._fd, MOST_AT_ONCE)
        self._place += len(data)
        if len(self._head) < _HEAD:
            self._head = os.pread(self._fd, min(_HEAD, self._place), 0)
        return Piece(data, anew, None if self._place else "there is nothing in it yet")

    def _why_anew(self) -> str | None:
        assert self._fd is not None  # noqa: S101 - as above
        opened = os.fstat(self._fd)
        with suppress(FileNotFoundError):  # deleted by another program: the open file can still be read
            there = self.path.stat()
            if (there.st_dev, there.st_ino) != (opened.st_dev, opened.st_ino):
                return "another file stands in its place"
        if opened.st_size < self._place:
            return "it was cut"
        if self._head and os.pread(self._fd, len(self._head), 0) != self._head:
            return "it was written anew"
        return None
