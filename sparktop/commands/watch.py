"""`sparktop [TARGET…]`: open the viewer, or print a plain report if there is no terminal."""

from __future__ import annotations

import argparse
import gc
import os
import sys

from sparktop.commands.arguments import add_drawing, add_targets, add_timeout, refuse_removed
from sparktop.files import FILE_NAME
from sparktop.model.targets import Watch

SEARCH_S = 6.0
"""How long --write-config watches: a router's servers are tried after its first answer."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the viewer: targets and drawing."""
    add_targets(parser)
    add_drawing(parser)
    add_timeout(parser)
    refuse_removed(
        parser,
        "--follow",
        "watch the servers while it runs; i in the history (h) imports the file of its result",
    )
    parser.add_argument(
        "--write-config",
        nargs="?",
        const=FILE_NAME,
        metavar="FILE",
        help=f"watch for {SEARCH_S:g} s, write a commented configuration file of what was found "
        f"(default: {FILE_NAME}; -: to standard output), and end",
    )


def run(arguments: argparse.Namespace) -> int:
    """Open the viewer on what the arguments, the configuration file or this machine define.

    Return the exit code.

    Raises:
        SparktopError: an argument or the configuration file cannot be used.
    """
    # Late: --help needs none of them.
    from sparktop.commands.choice import choose
    from sparktop.logfile import open_log

    open_log(os.environ)
    if arguments.write_config is not None:
        from sparktop.commands.config import write_targets

        return write_targets(choose(arguments, os.environ), arguments.write_config, SEARCH_S)
    return show(choose(arguments, os.environ))


def show(watch: Watch, *, simulated: bool = False) -> int:
    """Open the viewer, or print a plain report if there is no terminal to draw on; return the exit code."""
    streams = (sys.stdin, sys.stdout)
    is_terminal = all(stream is not None and stream.isatty() for stream in streams)
    if not is_terminal or os.environ.get("TERM") == "dumb":
        from sparktop.commands.snapshot import report  # late: it loads the sources

        return report(watch, seconds=None, form="txt", output=None, simulated=simulated)
    # Objects made before the first picture live on: collecting garbage among them takes a tenth of that time.
    # The application enables it again.
    gc.disable()
    from sparktop.ui.app import run as run_app  # late: --help needs none of it

    return run_app(watch, simulated=simulated)
