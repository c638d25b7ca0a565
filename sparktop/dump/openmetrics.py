"""A recording as OpenMetrics text with timestamps: `promtool tsdb create-blocks-from openmetrics` reads it.

Every sample of the recorded metrics pages is written, with a label `backend`, and every node sample under the
names of the agent's page, with a label `node`. Format: https://prometheus.io/docs/specs/om/open_metrics_spec/.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

from msgspec import Struct, field

from sparktop.agent.exposition import page as node_page
from sparktop.dump.series import Metric, Spool
from sparktop.engines.exposition import number, parse_labels
from sparktop.engines.registry import ENGINES
from sparktop.model.node import MemorySample, NodeIdentity, NodeSample
from sparktop.model.text import clean
from sparktop.recording.calls import call_of
from sparktop.recording.head import read_head
from sparktop.recording.record import Kind, Record, RecordError
from sparktop.store import SourceKey

MAX_SERIES = 100_000
"""Series of one dump; samples of further ones are left out and counted."""
_MAX_TYPES = 20_000
_MAX_NAME, _MAX_LABELS = 200, 8_192
"""Bytes of a metric's name and of its labels; longer ones are left out."""
_TYPES = frozenset({"counter", "gauge", "histogram", "summary", "info", "stateset", "gaugehistogram"})
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
_MEMORY = b"sparktop_node_memory_"
_SAMPLED = frozenset({Kind.PAGE, Kind.NODE, Kind.MEMORY})
_WITHIN = frozenset({"le", "quantile"})
"""Labels that distinguish the samples of one metric."""
_TYPE_LINE = re.compile(rb"^# TYPE ([A-Za-z_:][\w:]{0,199})[ \t]++(\w{1,20})[ \t]*+\r?$", re.MULTILINE)
_SAMPLE = re.compile(
    rb'^([A-Za-z_:][\w:]*+)(?:[ \t]*+(\{(?:[^"{}\n]++|"(?:[^"\\\n]++|\\.)*+")*+\})[ \t]*+|[ \t]++)'
    rb"([^\s{}#]++)(?=\s|\Z)",
    re.MULTILINE,
)
_PLAIN_NUMBER = re.compile(rb"[-+]?[0-9]{1,17}(?:\.[0-9]{1,20})?")


class _Series(Struct):
    """One time series: its lines are collected in `metric`; `start` (name and labels) begins each line."""

    metric: Metric
    start: bytes
    last_ms: int | None = None


class _Family(Struct):
    """A metric family: its type, and its metrics by their labels."""

    kind: str
    metrics: dict[str, Metric] = field(default_factory=dict)


class LeftOut(Struct):
    """Numbers of pages, samples and records that could not be converted to OpenMetrics."""

    pages: int = 0
    """Pages that are not in Prometheus' format, as of Ollama or TensorRT-LLM."""
    samples: int = 0
    """Samples of too many series, with unreadable labels or values, or not newer than the sample before."""
    records: int = 0
    """Records that could not be read."""


