"""Checks the terminal: colours, size, encoding, and the width of braille characters."""

from __future__ import annotations

import codecs
import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Mapping

from msgspec import Struct

from sparktop.doctor.check import Check, Status
from sparktop.model.text import clean
from sparktop.panels.board.layout import MIN_HEIGHT, MIN_WIDTH

_TRUE_COLOR = frozenset({"truecolor", "24bit"})
"""Values of COLORTERM for 16 million colours."""
_BRAILLE = "\u28ff"
"""A braille character with all dots."""
_ASK = f"\r{_BRAILLE}\x1b[6n"
"""Prints a braille character with all dots and requests the cursor position (escape sequence DSR 6)."""
_ERASE = "\r\x1b[K"
"""Clears the line of the cursor."""
_ANSWER_S = 1.0
"""Seconds for the terminal's answer."""
_MOST_BYTES = 64
"""Bytes of the answer that are read."""
_POSITION = re.compile(rb"\x1b\[(\d{1,5});(\d{1,5})R")
"""A report of the cursor's position."""
_AFTER_ONE_CELL = 2
"""Column of the cursor after a character of one cell."""


class Terminal(Struct, frozen=True):
    """Properties of the terminal, as observed."""

    is_tty: bool
    """Whether both standard input and output are terminals."""
    term: str = ""
    colorterm: str = ""
    no_color: bool = False
    size: tuple[int, int] = (0, 0)
    """(columns, rows) of the terminal; both 0 if unknown."""
    encoding: str = ""
    """Python's encoding of standard output."""
    locale: str = ""
    """The environment variable that determines the locale, as NAME=value; "" if there is none."""
    cursor: int | None = None
    """Column of the cursor, from 1, after a braille character was printed in column 1; None if the
    terminal did not report the column."""
    asked: bool = False
    """Whether the cursor position was requested from the terminal."""


def read_terminal(env: Mapping[str, str], *, ask: bool) -> Terminal:
    """Return the properties of the terminal, from the environment `env` and standard input and output.

    With `ask`, also print a braille character and request the cursor position, if the terminal is likely to
    respond.
    """
    streams = (sys.stdin, sys.stdout)
    if any(stream is None or not stream.isatty() for stream in streams):
        return Terminal(is_tty=False)
    read_fd, write_fd = (stream.fileno() for stream in streams)
    term = env.get("TERM", "")
    asked = ask and term not in {"", "dumb"} and _in_foreground(read_fd)
    try:
        columns, rows = os.get_terminal_size(write_fd)
    except OSError:
        columns = rows = 0
    return Terminal(
        is_tty=True,
        term=term,
        colorterm=env.get("COLORTERM", ""),
        no_color=bool(env.get("NO_COLOR")),
        size=(columns, rows),
        encoding=sys.stdout.encoding or "",
        locale=next((f"{key}={env[key]}" for key in ("LC_ALL", "LC_CTYPE", "LANG") if env.get(key)), ""),
        cursor=cursor_column(ask_cursor(read_fd, write_fd)) if asked else None,
        asked=asked,
    )


def _in_foreground(fd: int) -> bool:
    """Return whether this process is in the foreground of the terminal `fd`.

    A background process must not change the settings of a terminal: the system would stop it.
    """
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return True  # not this session's controlling terminal, so no process is stopped


def ask_cursor(read_fd: int, write_fd: int, timeout_s: float = _ANSWER_S) -> bytes:
    """Print a braille character, request the cursor position, and erase the character again.

    Return the bytes that the terminal sent, b"" if none arrived within `timeout_s` seconds. Keys pressed
    meanwhile are lost, because their bytes arrive among those of the terminal.
    """
    try:
        before = termios.tcgetattr(read_fd)
    except termios.error:
        return b""
    try:
        tty.setcbreak(read_fd, termios.TCSADRAIN)
        os.write(write_fd, _ASK.encode())
        return _read_position(read_fd, timeout_s)
    except (OSError, termios.error):
        return b""
    finally:
        try:
            os.write(write_fd, _ERASE.encode())
        finally:
            # A late answer must not reach the shell as typed input.
            termios.tcsetattr(read_fd, termios.TCSAFLUSH, before)


