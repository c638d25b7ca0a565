"""`sparktop snapshot`: watch for a few seconds, then write a report."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.commands.arguments import (
    add_output_file,
    add_targets,
    add_timeout,
    chosen_format,
    format_name,
    refuse_beside,
    refuse_removed,
    seconds,
)
from sparktop.commands.output import output_file, tell, write_result
from sparktop.commands.replay import ONE_AT_A_TIME, moment
from sparktop.ending import INTERRUPTED
from sparktop.errors import UnreachableError, UsageError
from sparktop.model.targets import Watch
from sparktop.model.text import clean

if TYPE_CHECKING:
    from sparktop.model.snapshot import Snapshot

FORMATS = ("json", "md", "html", "svg", "txt")
"""Output formats."""
DEFAULT_SIZE = (120, 36)
"""Columns and rows of the screen in svg and html."""
TEXT_WIDTH = 100
"""Columns of the plain-text report."""
_DAY_S = 86_400.0
"""Longest time to watch."""
_LEAST_SIZE, _MOST_SIZE = (60, 16), (500, 300)
"""Columns and rows: what the screen needs at least, and more than any terminal has."""
_SIZE = re.compile(r"([0-9]{1,4})[xX×]([0-9]{1,4})")
"""COLSxROWS."""


def screen_size(text: str) -> tuple[int, int]:
    """Parse a text such as "200x50" into (columns, rows).

    Raises:
        argparse.ArgumentTypeError: the text is not two numbers with an "x" between, or a number is out of
            range.
    """
    match = _SIZE.fullmatch(text.strip())
    size = (int(match[1]), int(match[2])) if match else (0, 0)
    if not all(low <= part <= high for low, part, high in zip(_LEAST_SIZE, size, _MOST_SIZE, strict=True)):
        least, largest = ("x".join(map(str, limit)) for limit in (_LEAST_SIZE, _MOST_SIZE))
        raise argparse.ArgumentTypeError(f"must be COLSxROWS, {least} to {largest}, not '{clean(text, 40)}'")
    return size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the targets and the options of the report: duration, format, size, theme, output file."""
    add_targets(parser)
    add_timeout(parser)
    parser.add_argument(
        "--from",
        nargs="+",
        dest="recordings",
        metavar="FILE",
        help="report a moment of these recordings instead (see sparktop replay)",
    )
    refuse_removed(parser, "--compare", ONE_AT_A_TIME)
    parser.add_argument(
        "--at", metavar="TIME", help="the moment: '10m ago' (before the end), 12:03, start (default: the end)"
    )
    parser.add_argument(
        "--seconds",
        type=seconds(0.1, _DAY_S),
        metavar="TIME",
        help="watch so long (default: until rates cover two intervals or all targets failed, at most "
        "5 s, or 30 s for a server whose page takes long)",
    )
    parser.add_argument(
        "--format",
        type=format_name,
        choices=FORMATS,
        dest="form",
        help="default: by the ending of -o FILE, else json",
    )
    parser.add_argument(
        "--size",
        type=screen_size,
        default=DEFAULT_SIZE,
        metavar="COLSxROWS",
        help="of the screen in svg and html (default 120x36)",
    )
    parser.add_argument(
        "--theme", metavar="NAME", help="of that screen; one that sparktop config themes lists"
    )
    add_output_file(parser)


def run(arguments: argparse.Namespace) -> int:
    """Watch for a few seconds and write a report; return the exit code.

    Raises:
        SparktopError: an argument, the configuration file or the output cannot be used; or nothing was
            reached.
    """
    # Late: --help needs none of them.
    from sparktop.commands.choice import choose
    from sparktop.logfile import open_log

    open_log(os.environ)
    output = output_file(arguments.output, [*(arguments.recordings or ()), arguments.config])
    arguments.form = chosen_format(arguments.form, output, FORMATS, "json")
    if arguments.recordings is not None or arguments.at is not None:
        return _report_recording(arguments, output)
    watch = choose(arguments, os.environ)
    return report(watch, seconds=arguments.seconds, form=arguments.form, output=output, size=arguments.size)


