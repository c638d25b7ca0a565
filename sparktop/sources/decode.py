"""Parses and checks an agent's replies, which come from another machine: bounded, cleaned, plausible."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from sparktop import __version__
from sparktop.model.failure import FailureError, FailureKind
from sparktop.model.node import NodeSample
from sparktop.model.plain import LARGEST
from sparktop.model.ranks import RANKS_SCHEMA, RanksReply
from sparktop.model.text import clean
from sparktop.sources.replies import SCHEMA, Reply

TEXT_LIMIT = 1000
"""Most characters of a text in a reply."""
SHORT_LIMIT = 120
"""Most characters of a name in a reply, of which there may be thousands."""
MOST_BYTES = 4 << 20
"""Most bytes of a reply: a minute of samples with eight GPUs and a process table is below 1 MiB."""
MOST_ITEMS = 64
"""Most entries of a list or mapping of a reply that is not named below."""
MOST: Mapping[str, int] = {
    "NodeSample.gpus": 64,
    "NodeSample.gpus_lost": 64,
    "NodeSample.network": 128,
    "NodeSample.sensors": 64,
    "NodeSample.rails": 64,
    "Reply.samples": 300,
    "CpuReading.core_percent": 4096,
    "CoreGroup.cores": 4096,
    "GpuReading.processes": 256,
    "GpuReading.mig_instances": 64,
    "Workloads.processes": 64,
    "Workload.flags": 80,
    "KernelLog.lines": 64,
    "NodeIdentity.addresses": 64,
    "ProcessTable.processes": 200,
    "RanksAnswer.communicators": 1024,
    "Communicator.ranks": 4096,
    "Communicator.missing": 4096,
}
"""Most entries of these lists: no machine has more, and no reader sends more."""
MOST_CHECKED = 65_536
"""Most entries of a list or mapping that `clean_record` accepts where `MOST` does not name it."""
_NAMES = frozenset({"name", "kind", "uuid", "netdev", "container", "container_name"})
"""Fields that are names."""
_NUMBERS = frozenset({float, int, bool})
_OLD_AGENT = "sparktop there is too old to ask NCCL: update it"

Decoded = TypeVar("Decoded")


class WireError(FailureError):
    """Raised for an agent's reply that does not follow the schema or is a refusal."""


def decode(body: bytes) -> Reply:
    """Parse a line of JSON into a reply and clean all its text; the times stay on the node's clock.

    Unknown fields are ignored, missing ones have their defaults.

    Raises:
        WireError: the body is too large, malformed or of another schema, is a refusal, or has implausible
            numbers.
    """
    _check_size(body)
    try:
        reply = msgspec.json.decode(body, type=Reply)
    except msgspec.ValidationError as error:
        raise _malformed_error(body, error) from None
    except (ValueError, RecursionError):
        raise WireError(FailureKind.MALFORMED, "the answer is not JSON: is that a sparktop agent?") from None
    if reply.schema != SCHEMA:
        raise _schema_error(reply.schema, reply.sparktop)
    if reply.error is not None:
        raise WireError(_failure_kind(reply.error_kind), f"the agent there: {clean(reply.error)}")
    return _clean_value(reply, MOST_ITEMS, SHORT_LIMIT)


def decode_ranks(body: bytes) -> RanksReply:
    """Parse a reply about NCCL's ranks and clean all its text.

    Raises:
        WireError: the reply says why there is no answer, is of another schema (an older agent sends samples
            instead), or is malformed.
    """
    _check_size(body)
    try:
        reply = _clean_value(msgspec.json.decode(body, type=RanksReply), MOST_ITEMS, SHORT_LIMIT)
    except (ValueError, RecursionError):
        kind = FailureKind.VERSION if b'"sparktop.node/' in body[:200] else FailureKind.MALFORMED
        message = _OLD_AGENT if kind is FailureKind.VERSION else "unexpected answer of the agent about ranks"
        raise WireError(kind, message) from None
    if reply.schema != RANKS_SCHEMA:
        raise WireError(FailureKind.VERSION, _OLD_AGENT)
    if reply.answer is None:
        message = clean(reply.error or "no answer and no reason for it", 300)
        raise WireError(_failure_kind(reply.error_kind), message)
    return reply


