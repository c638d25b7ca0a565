"""The terminal: output that never blocks, how much is sent, its bell and its notifications."""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
import time
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver

from sparktop.model.event import Event
from sparktop.model.targets import EventSettings
from sparktop.model.text import clean
from sparktop.store import Store

if TYPE_CHECKING:
    from textual.app import App


DRAIN_S = 1.0
"""Seconds to wait for the last writes on shutdown. If the terminal does not accept them by then, they are
dropped."""
_POLL_S = 0.005
"""Seconds between two looks whether all text is written."""
_READ_BYTES = 4096
"""Most bytes of input that are read at once."""
_TICKS = 2
"""After a key the parser is asked this many times whether it gave up waiting for the rest of a sequence."""
_RETRY_S = 1.0
"""Most seconds of a wait until the terminal takes text: then it is tried again."""


class TerminalOutput:
    """Writes text to a file descriptor in a thread of its own, so that no caller waits for the terminal.

    It writes UTF-8 in every locale: terminals take it, also where a login has left the locale at another
    encoding.
    """

    def __init__(self, descriptor: int) -> None:
        """Write to `descriptor`, which this class never closes; the thread starts at the first write."""
        self.descriptor = descriptor
        self._unwritten: deque[str] = deque()
        # A signal handler may interrupt a write with another: `queue.Queue` would deadlock.
        self._more: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.count: Callable[[str], None] | None = None
        """A callback for each text that is queued; None for no callback."""
        self._gone = False
        """True after a write has failed: all later text is dropped."""

    @classmethod
    def to_terminal(cls) -> TerminalOutput:
        """Return an output to standard error, or to standard output if that alone is a terminal."""
        for stream in (sys.__stderr__, sys.__stdout__):
            if stream is not None and stream.isatty():
                return cls(stream.fileno())
        return cls(2)

    @property
    def backlog(self) -> int:
        """Number of texts that the terminal has not accepted yet; 0 after a write has failed."""
        return len(self._unwritten)

    def write(self, text: str) -> None:
        """Queue `text` for the terminal and return at once."""
        if self._gone:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="terminal-output", daemon=True)
            self._thread.start()
        if self.count is not None:
            self.count(text)
        self._unwritten.append(text)
        self._more.put(None)

    def drain(self, within_s: float = DRAIN_S) -> bool:
        """Wait until all queued text is written; return False after `within_s` seconds without success."""
        end = time.monotonic() + within_s
        while self.backlog and not self._gone:
            if time.monotonic() >= end:
                return False
            time.sleep(_POLL_S)
        return True

    def _run(self) -> None:
        while not self._gone:
            self._more.get()
            self._write_all(self._unwritten[0].encode(errors="backslashreplace"))
            self._unwritten.popleft()
        self._unwritten.clear()

    def _write_all(self, data: bytes) -> None:
        left = memoryview(data)
        while left and not self._gone:
            try:
                # Not through the file object: a blocked write holds its lock, on which the interpreter
                # aborts at its end.
                left = left[os.write(self.descriptor, left) :]
            except BlockingIOError:
                select.select([], [self.descriptor], [], _RETRY_S)
            except OSError:
                self._gone = True


_AS_BEFORE = (
    b"\x1b[?2004l\x1b[?7h\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
)
"""Escape sequences that Textual writes on shutdown: they restore paste, wrap, mouse, keyboard, screen, cursor
and focus."""


class WakingEvent(threading.Event):
    """An event that `select` can wait for: its descriptor is readable while the event is set."""

    def __init__(self) -> None:
        """Start unset."""
        super().__init__()
        self._reading, self._writing = os.pipe()

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._reading

    def set(self) -> None:
        """Set the event and wake whoever waits for it."""
        if not self.is_set():
            super().set()
            os.write(self._writing, b"x")

    def clear(self) -> None:
        """Make the event unset."""
        if self.is_set():
            super().clear()
            os.read(self._reading, _READ_BYTES)


class _Mode(Enum):
    """Whether sparktop draws on the terminal now, or has restored the terminal's previous state."""

    OURS = "drawn on"
    SUSPENDED = "given back until SIGCONT"
    LEFT = "given back"


