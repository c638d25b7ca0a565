"""Parses and checks an agent's replies, which come from another machine: bounded, cleaned, plausible."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from operator import is_
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sparktop import __version__
from sparktop.hardware.ras import Found
from sparktop.model.failure import FailureKind
from sparktop.model.node import NodeSample
from sparktop.model.structs import copy_record, is_record
from sparktop.model.text import clean
from sparktop.sources.wire import ranks
from sparktop.sources.wire.records import LARGEST, MOST, TEXT_LIMIT, UnfitError, read_json
from sparktop.sources.wire.reply import SCHEMA, Reply

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MOST_BYTES = 4 << 20
"""Most bytes of a reply: a minute of samples with eight GPUs and a process table is below 1 MiB."""
MOST_CHECKED = 65_536
"""Most entries of a list or mapping that `checked` accepts where `MOST` does not name it."""
_OLD_AGENT = "sparktop there is too old to ask NCCL: update it"

Value = TypeVar("Value")


class WireError(Exception):
    """Raised for an agent's reply that does not follow the schema or is a refusal.

    The message is one clean line.
    """

    def __init__(self, kind: FailureKind, message: str) -> None:
        """Store `kind` and `message`, from which the caller makes a `Failure`."""
        super().__init__(message)
        self.kind = kind


@cache
def _adapter() -> TypeAdapter[Reply]:
    """Return pydantic's serializer of `Reply`, built at the first call, which takes 20 ms."""
    from pydantic import TypeAdapter  # late: a viewer needs none of it

    return TypeAdapter(Reply)


def encode_fast(reply: Reply) -> bytes:
    """Return the bytes of `encode` in a fifth of its time, for an agent that has pydantic installed."""
    return _adapter().dump_json(reply)


def decode(body: bytes) -> Reply:
    """Parse a line of JSON into a reply and clean all its text; the times stay on the node's clock.

    Raises:
        WireError: the body is too large, malformed or of another schema, is a refusal, or has implausible
            numbers.
    """
    if len(body) > MOST_BYTES:
        raise WireError(FailureKind.TOO_LARGE, f"the agent's answer is over {MOST_BYTES >> 20} MiB")
    try:
        reply = read_json(Reply, body)
    except (ValueError, RecursionError):
        raise WireError(FailureKind.MALFORMED, "the answer is not JSON: is that a sparktop agent?") from None
    except UnfitError as error:
        raise _refusal(body, error) from None
    if reply.schema != SCHEMA:
        raise _other_schema(reply.schema, reply.sparktop)
    if reply.error is not None:
        raise WireError(_kind(reply.error_kind), f"the agent there: {clean(reply.error)}")
    return reply


def decode_ranks(body: bytes) -> Found:
    """Parse a reply about NCCL's ranks and clean all its text.

    Raises:
        WireError: the reply says why there is no answer, is of another schema (an older agent sends samples
            instead), or is malformed.
    """
    if len(body) > MOST_BYTES:
        raise WireError(FailureKind.TOO_LARGE, f"the agent's answer is over {MOST_BYTES >> 20} MiB")
    try:
        reply = read_json(ranks.RanksReply, body)
    except (ValueError, RecursionError, UnfitError):
        kind = FailureKind.VERSION if b'"sparktop.node/' in body[:200] else FailureKind.MALFORMED
        message = _OLD_AGENT if kind is FailureKind.VERSION else "unexpected answer of the agent about ranks"
        raise WireError(kind, message) from None
    if reply.schema != ranks.SCHEMA:
        raise WireError(FailureKind.VERSION, _OLD_AGENT)
    if reply.answer is None:
        kind = next((one for one in FailureKind if one.value == reply.error_kind), FailureKind.INTERNAL)
        raise WireError(kind, clean(reply.error or "no answer and no reason for it", 300))
    return Found(reply.answer, reply.warning)


def place(reply: Reply, received_at: float) -> NodeSample | None:
    """Return the newest sample of `reply`, with older samples in `missed`; None for a reply without samples.

    All times are converted to the clock of the receiving machine, on which the reply arrived at `received_at`
    seconds.
    """
    if not reply.samples:
        return None
    offset_s = received_at - reply.monotonic_s
    # A sample cannot be younger than its receipt: a time in the future is a clock error.
    placed = [replace(each, at=min(received_at, each.at + offset_s), missed=()) for each in reply.samples]
    return replace(placed[-1], missed=tuple(placed[:-1]))


def _refusal(body: bytes, error: UnfitError) -> WireError:
    """Return the error for a body of JSON that is not a reply, because of `error`.

    A body of another schema gets an error about its schema, whatever field is wrong.
    """
    plain = json.loads(body)
    schema = plain.get("schema") if isinstance(plain, dict) else None
    if not isinstance(schema, str) or not schema.startswith("sparktop."):
        return WireError(FailureKind.MALFORMED, "not a sparktop agent: unexpected answer")
    if schema != SCHEMA:
        return _other_schema(schema, plain.get("sparktop"))
    return WireError(FailureKind.MALFORMED, clean(f"the agent's answer is wrong at {error}"))


def _kind(word: str | None) -> FailureKind:
    """Return the `FailureKind` named `word`; INTERNAL for None or a name that only a newer version knows."""
    try:
        return FailureKind(word or "")
    except ValueError:
        return FailureKind.INTERNAL


def _other_schema(schema: str, version: object) -> WireError:
    theirs = clean(version, 40) if isinstance(version, str) else "of another version"
    message = f"sparktop {theirs} there answers {clean(schema, 40)}, this one ({__version__}) reads {SCHEMA}"
    return WireError(FailureKind.VERSION, f"{message}: update the older one")


def checked(value: Value) -> Value:
    """Return `value` (a record, tuple, mapping, text, number or time) with all its text cleaned.

    What needs no change is not copied. A time without a zone is taken as UTC.

    Raises:
        WireError: a number is not finite, or implausibly large, or a list is implausibly long.
    """
    found: Any = value
    if value is None or isinstance(value, Enum):  # an enumeration, also of texts, has known values only
        return value
    if isinstance(value, str):
        found = clean(value, TEXT_LIMIT)
    elif isinstance(value, int | float):
        if not -LARGEST <= value <= LARGEST:
            raise WireError(FailureKind.MALFORMED, "the agent's answer holds a number that is not a reading")
    elif isinstance(value, datetime):
        found = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    elif isinstance(value, tuple):
        found = tuple([checked(item) for item in value])
        found = value if all(map(is_, found, value)) else found
    elif isinstance(value, Mapping):
        found = {clean(key, TEXT_LIMIT): checked(item) for key, item in value.items()}
        same = found.keys() == value.keys() and all(map(is_, found.values(), value.values()))
        found = value if same else found
    elif is_record(value):
        found = _checked_record(value)
    return cast("Value", found)


def _checked_record(record: Any) -> Any:  # noqa: ANN401 - any dataclass of a reply
    """Return a record with checked fields; the same one if none of them is changed."""
    changed: dict[str, Any] = {}
    kind = type(record).__name__
    for name in type(record).__match_args__:  # all fields: each is a parameter
        value = getattr(record, name)
        if isinstance(value, tuple | Mapping) and len(value) > MOST.get(f"{kind}.{name}", MOST_CHECKED):
            raise WireError(FailureKind.TOO_LARGE, f"{kind}.{name} has {len(value)} entries: too many")
        found = value if type(value) is float and -LARGEST <= value <= LARGEST else checked(value)
        if found is not value:
            changed[name] = found
    return copy_record(record, changed) if changed else record
