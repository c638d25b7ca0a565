"""How signals end the agent: with its sockets closed, and not with a traceback."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_CODES = {signal.SIGTERM: 0, signal.SIGHUP: 0, signal.SIGINT: 130}
"""The exit code after each signal."""


@contextmanager
def stopped_by_signals() -> Iterator[asyncio.Future[int]]:
    """Give a future that the first signal sets to the exit code; needs a running event loop."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not stop.done():
            stop.set_result(code)

    for signum, code in EXIT_CODES.items():
        loop.add_signal_handler(signum, end, code)
    try:
        yield stop
    finally:
        for signum in EXIT_CODES:
            loop.remove_signal_handler(signum)
