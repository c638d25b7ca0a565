"""How the demo's own load makes way: servers tell it of requests that are not its own, and it pauses.

Each server writes a byte into a pipe that the load reads: `+` as such a request comes, `-` as it ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

MARK = "X-Sparktop-Demo-Load"
"""The header that the load's own requests carry."""
MARKED = {MARK: "1"}
"""What the load adds to its requests."""
QUIET_S = 10.0
"""The load comes back so long after the last of others' requests."""
PATIENCE_S = 3.0
"""What the load has in flight may end by itself for so long; then it hangs up."""
_CAME, _WENT = b"+", b"-"
_READ_BYTES = 4096


class Visitors:
    """Tells the load of others' requests at a server."""

    def __init__(self, pipe: int | None = None) -> None:
        """Write into a pipe; None: there is no load that could make way."""
        self._pipe = pipe
        if pipe is not None:
            # A load that does not read must not hold up a server.
            os.set_blocking(pipe, False)

    def visit(self, headers: Mapping[str, str]) -> AbstractContextManager[None]:
        """Give a context for as long as a request is here; the load's own are passed over."""
        return nullcontext() if MARK in headers else self._told()

    @contextmanager
    def _told(self) -> Iterator[None]:
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
    """Whether the load may send: not while others' requests are there, nor for a while after the last."""

    def __init__(self, *, quiet_s: float = QUIET_S, patience_s: float = PATIENCE_S) -> None:
        """Begin with nobody there; belongs to the running event loop."""
        self._quiet_s = quiet_s
        self._patience_s = patience_s
        self._here = 0
        self._free = asyncio.Event()
        self._free.set()
        self._back: asyncio.TimerHandle | None = None
        self._impatient: asyncio.TimerHandle | None = None
        self.on_impatience: Callable[[], object] = lambda: None
        """Called when what the load still has in flight is to be broken off."""

    @property
    def paused(self) -> bool:
        """True while the load must not send."""
        return not self._free.is_set()

    async def wait(self) -> None:
        """Wait until the load may send."""
        await self._free.wait()

    def listen(self, pipe: int) -> None:
        """Hear what servers write into a pipe, until all of them have closed it."""
        os.set_blocking(pipe, False)
        asyncio.get_running_loop().add_reader(pipe, self._read, pipe)

    def hear(self, told: bytes) -> None:
        """Take in what servers told."""
        loop = asyncio.get_running_loop()
        self._here = max(0, self._here + told.count(_CAME) - told.count(_WENT))
        if self._back is not None:
            self._back.cancel()
            self._back = None
        if not self.paused and told:
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
        told = os.read(pipe, _READ_BYTES)
        if told:
            self.hear(told)
            return
        asyncio.get_running_loop().remove_reader(pipe)
        self._free.set()
