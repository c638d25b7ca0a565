"""`sparktop record`: watch without a screen and keep everything in a file."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.commands.arguments import (
    add_targets,
    add_timeout,
    program_path,
    refuse_beside,
    seconds,
    unit_words,
)
from sparktop.commands.output import tell, write_out
from sparktop.errors import OutputError, UnreachableError, UsageError
from sparktop.model.text import clean
from sparktop.typed import whole_number

if TYPE_CHECKING:
    from sparktop.config.watch import Needs

_YEAR_S = 366 * 86_400.0
"""Longest recording."""
_KIB, _MIB = 1 << 10, 1 << 20
_MOST_BYTES = 1 << 60
"""Largest size that may be given."""
_BYTES = re.compile(r"i?b\s*$", re.IGNORECASE)
"""The word for bytes at the end of a size."""


def size(text: str) -> int:
    """Parse a number of bytes such as "500M" or "2 GiB".

    Raises:
        argparse.ArgumentTypeError: the text has another form, or is below 1 MiB.
    """
    try:
        return whole_number(_BYTES.sub("", text), _MIB, _MOST_BYTES)
    except UsageError:
        raise argparse.ArgumentTypeError(
            f"must be a size from 1M on, such as 500M or 2G, not '{clean(text, 40)}'"
        ) from None


_STATE = "/var/lib/sparktop-record"
"""The folder that systemd makes for the unit; not the agent's, which belongs to another user."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the recorder."""
    add_targets(parser)
    add_timeout(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write there; a file that exists is left alone"
    )
    parser.add_argument(
        "--append", action="store_true", help="continue the recording in FILE if there is one"
    )
    parser.add_argument(
        "--seconds",
        type=seconds(0.1, _YEAR_S),
        metavar="TIME",
        help="stop after this time (default: never)",
    )
    parser.add_argument(
        "--max-bytes", type=size, metavar="SIZE", help="stop at this size, such as 500M or 2G"
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--check", metavar="FILE", help="verify a recording; with -o, copy all that can be read"
    )
    instead.add_argument(
        "--systemd-unit", action="store_true", help="print a systemd unit that records until it is stopped"
    )


def run(arguments: argparse.Namespace) -> int:
    """Record until Ctrl+C, SIGTERM or a limit.

    With --check, check a recording instead; with --systemd-unit, print a systemd unit instead. Return the
    exit code: 1 if a checked recording is damaged or the end could not be recorded, else 0.

    Raises:
        UnreachableError: nothing ever answered; the recording says so.
        SparktopError: an argument, the configuration file or a file cannot be used.
    """
    if arguments.systemd_unit:
        reason = "--systemd-unit records until it is stopped"
        refuse_beside(reason, arguments, "seconds", "max_bytes")
        write_out(unit(program_path(), arguments.output, *unit_words(arguments)))
        return 0
    if arguments.check is not None:
        reason = "--check reads a recording and watches nothing"
        watching = ("targets", "config", "api_key_env", "timeout")
        refuse_beside(reason, arguments, *watching, "append", "seconds", "max_bytes")
        return _check(Path(arguments.check), arguments.output)
    # Late: --help needs none of them.
    import asyncio

    from sparktop.commands.choice import choose
    from sparktop.commands.observation import unasked_nodes, why_nothing
    from sparktop.logfile import open_log
    from sparktop.recording.flight import flight_folder, incident_folder
    from sparktop.recording.session import record

    if arguments.output is None:
        raise UsageError("sparktop record needs -o FILE")
    if not arguments.append:
        _check_new(Path(arguments.output))
    open_log(os.environ)
    watch = choose(arguments, os.environ)
    incidents = incident_folder(flight_folder(os.environ))
    limits = arguments.seconds, arguments.max_bytes
    paths, problem, snapshot = asyncio.run(record(watch, Path(arguments.output), tell, incidents, limits))
    if not paths:
        raise OutputError(f"{clean(arguments.output, 200)}: nothing was recorded: {problem or 'no reading'}")
    total = sum(path.stat().st_size for path in paths)
    names = ", ".join(clean(path, 200) for path in paths)
    tell(f"recorded {total / _KIB:,.0f} KiB in {names}")
    unasked = unasked_nodes(watch)
    nodes = tuple(node for node in snapshot.nodes if node.name not in unasked)
    polled = (snapshot.backends, nodes, snapshot.routers)
    never_answered = [view.failure is not None and view.age_s is None for views in polled for view in views]
    never_answered += [view.failure is not None and view.fleet is None for view in snapshot.fleets]
    if all(never_answered):
        raise UnreachableError(why_nothing(snapshot))
    return 0 if problem is None else 1


def _check_new(path: Path) -> None:
    """Check that a file does not exist, or is empty.

    Raises:
        OutputError: the file holds something; the message says what to do.
    """
    from sparktop.recording.recorder import is_recording  # late: --help needs none of it

    try:
        has_content = path.stat().st_size > 0
    except OSError:
        return
    if has_content and is_recording(path):
        raise OutputError(f"{clean(path, 300)} is a recording: continue it with --append, or name a new file")
    if has_content:
        raise OutputError(f"{clean(path, 300)} exists and is not a recording: choose another name")


def _check(path: Path, output: str | None) -> int:
    """Report what a recording holds and what is lost; write the readable part to `output` if given.

    Return 0 for an undamaged recording, 1 otherwise.
    """
    from sparktop.recording.rescue import check, rescue

    report = check(path)
    write_out(report.text())
    if output is not None:
        if Path(output).exists():
            raise OutputError(f"{clean(output)} exists: name a new file")
        rescued = rescue(path, Path(output))
        tell(f"{rescued} records are in {clean(output, 300)}")
    return 0 if report.is_whole else 1


def unit(program: Path, output: str | None, words: Sequence[str], needs: Needs) -> str:
    """Return a systemd unit that records in the file `output`; `words` and `needs` are of `unit_words`."""
    from sparktop.agent.unit import filled, quote_word  # late: --help needs none of it

    file = f"{_STATE}/night.rec.zst" if output is None else str(Path(output).absolute())
    folder = Path(file).parent
    return filled(
        "record",
        " ".join((quote_word(str(program)), "record", *words, "--append", "-o", quote_word(file))),
        variables=needs.variables,
        # Root needs a capability to write in a folder of another user.
        folder="" if folder.is_relative_to(_STATE) else quote_word(str(folder)),
    )
