"""Dumps: the readings and metrics of a recording as JSON lines, CSV or OpenMetrics, for other programs.

Names of fields are those of the snapshot's JSON, with a dot between levels: "ttft_ms.p95". A part of a list
is named by its index or name: "gpus.0.power_w", "network.eth0.rx_bytes_per_s", "lanes.1.running".

As OpenMetrics, every sample of the recorded metrics pages is written, with a label `backend`, and every node
sample under the names of the agent's page, with a label `node`: for `promtool tsdb create-blocks-from`.
Format: https://prometheus.io/docs/specs/om/open_metrics_spec/.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, cast

from msgspec import Struct, field

from sparktop.agent.exposition import page as node_page
from sparktop.engines.exposition import number, parse_labels
from sparktop.engines.registry import ENGINES
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.snapshot import Snapshot
from sparktop.model.text import clean, spreadsheet_text
from sparktop.recording.frames import Record, RecordError, RecordKind
from sparktop.recording.records import call_of, read_head
from sparktop.report.json_snapshot import to_json
from sparktop.store import SourceKey

HEADS = ("time", "source", "name")
"""Columns of every row: UTC time; "backend", "node", "router" or "balance"; name."""
MAX_COLUMNS = 5_000
"""Columns of a CSV file; a recording can name network interfaces without end."""
DumpRow = Mapping[str, object]

_SOURCES = {"backend": "backends", "node": "nodes", "router": "routers", "balance": "balance"}
_LEFT_OUT = frozenset({"name", "group", "rules", "processes", "engine_processes"})
"""Keys that are a column already, or lists whose parts change from moment to moment."""
_PART_NAMES = ("index", "name", "engine")
_SILENT_S, _SILENT_INTERVALS = 10.0, 3.0
"""A source has no row where nothing was read of it for so many seconds, or poll intervals if that is
longer."""


class Fields(Struct):
    """The fields that the user wants in a dump (none named: all), and which of these were found."""

    wanted: Sequence[str] = ()
    """Names, each of a field or of all fields below it: "ttft_ms" stands for "ttft_ms.p50" and so on."""
    found: set[str] = field(default_factory=set)
    """Those of `wanted` that a row had."""

    def includes(self, name: str) -> bool:
        """Return whether the dump includes the field `name`; add the wanted name that matches to `found`."""
        if not self.wanted:
            return True
        for wanted_name in self.wanted:
            if name == wanted_name or name.startswith(f"{wanted_name}."):
                self.found.add(wanted_name)
                return True
        return False

    @property
    def missing(self) -> list[str]:
        """Names in `wanted` that no row has had so far."""
        return [name for name in self.wanted if name not in self.found]


def rows_of(snapshot: Snapshot, fields: Fields) -> Iterator[DumpRow]:
    """Yield a row for each backend, node, router and balanced group of a snapshot.

    A source has no row at a time at which nothing was recorded of it, neither a value nor a failure.
    """
    body = to_json(snapshot)
    silent_s = max(_SILENT_S, _SILENT_INTERVALS * snapshot.node_interval_s)
    for source, key in _SOURCES.items():
        views = body[key]
        for view in views if isinstance(views, list) else []:
            if view.get("error") is None and (view.get("age_s") or 0.0) > silent_s:
                continue
            row = {"time": body["taken_at"], "source": source, "name": view.get("name", view.get("group"))}
            flat = (pair for pair in _flatten(view) if fields.includes(pair[0]))
            yield {**row, **dict(flat)}


def names_of(rows: Iterable[DumpRow]) -> list[str]:
    """Return the names of all fields in `rows`, each once, in order of their first occurrence."""
    return list(dict.fromkeys(name for row in rows for name in row if name not in HEADS))


def _flatten(fields: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield (flat name, value) of every value in nested mappings and lists of mappings."""
    for key, value in fields.items():
        name = f"{prefix}{key}"
        if not prefix and key in _LEFT_OUT:
            continue
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{name}.")
        elif isinstance(value, list) and any(isinstance(part, Mapping) for part in value):
            yield from _flatten(_key_parts(value), f"{name}.")
        else:
            yield name, value


def _key_parts(parts: Iterable[object]) -> dict[str, object]:
    """Return the parts of a list, keyed by their own index, name or engine core, or else by their position.

    To a key that occurs twice, the position in the list is appended.
    """
    named: dict[str, object] = {}
    for index, part in enumerate(parts):
        fields = part if isinstance(part, Mapping) else {}
        key = next((key for key in _PART_NAMES if fields.get(key) is not None), None)
        name = clean(index if key is None else fields[key], 60)
        kept = {other: value for other, value in fields.items() if other != key}
        named[name if name not in named else f"{name} {index}"] = kept or part
    return named