class Collector:
    """Collects the samples of records and writes them family by family."""

    def __init__(self, spool: Spool, families: Sequence[str] = (), *, every_s: float | None = None) -> None:
        """Prepare to collect into `spool` the metric families named in `families`, or all if it is empty.

        With `every_s`, only one metrics page of each source is used per `every_s` seconds.
        """
        self._spool = spool
        self._wanted = frozenset(families)
        self._every_s = every_s
        self._families: dict[str, _Family] = {}
        self._series: dict[tuple[str, bytes, bytes], _Series | None] = {}
        self._by_start: dict[bytes, _Series] = {}
        self._typed: dict[str, dict[str, str]] = {}
        self._identities: dict[str, NodeIdentity] = {}
        self._simulated = False
        self._taken: dict[str, float] = {}
        self.left = LeftOut()

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
                self._add(record, in_span=in_span(record))
            except RecordError:
                self.left.records += 1

    def _add(self, record: Record, *, in_span: bool) -> None:
        if record.kind == Kind.HEAD:
            head = read_head(record)
            self._simulated = head.simulated
            for key, identity in head.identities.items():
                self._identify(key, identity)
        elif record.kind == Kind.IDENTITY and (call := call_of(record)) is not None:
            self._identify(*cast("tuple[SourceKey, object]", call.arguments))
        elif in_span and record.kind in _SAMPLED and self._is_due(record):
            (self._page if record.kind == Kind.PAGE else self._node)(record)

    def _identify(self, key: SourceKey, identity: object) -> None:
        if isinstance(identity, NodeIdentity):
            self._identities[key.name] = identity

    def _is_due(self, record: Record) -> bool:
        source, wall = record.source or "", record.instant.wall.timestamp()
        due = self._every_s is None or wall >= self._taken.get(source, -math.inf) + self._every_s
        if due:
            self._taken[source] = wall
        return due

    def _page(self, record: Record) -> None:
        engine = ENGINES.get(str(record.fields.get("engine")))
        if engine is None or engine.prefix is None:
            self.left.pages += 1
            return
        at = record.fields.get("at")
        earlier_s = record.instant.at - at if isinstance(at, int | float) and math.isfinite(at) else 0.0
        wall = record.instant.wall.timestamp() - min(max(earlier_s, 0.0), 60.0)
        self._samples("backend", record, record.body, round(wall * 1000))

    def _node(self, record: Record) -> None:
        call = call_of(record)
        if call is None:
            return
        key, sample, _ = cast("tuple[SourceKey, NodeSample | MemorySample, float | None]", call.arguments)
        whole = sample if isinstance(sample, NodeSample) else NodeSample(sample.at, memory=sample.memory)
        body, _ = node_page(
            self._identities.get(key.name),
            whole,
            accept="application/openmetrics-text",
            simulated=self._simulated,
        )
        if whole is not sample:  # nothing else was read
            body = b"".join(line for line in body.splitlines(keepends=True) if _MEMORY in line)
        self._samples("node", record, body, round(record.instant.wall.timestamp() * 1000))

    def _samples(self, label: str, record: Record, body: bytes, time_ms: int) -> None:
        """Collect the samples of `body`, a metrics page of the time `time_ms` (Unix time).

        Each gets the label `label`, "backend" or "node", with the name of the record's source as its value.
        """
        source = record.source or ""
        if time_ms < 0:
            self.left.records += 1
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
                    self.left.samples += 1
                    continue
                self._series[key] = self._new_series(label, source, name.decode(), block, types)
            series, written = self._series[key], _value(value)
            if series is None:
                continue
            if written is None or (series.last_ms is not None and time_ms <= series.last_ms):
                self.left.samples += 1
                continue
            series.last_ms = time_ms
            self._spool.add(series.metric, series.start + written + time)

    def _new_series(
        self, label: str, source: str, name: str, block: bytes, types: dict[str, str]
    ) -> _Series | None:
        """Return the series of a name and its labels; None if it is not wanted or cannot be written."""
        family_name, kind = family_of(name, types)
        if self._wanted and family_name not in self._wanted:
            return None
        pairs = parse_labels(block or b"{}")
        family = self._families.setdefault(family_name, _Family(kind))
        if pairs is None or family.kind != kind or any(one == "__name__" for one, _ in pairs):
            self.left.samples += 1
            return None
        own = {label: clean(source.partition(":")[2])}
        own |= {f"exported_{one}" if one == label else one: value for one, value in pairs}
        written = {one: _escaped(value) for one, value in own.items()}
        of_metric = _labels({one: value for one, value in written.items() if one not in _WITHIN})
        if of_metric not in family.metrics:
            family.metrics[of_metric] = self._spool.metric()
        start = f"{name}{_labels(written)} ".encode()
        # Two blocks of labels can be one series: in another order, or once they are clean.
        return self._by_start.setdefault(start, _Series(family.metrics[of_metric], start))

    def text(self) -> Iterator[bytes]:
        """Yield the text family by family, ended by "# EOF"."""
        for name in self.names:
            family = self._families[name]
            if family.metrics:
                yield f"# TYPE {name} {family.kind}\n".encode()
            for metric in family.metrics.values():
                yield from self._spool.text(metric)
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
        kind = types.get(base) or types.get(f"{base}_total")
        if suffix == "_total":
            kind = types.get(name) or types.get(base)
        if kind in kinds:
            return base, kind
    kind = types.get(name, "unknown")
    # A counter's samples must end in _total; names that do not are of no type.
    return name, kind if kind in {"gauge", "stateset", "summary"} else "unknown"


def _labels(written: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in written.items()) + "}"


def _escaped(value: str) -> str:
    """Return a label's value in UTF-8 without control characters, escaped as the format requires."""
    text = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    printable = clean(text, 1000) if not text.isprintable() else text
    return printable.replace("\\", "\\\\").replace('"', '\\"')


def _value(text: bytes) -> bytes | None:
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
