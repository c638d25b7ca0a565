"""What stops coroutines: a signal, or a time limit.

Apart from `ending`, which every command loads, so that one without an event loop does not load asyncio.
"""

from __future__ import annotations

import _thread
import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress


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


EXIT_CODES = {signal.SIGTERM: 0, signal.SIGHUP: 0, signal.SIGINT: 130}
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


def timeout(delay_s: float) -> AbstractAsyncContextManager[object]:
    """Return a context that raises `TimeoutError` once it has taken `delay_s` seconds."""
    return asyncio.timeout(delay_s) if sys.version_info >= (3, 11, 3) else _Timeout(delay_s)


# Forced exit: once the end of the program is requested, the process ends within a limited time.


PATIENCE_S = 10.0
"""Seconds from the request to end until the process is ended by force, twice the time that saving a sweep
may take."""
CLOSING_S = 5.0
"""Seconds that the interpreter may take to exit once the exit code is known."""
_ALARM_AFTER_S = 2.0
"""Seconds after the Python timer at which the kernel's timer fires."""


def _kernel_alarm(seconds: float) -> None:
    """Make the kernel end this process by SIGALRM after `seconds`; 0 cancels an earlier alarm."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


class Ending:
    """A timer that ends the process by force if its normal end takes too long."""

    def __init__(
        self,
        leave: Callable[[int], object] = os._exit,
        alarm: Callable[[float], object] = _kernel_alarm,
        *,
        enabled: bool = True,
    ) -> None:
        """Create the timer, not started.

        `leave` ends the process with an exit code. `alarm` makes the kernel end the process after a number of
        seconds; 0 cancels this alarm. With `enabled` false, `begin` does nothing.
        """
        self._leave = leave
        self._alarm = alarm
        self.enabled = enabled
        """False in a process that must not be ended because it does more than run this program: no timer
        starts."""
        self._clock: object | None = None
        self._until = 0.0
        """Monotonic time at which the timer that runs ends the process."""
        self.restore: Callable[[], None] | None = None
        """Restores the terminal without waiting for it; called before the process is ended by force."""

    @property
    def begun(self) -> bool:
        """Whether the timer runs."""
        return self._clock is not None

    def begin(self, code: int, within_s: float | None = None) -> None:
        """Start the timer, which ends the process after `within_s` seconds (default `PATIENCE_S`).

        Return at once.

        `code` is the exit code of a forced end. A timer that already runs is only shortened: however many
        steps an end has, the first request bounds all of them together.
        """
        if not self.enabled:
            return
        within_s = PATIENCE_S if within_s is None else within_s
        until = time.monotonic() + within_s
        if self._clock is not None and until >= self._until:
            return
        self._until = until
        self._clock = clock = object()
        self._alarm(within_s + _ALARM_AFTER_S)
        # Not threading.Thread: a signal handler may have interrupted the holder of that module's locks.
        _thread.start_new_thread(self._wait, (clock, code, within_s))

    def call_off(self) -> None:
        """Stop the timer, because the program continues after all."""
        if self._clock is not None:
            self._clock = None
            self._alarm(0.0)

    def _wait(self, clock: object, code: int, within_s: float) -> None:
        time.sleep(within_s)
        if self._clock is not clock:
            return
        if self.restore is not None:
            with suppress(Exception):
                self.restore()
        self._leave(code)


ENDING = Ending(enabled=False)
"""The timer of this process; `sparktop.cli.program` enables it."""
