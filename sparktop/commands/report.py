"""`sparktop report`: write a recording, a stored sweep or another tool's result in any format."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.commands.arguments import add_output_file, chosen_format
from sparktop.commands.output import output_file, tell, write_result
from sparktop.commands.sweep.command import FORMATS
from sparktop.errors import UsageError
from sparktop.model.text import clean, reason_of

if TYPE_CHECKING:
    from sparktop.sweep.formats.written import SweepPrivacy
    from sparktop.sweep.result.results import SweepResult

LAST = "last"
"""Stands for the newest stored sweep."""
_REFERENCE = "ref:"
"""Begin of the name of a published table."""
_FOR_PEOPLE = ("md", "html", "svg", "post")
"""Formats in which other results stand beside a sweep."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: results to report, a target within the first, privacy, format and output file."""
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="FILE|last|ref:NAME",
        help="a recording; a sweep's result, of the screen or the command line; last (default): the newest "
        "stored one; results of llama-benchy, vllm bench serve, aiperf or guidellm; published tables "
        "(sparktop compare --list lists what there is). More sweeps of the same load are compared with "
        "the first, those of another load stand beside it; more recordings continue the first",
    )
    parser.add_argument(
        "--from",
        dest="start",
        metavar="TIME",
        help="of a recording, begin there: '2h ago' (before its end), 12:03, 'yesterday 14:00', start; "
        "default: 15 min before the end",
    )
    parser.add_argument("--to", dest="end", metavar="TIME", help="of a recording; default: its end")
    parser.add_argument(
        "--at",
        metavar="TIME",
        help="of a recording: one page on what happened then: all changes from 5 min before to 5 min after "
        "(or in --from to --to), sweeps and starts of servers that were under way, and the figures of the "
        "minute before against the minute after",
    )
    parser.add_argument(
        "--target", metavar="NAME", help="this target of each sweep alone: llama-benchy holds one"
    )
    parser.add_argument(
        "--addresses", "--with-addresses", action="store_true", help="show the URLs of servers, never secrets"
    )
    parser.add_argument(
        "--anonymous",
        action="store_true",
        help="backend-1, router-1, node-1 instead of names; no address, path or command line",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--format", choices=FORMATS, dest="form", help="default: by the ending of -o FILE, else md"
    )
    form.add_argument(
        "--post",
        action="store_const",
        const="post",
        dest="form",
        help="a short text to paste into a forum: verdict, table and how it was measured; as --format post",
    )
    add_output_file(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a report of a stored result, or write it to the output file; return the exit code 0.

    Raises:
        SparktopError: a source, the target or the format cannot be used, or the output cannot be written.
    """
    form = chosen_format(arguments.form, output_file(arguments.output), FORMATS, "md")
    named = [result_path(source) for source in arguments.sources or [LAST]]
    output = output_file(arguments.output, named)
    text = _report_text(named, arguments, form)
    write_result(output, text, is_markdown=form == "md")
    return 0


def _report_text(named: Sequence[str], arguments: argparse.Namespace, form: str) -> str:
    """Return the report of the files `named` in the format `form`."""
    # Late: --help needs none of them.
    from sparktop.recording.recorder import is_recording

    first, *other_sources = sources = list(dict.fromkeys(named))
    if len(sources) < len(named):
        tell("a file that is named twice counts once")
    if is_recording(Path(first)):
        return _recording_report([Path(source) for source in sources], form, arguments)
    if any(time is not None for time in (arguments.start, arguments.end, arguments.at)):
        raise UsageError(
            f"{clean(first, 200)} is no recording: leave out --from, --to and --at, which go with recordings"
        )
    from sparktop.sweep.compare.imports.files import is_sweep, read_series
    from sparktop.sweep.formats.written import SweepPrivacy, sweep_report

    if not (first.startswith(_REFERENCE) or "=" in first):
        try:
            Path(first).stat()
        except (OSError, ValueError) as error:
            reason = f"{clean(first, 200)}: cannot be read: {reason_of(error)}"
            raise UsageError(f"{reason}; give a recording, or the result file of a sweep") from None
    privacy = SweepPrivacy(arguments.addresses, arguments.anonymous)
    if first.startswith(_REFERENCE) or not is_sweep(Path(first)):
        return _comparison_report(sources, form, arguments.target, privacy)
    result, other_sources, parts = _join_sweeps(first, other_sources, arguments.target)
    if other_sources and form not in _FOR_PEOPLE:
        raise UsageError(f"--format {form} holds one sweep; sparktop compare --format json holds several")
    if form == "post":
        words = shlex.join(source for source in sources if source not in other_sources)
        words += " --anonymous" if arguments.anonymous else ""
        command = f"sparktop report {words} --format json -o post.json"
        tell(f"readers can compare with the post as it is; for all figures attach the JSON of: {command}")
    return sweep_report(result, form, privacy, read_series(other_sources)[0] if other_sources else (), parts)


def _join_sweeps(
    first: str, others: list[str], target: str | None
) -> tuple[SweepResult, list[str], dict[str, SweepResult]]:
    """Return (`first` with the targets of all sweeps among `others`, the rest of `others`, joined sweeps).

    The last are by the names of their files. A sweep with another load axis or other lengths is among the
    rest; a line on standard error says so.
    `target` names the only target of each sweep that has one of this name; None means all.

    Raises:
        UsageError: a file cannot be read, or `first` has no target of this name.
    """
    from sparktop.sweep.compare.join import can_join, join  # late: as above
    from sparktop.sweep.result.store import load

    first_result = _with_only_target(load(Path(first)), target)
    joined, beside = [(clean(Path(first).stem, 60), first_result)], []
    parts = {clean(Path(first).name, 60): first_result}
    for source in others:
        result = load(Path(source)) if _is_own_sweep(source) else None
        if result is None or not can_join(first_result, result):
            beside.append(source)
            if result is not None:
                reason = "has another load, lengths or conditions, and stands beside it"
                tell(f"{clean(source, 200)}: {reason} instead of in one comparison with {clean(first, 200)}")
            continue
        is_single_target = target is not None and result.target(target) is not None
        part = _with_only_target(result, target if is_single_target else None)
        joined.append((clean(Path(source).stem, 60), part))
        parts[clean(Path(source).name, 60)] = part
    return join(joined), beside, parts


def _is_own_sweep(source: str) -> bool:
    """Return whether `source` is a file of a sweep: neither a published table, NAME=FILE nor another tool's.

    Raises:
        UsageError: the file cannot be read.
    """
    from sparktop.sweep.compare.imports.files import is_sweep  # late: as above

    path = Path(source)
    if source.startswith(_REFERENCE) or ("=" in source and not path.exists()):
        return False
    return is_sweep(path)


def _recording_report(paths: list[Path], form: str, arguments: argparse.Namespace) -> str:
    """Return the report of a span of a recording in the format `form`.

    Raises:
        UsageError: a file, a time or an option does not fit.
    """
    from sparktop.commands.dump import span_of  # late: as above
    from sparktop.moments.moment import read_moment, span_around
    from sparktop.moments.report import FORMATS as MOMENT_FORMATS
    from sparktop.moments.report import moment_report
    from sparktop.recording.player import Recording
    from sparktop.report.privacy import Privacy

    if form not in MOMENT_FORMATS:
        raise UsageError(f"--format {form} is for sweeps; a recording has {', '.join(MOMENT_FORMATS)}")
    if arguments.target is not None:
        raise UsageError("--target is for sweeps: a report of a recording has all servers")
    privacy = Privacy(arguments.addresses, arguments.anonymous)
    recording = Recording(paths)
    try:
        span = span_of(recording, arguments.start, arguments.end)
        moment_at = span_of(recording, arguments.at, None).start
        span = span if moment_at is None else span_around(moment_at, span)
        source = "" if arguments.anonymous else ", ".join(path.name for path in paths)
        moment = read_moment(recording, span, source=source, at=moment_at, on_progress=_hint_on_terminal)
        ends = (recording.frames[0], recording.frames[-1])
        targets = [target for frame in ends for target in frame.head.targets.values()]
    except OverflowError:
        raise UsageError(f"{clean(paths[0], 300)}: times beyond those of a calendar") from None
    finally:
        recording.close()
    return moment_report(moment, form, privacy, targets, moment_at)


def _hint_on_terminal(line: str) -> None:
    """Print a line to standard error if that is a terminal."""
    if sys.stderr is not None and sys.stderr.isatty():
        tell(line)


def result_path(source: str) -> str:
    """Return `source`; for "last", the path of the newest stored sweep, unless a file is named "last"."""
    return str(last_stored()) if source == LAST and not Path(LAST).exists() else source


def last_stored() -> Path:
    """Return the path of the newest sweep result in the store that has a measured level and does not run now.

    Without such a result, return the newest readable one. If standard error is a terminal, print the path
    there. If newer results are passed over, print that in any case.

    Raises:
        UsageError: no stored result can be read.
    """
    from sparktop.sweep.result.store import stored_sweeps, sweeps_folder  # late: as above
    from sparktop.watch.state_files import results_under_way

    folder = sweeps_folder(os.environ)
    stored = reversed(stored_sweeps(folder).items())
    measured = {path: result.is_measured for path, result in stored if not isinstance(result, UsageError)}
    running = results_under_way()
    usable = [path for path, is_measured in measured.items() if is_measured and path.resolve() not in running]
    for path in measured:
        if not usable or path == usable[0]:
            _hint_on_terminal(f"{clean(path, 300)}")
            return path
        why = "still runs" if path.resolve() in running else "has no measured level"
        tell(f"last: {clean(path.name, 120)} {why}; an older result is used")
    raise UsageError(f"{clean(folder, 300)}: holds no sweep; make one with sparktop sweep, or name a FILE")


def _with_only_target(result: SweepResult, name: str | None) -> SweepResult:
    """Return `result` with only the target `name`; unchanged if `name` is None.

    Raises:
        UsageError: the result has no such target.
    """
    if name is None:
        return result
    only = result.target(name)
    if only is None:
        from sparktop.errors import did_you_mean  # late: only for a mistake

        names = [target.name for target in result.targets]
        hint = did_you_mean(name, names) or f" (there are: {clean(', '.join(names), 200)})"
        raise UsageError(f"--target: the sweep has no target '{clean(name, 60)}'{hint}")
    slo = result.slo
    if slo is not None:
        holds_of_target = {target: holds for target, holds in slo.holds_to.items() if target == name}
        slo = slo.model_copy(update={"holds_to": holds_of_target})
    return result.model_copy(update={"targets": (only,), "comparison": None, "slo": slo})


def _comparison_report(sources: list[str], form: str, target: str | None, privacy: SweepPrivacy) -> str:
    """Return the report of results of other tools and of published tables in the format `form`.

    Raises:
        UsageError: `form` is neither "md" nor "json", or a target is named, which only results of sparktop
            sweep have.
    """
    from sparktop.sweep.compare.compare import compare  # late: as above
    from sparktop.sweep.compare.imports.files import read_series
    from sparktop.sweep.formats.written import comparison_report

    if target is not None:
        raise UsageError(f"{clean(sources[0], 200)}: --target is for results of sparktop sweep")
    chosen, facts = read_series(sources)
    series = privacy.of_series(chosen)
    return comparison_report(compare(series), series, form, facts)
