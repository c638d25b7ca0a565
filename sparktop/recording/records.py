"""What a recording says: records of the calls that change a store, and the head that begins each frame.

`record_of` makes a record of a call and `call_of` the call of a record, so that a player can repeat it. A
head has all that a reader needs to begin at its frame. Targets are written field by field from
`_TARGET_FIELDS`, so that keys and tokens never reach a file, and addresses without user name, password and
query.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from sparktop import __version__
from sparktop.analysis.placement import public_url
from sparktop.engines import PageError, read_page
from sparktop.model.engine import EngineIdentity, EngineSample
from sparktop.model.event import Alert, Event, Severity
from sparktop.model.failure import Failure
from sparktop.model.instant import Instant
from sparktop.model.load import REMOVED_KINDS
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.ranks import RanksReading
from sparktop.model.router import Fleet, RouterSample
from sparktop.model.series import Series, known_min, known_sum, known_values, slot_values
from sparktop.model.snapshot import Kept, Snapshot
from sparktop.model.targets import (
    BackendTarget,
    NodeTarget,
    PrometheusTarget,
    RouterTarget,
    Target,
    Thresholds,
    Watch,
)
from sparktop.model.text import clean
from sparktop.recording.frames import MAX_BODY_BYTES, Record, RecordError, RecordKind
from sparktop.sources.decode import WireError, clean_record
from sparktop.sources.replies import json_line
from sparktop.store import Reading, SourceKey, SourceKind, Store
from sparktop.store.store import Call, Change

if TYPE_CHECKING:
    from sparktop.model.sweep import SweepView


_TARGET_FIELDS: Mapping[type[Target], tuple[str, ...]] = {
    NodeTarget: ("name", "via", "url", "ssh", "scrape"),
    BackendTarget: ("name", "url", "engine", "nodes", "slots", "capture_sizes", "scrape", "group"),
    RouterTarget: ("name", "url", "strategy", "backends", "deployments"),
    PrometheusTarget: ("name", "url", "selector", "group_by"),
}
TARGET_KINDS: Mapping[str, type[Target]] = {
    SourceKind.NODE: NodeTarget,
    SourceKind.BACKEND: BackendTarget,
    SourceKind.ROUTER: RouterTarget,
    SourceKind.PROMETHEUS: PrometheusTarget,
}
_READINGS: Mapping[type[Any], RecordKind] = {
    NodeSample: RecordKind.NODE,
    RouterSample: RecordKind.ROUTER,
    RanksReading: RecordKind.RANKS,
    Fleet: RecordKind.FLEET,
    Failure: RecordKind.FAIL,
}
MOST_TARGETS = 1024
"""Most servers and machines of a recording that is played."""
_TEXT = 300
"""Most characters of a text that is read."""


def target_fields(target: Target) -> dict[str, object]:
    """Return the public fields of a target, with its kind."""
    fields: dict[str, object] = {
        name: value for name in _TARGET_FIELDS[type(target)] if (value := getattr(target, name)) is not None
    }
    fields["kind"] = key_of(target).kind.value
    if target.url is not None:
        url = public_url(target.url) or ""
        # Replicas on a node of Ray have one address, which a fragment tells apart.
        if isinstance(target, BackendTarget) and target.scrape is not None:
            url += "".join(target.url.partition("#")[1:])
        fields["url"] = url
    return cast("dict[str, object]", msgspec.to_builtins(fields))


def read_target(fields: object) -> Target:
    """Return the target whose public fields, as `target_fields` returns them, are `fields`.

    Raises:
        RecordError: the fields are not those of a target.
    """
    if not isinstance(fields, dict) or not isinstance(kind := fields.get("kind"), str):
        raise RecordError("a target without a kind")
    target_type = TARGET_KINDS.get(kind)
    if target_type is None:
        raise RecordError(f"a target of the unknown kind {clean(kind, 40)}")
    public = {name: fields[name] for name in _TARGET_FIELDS[target_type] if name in fields}
    return cast("Target", _read_value(target_type, public))


def record_of(instant: Instant, call: Call) -> Record | None:
    """Return the record of a call.

    Return None if the call passes a sample that lacks the metrics page that it was read from, or that is
    larger than a record may be.
    """
    arguments = cast("tuple[Any, ...]", call.arguments)
    match call.change:
        case Change.ACCEPT:
            return _reading_record(instant, *arguments)
        case Change.IDENTIFY:
            key, identity = arguments
            return Record(RecordKind.IDENTITY, instant, key.label, body=json_line(identity))
        case Change.ADD:
            return Record(RecordKind.WATCH, instant, fields={"add": [*map(target_fields, arguments)]})
        case Change.REMOVE:
            return Record(RecordKind.WATCH, instant, arguments[0].label, {"remove": True})
        case Change.LEARN:
            return Record(RecordKind.STARTS, instant, body=json_line(arguments[0]))
    kind, types = _FIELDS[call.change]
    values = msgspec.to_builtins(arguments, order="deterministic")
    return Record(kind, instant, fields=dict(zip(types, values, strict=True)))


_Names = tuple[str, ...]
_FIELDS: Mapping[Change, tuple[RecordKind, Mapping[str, Any]]] = {
    Change.SET_INTERVAL: (RecordKind.WATCH, {"interval_s": Annotated[float, Meta(gt=0)]}),
    Change.SET_THRESHOLDS: (RecordKind.WATCH, {"thresholds": Thresholds}),
    Change.SET_SEARCHING: (RecordKind.WATCH, {"searching": _Names}),
    Change.BEGIN_OWN_LOAD: (RecordKind.SWEEP, {Change.BEGIN_OWN_LOAD.value: _Names}),
    Change.END_OWN_LOAD: (RecordKind.SWEEP, {Change.END_OWN_LOAD.value: _Names}),
    Change.NOTE: (RecordKind.NOTE, {"subject": str, "message": str, "severity": Severity}),
    Change.MEASURE_SELF: (RecordKind.SELF, {"cpu_percent": float | None, "rss_bytes": int | None}),
    Change.JUDGE: (RecordKind.TICK, {}),
}
"""By change: the kind of its record, and names and types of its arguments there."""


def _reading_record(
    instant: Instant, key: SourceKey, reading: Reading, took_ms: float | None
) -> Record | None:
    """Return the record of the call `accept`; None as of `record_of`."""
    fields: dict[str, object] = {} if took_ms is None else {"took_ms": took_ms}
    if isinstance(reading, EngineSample):
        if reading.page is None:
            return None
        fields |= {"engine": reading.engine, "at": reading.at}
        if reading.answer_ms is not None:
            fields["answer_ms"] = reading.answer_ms
        if reading.client is not None:
            fields["client"] = list(reading.client)
        return Record(RecordKind.PAGE, instant, key.label, fields, reading.page)
    kind = _READINGS[type(reading)]
    body = json_line(reading)
    return Record(kind, instant, key.label, fields, body) if len(body) <= MAX_BODY_BYTES else None


def record_of_sweep(instant: Instant, view: SweepView | None) -> Record | None:
    """Return a record of the view of a sweep on the overview screen; `view` is None for no sweep.

    Return None if the view is larger than a record may be.
    """
    body = b"" if view is None else json_line(view)
    return None if len(body) > MAX_BODY_BYTES else Record(RecordKind.SWEEP_VIEW, instant, body=body)


_REMOVED = re.compile(rb'"kind":\s*"(?:%s)"' % "|".join(sorted(REMOVED_KINDS)).encode())
"""Matches the view of a sweep whose kind of load earlier versions had."""


def sweep_of(record: Record) -> SweepView | None:
    """Return the view of a sweep from a record that `record_of_sweep` made; None if it showed no sweep.

    Also None for a sweep with a kind of load that earlier versions had.

    Raises:
        RecordError: the record does not contain a valid view of a sweep.
    """
    from sparktop.model.sweep import SweepView  # late: who only records needs none of it

    if not record.body or _REMOVED.search(record.body):
        return None
    try:
        body = _as_of_now(msgspec.json.decode(record.body))
    except (ValueError, RecursionError) as error:
        raise RecordError(f"a view of a sweep that is not JSON: {clean(error, _TEXT)}") from None
    return cast("SweepView", _read_value(SweepView, body))


def _as_of_now(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a view of a sweep, perhaps of version 1.3, with this version's fields.

    A concurrency and a position were what is a `point` now, and the fields of a level stood beside those of
    the row that names it. `runs` of a figure was their number; now it has their values, which are unknown.
    """
    if isinstance(value, list):
        return [_as_of_now(part) for part in value]
    if not isinstance(value, dict):
        return value
    parts = {name: _as_of_now(part) for name, part in value.items()}
    if "concurrency" in parts and "point" not in parts:
        parts["point"] = parts.get("position") or {"kind": "concurrency", "value": parts["concurrency"]}
    if "point" in parts and "prompt_tokens" in parts:
        parts["pp"] = parts["prompt_tokens"]
        level = {name: parts[name] for name in ("target", "point", "pp", "depth") if name in parts}
        parts.setdefault("key", {"target": "", **level})
    if "mean" in parts and isinstance(parts.get("runs"), int):
        del parts["runs"]
    return parts


