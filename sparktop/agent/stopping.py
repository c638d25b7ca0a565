"""Shutdown by signals, so that the agent closes its sockets and exits without a traceback."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from sparktop.ending import hear

EXIT_CODES = {signal.SIGTERM: 0, signal.SIGHUP: 0, signal.SIGINT: 130}
"""The agent's exit code by the signal that ended it."""


@contextmanager
def stopped_by_signals() -> Iterator[asyncio.Future[int]]:
    """Yield a future; the first signal of `EXIT_CODES` sets its result to the exit code.

    Requires a running event loop. The signal handlers are removed when the context ends.
    """
    stop: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(number: signal.Signals) -> None:
        if not stop.done():
            stop.set_result(EXIT_CODES[number])

    undo = hear(EXIT_CODES, end)
    try:
        yield stop
    finally:
        undo()
