"""An event loop in virtual time, which jumps to the next timer: minutes cost only their computing."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from selectors import SelectorKey
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike


_T = TypeVar("_T")


class _Jumping(selectors.BaseSelector):
    """A selector that does not wait for timers but advances the virtual time instead."""

    def __init__(self, settle_s: float) -> None:
        self._real = selectors.DefaultSelector()
        self._settle_s = settle_s
        self.now_s = 1000.0
        self.working = 0
        """Calls in threads that have not ended: time stands still for them where connections may settle."""

    def register(self, fileobj: FileDescriptorLike, events: int, data: object = None) -> SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> SelectorKey:
        return self._real.unregister(fileobj)

    def get_map(self) -> Mapping[FileDescriptorLike, SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """Poll for events without waiting; wait without a limit only where no timer is set (for a thread)."""
        ready = self._real.select(timeout if timeout is None else 0)
        if not ready and timeout and self._settle_s:
            ready = self._real.select(self._settle_s)
            while not ready and self.working:
                ready = self._real.select(self._settle_s)
        # A turn takes a microsecond: time would never advance for calls rescheduled to "nearly now".
        self.now_s += 1e-6 if ready or timeout is None else max(timeout, 1e-6)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    def __init__(self, settle_s: float = 0.0) -> None:
        """Start at a virtual time of 1000 s.

        `settle_s` are real seconds to wait for a connection to bring something before time advances: needed
        where client and server are both on this loop.
        """
        self._jumping = _Jumping(settle_s)
        super().__init__(self._jumping)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., _T], *args: object
    ) -> asyncio.Future[_T]:
        """Call a function in a thread; virtual time may stand still until it returns."""
        self._jumping.working += 1
        called = super().run_in_executor(executor, func, *args)
        called.add_done_callback(self._ended)
        return called

    def _ended(self, _: object) -> None:
        self._jumping.working -= 1

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._jumping.now_s