def call_of(record: Record) -> Call | None:
    """Return the call that a record describes; None if its kind is unknown or changes no store.

    All text is cleaned of control characters, as text from live servers and machines is.

    Raises:
        RecordError: the record is not one that `record_of` made.
    """
    read = _READERS.get(record.kind)
    return None if read is None else read(record)


def _page_call(record: Record) -> Call:
    engine, at = _read_field(record, "engine", str), _read_field(record, "at", float)
    answer_ms = _read_field(record, "answer_ms", float | None)
    try:
        sample = read_page(record.body, at=at, engine=engine, answer_ms=answer_ms)
    except PageError as error:
        raise RecordError(f"a page that cannot be read: {clean(error.message, _TEXT)}") from None
    return _accept_call(record, replace(sample, client=_read_field(record, "client", tuple[int, int] | None)))


def _accept_call(record: Record, reading: Reading) -> Call:
    took_ms = _read_field(record, "took_ms", float | None)
    return Call(Change.ACCEPT, (_source_key(record.source), reading, took_ms))


def _sample_reader(kind: type[Any]) -> Callable[[Record], Call]:
    return lambda record: _accept_call(record, _read_value(kind, record.body))


def _identify_call(record: Record) -> Call:
    key = _source_key(record.source)
    kind = NodeIdentity if key.kind is SourceKind.NODE else EngineIdentity
    return Call(Change.IDENTIFY, (key, _read_value(kind, record.body)))


