"""Resolves host names in threads of its own.

The threads of asyncio, which are few, read files, too. Where a name server did not answer, readings of
this machine and saved reports waited for it, and so did the end of the program.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Any

_MOST_THREADS = 16

_Found = list[tuple[Any, ...]]
"""As `socket.getaddrinfo` returns it."""


class _Lookups:
    """A queue of lookups, and the threads that carry them out: daemons, which do not delay the end."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[str, int | None, Future[_Found]]] = SimpleQueue()
        self._idle = Semaphore(0)
        self._threads = 0

    def add(self, host: str, port: int | None) -> Future[_Found]:
        """Return the future result of a lookup."""
        future: Future[_Found] = Future()
        self._waiting.put((host, port, future))
        if not self._idle.acquire(blocking=False) and self._threads < _MOST_THREADS:
            Thread(target=self._work, name="lookup", daemon=True).start()
            self._threads += 1
        return future

    def _work(self) -> None:
        while True:
            host, port, future = self._waiting.get()
            if future.set_running_or_notify_cancel():  # no poll has given up waiting
                try:
                    found = socket.getaddrinfo(
                        host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
                    )
                except Exception as error:  # noqa: BLE001 - for whoever waits
                    future.set_exception(error.with_traceback(None))  # its frame holds the future
                else:
                    future.set_result(found)
            del future
            self._idle.release()


_lookups = _Lookups()


async def look_up(host: str, port: int | None) -> _Found:
    """Return the addresses of a host name, as `socket.getaddrinfo` does.

    Raises:
        OSError: it has none, or no name server answers.
        UnicodeError: the host cannot be a name of a host.
    """
    return await asyncio.wrap_future(_lookups.add(host, port))
