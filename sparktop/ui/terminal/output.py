"""Output to a terminal that may not accept it, in a thread of its own."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

DRAIN_S = 1.0
"""Seconds to wait for the last writes on shutdown. If the terminal does not accept them by then, they are
dropped."""
_POLL_S = 0.005
_RETRY_S = 1.0


class TerminalOutput:
    """Writes text to a file descriptor in a thread of its own, so that no caller waits for the terminal."""

    def __init__(self, descriptor: int, *, encoding: str = "utf-8") -> None:
        """Write to `descriptor`, which this class never closes; the thread starts at the first write."""
        self._descriptor = descriptor
        self._encoding = encoding
        self._unwritten: deque[str] = deque()
        # A signal handler may interrupt a write with another: `queue.Queue` would deadlock.
        self._more: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.count: Callable[[str], None] | None = None
        """A callback for each text that is queued; None for no callback."""
        self._gone = False
        """True after a write has failed: all later text is dropped."""

    @classmethod
    def to_stderr(cls) -> TerminalOutput:
        """Return an output to standard error, where Textual writes the screen."""
        error = sys.__stderr__
        return cls(error.fileno(), encoding=error.encoding) if error else cls(2)

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
            self._write_all(self._unwritten[0].encode(self._encoding, "backslashreplace"))
            self._unwritten.popleft()
        self._unwritten.clear()

    def _write_all(self, data: bytes) -> None:
        left = memoryview(data)
        while left and not self._gone:
            try:
                # Not through the file object: a blocked write holds its lock, on which the interpreter
                # aborts at its end.
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [], _RETRY_S)
            except OSError:
                self._gone = True