def _read_position(read_fd: int, timeout_s: float) -> bytes:
    end = time.monotonic() + timeout_s
    answer = b""
    while len(answer) < _MOST_BYTES and not _POSITION.search(answer):
        ready, _, _ = select.select([read_fd], [], [], max(0.0, end - time.monotonic()))
        chunk = os.read(read_fd, _MOST_BYTES) if ready else b""
        if not chunk:
            break
        answer += chunk
    return answer


def cursor_column(answer: bytes) -> int | None:
    """Return the column, from 1, in a terminal's report of its cursor position; None without a report."""
    match = _POSITION.search(answer)
    return int(match[2]) if match else None


def check_terminal(terminal: Terminal) -> list[Check]:
    """Return the checks of the terminal's type, colours, size, encoding and braille characters."""
    if not terminal.is_tty:
        return [Check("terminal", Status.SKIP, "not a terminal: not checked")]
    return [
        _check_term(terminal),
        _check_colors(terminal),
        _check_size(terminal),
        _check_encoding(terminal),
        _check_braille(terminal),
    ]


def _check_term(terminal: Terminal) -> Check:
    if terminal.term in {"", "dumb"}:
        message = f"TERM is {clean(terminal.term, 40) or 'not set'}: plain reports instead of the screen"
        return Check("terminal", Status.FAIL, message, "export TERM=xterm-256color")
    return Check("terminal", Status.OK, f"TERM={clean(terminal.term, 40)}")


def _check_colors(terminal: Terminal) -> Check:
    if terminal.no_color:
        return Check("colours", Status.OK, "NO_COLOR is set: bold type and dots instead of colours")
    if terminal.colorterm in _TRUE_COLOR or terminal.term.endswith("-direct"):
        return Check("colours", Status.OK, "16 million")
    if "256" in terminal.term:
        advice = (
            "COLORTERM=truecolor, if the terminal has them (ssh and sudo drop it), or the theme spark-ansi"
        )
        return Check("colours", Status.WARN, "256: gradients are coarse", advice)
    advice = "COLORTERM=truecolor, if the terminal has them, or the theme spark-ansi"
    return Check("colours", Status.WARN, "16, as far as TERM says", advice)


def _check_size(terminal: Terminal) -> Check:
    if 0 in terminal.size:
        return Check("size", Status.SKIP, "the terminal does not report it")
    columns, rows = terminal.size
    message = f"{columns}×{rows}"
    if columns < MIN_WIDTH or rows < MIN_HEIGHT:
        return Check("size", Status.FAIL, message, f"make it {MIN_WIDTH}×{MIN_HEIGHT} or larger")
    return Check("size", Status.OK, message)


def _check_encoding(terminal: Terminal) -> Check:
    try:
        is_utf8 = codecs.lookup(terminal.encoding).name == "utf-8"
    except LookupError:
        is_utf8 = False
    message = ", ".join(clean(part, 60) for part in (terminal.encoding or "none", terminal.locale) if part)
    if is_utf8:
        return Check("encoding", Status.OK, message)
    return Check("encoding", Status.FAIL, f"{message}: graphs need UTF-8", "export LC_ALL=C.UTF-8")


def _check_braille(terminal: Terminal) -> Check:
    if not terminal.asked:
        return Check("braille", Status.SKIP, "the terminal was not asked")
    if terminal.cursor is None:
        return Check("braille", Status.SKIP, "the terminal does not report its cursor position")
    if terminal.cursor == _AFTER_ONE_CELL:
        return Check("braille", Status.OK, "one cell wide")
    advice = "choose a font with braille (DejaVu Sans Mono), and narrow ambiguous widths"
    return Check("braille", Status.FAIL, f"{terminal.cursor - 1} cells wide: graphs would be torn", advice)
