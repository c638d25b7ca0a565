"""Reads and writes lines on file descriptors without blocking the event loop."""

from __future__ import annotations

import asyncio
import os

_READ_BYTES = 1 << 16
LONGEST_LINE = 4096
"""Most bytes of a request; a usual request has less than a tenth of that."""


class Lines:
    """Reads lines from a file descriptor, in blocks: at most one block is read beyond the end of a line."""

    def __init__(self, descriptor: int) -> None:
        """Read from the file descriptor `descriptor`, which is never closed here."""
        self._descriptor = descriptor
        self._buffer = b""
        self._ended = False

    async def next(self) -> bytes | None:
        """Return the next line without its line end; None at the end of the input.

        A line longer than `LONGEST_LINE` is cut to `LONGEST_LINE + 1` bytes, so that the caller can detect
        it.
        """
        too_long = b""
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline or self._ended:
                self._buffer = rest
                return (too_long or line)[: LONGEST_LINE + 1] if newline or line else None
            if len(self._buffer) > LONGEST_LINE:
                too_long, self._buffer = too_long or self._buffer[: LONGEST_LINE + 1], b""
            data = await self._read()
            self._ended = not data
            self._buffer += data

    async def _read(self) -> bytes:
        """Wait until bytes can be read, and return them; b"" at the end of the input."""
        await _ready(self._descriptor, reading=True)
        try:
            return os.read(self._descriptor, _READ_BYTES)
        except OSError:  # a terminal that has gone
            return b""


class Output:
    """Writes lines to a file descriptor, and waits while its buffer is full."""

    def __init__(self, descriptor: int) -> None:
        """Write to `descriptor`, which is set to non-blocking and never closed here."""
        self._descriptor = descriptor
        self._was_blocking = os.get_blocking(descriptor)
        os.set_blocking(descriptor, False)

    async def write(self, line: bytes) -> None:
        """Write `line` and a line end.

        Raises:
            OSError: the other end of the pipe is closed.
        """
        left = memoryview(line + b"\n")
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                await _ready(self._descriptor, reading=False)

    def close(self) -> None:
        """Restore the descriptor's blocking mode, because other programs may share the terminal."""
        os.set_blocking(self._descriptor, self._was_blocking)


async def _ready(descriptor: int, *, reading: bool) -> None:
    """Wait until a descriptor can be read or written without blocking; return at once for a regular file."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def set_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    add, remove = (loop.add_reader, loop.remove_reader) if reading else (loop.add_writer, loop.remove_writer)
    try:
        add(descriptor, set_ready)
    except PermissionError:  # epoll refuses regular files, which never block
        return
    try:
        await ready
    finally:
        remove(descriptor)
