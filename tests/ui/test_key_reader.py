"""Keys are read as Textual reads them, without waking up while none is pressed."""

from __future__ import annotations

import os
import select
from queue import Queue
from threading import Thread

import pytest
from textual.events import Key
from textual.message import Message

from sparktop.ui.terminal.key_reader import KeyReader, WakingEvent


def test_keys_arrive_and_nothing_wakes_up_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A letter, an arrow and a lone escape are three keys; then the reader waits without an end."""
    waits: Queue[float | None] = Queue()
    delivered: Queue[Message] = Queue()

    def waiting(
        reading: list[int], writing: list[int], failing: list[int], timeout: float | None
    ) -> tuple[list[int], list[int], list[int]]:
        waits.put(timeout)
        return original(reading, writing, failing, timeout)

    original = select.select
    monkeypatch.setattr(select, "select", waiting)
    reading, writing = os.pipe()
    ended = WakingEvent()
    thread = Thread(target=KeyReader(reading, ended, delivered.put).run, daemon=True)
    thread.start()
    pressed = []
    for keys in (b"a", b"\x1b[A", b"\x1b"):
        while waits.get(timeout=300) is not None:
            continue
        os.write(writing, keys)
        message = delivered.get(timeout=300)
        assert isinstance(message, Key)
        pressed.append(message.key)
    assert pressed == ["a", "up", "escape"]
    ended.set()
    thread.join(30)
    assert not thread.is_alive()
    os.close(reading)
    os.close(writing)


def test_the_event_can_be_set_again() -> None:
    """Set twice and cleared, the descriptor is quiet; set again, it is readable."""
    event = WakingEvent()
    readable = []
    for change in (event.set, event.set, event.clear, event.clear, event.set):
        change()
        readable.append(bool(select.select([event], [], [], 0)[0]))
    assert readable == [True, True, False, False, True]
