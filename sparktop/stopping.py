"""What stops coroutines: a signal, or a time limit.

Apart from `ending`, which every command loads, so that one without an event loop does not load asyncio.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import TypeVar

from sparktop.ending import ENDING, INTERRUPTED

Returned = TypeVar("Returned")


def on_signals(
    codes: Mapping[signal.Signals, int], end: Callable[[signal.Signals], object]
) -> Callable[[], None]:
    """Call `end` in the running event loop at each of the signals in `codes`.

    Each of these signals also starts the timer `ENDING`, which ends the process by force if it has not ended
    in time; `codes` maps the signal to the exit code of this forced end. A signal that is ignored, as under
    nohup, stays ignored. Return a function that removes the handlers: a later signal then ends the process at
    once, as usual.
    """
    loop = asyncio.get_running_loop()
    handled = [number for number in codes if signal.getsignal(number) is not signal.SIG_IGN]
    for number in handled:
        _handle(loop, number, codes[number], end)

    def undo() -> None:
        for number in handled:
            with suppress(ValueError, RuntimeError):  # a closed loop has no handlers
                loop.remove_signal_handler(number)

    return undo


def _handle(
    loop: asyncio.AbstractEventLoop,
    number: signal.Signals,
    code: int,
    end: Callable[[signal.Signals], object],
) -> None:
    loop.add_signal_handler(number, end, number)
    # The loop is still notified, through its wake-up descriptor. Unlike the loop's handler, this one runs
    # even while the loop is blocked, and does not let a blocked write restart unnoticed.
    signal.signal(number, lambda *_: ENDING.begin(code))


EXIT_CODES = {signal.SIGTERM: 0, signal.SIGHUP: 0, signal.SIGINT: INTERRUPTED}
"""The exit code of a command that serves, by the signal that ended it."""


@contextmanager
def stopped_by_signals() -> Iterator[asyncio.Future[int]]:
    """Yield a future; the first signal of `EXIT_CODES` sets its result to the exit code.

    Requires a running event loop. The signal handlers are removed when the context ends.
    """
    stop: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(number: signal.Signals) -> None:
        if not stop.done():
            stop.set_result(EXIT_CODES[number])

    undo = on_signals(EXIT_CODES, end)
    try:
        yield stop
    finally:
        undo()


# `asyncio.timeout` as Python 3.11.3 has it, as far as it is used.
#
# Python 3.10 has none. That of 3.11.0 to 3.11.2 raises `CancelledError` in a task that was cancelled
# before, so that what ends a process there stops at its first time limit (CPython issue 102780). Debian 12
# has 3.11.2.


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


async def gather_or_cancel(*works: Awaitable[Returned]) -> list[Returned]:
    """Await all of these at once and return their results, in their order.

    The first error is raised once the others are cancelled and have ended.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def timeout(delay_s: float) -> AbstractAsyncContextManager[object]:
    """Return a context that raises `TimeoutError` once it has taken `delay_s` seconds.

    Unlike `asyncio.timeout`, it does so in every Python also in a task that was cancelled and cleans up.
    """
    return asyncio.timeout(delay_s) if sys.version_info >= (3, 11, 3) else _Timeout(delay_s)
