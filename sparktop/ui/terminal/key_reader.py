"""Reads keys without waking up while none is pressed.

Textual's own loop wakes up ten times a second: for the end of the program, and because only a pause
distinguishes the escape key from the beginning of a sequence. That alone was a twentieth of what watching
costs.
"""

from __future__ import annotations

import os
import select
from codecs import getincrementaldecoder
from collections.abc import Callable
from contextlib import suppress
from threading import Event

from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.constants import ESCAPE_DELAY
from textual.message import Message

_READ_BYTES = 4096
_LOOKS = 2
"""After a key the parser is asked this many times whether it gave up waiting for the rest of a sequence."""


class WakingEvent(Event):
    """An event that `select` can wait for: its descriptor is readable while the event is set."""

    def __init__(self) -> None:
        """Start unset."""
        super().__init__()
        self._reading, self._writing = os.pipe()

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._reading

    def set(self) -> None:
        """Set the event and wake up whoever waits for it."""
        if not self.is_set():
            super().set()
            os.write(self._writing, b"x")

    def clear(self) -> None:
        """Make the event unset."""
        if self.is_set():
            super().clear()
            os.read(self._reading, 1)


class KeyReader:
    """Reads a terminal until an event is set, and passes on what is pressed as Textual's messages."""

    def __init__(self, descriptor: int, ended: WakingEvent, deliver: Callable[[Message], None]) -> None:
        """Read `descriptor` until `ended` is set; call `deliver` with each message."""
        self._descriptor = descriptor
        self._ended = ended
        self._deliver = deliver
        self._parser = XTermParser()
        self._decode = getincrementaldecoder("utf-8")().decode

    def run(self) -> None:
        """Read until the event is set.

        Raises:
            OSError: the terminal has disappeared.
        """
        looks = 0
        while not self._ended.is_set():
            waited = [self._descriptor, self._ended.fileno()]
            readable, _, _ = select.select(waited, [], [], ESCAPE_DELAY if looks else None)
            looks = max(0, looks - 1)
            if self._descriptor in readable:
                looks = _LOOKS
                self._read()
            for message in self._parser.tick():
                self._deliver(message)
        self._finish()

    def _read(self) -> None:
        text = self._decode(os.read(self._descriptor, _READ_BYTES))
        if not text:  # a terminal at its end is readable for ever
            self._ended.wait(ESCAPE_DELAY)
            return
        for message in self._parser.feed(text):
            self._deliver(message)

    def _finish(self) -> None:
        with suppress(EOFError, ParseError):
            for _ in self._parser.feed(""):
                pass
