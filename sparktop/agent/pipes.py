"""Lines in from one descriptor and out to another, without blocking the event loop."""

from __future__ import annotations

import asyncio
import os

_READ_BYTES = 1 << 16
LONGEST_LINE = 4096
"""Bytes of a request; nobody needs a tenth of it."""


class Lines:
    """Reads lines of a descriptor, no further ahead than one read."""

    def __init__(self, descriptor: int) -> None:
        """Read `descriptor`, which stays open."""
        self._descriptor = descriptor
        self._buffer = b""
        self._ended = False

    async def next(self) -> bytes | None:
        """Give the next line without its end, None after the last; one that is too long is cut."""
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
        """Give what is there, waiting for some; nothing at the end."""
        await _ready(self._descriptor, reading=True)
        try:
            return os.read(self._descriptor, _READ_BYTES)
        except OSError:  # a terminal that has gone
            return b""


class Output:
    """Writes lines to a descriptor that its reader may leave full."""

    def __init__(self, descriptor: int) -> None:
        """Write to `descriptor`, which stays open."""
        self._descriptor = descriptor
        self._was_blocking = os.get_blocking(descriptor)
        os.set_blocking(descriptor, False)

    async def write(self, line: bytes) -> None:
        """Write a line and its end.

        Raises:
            OSError: nobody reads any more.
        """
        left = memoryview(line + b"\n")
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                await _ready(self._descriptor, reading=False)

    def close(self) -> None:
        """Leave the descriptor as it was: it may be the terminal of others."""
        os.set_blocking(self._descriptor, self._was_blocking)


async def _ready(descriptor: int, *, reading: bool) -> None:
    """Wait until a descriptor can be read from or written to; a file always can."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def set_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    add, remove = (loop.add_reader, loop.remove_reader) if reading else (loop.add_writer, loop.remove_writer)
    try:
        add(descriptor, set_ready)
    except PermissionError:  # epoll takes no files
        return
    try:
        await ready
    finally:
        remove(descriptor)