def _watch_call(record: Record) -> Call | None:
    if "remove" in record.fields:
        return Call(Change.REMOVE, (_source_key(record.source),))
    if "add" not in record.fields:
        return _call_of_fields(record)
    targets = record.fields["add"]
    if not isinstance(targets, list) or len(targets) > MOST_TARGETS:
        raise RecordError(f"targets that are not a list of at most {MOST_TARGETS}")
    return Call(Change.ADD, tuple(read_target(target) for target in targets))


def _call_of_fields(record: Record) -> Call | None:
    """Return the call whose arguments the fields of a record are by `_FIELDS`; None if there is none."""
    for change, (kind, types) in _FIELDS.items():
        if record.kind == kind and types.keys() <= record.fields.keys():
            values = tuple(_read_field(record, name, of_type) for name, of_type in types.items())
            return Call(change, tuple(map(frozenset, values)) if kind is RecordKind.SWEEP else values)
    return None


_READERS: Mapping[str, Callable[[Record], Call | None]] = {
    **{kind: _sample_reader(reading) for reading, kind in _READINGS.items()},
    RecordKind.PAGE: _page_call,
    RecordKind.IDENTITY: _identify_call,
    RecordKind.WATCH: _watch_call,
    **dict.fromkeys((RecordKind.SWEEP, RecordKind.NOTE, RecordKind.SELF, RecordKind.TICK), _call_of_fields),
    RecordKind.STARTS: lambda record: Call(Change.LEARN, (_read_value(Kept, record.body),)),
}


def _read_value(kind: Any, value: object, name: str = "value") -> Any:  # noqa: ANN401 - any type, its value
    """Return a value of the type `kind` from JSON or from what was decoded of it, with its text cleaned.

    Raises:
        RecordError: the value does not fit.
    """
    try:
        if isinstance(value, bytes):
            return clean_record(msgspec.json.decode(value, type=kind))
        return clean_record(msgspec.convert(value, kind))
    except (ValueError, RecursionError, WireError) as error:
        raise RecordError(f"a {name} of another type: {clean(error, _TEXT)}") from None


def _read_field(record: Record, name: str, kind: Any) -> Any:  # noqa: ANN401 - as above
    return _read_value(kind, record.fields.get(name), name)


def _source_key(label: str | None) -> SourceKey:
    kind, _, name = (label or "").partition(":")
    try:
        return SourceKey(SourceKind(kind), clean(name, _TEXT))
    except ValueError:
        raise RecordError("a reading without its source") from None


# The head: the first record of each frame, with all that a reader needs to begin at this frame.


SCHEMA = "sparktop.recording/1"
_LAST_UNIX_S = datetime.max.replace(tzinfo=UTC).timestamp()
SUMMARY_S = 60.0
"""Seconds that the summary of a head covers."""
Identity = EngineIdentity | NodeIdentity
"""What a server or a machine is, as its source reports it."""
TargetOfKind = TypeVar("TargetOfKind", bound=Target)


