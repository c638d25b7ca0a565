"""`sparktop dump`: the readings and metrics of a recording for other programs."""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sparktop.commands.arguments import add_output_file, chosen_format, refuse_beside, seconds
from sparktop.commands.output import is_device, output_file, tell, write_out, write_parts
from sparktop.errors import OutputError, UsageError, did_you_mean
from sparktop.model.text import clean, reason_of

if TYPE_CHECKING:
    from sparktop.dump import Fields
    from sparktop.model.snapshot import Snapshot
    from sparktop.recording.player import Player, Recording, Span

FORMATS = ("jsonl", "csv", "openmetrics")
"""Output formats; the first is the default."""
_UNIX_S = re.compile(r"[0-9]{8,12}(?:\.[0-9]{1,9})?")
"""Unix seconds."""
_TIME_OF_DAY = re.compile(r"\d{1,2}:\d\d(:\d\d(\.\d+)?)?")
"""A time without its day: after the recording's end it is a mistake, while another span may be empty."""
_LISTED_S, _LISTED_EVERY_S = 60.0, 5.0
"""Seconds at the end of the span that are read to list the names, and between two snapshots there."""


def span_of(recording: Recording, start: str | None, end: str | None) -> Span:
    """Return the time span from `start` to `end`, as typed by the user; None means no limit on that side.

    Each is a time for `read_time`, or Unix seconds. "10m ago" counts back from the recording's end.

    Raises:
        UsageError: a text is not a time, the start is later than the end, or a time of day
            that was not recorded.
    """
    from sparktop.recording.player import Span  # late: --help needs neither
    from sparktop.recording.when import TimeContext, read_time, require_within

    if start is None and end is None:
        return Span()
    last_at = max(record.instant.wall for record in recording.records(recording.frames[-1]))
    recorded = TimeContext(recording.frames[0].instant.wall, last_at, datetime.now(UTC))

    def read(text: str) -> datetime:
        try:
            if _UNIX_S.fullmatch(text.strip()):
                return datetime.fromtimestamp(float(text), UTC)
            return read_time(text, recorded)
        except (OverflowError, OSError, ValueError):
            raise UsageError(f"'{clean(text, 60)}' is not a time of this calendar") from None

    span = Span(*(None if text is None else read(text) for text in (start, end)))
    if span.start is not None and span.end is not None and span.start > span.end:
        raise UsageError("--from is later than --to")
    if span.start is not None and _TIME_OF_DAY.fullmatch((start or "").strip()):
        require_within(max(span.start, recorded.start), recorded)
    return span


def names(text: str) -> tuple[str, ...]:
    """Split a comma-separated list of names; empty names are left out."""
    parts = (part.strip() for part in text.split(","))
    return tuple(part for part in parts if part)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the recordings, the span, the fields, the format and the output file."""
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="a recording, also one that is still written"
    )
    parser.add_argument(
        "--from",
        dest="start",
        metavar="TIME",
        help="such as 10m (before the recording's end), 12:03, 2026-11-22T14:00:00Z, or Unix seconds; "
        "default: its start",
    )
    parser.add_argument("--to", dest="end", metavar="TIME", help="default: the recording's end")
    parser.add_argument(
        "--fields",
        type=names,
        default=(),
        metavar="A,B,…",
        help="only these fields, or all below such a name (ttft_ms: ttft_ms.p95 …); "
        "in openmetrics, metric families",
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="print the names that --fields accepts; without FILE, those of a DGX Spark",
    )
    parser.add_argument(
        "--every",
        type=seconds(0.1, 86_400.0),
        metavar="TIME",
        help="a row each so often (default 1s); in openmetrics at most a page each so often (default: all)",
    )
    parser.add_argument(
        "--format", choices=FORMATS, dest="form", help="default: by the ending of -o FILE, else jsonl"
    )
    add_output_file(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write a dump, or list the names of its fields; return the exit code 0.

    Raises:
        SparktopError: an argument or a recording cannot be used, or the output cannot be written.
    """
    from sparktop.recording.player import Recording  # late: --help needs none of it

    if arguments.list:
        refuse_beside("--list prints names alone", arguments, "fields", "every", "output")
    output = output_file(arguments.output, arguments.files)
    form = chosen_format(arguments.form, output, FORMATS, FORMATS[0])
    if not arguments.files:
        _list_usual_names(arguments.list, form)
        return 0
    recording = Recording([Path(file) for file in arguments.files])
    try:
        span = span_of(recording, arguments.start, arguments.end)
        if arguments.list:
            _list_names(recording, span, form)
        elif form == "openmetrics":
            _write_openmetrics(recording, span, arguments, output)
        else:
            _write_rows(recording, span, arguments, form, output)
        for path, damage in list(dict.fromkeys(recording.damage))[:3]:
            tell(f"{clean(path, 300)}: damaged at byte {damage.offset:,}: {clean(damage.reason, 100)}")
    except OverflowError:
        raise UsageError(f"{clean(arguments.files[0], 300)}: times beyond those of a calendar") from None
    finally:
        recording.close()
    return 0