def _report_recording(arguments: argparse.Namespace, output: Path | None) -> int:
    """Write a report of the state at one moment of a recording; return the exit code.

    Raises:
        UsageError: a file is not a recording, the time is outside it, or another option does not fit.
    """
    from sparktop.commands.choice import checked_theme
    from sparktop.recording.player import Player, Recording

    if arguments.recordings is None:
        raise UsageError("--at needs --from FILE: the recording that has this moment")
    reason = "--from reads a recording and watches nothing"
    refuse_beside(reason, arguments, "targets", "seconds", "timeout", "config", "api_key_env")
    theme = checked_theme(arguments.theme) or Watch().theme
    recording = Recording([Path(file) for file in arguments.recordings])
    player = Player(recording)
    player.seek(moment(recording, arguments.at))
    recording.close()
    return _write(player.snapshot(), arguments.form, output, size=arguments.size, theme=theme)


def _write(
    snapshot: Snapshot,
    form: str,
    output: Path | None,
    *,
    size: tuple[int, int],
    theme: str,
    unasked: Collection[str] = (),
) -> int:
    """Write a snapshot; return the exit code 0, or raise if no source of it was reached.

    The nodes named `unasked` do not count as reached.

    Raises:
        OutputError: the report cannot be written.
        UnreachableError: nothing was reached; the report is written all the same, but not to a terminal.
    """
    from sparktop.commands.observation import why_nothing

    nodes = [node for node in snapshot.nodes if node.name not in unasked]
    answering = (nodes, snapshot.backends, snapshot.routers, snapshot.fleets)
    is_reached = any(view.ok for sources in answering for view in sources)
    # Hundreds of lines of unknown figures would push the one sentence off a terminal.
    if is_reached or output is not None or sys.stdout is None or not sys.stdout.isatty():
        write_result(output, render(snapshot, form, size=size, theme=theme))
    if not is_reached:
        raise UnreachableError(why_nothing(snapshot))
    return 0


def report(
    watch: Watch,
    *,
    seconds: float | None,
    form: str,
    output: Path | None,
    simulated: bool = False,
    size: tuple[int, int] = DEFAULT_SIZE,
) -> int:
    """Watch for `seconds`, write a report in the format `form` to `output`, and return the exit code.

    With None for `seconds`, watch until all sources have answered; with None for `output`, write to standard
    output. `size` is (columns, rows) of the screen in svg and html. Ctrl+C ends the watching early; a second
    Ctrl+C ends the program.

    Raises:
        OutputError: the report cannot be written.
        UnreachableError: nothing could be reached; the report is written all the same, but not to a terminal.
    """
    # Late: --help needs no event loop, whose import is half of its time.
    import asyncio

    from sparktop.commands.observation import observe, unasked_nodes

    snapshot, interrupted, _ = asyncio.run(observe(watch, seconds, simulated=simulated))
    unasked = unasked_nodes(watch)
    try:
        code = _write(snapshot, form, output, size=size, theme=watch.theme, unasked=unasked)
    except UnreachableError:
        if not interrupted:
            raise
    if interrupted:
        tell("interrupted: the report is of what was seen until then")
        return INTERRUPTED
    return code


def render(
    snapshot: Snapshot, form: str, *, size: tuple[int, int] = DEFAULT_SIZE, theme: str = "spark-dark"
) -> str:
    """Return a snapshot as text in the format `form`, such as "md" or "json".

    `size` (columns, rows) and `theme` apply to the picture of the screen in the formats svg and html.
    """
    # Late: only the chosen format is loaded.
    if form == "txt":
        from sparktop.report import text_snapshot

        return text_snapshot.render(snapshot, TEXT_WIDTH).rstrip("\n") + "\n"
    if form == "md":
        from sparktop.report import text_snapshot

        return text_snapshot.markdown(snapshot)
    if form in {"svg", "html"}:
        return _draw_screen(snapshot, form, size, theme)
    from sparktop.report import json_snapshot

    return json.dumps(json_snapshot.to_json(snapshot), indent=2, allow_nan=False) + "\n"


def _draw_screen(snapshot: Snapshot, form: str, size: tuple[int, int], theme: str) -> str:
    """Return a picture of the overview screen as SVG, or an HTML page that contains it."""
    import asyncio

    from sparktop.ui.app import screen_of  # late: it loads textual

    screen = asyncio.run(screen_of(snapshot, size=size, theme=theme))
    if form == "svg":
        return screen.rstrip("\n") + "\n"
    from sparktop.report import html

    return html.render(snapshot, screen)