def json_lines(rows: Iterable[DumpRow]) -> Iterator[str]:
    """Yield each row as a line of JSON; unknown values are null."""
    for row in rows:
        yield json.dumps(row, allow_nan=False, ensure_ascii=False) + "\n"


def csv_lines(rows: Iterable[DumpRow], fields: Fields, file: IO[str]) -> Iterator[str]:
    """Yield the lines of a CSV file; unknown values and fields that a source does not have are empty.

    All rows are written to `file`, an empty temporary one, first: the columns are known at the end only.
    """
    columns = dict.fromkeys(HEADS)
    for row in rows:
        for name in row:
            if len(columns) < MAX_COLUMNS:
                columns.setdefault(name)
        file.write(json.dumps(row) + "\n")
    file.seek(0)
    heads = _in_wanted_order(_without_parents(columns), fields.wanted)
    yield _csv_line([spreadsheet_text(head) for head in heads])
    for line in file:
        row = json.loads(line)
        yield _csv_line([_cell_value(row.get(head)) for head in heads])


def _without_parents(columns: Iterable[str]) -> list[str]:
    """Return `columns` without each name that begins another, such as "gpus" beside "gpus.0.power_w".

    Such a column comes from rows in which the whole list or object is unknown or empty.
    """
    names = list(columns)
    parents = {name[:dot] for name in names for dot, char in enumerate(name) if char == "."}
    return [name for name in names if name not in parents]


def _in_wanted_order(columns: list[str], wanted: Sequence[str]) -> list[str]:
    """Return the columns that head each row, then the others in the order of `wanted`.

    Columns that belong to the same wanted name keep their order.
    """

    def rank(name: str) -> int:
        if name in HEADS:
            return -1
        return next((at for at, head in enumerate(wanted) if name == head or name.startswith(f"{head}.")), 0)

    return sorted(columns, key=rank)