def _write_rows(
    recording: Recording, span: Span, arguments: argparse.Namespace, form: str, output: Path | None
) -> None:
    """Write the readings of a span as JSON lines or CSV."""
    from sparktop.dump import Fields, csv_lines, json_lines
    from sparktop.recording.player import Player, snapshots_in

    player, fields = Player(recording), Fields(arguments.fields)
    every_s = arguments.every or 1.0
    _refuse_unknown(
        arguments.fields,
        _usual_names,
        lambda: _row_names(snapshots_in(Player(recording), span, every_s)),
    )
    with _temporary_file(output, "w+") as spool:
        rows = _snapshot_rows(player, span, fields, every_s)
        lines = json_lines(rows) if form == "jsonl" else csv_lines(rows, fields, spool)
        write_parts(output, (line.encode() for line in lines))
    if player.unreadable:
        tell(f"{player.unreadable:,} records could not be used")
    if fields.missing:
        tell(f"nothing recorded in this span has {clean(', '.join(fields.missing), 300)}")


def _snapshot_rows(player: Player, span: Span, fields: Fields, every_s: float) -> Iterator[dict[str, object]]:
    """Yield the fields of a snapshot every `every_s` seconds, for each server and machine."""
    from sparktop.dump import rows_of
    from sparktop.recording.player import snapshots_in

    empty = True
    for snapshot in snapshots_in(player, span, every_s):
        for row in rows_of(snapshot, fields):
            empty = False
            yield dict(row)
    if empty:
        tell("nothing was recorded in this span")


def _write_openmetrics(
    recording: Recording, span: Span, arguments: argparse.Namespace, output: Path | None
) -> None:
    """Write the metrics pages of a span as OpenMetrics."""
    from sparktop.dump import Collector, SampleBuffer
    from sparktop.recording.player import records_in

    with _temporary_file(output, "w+b") as file:
        collector = Collector(SampleBuffer(file), arguments.fields, every_s=arguments.every)
        try:
            collector.add(records_in(recording, span), lambda record: span.holds(record.instant.wall))
        except OSError as error:
            raise OutputError(f"a temporary file: {reason_of(error)}") from None
        if met := [*collector.names, *sorted(collector.left_out)]:  # else nothing was recorded in this span
            _refuse_unknown(arguments.fields, lambda: met)
        write_parts(output, collector.text())
    if collector.unread_pages:
        tell(f"{collector.unread_pages:,} pages are left out: their servers have none in Prometheus' format")
    if collector.unused_samples:
        samples = f"{collector.unused_samples:,} samples"
        tell(f"{samples} are left out: unreadable, repeated, or of too many series")
    if collector.unread_records:
        tell(f"{collector.unread_records:,} records could not be used")


