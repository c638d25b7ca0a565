"""`asyncio.timeout` as Python 3.11 has it, as far as it is used."""

from __future__ import annotations

import asyncio
import sys

if sys.version_info >= (3, 11):  # noqa: UP036 - the reader runs with 3.10 too
    from asyncio import timeout
else:

    class timeout:  # noqa: N801 - the name in Python 3.11
        """A context that raises `TimeoutError` once it has taken a number of seconds.

        Unlike that of Python 3.11, it takes any cancellation after this time for its own.
        """

        def __init__(self, delay: float) -> None:
            """Allow `delay` seconds from entering the context."""
            self._delay_s = delay
            self._late = False

        async def __aenter__(self) -> None:
            """Start the timer that cancels the current task."""
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - a coroutine of the event loop runs in a task
            self._cancel = task.cancel
            self._timer = asyncio.get_running_loop().call_later(self._delay_s, self._fire)

        async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
            """Stop the timer; replace its cancellation by `TimeoutError`."""
            self._timer.cancel()
            if self._late and kind is asyncio.CancelledError:
                raise TimeoutError from None

        def _fire(self) -> None:
            self._late = True
            self._cancel()


__all__ = ["timeout"]
