"""`sparktop replay FILE…`: a recording on the screen, as it was live."""

from __future__ import annotations

import argparse
import os
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.commands.arguments import add_theme, configured_watch, refuse_removed
from sparktop.commands.output import tell
from sparktop.errors import UsageError
from sparktop.model.targets import Watch
from sparktop.recording.past import SPEEDS

if TYPE_CHECKING:
    from sparktop.recording.player import Recording
    from sparktop.ui.app import ReplayApp

_FIRST_WORK_S = 1.0
"""About the longest work before the first picture, in seconds."""
ONE_AT_A_TIME = (
    "sparktop report FILE writes the figures of one recording, sparktop compare A B compares sweeps"
)
"""What remains instead of showing two recordings side by side."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the files, the moment to begin at, and the speed."""
    parser.add_argument("files", nargs="*", metavar="FILE", help="a recording, or several that follow on")
    refuse_removed(parser, "--compare", ONE_AT_A_TIME)
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="begin there: '10m ago' (before the end), 12:03, 'yesterday 14:00', start",
    )
    parser.add_argument(
        "--speed", type=int, choices=SPEEDS, default=1, help="how fast space plays (+ and - change it)"
    )
    add_theme(parser)
    parser.add_argument("--config", metavar="FILE", help="the configuration file, for theme and keys")


def moment(recording: Recording, text: str | None) -> datetime:
    """Return the moment of a recording that `text` means, or the recording's end if `text` is None.

    Raises:
        UsageError: the text is not a time, or not a time of the recording.
    """
    from sparktop.recording.when import TimeContext, read_time, require_within

    span = TimeContext(recording.frames[0].instant.wall, recording.end, datetime.now(UTC))
    return recording.end if text is None else require_within(read_time(text, span), span)


def run(arguments: argparse.Namespace) -> int:
    """Show a recording until the user quits; return the exit code.

    Raises:
        UsageError: a file is not a recording, the time is outside the recording, or there is no
            terminal.
    """
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    with _unechoed_keys() if is_terminal else nullcontext():
        if is_terminal and arguments.files:  # the first picture may take seconds
            tell(f"reading {', '.join(arguments.files[:3])} …")
        app, recording = _prepared(arguments, is_terminal=is_terminal)
    app.run()
    recording.close()
    return app.return_code or 0


@contextmanager
def _unechoed_keys() -> Iterator[None]:
    """Keep the terminal from writing keys that are typed ahead of the first picture, which acts on them."""
    attributes = termios.tcgetattr(0)
    quiet = [*attributes[:3], attributes[3] & ~termios.ECHO, *attributes[4:]]
    termios.tcsetattr(0, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSANOW, attributes)


def _prepared(arguments: argparse.Namespace, *, is_terminal: bool) -> tuple[ReplayApp, Recording]:
    """Return the application at the moment to begin at, and its recording.

    Raises:
        UsageError: as `run`.
    """
    # Late: --help needs none of them.
    from sparktop.commands.choice import checked_theme
    from sparktop.logfile import open_log
    from sparktop.model.text import clean
    from sparktop.recording.flight import flight_folder, parts
    from sparktop.recording.player import Recording
    from sparktop.recording.replay import Replay
    from sparktop.ui.app import ReplayApp
    from sparktop.ui.remembered import state_file

    open_log(os.environ)
    theme = checked_theme(arguments.theme)
    settings = configured_watch(arguments.config, os.environ, needed=False) or Watch()
    if not arguments.files:
        newest = parts(flight_folder(os.environ))[-1:]
        note = "".join(f"; the newest minutes of the viewer are in {clean(path, 200)}" for path in newest)
        raise UsageError(f"name a recording: FILE{note}")
    recording = Recording([Path(file) for file in arguments.files])
    start = moment(recording, arguments.at)
    if not is_terminal:
        raise UsageError("replay needs a terminal; sparktop snapshot --from FILE --at TIME writes a report")
    replay = Replay(recording, speed=arguments.speed)
    replay.go(start)
    until = time.monotonic() + _FIRST_WORK_S
    while not replay.work(_FIRST_WORK_S) and time.monotonic() < until:
        pass
    app = ReplayApp(replay, theme=theme or settings.theme, keys=settings.keys, state=state_file(os.environ))
    return app, recording
