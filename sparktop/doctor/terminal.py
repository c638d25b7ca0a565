"""Checks the terminal: type, colours, size and encoding."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Mapping

from msgspec import Struct

from sparktop.doctor.check import Check, Status
from sparktop.model.text import clean
from sparktop.panels.board.layout import MIN_HEIGHT, MIN_WIDTH

_TRUE_COLOR = frozenset({"truecolor", "24bit"})
"""Values of COLORTERM for 16 million colours."""


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


def read_terminal(env: Mapping[str, str]) -> Terminal:
    """Return the properties of the terminal, from the environment `env` and standard input and output."""
    streams = (sys.stdin, sys.stdout)
    if any(stream is None or not stream.isatty() for stream in streams):
        return Terminal(is_tty=False)
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        columns = rows = 0
    return Terminal(
        is_tty=True,
        term=env.get("TERM", ""),
        colorterm=env.get("COLORTERM", ""),
        no_color=bool(env.get("NO_COLOR")),
        size=(columns, rows),
        encoding=sys.stdout.encoding or "",
        locale=next((f"{key}={env[key]}" for key in ("LC_ALL", "LC_CTYPE", "LANG") if env.get(key)), ""),
    )


def check_terminal(terminal: Terminal) -> list[Check]:
    """Return the checks of the terminal's type, colours, size and encoding."""
    if not terminal.is_tty:
        return [Check("terminal", Status.SKIP, "not a terminal: not checked")]
    return [
        _check_term(terminal),
        _check_colors(terminal),
        _check_size(terminal),
        _check_encoding(terminal),
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
    return Check("encoding", Status.WARN, f"{message}: reports have ? for – and ·", "export LC_ALL=C.UTF-8")
