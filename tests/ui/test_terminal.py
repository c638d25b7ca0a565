"""The terminal's output: written in its own time, dropped where it is gone, waited for only so long."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest
from textual.app import App

from sparktop.ui.terminal import TerminalDriver, TerminalOutput, _Mode


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """Yield the two ends of a pipe; a test may close them."""
    reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        for one in (reading, writing):
            try:
                os.close(one)
            except OSError:
                continue


def fill(writing: int) -> None:
    """Write until there is no room."""
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, bytes(4096))
    except BlockingIOError:
        os.set_blocking(writing, True)


def test_what_is_written_arrives_in_order() -> None:
    """Every write in UTF-8, and half a character as an escape; each is counted once."""
    counted: list[str] = []
    with pipe() as (reading, writing):
        output = TerminalOutput(writing)
        output.count = counted.append
        output.write("first ")
        output.write("⣿ \ud800")
        assert output.drain(30)
        assert os.read(reading, 100) == "first ⣿ ".encode() + b"\\ud800"
        assert (output.backlog, counted) == (0, ["first ", "⣿ \ud800"])


def test_the_locale_does_not_decide_how_the_screen_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A login with another encoding has the graphs, too."""
    with pipe() as (reading, writing):
        screen = SimpleNamespace(isatty=lambda: True, fileno=lambda: writing, encoding="latin-1")
        monkeypatch.setattr(sys, "__stderr__", screen)
        output = TerminalOutput.to_terminal()
        output.write("⣿")
        assert output.drain(30)
        assert os.read(reading, 100) == "⣿".encode()


def test_a_terminal_without_a_reader_holds_nobody() -> None:
    """A thousand writes return, the backlog is reported, and waiting for them ends; later they all arrive."""
    with pipe() as (reading, writing):
        fill(writing)
        output = TerminalOutput(writing)
        for _ in range(1000):
            output.write("x")
        assert output.backlog == 1000
        assert output.drain(0.0) is False
        os.set_blocking(reading, False)
        while output.backlog:
            with suppress(BlockingIOError):
                os.read(reading, 1 << 16)
        assert output.drain(30)


def test_a_terminal_that_is_gone_takes_everything() -> None:
    """After the first failed write nothing waits, and later writes are dropped."""
    with pipe() as (reading, writing):
        os.close(reading)
        output = TerminalOutput(writing)
        for _ in range(100):
            output.write("x")
        assert output.drain(30)
        output.write("y")
        assert output.drain(0.0)
        assert output.backlog == 0


def test_a_signal_handler_may_write_in_the_middle_of_a_write() -> None:
    """Handlers that write, called between any two steps of a write, lose nothing and lock nothing."""
    with pipe() as (reading, writing):
        output, written, got = TerminalOutput(writing), 0, 0

        def handler(*_: object) -> None:
            nonlocal written
            output.write("h")
            written += 1

        def read() -> None:
            nonlocal got
            while data := os.read(reading, 1 << 16):
                got += len(data)

        reader = threading.Thread(target=read)
        reader.start()
        before = signal.signal(signal.SIGUSR1, handler)
        try:
            for _ in range(2000):
                output.write("m")
                os.kill(os.getpid(), signal.SIGUSR1)
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert output.drain(30)
        os.close(writing)
        reader.join()
        assert got == 2000 + written


async def test_a_notification_is_one_write_and_only_on_our_screen() -> None:
    """It stands between two drawings, and is dropped while another program has the terminal."""
    written: list[str] = []
    driver = TerminalDriver(App[None]())

    class Written(TerminalOutput):
        """Keep what is written."""

        def write(self, text: str) -> None:
            """Keep one write."""
            written.append(text)

    driver.output = Written(-1)
    driver.notify("\a")
    assert written == []
    driver._mode = _Mode.OURS
    driver.write("one drawing")
    driver.notify("\a\x1b]9;down\a")
    driver.write("the next one")
    assert written == ["one drawing", "\a\x1b]9;down\a", "the next one"]
