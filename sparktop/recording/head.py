"""The head: the first record of each frame, with all that a reader needs to begin at this frame."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Mapping, Sized
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from sparktop import __version__
from sparktop.model.engine import EngineIdentity
from sparktop.model.event import Alert, Event, Severity
from sparktop.model.instant import Instant
from sparktop.model.node import NodeIdentity
from sparktop.model.series import Series
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import (
    BackendTarget,
    ModelFacts,
    NodeTarget,
    NodeThresholds,
    PrometheusTarget,
    RouterTarget,
    StateThresholds,
    Target,
    Watch,
)
from sparktop.model.text import clean
from sparktop.recording.calls import MOST_TARGETS, TARGET_KINDS, read_target, target_fields
from sparktop.recording.frames import Kind, Record, RecordError
from sparktop.sources.wire.decode import WireError, checked
from sparktop.sources.wire.json_line import json_line
from sparktop.store import SourceKey, SourceKind, Store
from sparktop.store.journal import Call, Change

SCHEMA = "sparktop.recording/1"
_MOST_ENTRIES = 4096
"""Most entries of any other list of a head."""
SUMMARY_S = 60.0
"""Seconds that the summary of a head covers."""
Identity = EngineIdentity | NodeIdentity
Value = TypeVar("Value")


class Range(Struct, frozen=True):
    """Smallest, mean and largest value of a metric over the minute before a head."""

    least: float
    mean: float
    most: float


class Announced(Struct, frozen=True):
    """Alerts, events and balance verdicts at the beginning of a frame, and a summary of the minute before."""

    alerts: tuple[Alert, ...] = ()
    events: tuple[Event, ...] = ()
    """Newest last."""
    verdicts: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    """Announced balance verdict and its beginning (Unix seconds), by group."""
    summary: Mapping[str, Range] = field(default_factory=dict)
    """Metrics of all servers over the last minute: `generation_tps`, `requests`, `headroom_gib`."""
    at: float | None = None
    """Monotonic time of all this, which may be before the frame; None if an older version has recorded."""


class TooManyTargetsError(RecordError):
    """Raised for a head with more targets than a player can show."""


class Head(Struct, frozen=True):
    """The first record of a frame: what is watched at its beginning, its settings, and what was announced."""

    targets: Mapping[SourceKey, Target] = field(default_factory=dict)
    identities: Mapping[SourceKey, Identity] = field(default_factory=dict)
    interval_s: float = 1.0
    searching: tuple[str, ...] = ()
    simulated: bool = False
    thresholds: StateThresholds = field(default_factory=StateThresholds)
    node_thresholds: NodeThresholds = field(default_factory=NodeThresholds)
    models: Mapping[str, ModelFacts] = field(default_factory=dict)
    announced: Announced = field(default_factory=Announced)
    version: str = __version__
    """Version of sparktop that wrote it."""
    hostname: str = ""
    boot_id: str = ""
    pid: int = 0

    @property
    def watch(self) -> Watch:
        """The targets and settings, for a new store."""
        found = self.targets.values()
        return Watch(
            nodes=tuple(one for one in found if isinstance(one, NodeTarget)),
            backends=tuple(one for one in found if isinstance(one, BackendTarget)),
            routers=tuple(one for one in found if isinstance(one, RouterTarget)),
            prometheus=tuple(one for one in found if isinstance(one, PrometheusTarget)),
            interval_s=self.interval_s,
            thresholds=self.thresholds,
            node_thresholds=self.node_thresholds,
            models=self.models,
            source="recording",
        )

    def _added(self, target: Target) -> tuple[SourceKey, Target]:
        """Return a target that is added, by its key; one that is known is updated as in the store."""
        known = self.targets.get(key := key_of(target))
        if isinstance(known, BackendTarget) and isinstance(target, BackendTarget):
            return key, known.updated_by(target)
        return key, known or target

    def after(self, call: Call) -> Head:
        """Return a copy of the head, updated by `call`; the same head if `call` changes nothing in it."""
        arguments = cast("tuple[Any, ...]", call.arguments)
        changed: dict[str, Any] = {}
        match call.change:
            case Change.ADD:
                changed = {"targets": {**self.targets, **dict(map(self._added, arguments))}}
            case Change.REMOVE:
                kept = {key: one for key, one in self.targets.items() if key != arguments[0]}
                changed = {"targets": kept}
            case Change.IDENTIFY:
                changed = {"identities": {**self.identities, arguments[0]: arguments[1]}}
            case Change.SET_INTERVAL:
                changed = {"interval_s": arguments[0]}
            case Change.SET_THRESHOLDS:
                changed = {"thresholds": arguments[0].states, "node_thresholds": arguments[0].nodes}
            case Change.SET_SEARCHING:
                changed = {"searching": arguments[0]}
        return replace(self, **changed) if changed else self


def key_of(target: Target) -> SourceKey:
    """Return the key of a target's source."""
    kind = next(kind for kind, one in TARGET_KINDS.items() if isinstance(target, one))
    return SourceKey(SourceKind(kind), target.name)