def _list_names(recording: Recording, span: Span, form: str) -> None:
    """Print the field names, or for "openmetrics" the metric families, of the last seconds of the span."""
    from datetime import timedelta

    from sparktop.dump import Collector, SampleBuffer
    from sparktop.recording.player import Player, Span, records_in, snapshots_in

    end = recording.frames[-1].instant.wall if span.end is None else span.end
    start = end - timedelta(seconds=_LISTED_S)
    minute = Span(start if span.start is None else max(start, span.start), span.end)
    if form == "openmetrics":
        with _temporary_file(None, "w+b") as file:
            collector = Collector(SampleBuffer(file))
            collector.add(records_in(recording, minute), lambda record: minute.holds(record.instant.wall))
            names = collector.names
    else:
        names = _row_names(snapshots_in(Player(recording), minute, _LISTED_EVERY_S, warm_up_s=_LISTED_S))
    _print_names(names)


def _row_names(snapshots: Iterable[Snapshot]) -> list[str]:
    """Return the names of the fields in the rows of snapshots."""
    from sparktop.dump import Fields, names_of, rows_of

    return names_of(row for snapshot in snapshots for row in rows_of(snapshot, Fields()))


def _refuse_unknown(wanted: Sequence[str], *lists: Callable[[], Sequence[str]]) -> None:
    """Refuse names of fields that are in none of `lists`; a later list is made if the earlier ones lack one.

    Raises:
        UsageError: a name is neither that of a field nor, as "ttft_ms", of all below it.
    """
    known: list[str] = []
    for make_list in lists:
        if wanted:
            known += make_list()
            wanted = [
                name for name in wanted if not any(f"{field}.".startswith(f"{name}.") for field in known)
            ]
    if wanted:
        hint = did_you_mean(wanted[0], known)
        where = "sparktop dump --list FILE prints those that there are"
        raise UsageError(f"--fields: there is no '{clean(wanted[0], 60)}'{hint or ';'} {where}")


def _list_usual_names(listed: bool, form: str) -> None:  # noqa: FBT001 - whether --list was given
    """Print the names of all fields without a recording, with the parts that a DGX Spark has.

    Raises:
        UsageError: not `listed`, or the format is "openmetrics": then a recording is needed.
    """
    if not listed:
        raise UsageError(
            "sparktop dump needs FILE, a recording; without one, --list prints the names of fields"
        )
    if form == "openmetrics":
        raise UsageError("--list of metric families needs FILE, a recording: they are those of its servers")
    _print_names(_usual_names())
    tell("GPUs, interfaces and other parts are those of a DGX Spark; --list FILE prints a recording's")


def _usual_names() -> list[str]:
    """Return the names of all fields, with the parts that a DGX Spark has."""
    from sparktop.demo.machine import IDENTITY, node_sample  # late: --help needs none of it
    from sparktop.model.balance import Balance
    from sparktop.model.router import RouterView
    from sparktop.model.snapshot import BackendView, NodeView, Snapshot

    example = Snapshot(
        datetime.now(UTC),
        0.0,
        1.0,
        2.0,
        backends=(BackendView("backend", "", ""),),
        nodes=(NodeView("node", "local", sample=node_sample(0.0, 0.0), identity=IDENTITY),),
        routers=(RouterView("router", ""),),
        balance=(Balance("group", ("backend",)),),
    )
    return _row_names([example])


def _print_names(names: Iterable[str]) -> None:
    write_out("".join(f"{clean(name)}\n" for name in names))


def _temporary_file(output: Path | None, mode: str) -> IO[Any]:
    """Return a temporary file, in the folder of the output file: a dump can be larger than /tmp."""
    folder = None if output is None or is_device(output) else output.resolve().parent
    try:
        return tempfile.TemporaryFile(mode, dir=folder, encoding=None if "b" in mode else "utf-8")
    except OSError as error:
        raise OutputError(f"a temporary file: {reason_of(error)}") from None