class Range(Struct, frozen=True, omit_defaults=True):
    """Smallest, mean and largest value of a metric over a time: in a head, over the minute before it."""

    least: float
    mean: float
    most: float
    last: float | None = None
    """At the end of the time; heads have none."""


class Announced(Struct, frozen=True):
    """Alerts, events and balance verdicts at the beginning of a frame, and a summary of the minute before."""

    alerts: tuple[Alert, ...] = ()
    events: tuple[Event, ...] = ()
    """Newest last."""
    verdicts: Mapping[str, tuple[str, float]] = {}
    """Announced balance verdict and its beginning (Unix seconds), by group."""
    summary: Mapping[str, Range] = {}
    """Metrics of all servers over the last minute: `generation_tps`, `requests`, `headroom_gib`."""
    at: float | None = None
    """Monotonic time of all this, which may be before the frame; None if an older version has recorded."""


class TooManyTargetsError(RecordError):
    """Raised for a head with more targets than a player can show."""


class Head(Struct, frozen=True):
    """The first record of a frame: what is watched at its beginning, its settings, and what was announced."""

    targets: Mapping[SourceKey, Target] = {}
    identities: Mapping[SourceKey, Identity] = {}
    settings: Watch = Watch(source="recording")
    """Interval, thresholds and facts of models; its targets are those of `targets`."""
    searching: tuple[str, ...] = ()
    simulated: bool = False
    announced: Announced = Announced()
    version: str = __version__
    """Version of sparktop that wrote it."""
    hostname: str = ""
    boot_id: str = ""
    pid: int = 0

    @property
    def watch(self) -> Watch:
        """The targets and settings, for a new store."""

        def of_kind(kind: type[TargetOfKind]) -> tuple[TargetOfKind, ...]:
            return tuple(target for target in self.targets.values() if isinstance(target, kind))

        return replace(
            self.settings,
            nodes=of_kind(NodeTarget),
            backends=of_kind(BackendTarget),
            routers=of_kind(RouterTarget),
            prometheus=of_kind(PrometheusTarget),
            source="recording",
        )

    def _with_target(self, target: Target) -> tuple[SourceKey, Target]:
        """Return (key, target) to add; a backend that is watched already is updated as the store does it."""
        key = key_of(target)
        target_before = self.targets.get(key)
        if isinstance(target_before, BackendTarget) and isinstance(target, BackendTarget):
            return key, target_before.updated_by(target)
        return key, target_before or target

    def after(self, call: Call) -> Head:
        """Return a copy of the head, updated by `call`; the same head if `call` changes nothing in it."""
        arguments = cast("tuple[Any, ...]", call.arguments)
        changed: dict[str, Any] = {}
        match call.change:
            case Change.ADD:
                changed = {"targets": {**self.targets, **dict(map(self._with_target, arguments))}}
            case Change.REMOVE:
                other_targets = {key: target for key, target in self.targets.items() if key != arguments[0]}
                changed = {"targets": other_targets}
            case Change.IDENTIFY:
                changed = {"identities": {**self.identities, arguments[0]: arguments[1]}}
            case Change.SET_INTERVAL:
                changed = {"settings": replace(self.settings, interval_s=arguments[0])}
            case Change.SET_THRESHOLDS:
                states, nodes = arguments[0].states, arguments[0].nodes
                changed = {"settings": replace(self.settings, thresholds=states, node_thresholds=nodes)}
            case Change.SET_SEARCHING:
                changed = {"searching": arguments[0]}
        return replace(self, **changed) if changed else self


def key_of(target: Target) -> SourceKey:
    """Return the key of a target's source."""
    kind = next(kind for kind, target_type in TARGET_KINDS.items() if isinstance(target, target_type))
    return SourceKey(SourceKind(kind), target.name)


def first_head(watch: Watch, store: Store) -> Head:
    """Return the head of a recording of `store` that begins now, on this machine and in this process."""
    return Head(
        targets={key_of(target): target for target in store.targets()},
        identities=store.identities(),
        settings=Watch(
            interval_s=store.interval_s,
            thresholds=store.thresholds.states,
            node_thresholds=store.thresholds.nodes,
            models=watch.models,
        ),
        searching=store.searching,
        simulated=store.simulated,
        hostname=socket.gethostname(),
        boot_id=boot_id(),
        pid=os.getpid(),
    )