class TerminalDriver(LinuxDriver):
    """Textual's driver for Linux, changed so that its writes never block.

    Textual's own can block forever in three ways: its queue of writes is bounded, and its writer thread ends
    at the first error, after which the event loop waits for room in the queue; on shutdown it waits for a
    write that a terminal without a reader never accepts; and SIGCONT, which the kernel sends after SIGHUP,
    starts a second writer thread and a second key reader, and the first ones are never stopped.
    """

    def __init__(self, app: App[Any], **options: Any) -> None:  # noqa: ANN401 - those of Textual's driver
        """Prepare the output to the terminal; nothing is written yet."""
        super().__init__(app, **options)
        self.output = TerminalOutput.to_terminal()
        self._mode = _Mode.LEFT
        self.exit_event = self._shutdown = WakingEvent()

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
        """Read keys until shutdown; end without an error if the terminal has disappeared.

        Textual's own loop wakes ten times a second: for the shutdown, and because only a pause tells the
        escape key from the beginning of a sequence. That alone is a twentieth of what watching costs.
        """
        parser = XTermParser()
        decode = getincrementaldecoder("utf-8")("replace").decode
        ticks_left = 0
        with suppress(OSError):
            while not self.exit_event.is_set():
                wait_s = ESCAPE_DELAY if ticks_left else None
                readable, _, _ = select.select([self.fileno, self._shutdown], [], [], wait_s)
                ticks_left = max(0, ticks_left - 1)
                if self.fileno in readable:
                    ticks_left = _TICKS
                    text = decode(os.read(self.fileno, _READ_BYTES))
                    if not text:  # a terminal at its end is readable for ever
                        self.exit_event.wait(ESCAPE_DELAY)
                    messages = parser.feed(text) if text else ()
                    for message in messages:
                        self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)
        with suppress(EOFError, ParseError):  # ends the parser; half a sequence is dropped
            for _ in parser.feed(""):
                pass

    def restore(self) -> None:
        """Restore the terminal's previous state without waiting for the terminal, for a forced exit."""
        if self.attrs_before is not None:
            termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)
        if self._mode is _Mode.OURS and select.select([], [self.output.descriptor], [], 0)[1]:
            os.write(self.output.descriptor, _AS_BEFORE)

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


def has_shell() -> bool:
    """Return whether a process of this session, outside of this job, waits for the job and can resume it.

    Without one, as in a window of its own or under `ssh -t HOST sparktop`, a stopped program would stay
    stopped.
    """
    import psutil  # late: the first picture needs none of it

    job, session = os.getpgrp(), os.getsid(0)
    try:
        for parent in psutil.Process().parents():
            if os.getsid(parent.pid) != session:
                return False
            if os.getpgid(parent.pid) != job:
                return True
    except (OSError, psutil.Error):
        return False
    return False


_RATE_S = 10.0
"""Seconds over which the rate of bytes is averaged."""


class TerminalMeter:
    """Counts the bytes that are sent to the terminal."""

    def __init__(self) -> None:
        """Start at 0."""
        self._total = 0
        self._marks: deque[tuple[float, int]] = deque()

    def count(self, data: str) -> None:
        """Add the bytes of one text sent to the terminal."""
        self._total += len(data.encode(errors="backslashreplace"))

    def rate(self) -> float | None:
        """Return the bytes per second over at most the last `_RATE_S` seconds; None at the first call."""
        now = time.monotonic()
        self._marks.append((now, self._total))
        while len(self._marks) > 1 and now - self._marks[1][0] >= _RATE_S:
            self._marks.popleft()
        start, total = self._marks[0]
        return (self._total - total) / (now - start) if now > start else None


PAUSE_S = 10.0
"""Least seconds between two notifications; what comes in between is counted in the next one."""
_LONGEST = 160
"""Most characters of a desktop notification."""
_TITLE = "sparktop"


class Notifier:
    """Notifies the user of events by bell or desktop notification, at most once every `PAUSE_S` seconds.

    Control characters and escape sequences make the terminal ring its bell and show the notification.
    """

    def __init__(
        self,
        settings: Callable[[], EventSettings],
        write: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        in_tmux: bool = False,
    ) -> None:
        """Send the kinds of notification that the settings enable; `write` sends an escape sequence.

        `settings` returns the present settings, which the user can change.

        With `in_tmux`, a desktop notification is wrapped so that tmux forwards it to the terminal if the
        tmux option allow-passthrough is set; without this option, tmux drops the notification.
        """
        self._in_tmux = in_tmux
        self._settings = settings
        self._write = write
        self._clock = clock
        self._sent_at: float | None = None
        self._held_back = 0

    def notify(self, event: Event) -> None:
        """Notify the user of an event, if it is severe enough and the last notification is not too recent."""
        settings = self._settings()
        silent = not settings.bell and settings.notify == "off"
        if silent or event.importance.rank < settings.severity.rank:
            return
        now = self._clock()
        if self._sent_at is not None and now - self._sent_at < PAUSE_S:
            self._held_back += 1
            return
        sequence = ("\a" if self._settings().bell else "") + self._notification(event)
        self._sent_at, self._held_back = now, 0
        if sequence:
            self._write(sequence)

    def _notification(self, event: Event) -> str:
        """Return the escape sequence of a desktop notification of `event`; "" if these are switched off."""
        more = f" (and {self._held_back} more)" if self._held_back else ""
        # Clean text holds no control character that could end the sequence; a semicolon would divide it.
        text = clean(f"{event.subject}: {event.message}", _LONGEST).replace(";", ",") + more
        match self._settings().notify:
            case "osc9":
                # With the title in front: a text that begins with "4;" would be a progress bar.
                sequence = f"\x1b]9;{_TITLE}: {text}\a"
            case "osc777":
                sequence = f"\x1b]777;notify;{_TITLE};{text}\a"
            case _:
                return ""
        return f"\x1bPtmux;\x1b{sequence}\x1b\\" if self._in_tmux else sequence


def notify_of_events(
    store: Store | None, settings: Callable[[], EventSettings], write: Callable[[str], None]
) -> None:
    """Notify the user of the store's events from now on, as `settings` returns at each event."""
    if store is not None:
        store.listen_events(Notifier(settings, write, in_tmux="TMUX" in os.environ).notify)
