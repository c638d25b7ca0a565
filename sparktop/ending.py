"""The bound on every ending: once something asks the program to end, the process is gone in time.

`begin` starts a clock when a signal, a key or the loss of the terminal asks for the end. A program that ends
by itself never notices it. One that cannot (a write that blocks, a thread that waits) is ended by force, with
the exit code that it would have had. A second clock is the kernel's SIGALRM: it needs no Python code to run.
Child processes need no bound of their own: the kernel ends them with their parent.
"""

from __future__ import annotations

import _thread
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

PATIENCE_S = 10.0
"""Seconds from the request to end until the process is ended by force: twice what saving a sweep may take."""
CLOSING_S = 5.0
"""Seconds that the interpreter may take to close once the exit code is known."""
_ALARM_AFTER_S = 2.0
"""The kernel's clock runs out so long after ours."""


def _kernel_alarm(seconds: float) -> None:
    """Have SIGALRM end the process after some seconds; never with 0."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


class Ending:
    """The clock of one process."""

    def __init__(
        self,
        leave: Callable[[int], object] = os._exit,
        alarm: Callable[[float], object] = _kernel_alarm,
        *,
        enabled: bool = True,
    ) -> None:
        """End the process with `leave`; `alarm` has the kernel end it after some seconds, or not (0)."""
        self._leave = leave
        self._alarm = alarm
        self.enabled = enabled
        """False in a process that is not this program alone, which must not be ended: no clock starts."""
        self._clock: object | None = None
        self.restore: Callable[[], None] | None = None
        """Put the terminal back as it was, without waiting for it; called before an ending by force."""

    @property
    def begun(self) -> bool:
        """True while the clock runs."""
        return self._clock is not None

    def begin(self, code: int, within_s: float | None = None) -> None:
        """Start the clock, of `PATIENCE_S` if no time is given; one that runs already stays as it is.

        `code` is the exit code of an ending by force.
        """
        if self._clock is not None or not self.enabled:
            return
        within_s = PATIENCE_S if within_s is None else within_s
        self._clock = clock = object()
        self._alarm(within_s + _ALARM_AFTER_S)
        # Not threading.Thread: a signal handler may have interrupted the holder of that module's locks.
        _thread.start_new_thread(self._wait, (clock, code, within_s))

    def call_off(self) -> None:
        """Stop the clock: the program has ended, or goes on after all."""
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
"""That of this process; `sparktop.cli.program` enables it."""


def hear(codes: Mapping[signal.Signals, int], end: Callable[[signal.Signals], object]) -> Callable[[], None]:
    """Call `end` in the running event loop at each of these signals; the first one starts the clock.

    `codes` holds the exit code after each signal. One that is ignored stays so: nohup started the program.
    The function returned undoes it: a later signal then has its usual effect, to end the process at once.
    """
    import asyncio  # late: a command without an event loop must not load one

    loop = asyncio.get_running_loop()
    heard = [number for number in codes if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        _hear(loop, number, codes[number], end)

    def undo() -> None:
        for number in heard:
            with suppress(ValueError, RuntimeError):  # a loop that is closed has undone it
                loop.remove_signal_handler(number)

    return undo


def _hear(
    loop: asyncio.AbstractEventLoop,
    number: signal.Signals,
    code: int,
    end: Callable[[signal.Signals], object],
) -> None:
    loop.add_signal_handler(number, end, number)
    # The loop still learns of the signal, through its wake-up descriptor. This handler runs even where the
    # loop is blocked, and unlike the loop's own it does not let a blocked write start again unseen.
    signal.signal(number, lambda *_: ENDING.begin(code))
