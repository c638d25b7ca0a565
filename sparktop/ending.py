"""Forced exit: once the end of the program is requested, the process ends within a limited time.

`Ending.begin` starts a timer when a signal, a key or the loss of the terminal requests the end. If the
program has not ended by then, because a write or a thread blocks it, the process is ended by force, with the
exit code that it would have had. The kernel's SIGALRM is a second timer, which works even if no Python code
can run. Child processes need no timer of their own: the kernel ends them with their parent.
"""

from __future__ import annotations

import _thread
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

INTERRUPTED = 130
"""Exit code of a command that Ctrl+C ended."""
PATIENCE_S = 10.0
"""Seconds from the request to end until the process is ended by force, twice the time that saving a sweep
may take."""
CLOSING_S = 10.0
"""Seconds that the interpreter may take to exit once the exit code is known."""
_ALARM_AFTER_S = 10.0
"""Seconds after the Python timer at which the kernel's fires. On a busy machine Python code may have to wait;
its exit code is the right one."""


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