def first_head(watch: Watch, store: Store) -> Head:
    """Return the head of a recording of `store` that begins now, on this machine and in this process."""
    return Head(
        targets={key_of(one): one for one in store.targets()},
        identities=store.identities(),
        interval_s=store.interval_s,
        searching=store.searching,
        simulated=store.simulated,
        thresholds=store.thresholds.states,
        node_thresholds=store.thresholds.nodes,
        models=watch.models,
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


def announced(snapshot: Snapshot) -> Announced:
    """Return the alerts, events and balance verdicts of a snapshot, and a summary of its last minute."""
    at = snapshot.at
    summary = {
        "generation_tps": _range(at, [one.history.generation_tps for one in snapshot.backends]),
        "requests": _range(
            at, [series for one in snapshot.backends for series in (one.history.running, one.history.waiting)]
        ),
        "headroom_gib": _range(at, [one.history.headroom_gib for one in snapshot.nodes], least=True),
    }
    return Announced(
        snapshot.alerts,
        snapshot.events,
        {
            one.group: (one.word.value, one.since.timestamp())
            for one in snapshot.balance
            if one.since is not None
        },
        {name: found for name, found in summary.items() if found is not None},
        snapshot.at,
    )


def _range(at: float, each: Iterable[Series], *, least: bool = False) -> Range | None:
    """Add up the series in `each` second by second; return the range of the sums in the minute before `at`.

    With `least`, take the smallest value of each second instead of the sum. Return None if no value is known.
    """
    slots: dict[int, list[float]] = {}
    for series in each:
        for time, value in series.since(at - SUMMARY_S):
            if value is not None:
                slots.setdefault(int(time), []).append(value)
    found = [min(values) if least else sum(values) for values in slots.values()]
    return Range(min(found), sum(found) / len(found), max(found)) if found else None


def record_of_head(instant: Instant, head: Head) -> Record:
    """Return `head` as a record, to be the first of a frame that begins at `instant`."""
    state = head.announced
    body = {
        "watch": {
            "targets": [target_fields(one) for one in head.targets.values()],
            "interval_s": head.interval_s,
            "searching": head.searching,
            "simulated": head.simulated,
            "thresholds": head.thresholds,
            "node_thresholds": head.node_thresholds,
            "models": head.models,
        },
        "identities": {key.label: one for key, one in head.identities.items()},
        "alerts": state.alerts,
        "events": state.events,
        "verdicts": state.verdicts,
        "announced_at": state.at,
        "summary": state.summary,
    }
    fields = {
        "schema": SCHEMA,
        "sparktop": head.version,
        "hostname": head.hostname,
        "boot_id": head.boot_id,
        "pid": head.pid,
    }
    return Record(Kind.HEAD, instant, fields=fields, body=json_line(body))


def read_head(record: Record) -> Head:
    """Return the head that a record describes, with its text cleaned of control characters.

    Raises:
        RecordError: the record is not a head of this schema.
    """
    fields = record.fields
    if fields.get("schema") != SCHEMA:
        raise RecordError("a frame of another schema: a newer sparktop wrote it")
    try:
        body = json.loads(record.body)
        watch = body["watch"]
        if len(watch["targets"]) > MOST_TARGETS:
            raise TooManyTargetsError(
                f"it names {len(watch['targets']):,} servers and machines, more than {MOST_TARGETS:,}"
            )
        targets = [read_target(one) for one in watch["targets"]]
        return Head(
            targets={key_of(one): one for one in targets},
            identities=dict(_identity(label, one) for label, one in _few(body["identities"]).items()),
            interval_s=float(watch["interval_s"]),
            searching=tuple(clean(one, 200) for one in _few(watch["searching"])),
            simulated=watch["simulated"] is True,
            thresholds=_of(StateThresholds, watch["thresholds"]),
            node_thresholds=_of(NodeThresholds, watch["node_thresholds"]),
            models={clean(name, 200): _of(ModelFacts, one) for name, one in _few(watch["models"]).items()},
            announced=checked(_announced(body)),
            version=clean(fields.get("sparktop"), 200),
            hostname=clean(fields.get("hostname"), 200),
            boot_id=clean(fields.get("boot_id"), 200),
            pid=int(cast("int", fields.get("pid"))),
        )
    except (ValueError, KeyError, TypeError, AttributeError, WireError, RecursionError):
        raise RecordError("a head that cannot be read") from None


class Landmarks(Struct, frozen=True):
    """The parts of a head that the time bar of a replay shows: the load and the times of events."""

    generation_tps: float | None = None
    """Mean tokens per second of the minute before the head; None if unknown."""
    events: tuple[tuple[datetime, str, Severity], ...] = ()
    """(time, subject, severity) of each event in the log."""


def read_landmarks(record: Record) -> Landmarks:
    """Return load and events of a head, with the text cleaned.

    Raises:
        RecordError: the record is not a head of this schema.
    """
    try:
        body = json.loads(record.body)
        load = body["summary"].get("generation_tps")
        return Landmarks(
            None if load is None else float(load["mean"]),
            tuple(
                (_utc(one["at"]), clean(one["subject"], 200), Severity(one["severity"]))
                for one in _few(body["events"])
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise RecordError("a head that cannot be read") from None


def _few(items: Value) -> Value:
    """Return `items`, a list or mapping of a head.

    Raises:
        ValueError: it has more entries than any recording.
    """
    if len(cast("Sized", items)) > _MOST_ENTRIES:
        raise ValueError("too many entries")
    return items


def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _announced(body: Mapping[str, Any]) -> Announced:
    return Announced(
        tuple(_of(Alert, one) for one in _few(body["alerts"])),
        tuple(_of(Event, one) for one in _few(body["events"])),
        {name: (str(word), _unix_s(since)) for name, (word, since) in _few(body["verdicts"]).items()},
        {name: _of(Range, one) for name, one in _few(body["summary"]).items()},
        None if (at := body.get("announced_at")) is None else float(at),
    )


def _unix_s(value: object) -> float:
    """Return `value` as a number if it is a Unix time (seconds) of the years 1970 to 9999.

    Raises:
        ValueError: `value` is something else.
    """
    if not isinstance(value, int | float) or not 0 <= value <= datetime.max.replace(tzinfo=UTC).timestamp():
        raise ValueError("not a time")
    return float(value)


def _identity(label: str, fields: object) -> tuple[SourceKey, Identity]:
    kind, _, name = label.partition(":")
    key = SourceKey(SourceKind(kind), clean(name, 200))
    if key.kind is SourceKind.NODE:
        return key, checked(_of(NodeIdentity, fields))
    return key, checked(_of(EngineIdentity, fields))


def _of(kind: type[Value], fields: object) -> Value:
    return msgspec.convert(fields, kind)
