"""`asyncio.timeout` as Python 3.11.3 has it, as far as it is used.

Python 3.10 has none. That of 3.11.0 to 3.11.2 raises `CancelledError` in a task that was cancelled before, so
that what ends a process there stops at its first time limit (CPython issue 102780). Debian 12 has 3.11.2.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractAsyncContextManager


class _Timeout:
    """A context that raises `TimeoutError` once it has taken a number of seconds.

    Unlike that of the standard library, it takes any cancellation after this time for its own.
    """

    def __init__(self, delay_s: float) -> None:
        """Allow `delay_s` seconds from entering the context."""
        self._delay_s = delay_s
        self._late = False

    async def __aenter__(self) -> None:
        """Start the timer that cancels the current task."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine of the event loop runs in a task
        self._task = task
        self._timer = asyncio.get_running_loop().call_later(self._delay_s, self._fire)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop the timer; replace its cancellation by `TimeoutError`."""
        self._timer.cancel()
        if not self._late:
            return
        if sys.version_info >= (3, 11):  # noqa: UP036 - the reader runs with 3.10 too
            self._task.uncancel()
        if kind is asyncio.CancelledError:
            raise TimeoutError from None

    def _fire(self) -> None:
        self._late = True
        self._task.cancel()


def timeout(delay_s: float) -> AbstractAsyncContextManager[object]:
    """Return a context that raises `TimeoutError` once it has taken `delay_s` seconds."""
    return asyncio.timeout(delay_s) if sys.version_info >= (3, 11, 3) else _Timeout(delay_s)
