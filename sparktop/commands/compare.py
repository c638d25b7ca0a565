"""`sparktop compare`: compare sweep results and published tables."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence

from sparktop.commands.arguments import add_output_file, chosen_format, refuse_beside
from sparktop.commands.output import output_file, write_result
from sparktop.errors import UsageError
from sparktop.model.text import clean

FORMATS = ("md", "json")
"""Output formats."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the files to compare and the options of the comparison."""
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="a result of sparktop sweep, llama-benchy, vllm bench serve, aiperf or guidellm, "
        '"last" for the newest sweep, or ref:NAME; '
        "files given as NAME=FILE under one name are levels or runs of one series",
    )
    parser.add_argument("--baseline", metavar="NAME", help="percent against this one; --list shows names")
    parser.add_argument(
        "--same", nargs=2, metavar="NAME", help="two that are the same thing measured twice: the noise floor"
    )
    parser.add_argument(
        "--list", action="store_true", help="list references and stored sweeps, or names in FILEs"
    )
    parser.add_argument(
        "--format", choices=FORMATS, dest="form", help="default: by the ending of -o FILE, else md"
    )
    add_output_file(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a comparison or write it to the output file, or list what can be compared.

    Return the exit code 0.

    Raises:
        SparktopError: a file or a name cannot be used, or the output cannot be written.
    """
    from sparktop.commands.report import result_path  # late: not needed for --help

    files = [result_path(file) for file in arguments.files]
    output = output_file(arguments.output, files)
    if arguments.list:
        if arguments.form is not None:
            raise UsageError("--list prints lines of text: leave out --format")
        refuse_beside("--list compares nothing", arguments, "baseline", "same")
        write_result(output, _list_names(files))
        return 0
    form = chosen_format(arguments.form, output, FORMATS, "md")
    if not files:
        raise UsageError(
            "nothing to compare: name result files or references; sparktop compare --list shows some"
        )
    write_result(output, _compare_files(files, arguments, form), is_markdown=form == "md")
    return 0


def _compare_files(files: Sequence[str], arguments: argparse.Namespace, form: str) -> str:
    """Return the comparison of the files as text in the format `form`."""
    # Late: --help needs none of them.
    from sparktop.sweep.compare.compare import compare
    from sparktop.sweep.compare.imports.files import read_series
    from sparktop.sweep.formats.written import comparison_report

    series, facts = read_series(files)
    names = [compared.name for compared in series]
    baseline = None if arguments.baseline is None else _check_name(arguments.baseline, names)
    same_pair = None
    if arguments.same is not None:
        first, second = (_check_name(name, names) for name in arguments.same)
        if first == second:
            raise UsageError(f"--same needs two different names, not '{clean(first, 60)}' twice")
        same_pair = (first, second)
    return comparison_report(compare(series, baseline=baseline, same=same_pair), series, form, facts)


def _check_name(name: str, names: Collection[str]) -> str:
    if name in names:
        return name
    from sparktop.errors import did_you_mean  # late: only after a mistake

    hint = did_you_mean(name, names) or f" (there are: {', '.join(names)})"
    raise UsageError(f"nothing here is called '{clean(name, 60)}'{hint}")


def _list_names(files: Sequence[str]) -> str:
    """Return the series of `files` as lines; without files the published tables and stored sweeps."""
    from sparktop.sweep.compare.imports.files import read_series  # late: not needed for --help

    if files:
        lines = []
        for series in read_series(files)[0]:
            levels = ", ".join(dict.fromkeys(level.load.point.short for level in series.levels))
            lines.append(f"{series.name}  {series.tool}  {series.model or '–'}  {levels}\n")
        return "".join(lines)
    import os  # as above

    from sparktop.sweep.compare.series import PREFIX, load_reference, reference_names
    from sparktop.sweep.result.store import stored_sweeps, sweeps_folder

    references = [load_reference(name) for name in reference_names()]
    width = max(len(table.name) for table in references) + len(PREFIX)
    lines = [f"{PREFIX + table.name:<{width}}  {table.title}; {table.source}\n" for table in references]
    for path, result in stored_sweeps(sweeps_folder(os.environ)).items():
        if isinstance(result, UsageError):
            lines.append(f"{result}\n")
            continue
        names = ", ".join(target.name for target in result.targets) or "no target"
        summary = f"{result.started_at:%Y-%m-%d %H:%M}  {names}  {result.status or 'not finished'}"
        lines.append(f"{clean(path, 300)}  {summary}\n")
    return "".join(lines)
