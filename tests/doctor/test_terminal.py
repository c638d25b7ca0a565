"""Terminals, judged from their properties, and queried through a pty of the test."""

from __future__ import annotations

import os
import termios
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.doctor.check import Check, Status
from sparktop.doctor.terminal import Terminal, ask_cursor, check_terminal, cursor_column, look_at_terminal

GOOD = Terminal(
    is_tty=True,
    term="xterm-256color",
    colorterm="truecolor",
    size=(120, 36),
    encoding="utf-8",
    locale="LANG=C.UTF-8",
    cursor=2,
    asked=True,
)


def by_name(terminal: Terminal) -> dict[str, Check]:
    return {check.name: check for check in check_terminal(terminal)}


def test_a_good_terminal_passes() -> None:
    """A terminal with true colour, enough room, UTF-8 and narrow braille needs no advice."""
    checks = by_name(GOOD)
    assert list(checks) == ["terminal", "colours", "size", "encoding", "braille"]
    assert {check.status for check in checks.values()} == {Status.OK}
    assert not any(check.advice for check in checks.values())


def test_no_terminal_is_skipped() -> None:
    """If output is piped, one line says that nothing was checked."""
    assert check_terminal(Terminal(is_tty=False)) == [
        Check("terminal", Status.SKIP, "not a terminal: not checked")
    ]


@pytest.mark.parametrize(
    ("terminal", "name", "status"),
    [
        (replace(GOOD, term="dumb"), "terminal", Status.FAIL),
        (replace(GOOD, term=""), "terminal", Status.FAIL),
        (replace(GOOD, colorterm=""), "colours", Status.WARN),
        (replace(GOOD, colorterm="", term="vt220"), "colours", Status.WARN),
        (replace(GOOD, colorterm="", no_color=True), "colours", Status.OK),
        (replace(GOOD, size=(59, 36)), "size", Status.FAIL),
        (replace(GOOD, size=(60, 16)), "size", Status.OK),
        (replace(GOOD, size=(60, 15)), "size", Status.FAIL),
        (replace(GOOD, size=(0, 0)), "size", Status.SKIP),
        (replace(GOOD, encoding="ANSI_X3.4-1968", locale="LC_ALL=C"), "encoding", Status.FAIL),
        (replace(GOOD, encoding="\x1bnone"), "encoding", Status.FAIL),
        (replace(GOOD, encoding="UTF8"), "encoding", Status.OK),
        (replace(GOOD, cursor=3), "braille", Status.FAIL),
        (replace(GOOD, cursor=None), "braille", Status.SKIP),
        (replace(GOOD, cursor=None, asked=False), "braille", Status.SKIP),
    ],
)
def test_each_lack_has_its_line(terminal: Terminal, name: str, status: Status) -> None:
    """Each property has its own line, with advice exactly for warnings and failures."""
    check = by_name(terminal)[name]
    assert check.status is status
    assert bool(check.advice) is (status in {Status.WARN, Status.FAIL})


@given(st.binary(max_size=80))
def test_any_answer_of_a_terminal_is_read(answer: bytes) -> None:
    """Any answer of a terminal gives a column or None."""
    column = cursor_column(answer)
    assert column is None or 0 <= column <= 99999


def test_the_column_stands_in_the_report() -> None:
    """The column is found behind typed input; an incomplete answer gives None."""
    assert cursor_column(b"typed\x1b[12;2R") == 2
    assert cursor_column(b"\x1b[12;2") is None


@pytest.fixture
def pty() -> Iterator[tuple[int, int]]:
    """Yield both ends of a pty: the test's (terminal), then the program's."""
    ours, theirs = os.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def answering(ours: int, reply: bytes) -> tuple[threading.Thread, list[bytes]]:
    """Start a thread that acts as the terminal: it reads the query and sends `reply`."""
    seen: list[bytes] = []

    def talk() -> None:
        question = b""
        while not question.endswith(b"\x1b[6n"):
            question += os.read(ours, 64)
        seen.append(question)
        os.write(ours, reply)

    thread = threading.Thread(target=talk)
    thread.start()
    return thread, seen


@pytest.mark.outside
@pytest.mark.parametrize(("reply", "column"), [(b"\x1b[1;2R", 2), (b"q\x1b[40;3R", 3)])
def test_a_terminal_is_asked_for_its_cursor(pty: tuple[int, int], reply: bytes, column: int) -> None:
    """A braille cell is printed at the left edge, the cursor position is queried, and the cell is erased."""
    ours, theirs = pty
    thread, seen = answering(ours, reply)
    answer = ask_cursor(theirs, theirs, timeout_s=20.0)
    thread.join()
    assert cursor_column(answer) == column
    assert seen == ["\r\u28ff\x1b[6n".encode()]
    assert os.read(ours, 64) == b"\r\x1b[K"


@pytest.mark.outside
def test_a_terminal_that_does_not_answer_is_not_waited_for(pty: tuple[int, int]) -> None:
    """A terminal that does not answer is given up after the timeout, with its settings restored."""
    before = termios.tcgetattr(pty[1])
    assert ask_cursor(pty[1], pty[1], timeout_s=0.0) == b""
    assert termios.tcgetattr(pty[1]) == before


def test_a_pipe_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """On a pipe nothing is printed or queried."""
    read_end, write_end = os.pipe()
    assert ask_cursor(read_end, write_end) == b""
    os.close(read_end)
    os.close(write_end)
    assert look_at_terminal({"TERM": "xterm"}, ask=True) == Terminal(is_tty=False)
    assert capfd.readouterr().out == ""
