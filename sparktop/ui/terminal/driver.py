"""Output to a terminal that may disappear, stop reading or be resumed at any moment.

Textual's own driver can block forever in three ways, which `TerminalDriver` excludes:

* Its queue of writes is bounded and its writer thread ends at the first error: then the event loop waits for
  room in the queue forever.
* On shutdown it waits for a write that a terminal without a reader never accepts.
* SIGCONT, which the kernel sends after SIGHUP, starts a second writer thread and a second key reader, and the
  first ones are never stopped.
"""

from __future__ import annotations

import os
import select
import termios
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any

from textual.drivers.linux_driver import LinuxDriver

from sparktop.ui.terminal.key_reader import KeyReader, WakingEvent
from sparktop.ui.terminal.output import TerminalOutput

if TYPE_CHECKING:
    from textual.app import App

_AS_BEFORE = (
    b"\x1b[?2004l\x1b[?7h\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
)
"""Escape sequences that Textual writes on shutdown: they restore paste, wrap, mouse, keyboard, screen, cursor
and focus."""


class _Mode(Enum):
    """Whether sparktop draws on the terminal now, or has restored the terminal's previous state."""

    OURS = "drawn on"
    SUSPENDED = "given back until SIGCONT"
    LEFT = "given back"


class TerminalDriver(LinuxDriver):
    """Textual's driver for Linux, changed so that its writes never block."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        """Prepare the output to stderr; nothing is written yet."""
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self.output = TerminalOutput.to_stderr()
        self._mode = _Mode.LEFT
        self.exit_event = self._ended = WakingEvent()

    def write(self, data: str) -> None:
        """Queue `data` for the terminal; it is dropped if a write has failed before."""
        self.output.write(data)

    def notify(self, sequence: str) -> None:
        """Queue a complete escape sequence, which is sent to the terminal between two drawings.

        Drop the sequence while the application does not draw on the terminal.
        """
        if self._mode is _Mode.OURS:
            self.output.write(sequence)

    def start_application_mode(self) -> None:
        """Switch the terminal to application mode; do nothing if it is in that mode already."""
        if self._mode is _Mode.OURS:
            return
        before = self._writer_thread
        super().start_application_mode()  # type: ignore[no-untyped-call]  # Textual left it without types
        # Unchanged if the process is in the background: then nothing is entered until SIGCONT.
        if self._writer_thread is not before:
            self._mode = _Mode.OURS

    def stop_application_mode(self) -> None:
        """Leave application mode for good and restore the terminal's previous state."""
        self._mode = _Mode.LEFT
        super().stop_application_mode()

    def close(self) -> None:
        """Wait at most `DRAIN_S` seconds for the last writes, then close Textual's driver."""
        self.output.drain()
        super().close()

    def run_input_thread(self) -> None:
        """Read keys until shutdown; end without an error if the terminal has disappeared."""
        with suppress(OSError):
            KeyReader(self.fileno, self._ended, self.process_message).run()

    def restore(self) -> None:
        """Restore the terminal's previous state without waiting for the terminal, for a forced exit."""
        if self.attrs_before is not None:
            termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)
        if self._mode is _Mode.OURS and select.select([], [2], [], 0)[1]:
            os.write(2, _AS_BEFORE)

    def suspend_application_mode(self) -> None:
        """Restore the terminal's previous state until SIGCONT arrives."""
        super().suspend_application_mode()
        self._mode = _Mode.SUSPENDED
        self.output.drain()  # a stopped process writes nothing any more

    def _sigcont_application(self, *_: object) -> None:
        """Handle SIGCONT: switch the terminal to application mode again if it was suspended.

        If the terminal is in application mode already, set that mode once more: the process may have been
        stopped by SIGSTOP, and the shell may have changed the terminal since. Do nothing if the terminal was
        left for good or has disappeared.
        """
        if not os.isatty(self.fileno):
            return
        if self._mode is _Mode.SUSPENDED and self._auto_restart:
            self.resume_application_mode()
        elif self._mode is _Mode.OURS:
            self._loop.call_soon_threadsafe(self._enter_again)

    def _enter_again(self) -> None:
        if self._mode is _Mode.OURS and os.isatty(self.fileno):
            self.suspend_application_mode()
            self._must_signal_resume = True
            self.resume_application_mode()
