"""The first picture, drawn before Textual is loaded: loading Textual takes half of a start.

The picture is that of the overview without the row of keys, which appears when keys are read. Textual then
takes over the terminal and draws the same rows again.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from sparktop.colors.palette import BOLD, Palette
from sparktop.config.keys import Key
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.arrangement import Arrangement
from sparktop.panels.board.bars import header_row
from sparktop.panels.board.flat import flatten
from sparktop.panels.board.layout import MIN_HEIGHT, MIN_WIDTH
from sparktop.panels.board.scene import PanelKey, Scene
from sparktop.panels.board.view import Preset, View
from sparktop.panels.parts.rows import Row, blank_row
from sparktop.ui.keys import with_moved_keys
from sparktop.ui.terminal.output import ENTER, TerminalOutput

_HIDE_CURSOR = "\x1b[?25l"
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
_LEAVE_S = 0.2
"""Seconds to wait for the terminal when a start ends before Textual has it."""


def first_rows(snapshot: Snapshot, size: tuple[int, int], view: View, keys: Sequence[Key]) -> list[Row]:
    """Return the rows of the overview as it begins, with an empty row in place of the keys.

    `size` is (columns, rows) of the terminal. Return no rows if it is too small for the overview.
    """
    width, height = size
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return []
    arranged = Arrangement().of(snapshot, view, None)
    names = [one.name for one in arranged.backends] if view.preset is Preset.ONE else []
    zoomed = PanelKey("backend", names[0]) if names else None
    scene = Scene(arranged if zoomed is None else snapshot, width, height - 2, view, zoomed=zoomed)
    board = flatten(scene.draw(0, height - 2), width, scene.layout.height)[: height - 2]
    rows = with_moved_keys([header_row(snapshot, width), *board], keys)
    return [*rows, *([blank_row(width)] * (height - len(rows)))]


def sequences(rows: Sequence[Row], palette: Palette) -> str:
    """Return the text and escape sequences that draw `rows` from the top left, in 24-bit colours."""
    out: list[str] = []
    for y, row in enumerate(rows, start=1):
        out.append(f"\x1b[{y};1H")
        out += [f"\x1b[{_parameters(role, palette)}m{text}" for text, role in row if text]
    return "".join([*out, "\x1b[0m"])


def _parameters(role: str, palette: Palette) -> str:
    """Return the parameters of the escape sequence that selects the style of a role."""
    weight = "0;1" if role in BOLD else "0"
    return f"{weight};38;2;{_levels(palette.color(role))};48;2;{_levels(palette.color('background'))}"


def _levels(color: str) -> str:
    return ";".join(str(level) for level in bytes.fromhex(color[1:]))


def can_draw(palette: Palette, env: Mapping[str, str]) -> bool:
    """Return whether the terminal shows 24-bit colours, the theme has them, and this process may draw.

    Other terminals get their first picture from Textual, which converts colours.
    """
    true_colors = env.get("COLORTERM", "").strip().lower() in {"truecolor", "24bit"}
    chosen = env.get("NO_COLOR") or env.get("TEXTUAL_COLOR_SYSTEM") or env.get("TEXTUAL_DRIVER")
    if not true_colors or chosen or palette.ansi or palette.transparent:
        return False
    if threading.current_thread() is not threading.main_thread():  # signals could not be handled
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):  # no terminal
        return False


@contextmanager
def first_picture(text: str) -> Iterator[TerminalOutput]:
    """Draw `text` on the alternate screen while Textual is loaded; yield the output that it was written to.

    Keys that are pressed meanwhile are not echoed. If the `with` block fails or is interrupted, the terminal
    is as before.
    """
    output, descriptor = TerminalOutput.to_stderr(), sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    quiet = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    usual = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is signal.SIG_DFL]
    try:
        for number in usual:
            signal.signal(number, _end)
        termios.tcsetattr(descriptor, termios.TCSANOW, quiet)
        output.write(f"{ENTER}{_HIDE_CURSOR}{text}")
        yield output
    except BaseException:
        output.write(_LEAVE)
        output.drain(_LEAVE_S)
        raise
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)
        for number in usual:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)
