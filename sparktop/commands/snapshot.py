"""`sparktop snapshot`: watch for a moment, then one report."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.commands.arguments import add_targets, number
from sparktop.commands.output import check_file, tell, write_file, write_out
from sparktop.errors import UnreachableError

if TYPE_CHECKING:
    from sparktop.model.snapshot import Snapshot
    from sparktop.model.targets import Watch

FORMATS = ("json", "txt")
TEXT_WIDTH = 100
"""Columns of the plain report."""
_DAY_S = 86_400.0
_INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what a report can be told."""
    add_targets(parser)
    parser.add_argument(
        "--seconds",
        type=number(0.1, _DAY_S, " seconds"),
        metavar="S",
        help="watch for S seconds (default: until all gave two samples or failed, 5 at most)",
    )
    parser.add_argument("--format", choices=FORMATS, default="json", dest="form", help="default: json")
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of to standard output")


def run(arguments: argparse.Namespace) -> int:
    """Watch and report.

    Raises:
        SparktopError: an argument, the configuration file or the output cannot be used; nothing was reached.
    """
    # Late: --help needs none of them.
    from sparktop.commands.choice import choose
    from sparktop.logfile import open_log

    open_log(os.environ)
    output = None if arguments.output in {None, "-"} else Path(arguments.output)
    if output is not None:
        check_file(output)
    watch = choose(arguments, os.environ)
    return report(watch, seconds=arguments.seconds, form=arguments.form, output=output)


def report(
    watch: Watch, *, seconds: float | None, form: str, output: Path | None, simulated: bool = False
) -> int:
    """Watch for `seconds` (None: until everything has told), write one report, give the exit code.

    After Ctrl+C the report is of what was seen until then. A second one ends at once.

    Raises:
        OutputError: the report cannot be written.
        UnreachableError: nothing could be reached; the report is written all the same.
    """
    # Late: --help needs no event loop, which is half of its time.
    import asyncio

    from sparktop.commands.observation import observe, why_nothing

    snapshot, interrupted = asyncio.run(observe(watch, seconds, simulated=simulated))
    text = render(snapshot, form)
    if output is None:
        write_out(text)
    else:
        write_file(output, text)
    if interrupted:
        tell("interrupted: the report is of what was seen until then")
        return _INTERRUPTED
    if not any(node.ok for node in snapshot.nodes) and not any(one.ok for one in snapshot.backends):
        raise UnreachableError(why_nothing(snapshot))
    return 0


def render(snapshot: Snapshot, form: str) -> str:
    """Give a snapshot as text of the format `form`."""
    # Late: only the one that is asked for.
    if form == "txt":
        from sparktop.report import text_snapshot

        return text_snapshot.render(snapshot, TEXT_WIDTH).rstrip("\n") + "\n"
    from sparktop.report import json_snapshot

    return json.dumps(json_snapshot.to_json(snapshot), indent=2, allow_nan=False) + "\n"
