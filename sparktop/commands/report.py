"""`sparktop report`: write a stored sweep result as Markdown, CSV or JSON."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.commands.output import check_file, tell, write_file, write_markdown, write_out
from sparktop.commands.sweep import FORMATS, chosen_format, render
from sparktop.errors import UsageError
from sparktop.model.text import clean

if TYPE_CHECKING:
    from sparktop.sweep.result.results import SweepResult

LAST = "last"
_REFERENCE = "ref:"
_OF_ANY_TOOL = ("md", "json")
"""Formats that can also hold other tools' results and published tables."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the result to report, a target within it, format and output file."""
    parser.add_argument(
        "source",
        nargs="?",
        default=LAST,
        metavar="FILE|last|ref:NAME",
        help="a sweep's result, of the screen or the command line; last (default): the newest stored one; "
        "results of llama-benchy, vllm bench serve, aiperf or guidellm and published tables as md or json "
        "(sparktop compare --list lists what there is)",
    )
    parser.add_argument("--target", metavar="NAME", help="this target alone: llama-benchy's format holds one")
    parser.add_argument(
        "--format", choices=FORMATS, dest="form", help="default: by the suffix of -o FILE, else md"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of to standard output")


def run(arguments: argparse.Namespace) -> int:
    """Print a report of a stored result, or write it to the output file; return the exit code 0.

    Raises:
        SparktopError: the result, the target or the format cannot be used, or the output cannot be written.
    """
    output = None if arguments.output in {None, "-"} else Path(arguments.output)
    if output is not None:
        check_file(output)
    form = chosen_format(arguments.form, output, is_terminal=True)
    text = _text(arguments.source, form, arguments.target)
    if output is None:
        (write_markdown if form == "md" else write_out)(text)
    else:
        write_file(output, text)
    return 0


def _text(source: str, form: str, target: str | None) -> str:
    # Late: --help needs none of them.
    from sparktop.sweep.compare.imports.files import is_sweep
    from sparktop.sweep.result.store import load

    if source == LAST and not Path(LAST).exists():
        path = last_stored()
    elif source.startswith(_REFERENCE) or not is_sweep(Path(source)):
        return _of_any_tool(source, form, target)
    else:
        path = Path(source)
    return render(_of_target(load(path), target), form)


def last_stored() -> Path:
    """Return the path of the newest readable sweep result in the store.

    If standard error is a terminal, print the path there.

    Raises:
        UsageError: no stored result can be read.
    """
    from sparktop.sweep.result.store import stored, sweeps_folder  # late: as above

    folder = sweeps_folder(os.environ)
    for one in reversed(stored(folder)):
        if one.result is not None:
            if sys.stderr is not None and sys.stderr.isatty():
                tell(f"{clean(one.path, 300)}")
            return one.path
    raise UsageError(f"{clean(folder, 300)}: holds no sweep; make one with sparktop sweep, or name a FILE")


def _of_target(result: SweepResult, name: str | None) -> SweepResult:
    """Return `result` with only the target `name`; unchanged if `name` is None.

    Raises:
        UsageError: the result has no such target.
    """
    if name is None:
        return result
    found = result.target(name)
    if found is None:
        from sparktop.nearest import did_you_mean  # late: only for a mistake

        names = [one.name for one in result.targets]
        near = did_you_mean(name, names) or f" (there are: {clean(', '.join(names), 200)})"
        raise UsageError(f"--target: the sweep has no target '{clean(name, 60)}'{near}")
    slo = result.slo
    if slo is not None:
        kept = {target: holds for target, holds in slo.holds_to.items() if target == name}
        slo = slo.model_copy(update={"holds_to": kept})
    return result.model_copy(update={"targets": (found,), "comparison": None, "slo": slo})


def _of_any_tool(source: str, form: str, target: str | None) -> str:
    """Return the result of another tool, or a published table, as text in Markdown or JSON.

    The text is as `sparktop compare` writes it. `source` is a file or the name of a published table.

    Raises:
        UsageError: `form` is neither "md" nor "json", or a target is named, which only results of sparktop
            sweep have.
    """
    from sparktop.sweep.compare.compare import compare  # late: as above
    from sparktop.sweep.compare.imports.files import choose
    from sparktop.sweep.formats.comparison import to_json, to_markdown

    if form not in _OF_ANY_TOOL or target is not None:
        what = f"--format {form}" if target is None else "--target"
        raise UsageError(
            f"{clean(source, 200)}: {what} is for results of sparktop sweep; write it as md or json"
        )
    chosen = choose([source])
    found = compare(chosen.series, table=chosen.rule)
    write = to_json if form == "json" else to_markdown
    return write(found, chosen.series, chosen.facts)
