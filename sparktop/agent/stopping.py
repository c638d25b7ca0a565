"""Shutdown by signals: the agent closes its sockets and exits without a traceback."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from sparktop.ending import hear

EXIT_CODES = {signal.SIGTERM: 0, signal.SIGHUP: 0, signal.SIGINT: 130}
"""Exit code by signal."""


@contextmanager
def stopped_by_signals() -> Iterator[asyncio.Future[int]]:
    """Yield a future that the first signal sets to the exit code; requires a running event loop."""
    stop: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(number: signal.Signals) -> None:
        if not stop.done():
            stop.set_result(EXIT_CODES[number])

    undo = hear(EXIT_CODES, end)
    try:
        yield stop
    finally:
        undo()