def _csv_line(cells: Sequence[object]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(cells)
    return out.getvalue()


def _cell_value(value: object) -> object:
    """Return a value as a cell: a list as its parts with spaces between, true and false as 1 and 0."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list):
        return spreadsheet_text(" ".join("" if part is None else str(part) for part in value))
    return spreadsheet_text(value) if isinstance(value, str) else value


MAX_SERIES = 100_000
"""Series of one dump; samples of further ones are left out and counted."""
_MAX_TYPES = 20_000
"""Names of a source whose types are kept."""
_MAX_NAME, _MAX_LABELS = 200, 8_192
"""Bytes of a metric's name and of its labels; longer ones are left out."""
_SUFFIXES = {
    "_total": ("counter",),
    "_created": ("counter", "histogram", "summary"),
    "_bucket": ("histogram",),
    "_count": ("histogram", "summary"),
    "_sum": ("histogram", "summary"),
    "_gcount": ("gaugehistogram",),
    "_gsum": ("gaugehistogram",),
    "_info": ("info",),
}
_SAMPLED = frozenset({RecordKind.PAGE, RecordKind.NODE})
_WITHIN = frozenset({"le", "quantile"})
"""Labels that distinguish the samples of one metric."""
# "# TYPE vllm:num_requests_running gauge": name and kind of a metric.
_TYPE_LINE = re.compile(rb"^# TYPE ([A-Za-z_:][\w:]{0,199})[ \t]++(\w{1,20})[ \t]*+\r?$", re.MULTILINE)
# "vllm:num_requests_running{engine="0"} 3.0": name, labels in braces, value.
_SAMPLE = re.compile(
    rb'^([A-Za-z_:][\w:]*+)(?:[ \t]*+(\{(?:[^"{}\n]++|"(?:[^"\\\n]++|\\.)*+")*+\})[ \t]*+|[ \t]++)'
    rb"([^\s{}#]++)(?=\s|\Z)",
    re.MULTILINE,
)
# "-12.5", but neither "1e3" nor "NaN".
_PLAIN_NUMBER = re.compile(rb"[-+]?[0-9]{1,17}(?:\.[0-9]{1,20})?")


class _MetricSeries(Struct):
    """One time series: its lines are collected in `metric`; `start` (name and labels) begins each line."""

    metric: MetricSamples | None
    """None where they are not written: labels cannot be read, or are of another type than its family."""
    start: bytes = b""
    last_ms: int | None = None


class Collector:
    """Collects the samples of records and writes them family by family."""

    def __init__(
        self, buffer: SampleBuffer, families: Sequence[str] = (), *, every_s: float | None = None
    ) -> None:
        """Prepare to collect into `buffer` the metric families named in `families`, or all if it is empty.

        With `every_s`, only one metrics page of each source is used per `every_s` seconds.
        """
        self._buffer = buffer
        self._wanted = frozenset(families)
        self._every_s = every_s
        self._families: dict[str, tuple[str, dict[str, MetricSamples]]] = {}
        """By name of a metric family its type, and its metrics by their labels."""
        self._series: dict[tuple[str, bytes, bytes], _MetricSeries | None] = {}
        self._by_start: dict[bytes, _MetricSeries] = {}
        self._typed: dict[str, dict[str, str]] = {}
        self._identities: dict[str, NodeIdentity] = {}
        self._simulated = False
        self._taken: dict[str, float] = {}
        self.left_out: set[str] = set()
        """Names of families that were not asked for."""
        self.unread_pages = 0
        """Pages that are not in Prometheus' format, as of Ollama or TensorRT-LLM."""
        self.unused_samples = 0
        """Samples of too many series, with unreadable labels or values, or no newer than the one before."""
        self.unread_records = 0

    @property
    def names(self) -> list[str]:
        """Names of the families found so far."""
        return sorted(self._families)

    def add(self, records: Iterable[Record], in_span: Callable[[Record], bool]) -> None:
        """Collect the samples of the records for which `in_span` is true.

        Of the other records only the identities of nodes are used, which later samples need.
        """
        for record in records:
            try:
                self._add_record(record, in_span=in_span(record))
            except RecordError:
                self.unread_records += 1

    def _add_record(self, record: Record, *, in_span: bool) -> None:
        if record.kind == RecordKind.HEAD:
            head = read_head(record)
            self._simulated = head.simulated
            for key, identity in head.identities.items():
                self._identify(key, identity)
        elif record.kind == RecordKind.IDENTITY and (call := call_of(record)) is not None:
            self._identify(*cast("tuple[SourceKey, object]", call.arguments))
        elif in_span and record.kind in _SAMPLED and self._take_if_due(record):
            add = self._add_page if record.kind == RecordKind.PAGE else self._add_node
            add(record)

    def _identify(self, key: SourceKey, identity: object) -> None:
        if isinstance(identity, NodeIdentity):
            self._identities[key.name] = identity

    def _take_if_due(self, record: Record) -> bool:
        """Return whether `record` is used; with `every_s`, its source's next one is due that much later."""
        source, wall = record.source or "", record.instant.wall.timestamp()
        due = self._every_s is None or wall >= self._taken.get(source, -math.inf) + self._every_s
        if due:
            self._taken[source] = wall
        return due

    def _add_page(self, record: Record) -> None:
        engine = ENGINES.get(str(record.fields.get("engine")))
        if engine is None or engine.reader is None:
            self.unread_pages += 1
            return
        at = record.fields.get("at")
        earlier_s = record.instant.at - at if isinstance(at, int | float) and math.isfinite(at) else 0.0
        wall = record.instant.wall.timestamp() - min(max(earlier_s, 0.0), 60.0)
        self._add_samples("backend", record, record.body, round(wall * 1000))

    def _add_node(self, record: Record) -> None:
        call = call_of(record)
        if call is None:
            return
        key, sample, _ = cast("tuple[SourceKey, NodeSample, float | None]", call.arguments)
        body = node_page(self._identities.get(key.name), sample, simulated=self._simulated)
        self._add_samples("node", record, body, round(record.instant.wall.timestamp() * 1000))

    def _add_samples(self, label: str, record: Record, body: bytes, time_ms: int) -> None:
        """Collect the samples of `body`, a metrics page of the time `time_ms` (Unix time).

        Each gets the label `label`, "backend" or "node", with the name of the record's source as its value.
        """
        source = record.source or ""
        if time_ms < 0:
            self.unread_records += 1
            return
        types = self._typed.setdefault(source, {})
        for name, kind in _TYPE_LINE.findall(body):
            if len(types) < _MAX_TYPES:
                types[name.decode()] = kind.decode()
        time = b" %d.%03d\n" % divmod(time_ms, 1000)
        for name, block, value in _SAMPLE.findall(body):
            key = (source, name, block)
            if key not in self._series:
                too_long = len(name) > _MAX_NAME or len(block) > _MAX_LABELS
                if too_long or len(self._series) >= MAX_SERIES:
                    self.unused_samples += 1
                    continue
                self._series[key] = self._new_series(label, source, name.decode(), block, types)
            series, written = self._series[key], _spell_value(value)
            if series is None:
                continue
            is_old = series.last_ms is not None and time_ms <= series.last_ms
            if series.metric is None or written is None or is_old:
                self.unused_samples += 1
                continue
            series.last_ms = time_ms
            self._buffer.add(series.metric, series.start + written + time)

    def _new_series(
        self, label: str, source: str, name: str, block: bytes, types: dict[str, str]
    ) -> _MetricSeries | None:
        """Return the series of a name and its labels; None for one of a family that was not asked for."""
        family_name, kind = family_of(name, types)
        if self._wanted and family_name not in self._wanted:
            self.left_out.add(family_name)
            return None
        pairs = parse_labels(block or b"{}")
        family_kind, metrics = self._families.setdefault(family_name, (kind, {}))
        if pairs is None or family_kind != kind or any(label_name == "__name__" for label_name, _ in pairs):
            return _MetricSeries(None)
        labels = {label: clean(source.partition(":")[2])}
        labels |= {
            f"exported_{label_name}" if label_name == label else label_name: value
            for label_name, value in pairs
        }
        written = {label_name: _escape_label(value) for label_name, value in labels.items()}
        metric_labels = _label_block(
            {label_name: value for label_name, value in written.items() if label_name not in _WITHIN}
        )
        if metric_labels not in metrics:
            metrics[metric_labels] = self._buffer.metric()
        start = f"{name}{_label_block(written)} ".encode()
        # Two blocks of labels can be one series: in another order, or once they are clean.
        return self._by_start.setdefault(start, _MetricSeries(metrics[metric_labels], start))

    def text(self) -> Iterator[bytes]:
        """Yield the text family by family, ended by "# EOF"."""
        for name in self.names:
            kind, metrics = self._families[name]
            if metrics:
                yield f"# TYPE {name} {kind}\n".encode()
            for metric in metrics.values():
                yield from self._buffer.text(metric)
        yield b"# EOF\n"


def family_of(name: str, types: dict[str, str]) -> tuple[str, str]:
    """Return (family, OpenMetrics type) of a sample by `types`, the types by name on its page.

    On a page of the older text format, a counter's type has the name with `_total`, and each `_created` has a
    type of its own.
    """
    for suffix, kinds in _SUFFIXES.items():
        base = name.removesuffix(suffix)
        if base == name:
            continue
        names = (name, base) if suffix == "_total" else (base, f"{base}_total")
        kind = next((types[typed] for typed in names if typed in types), None)
        if kind in kinds:
            return base, kind
    kind = types.get(name, "unknown")
    # A counter's samples must end in _total; names that do not are of no type.
    return name, kind if kind in {"gauge", "stateset", "summary"} else "unknown"


def _label_block(written: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in written.items()) + "}"


def _escape_label(value: str) -> str:
    """Return a label's value in UTF-8 without control characters, escaped as the format requires."""
    text = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    printable = clean(text, 1000) if not text.isprintable() else text
    return printable.replace("\\", "\\\\").replace('"', '\\"')


def _spell_value(text: bytes) -> bytes | None:
    """Return a sample's value as the format spells it; None if it is not a number."""
    if _PLAIN_NUMBER.fullmatch(text):
        return text
    word = text.decode("latin-1")
    value = number(word)
    if math.isnan(value):
        return b"NaN" if word.lower() == "nan" else None
    if math.isinf(value):
        return b"+Inf" if value > 0 else b"-Inf"
    return repr(value).encode()


MAX_WAITING_BYTES = 16 << 20
"""Bytes of samples that are kept in memory."""


class MetricSamples(Struct):
    """The samples of one metric: those in memory, and where the earlier ones are in the file."""

    waiting: list[bytes] = field(default_factory=list)
    pieces: list[tuple[int, int]] = field(default_factory=list)
    """(offset, length) of each piece, oldest first."""


class SampleBuffer:
    """The samples of all metrics, collected in the order of time and read back metric by metric.

    OpenMetrics wants all samples of a metric in one place. Their text is gathered in memory up to
    `MAX_WAITING_BYTES` and then moved to a temporary file, a piece for each metric, so that memory grows with
    the number of metrics and not with the length of a recording. All must be added before any are read.
    """

    def __init__(self, file: IO[bytes]) -> None:
        """Collect in `file`, an empty temporary file."""
        self._file = file
        self._waiting_bytes = 0
        self._metrics: list[MetricSamples] = []

    def metric(self) -> MetricSamples:
        """Return a new metric without samples."""
        new_metric = MetricSamples()
        self._metrics.append(new_metric)
        return new_metric

    def add(self, metric: MetricSamples, line: bytes) -> None:
        """Add a line of text to a metric."""
        metric.waiting.append(line)
        self._waiting_bytes += len(line)
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self._move_to_file()

    def _move_to_file(self) -> None:
        for metric in self._metrics:
            if metric.waiting:
                metric.pieces.append((self._file.tell(), sum(map(len, metric.waiting))))
                self._file.writelines(metric.waiting)
                metric.waiting.clear()
        self._waiting_bytes = 0

    def text(self, metric: MetricSamples) -> Iterator[bytes]:
        """Yield the lines of a metric in pieces, in the order in which they were added."""
        for offset, length in metric.pieces:
            self._file.seek(offset)
            yield self._file.read(length)
        yield b"".join(metric.waiting)