def on_local_clock(reply: Reply, received_at: float) -> NodeSample | None:
    """Return the newest sample of `reply`, with older samples in `missed`; None for a reply without samples.

    All times are converted to the clock of the receiving machine, on which the reply arrived at `received_at`
    seconds.
    """
    if not reply.samples:
        return None
    offset_s = received_at - reply.monotonic_s
    # A sample cannot be younger than its receipt: a time in the future is a clock error.
    samples = [replace(each, at=min(received_at, each.at + offset_s), missed=()) for each in reply.samples]
    return replace(samples[-1], missed=tuple(samples[:-1]))


def _check_size(body: bytes) -> None:
    if len(body) > MOST_BYTES:
        raise WireError(FailureKind.TOO_LARGE, f"the agent's answer is over {MOST_BYTES >> 20} MiB")


def _malformed_error(body: bytes, error: Exception) -> WireError:
    """Return the error for a body of JSON that is not a reply, because of `error`.

    A body of another schema gets an error about its schema, whatever field is wrong.
    """
    try:
        plain = msgspec.json.decode(body)
    except (ValueError, RecursionError):  # damaged after the place of the error
        plain = None
    schema = plain.get("schema") if isinstance(plain, dict) else None
    if not isinstance(schema, str) or not schema.startswith("sparktop."):
        return WireError(FailureKind.MALFORMED, "not a sparktop agent: unexpected answer")
    if schema != SCHEMA:
        return _schema_error(schema, plain.get("sparktop"))
    return WireError(FailureKind.MALFORMED, clean(f"the agent's answer is wrong: {error}"))


def _failure_kind(word: str | None) -> FailureKind:
    """Return the `FailureKind` named `word`; INTERNAL for None or a name that only a newer version knows."""
    try:
        return FailureKind(word or "")
    except ValueError:
        return FailureKind.INTERNAL


def _schema_error(schema: str, version: object) -> WireError:
    theirs = clean(version, 40) if isinstance(version, str) else "of another version"
    message = f"sparktop {theirs} there answers {clean(schema, 40)}, this one ({__version__}) reads {SCHEMA}"
    return WireError(FailureKind.VERSION, f"{message}: update the older one")


def clean_record(value: Decoded) -> Decoded:
    """Return `value` (a record, tuple, mapping, text, number or time) with all its text cleaned.

    A time without a zone is taken as UTC.

    Raises:
        WireError: a number is not finite, or implausibly large, or a list is implausibly long.
    """
    return _clean_value(value, MOST_CHECKED, TEXT_LIMIT)


def _clean_value(value: Decoded, most_items: int, longest_name: int, longest: int = TEXT_LIMIT) -> Decoded:
    """Return a checked and cleaned value; a text is cut to `longest` characters.

    In records, lists that `MOST` does not name have at most `most_items` entries, and names `longest_name`
    characters.
    """
    if type(value) is str:  # as most are
        return cast("Decoded", clean(value, longest))
    result: Any = value
    if isinstance(value, msgspec.Struct):
        result = _clean_fields(value, most_items, longest_name)
    elif isinstance(value, tuple):
        items = tuple([_clean_value(item, most_items, longest_name, longest_name) for item in value])
        result = value if all(map(operator.is_, items, value)) else items
    elif value is None or isinstance(value, Enum):  # an enumeration, also of texts, has known values only
        return value
    elif isinstance(value, int | float):
        if not -LARGEST <= value <= LARGEST:
            raise WireError(FailureKind.MALFORMED, "the agent's answer holds a number that is not a reading")
    elif isinstance(value, datetime):
        result = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    elif isinstance(value, Mapping):
        result = {
            clean(key, longest_name): _clean_value(item, most_items, longest_name, longest_name)
            for key, item in value.items()
        }
    return cast("Decoded", result)


def _clean_fields(record: Any, most_items: int, longest_name: int) -> Any:  # noqa: ANN401 - any record
    """Return a record with checked and cleaned fields."""
    changed: dict[str, Any] = {}
    kind = type(record).__name__
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if value is None or (type(value) in _NUMBERS and -LARGEST <= value <= LARGEST):  # as most are
            continue
        if type(value) is not str and isinstance(value, tuple | Mapping):  # str first: that is faster
            if len(value) > MOST.get(f"{kind}.{name}", most_items):
                message = f"{kind}.{name} has {len(value)} entries: too many"
                raise WireError(FailureKind.TOO_LARGE, message)
            if not value:
                continue
        result = _clean_value(value, most_items, longest_name, longest_name if name in _NAMES else TEXT_LIMIT)
        if result is not value:
            changed[name] = result
    return replace(record, **changed) if changed else record
