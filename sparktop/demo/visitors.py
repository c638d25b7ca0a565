"""Pausing the demo's own load: servers report other clients' requests to it.

Each server writes a byte into a pipe that the load reads: `+` when such a request arrives, `-` when it ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

MARK = "X-Sparktop-Demo-Load"
"""Header of the load's own requests."""
MARKED = {MARK: "1"}
"""Headers that the load adds to its requests."""
QUIET_S = 10.0
"""Seconds from the last request of others until the load resumes."""
PATIENCE_S = 3.0
"""Seconds that the load's requests in flight may take to end before they are aborted."""
_CAME, _WENT = b"+", b"-"
_READ_BYTES = 4096


class Visitors:
    """Reports other clients' requests at a server to the load."""

    def __init__(self, pipe: int | None = None) -> None:
        """Write to a pipe; None: there is no load to pause."""
        self._pipe = pipe
        if pipe is not None:
            # A load that does not read must not block a server.
            os.set_blocking(pipe, False)

    def visit(self, headers: Mapping[str, str]) -> AbstractContextManager[None]:
        """Return a context that covers a request; the load's own requests are not reported."""
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
    """Decides whether the load may send: not while other clients' requests last, nor for a while after."""

    def __init__(self, *, quiet_s: float = QUIET_S, patience_s: float = PATIENCE_S) -> None:
        """Start without other clients; must be created in the running event loop."""
        self._quiet_s = quiet_s
        self._patience_s = patience_s
        self._here = 0
        self._free = asyncio.Event()
        self._free.set()
        self._back: asyncio.TimerHandle | None = None
        self._impatient: asyncio.TimerHandle | None = None
        self.on_impatience: Callable[[], object] = lambda: None
        """Called when the load's requests in flight are to be aborted."""

    @property
    def paused(self) -> bool:
        """True while the load must not send."""
        return not self._free.is_set()

    async def wait(self) -> None:
        """Wait until the load may send."""
        await self._free.wait()

    def listen(self, pipe: int) -> None:
        """Read the servers' reports from a pipe, until all of them have closed it."""
        os.set_blocking(pipe, False)
        asyncio.get_running_loop().add_reader(pipe, self._read, pipe)

    def hear(self, reports: bytes) -> None:
        """Process reports of servers, a string of `+` and `-`."""
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
