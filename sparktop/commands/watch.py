"""`sparktop [TARGET…]`: the viewer, or a plain report where there is no terminal."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Mapping

from sparktop.commands.arguments import add_drawing, add_targets
from sparktop.model.targets import Watch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the viewer can be told."""
    add_targets(parser)
    add_drawing(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show what the arguments, the configuration file or this machine give.

    Raises:
        SparktopError: an argument or the configuration file cannot be used.
    """
    # Late: --help needs none of them.
    from sparktop.commands.choice import choose
    from sparktop.logfile import open_log

    open_log(os.environ)
    return show(choose(arguments, os.environ))


def show(watch: Watch, *, simulated: bool = False) -> int:
    """Open the viewer, or print one plain report where there is no terminal to draw on."""
    if not _can_draw(os.environ):
        from sparktop.commands.snapshot import report  # late: it loads the sources

        return report(watch, seconds=None, form="txt", output=None, simulated=simulated)
    # All that is made until the first picture stays: to look for garbage in it costs a tenth of that time.
    # The application turns it on again.
    gc.disable()
    from sparktop.ui.app import run as run_app  # late: it loads textual

    return run_app(watch, simulated=simulated)


def _can_draw(env: Mapping[str, str]) -> bool:
    # stderr too: that is where Textual's driver writes the screen.
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return env.get("TERM") != "dumb" and all(one is not None and one.isatty() for one in streams)
