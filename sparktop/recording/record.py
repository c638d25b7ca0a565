"""One record of a recording: a line of JSON, then a body of bytes, protected by a checksum.

    {"k":"page","s":"backend:spark-a","m":5120.25,"w":1764000000.5,…,"n":65798,"c":3735928559}
    <65,798 bytes>

`k` is the kind, `s` the label of the source, `m` monotonic seconds, `w` Unix seconds, `n` the length of the
body in bytes, `c` the CRC-32 of the head before `,"c"` and of the body. A line feed follows the body.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct, field

from sparktop.model.instant import Instant

MAX_HEAD_BYTES = 64 << 10
"""A head with hundreds of targets fits; all others are below 1 KiB."""
MAX_BODY_BYTES = 4 << 20
_CHECKSUM = b',"c":'
_OWN = frozenset({"k", "s", "m", "w", "n", "c"})
_NO_FIELDS: Mapping[str, object] = MappingProxyType({})


class Kind(StrEnum):
    """The kinds of records; a reader skips kinds that it does not know."""

    HEAD = "head"
    """First of a frame: schema, version, machine, targets, settings, identities, and the announced state."""
    PAGE = "page"
    """A metrics page as received."""
    NODE = "node"
    MEMORY = "memory"
    """The memory of a node alone, between two samples, while it falls steeply."""
    ROUTER = "router"
    FLEET = "fleet"
    """The servers that a Prometheus scrapes, by its aggregates."""
    RANKS = "ranks"
    """What NCCL answered about the ranks of a backend, or that it is asked."""
    FAIL = "fail"
    IDENTITY = "identity"
    WATCH = "watch"
    """A target added or removed, or a changed setting."""
    TICK = "tick"
    """A judgement."""
    SELF = "self"
    NOTE = "note"
    STARTS = "starts"
    """Earlier starts of servers."""
    SWEEP = "sweep"
    """Own load begins or ends."""
    SWEEP_VIEW = "sweep-view"
    """What the board shows of a sweep, running or finished; an empty body if it shows none any more."""
    MARK = "mark"
    """A moment that the user marked."""
    LAG = "lag"
    """Readings that were dropped because the disk did not keep up."""
    END = "end"
    """Last of a recording that was stopped on purpose."""


class RecordError(Exception):
    """Bytes that are not a record; the message is one clean line."""


class Record(Struct, frozen=True):
    """One record: its kind and time, the source that it is about, fields, and a body of bytes."""

    kind: str
    instant: Instant
    source: str | None = None
    """Label of the source, such as "backend:spark-a"."""
    fields: Mapping[str, object] = field(default_factory=lambda: _NO_FIELDS)
    body: bytes = b""


def encode(record: Record) -> bytes:
    """Return the bytes of a record.

    Raises:
        RecordError: head or body exceed the limits.
    """
    head: dict[str, object] = {"k": record.kind}
    if record.source is not None:
        head["s"] = record.source
    head |= {"m": record.instant.at, "w": record.instant.wall.timestamp(), **record.fields}
    head["n"] = len(record.body)
    start = json.dumps(head, separators=(",", ":"), allow_nan=False).encode()[:-1]
    line = start + _CHECKSUM + str(zlib.crc32(record.body, zlib.crc32(start))).encode() + b"}\n"
    if len(line) > MAX_HEAD_BYTES or len(record.body) > MAX_BODY_BYTES:
        raise RecordError(f"a {record.kind} record of {len(line) + len(record.body)} bytes is too large")
    return b"".join((line, record.body, b"\n"))


def decode(text: bytes | bytearray, start: int = 0) -> tuple[Record, int] | int:
    """Return the record at `start` of `text` and the position after it.

    If the record is incomplete, return the length in bytes that `text` must reach before decoding it again.

    Raises:
        RecordError: the bytes are not a record.
    """
    newline = text.find(b"\n", start, start + MAX_HEAD_BYTES)
    if newline < 0:
        if len(text) - start >= MAX_HEAD_BYTES:
            raise RecordError("a head without an end")
        return len(text) + 1
    line = bytes(text[start:newline])
    checksum_at = line.rfind(_CHECKSUM)
    try:
        head = json.loads(line)
        length, at, wall = head["n"], float(head["m"]), float(head["w"])
        kind, source, checksum = head["k"], head.get("s"), head["c"]
        if not isinstance(length, int) or not 0 <= length <= MAX_BODY_BYTES or not math.isfinite(at):
            raise RecordError("a head with an implausible length or time")
        if not isinstance(kind, str) or not isinstance(source, str | None):
            raise RecordError("a head with an implausible kind or source")
        instant = Instant(at, datetime.fromtimestamp(wall, UTC))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError, RecursionError):
        raise RecordError("a head that is not JSON of a record") from None
    end = newline + 1 + length
    if len(text) < end + 1:
        return end + 1
    body = bytes(text[newline + 1 : end])
    if zlib.crc32(body, zlib.crc32(line[:checksum_at])) != checksum or text[end : end + 1] != b"\n":
        raise RecordError("a record whose checksum is wrong")
    fields = {name: value for name, value in head.items() if name not in _OWN}
    return Record(kind, instant, source, fields, body), end + 1