def boot_id() -> str:
    """Return the kernel's random id of the present boot of this machine; "" if it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def announcements(snapshot: Snapshot) -> Announced:
    """Return the alerts, events and balance verdicts of a snapshot, and a summary of its last minute."""
    servers = [backend.history for backend in snapshot.backends]
    rates = [history.generation_tps for history in servers]
    requests = [series for history in servers for series in (history.running, history.waiting)]
    headrooms = [node.history.headroom_gib for node in snapshot.nodes]
    at, interval_s = snapshot.at, snapshot.interval_s
    summary = {
        "generation_tps": _minute_range(rates, at, interval_s, known_sum),
        "requests": _minute_range(requests, at, interval_s, known_sum),
        "headroom_gib": _minute_range(headrooms, at, snapshot.node_interval_s, known_min),
    }
    return Announced(
        snapshot.alerts,
        snapshot.events,
        {
            group.group: (group.word.value, group.since.timestamp())
            for group in snapshot.balance
            if group.since is not None
        },
        {name: metric_range for name, metric_range in summary.items() if metric_range is not None},
        snapshot.at,
    )


def _minute_range(
    each: Iterable[Series],
    at: float,
    interval_s: float,
    joined: Callable[[Iterable[float | None]], float | None],
) -> Range | None:
    """Join the series in `each` (sum or minimum); return the range of that in the minute before `at`.

    Return None if no value is known.
    """
    # The series are polled at different moments of an interval: each has a value in slots of its length.
    step_s = max(1.0, interval_s)
    newest, count = int(at // step_s), max(1, int(SUMMARY_S // step_s))
    slots = range(newest - count + 1, newest + 1)
    known = known_values(slot_values(each, slots, step_s, joined))
    return Range(min(known), sum(known) / len(known), max(known)) if known else None


_SETTINGS = ("interval_s", "thresholds", "node_thresholds", "models")
"""Fields of `Watch` that a head has, beside its targets."""


def record_of_head(instant: Instant, head: Head) -> Record:
    """Return `head` as a record, to be the first of a frame that begins at `instant`."""
    state, settings = head.announced, head.settings
    body = {
        "watch": {
            "targets": [target_fields(target) for target in head.targets.values()],
            **{name: getattr(settings, name) for name in _SETTINGS},
            "searching": head.searching,
            "simulated": head.simulated,
        },
        "identities": {key.label: identity for key, identity in head.identities.items()},
        "alerts": state.alerts,
        "events": state.events,
        "verdicts": state.verdicts,
        "summary": state.summary,
        "announced_at": state.at,
    }
    fields = {
        "schema": SCHEMA,
        "sparktop": head.version,
        "hostname": head.hostname,
        "boot_id": head.boot_id,
        "pid": head.pid,
    }
    return Record(RecordKind.HEAD, instant, fields=fields, body=json_line(body))


def read_head(record: Record) -> Head:
    """Return the head that a record describes, with its text cleaned of control characters.

    Raises:
        RecordError: the record is not a head of this schema.
    """
    fields = record.fields
    if fields.get("schema") != SCHEMA:
        raise RecordError("a frame of another schema: a newer sparktop wrote it")
    try:
        body = msgspec.json.decode(record.body)
        watch = body["watch"]
        if (count := len(watch["targets"])) > MOST_TARGETS:
            raise TooManyTargetsError(f"it names {count:,} servers and machines, more than {MOST_TARGETS:,}")
        targets = [read_target(target) for target in watch["targets"]]
        state = msgspec.convert({**body, "at": body.get("announced_at")}, Announced)
        if any(not 0 <= since <= _LAST_UNIX_S for _, since in state.verdicts.values()):
            raise RecordError("a head with an implausible time")
        return Head(
            targets={key_of(target): target for target in targets},
            identities=dict(starmap(_read_identity, body["identities"].items())),
            settings=clean_record(msgspec.convert({name: watch[name] for name in _SETTINGS}, Watch)),
            searching=clean_record(msgspec.convert(watch["searching"], tuple[str, ...])),
            simulated=msgspec.convert(watch["simulated"], bool),
            announced=clean_record(state),
            version=clean(fields.get("sparktop"), 200),
            hostname=clean(fields.get("hostname"), 200),
            boot_id=clean(fields.get("boot_id"), 200),
            pid=int(cast("int", fields.get("pid"))),
        )
    except (ValueError, TypeError, AttributeError, KeyError, WireError, RecursionError):
        raise RecordError("a head that cannot be read") from None


def _read_identity(label: str, fields: object) -> tuple[SourceKey, Identity]:
    key = _source_key(label)
    identity: type[Identity] = NodeIdentity if key.kind is SourceKind.NODE else EngineIdentity
    return key, clean_record(msgspec.convert(fields, identity))
