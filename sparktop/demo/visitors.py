"""Pauses the demo's own load while other clients send requests.

For each request of another client, a server writes a byte into a pipe that the load's process reads: `+` when
the request arrives, `-` when it ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

MARK = "X-Sparktop-Demo-Load"
"""Name of the request header that marks requests of the demo's own load."""
MARKED = {MARK: "1"}
"""Headers that the demo's load adds to its requests."""
QUIET_S = 10.0
"""Seconds from the end of another client's last request until the load resumes."""
PATIENCE_S = 3.0
"""Seconds after which the load's requests in flight are aborted when another client's request arrives."""
_CAME, _WENT = b"+", b"-"
_READ_BYTES = 4096


class Visitors:
    """Reports when requests of other clients begin and end at a server, to the process of the demo's load."""

    def __init__(self, pipe: int | None = None) -> None:
        """Store the pipe for the reports, and make it non-blocking.

        `pipe` is the file descriptor to write to. If it is None, nothing is reported: the demo sends no load
        that could be paused.
        """
        self._pipe = pipe
        if pipe is not None:
            # A load that does not read must not block a server.
            os.set_blocking(pipe, False)

    def visit(self, headers: Mapping[str, str]) -> AbstractContextManager[None]:
        """Return a context manager that reports the start and the end of a request with these headers.

        The context manager does nothing if the headers mark a request of the demo's own load.
        """
        return nullcontext() if MARK in headers else self._report()

    @contextmanager
    def _report(self) -> Iterator[None]:
        self._write(_CAME)
        try:
            yield
        finally:
            self._write(_WENT)

    def _write(self, word: bytes) -> None:
        if self._pipe is not None:
            with suppress(OSError):  # full or closed: a load that does not read has ended
                os.write(self._pipe, word)


class GivingWay:
    """Decides when the demo's load may send requests.

    The load must not send while requests of other clients run, nor for `quiet_s` seconds afterwards.
    """

    def __init__(self, *, quiet_s: float = QUIET_S, patience_s: float = PATIENCE_S) -> None:
        """Start without requests of other clients; must be created in the running event loop.

        The load's requests that are still in flight `patience_s` seconds after a pause began are aborted.
        """
        self._quiet_s = quiet_s
        self._patience_s = patience_s
        self._here = 0
        self._free = asyncio.Event()
        self._free.set()
        self._back: asyncio.TimerHandle | None = None
        self._impatient: asyncio.TimerHandle | None = None
        self.on_impatience: Callable[[], object] = lambda: None
        """Function called when the load should abort its requests in flight."""

    @property
    def paused(self) -> bool:
        """True while the load must not send."""
        return not self._free.is_set()

    async def wait(self) -> None:
        """Wait until the load may send."""
        await self._free.wait()

    def listen(self, pipe: int) -> None:
        """Read the servers' reports from the file descriptor `pipe`.

        When all servers have closed the pipe, let the load send requests.
        """
        os.set_blocking(pipe, False)
        asyncio.get_running_loop().add_reader(pipe, self._read, pipe)

    def hear(self, reports: bytes) -> None:
        """Process reports of servers: a string of `+` (request arrived) and `-` (request ended)."""
        loop = asyncio.get_running_loop()
        self._here = max(0, self._here + reports.count(_CAME) - reports.count(_WENT))
        if self._back is not None:
            self._back.cancel()
            self._back = None
        if not self.paused and reports:
            self._free.clear()
            self._impatient = loop.call_later(self._patience_s, self._lose_patience)
        if not self._here:
            self._back = loop.call_later(self._quiet_s, self._come_back)

    def _come_back(self) -> None:
        if self._impatient is not None:
            self._impatient.cancel()
        self._free.set()

    def _lose_patience(self) -> None:
        self.on_impatience()

    def _read(self, pipe: int) -> None:
        reports = os.read(pipe, _READ_BYTES)
        if reports:
            self.hear(reports)
            return
        asyncio.get_running_loop().remove_reader(pipe)
        self._free.set()
