"""What a node agent answers, as JSON: schema "sparktop.node/1". Agent, ssh and viewer all read it here.

    {"schema": "sparktop.node/1", "sparktop": "0.2.0", "boot_id": "...", "monotonic_s": 5120.25,
     "interval_s": 1.0, "simulated": false, "identity": {...}, "samples": [{"at": 5120.0, ...}, ...]}

`monotonic_s` is the node's clock as it answers, and `at` of each sample is of the same clock, so that a
sample's age is the difference; the viewer places it at the time of receipt less its age. Fields have the
names of `sparktop.model.node`. A reader passes over fields that it does not know, and those that are missing
are None: neighbouring versions understand each other. Only a change of meaning changes the schema's number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from sparktop import __version__
from sparktop.model.failure import FailureKind
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.text import clean

SCHEMA = "sparktop.node/1"
MOST_BYTES = 4 << 20
"""Of one answer: a minute of samples of a machine with eight GPUs and a process table is below 1 MiB."""
_MOST_SAMPLES = 600
_TEXT_LIMIT = 400
_LARGEST = 1e18
"""Numbers beyond it are no reading: an exabyte, thirty billion years."""

Value = TypeVar("Value")


class WireError(Exception):
    """An answer that is none of this schema; says what is wrong in one clean line."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        """Keep `kind` and `message` for the failure that this becomes."""
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of an agent."""

    sparktop: str
    """The version that answers."""
    boot_id: str | None = None
    """Changes with each start of the machine: `monotonic_s` begins anew then."""
    monotonic_s: float = 0.0
    """The node's clock as it answered."""
    interval_s: float | None = None
    """How often it takes samples at present."""
    simulated: bool = False
    identity: NodeIdentity = field(default_factory=NodeIdentity)
    samples: tuple[NodeSample, ...] = ()
    """Oldest first; `at` is of the node's clock."""
    schema: str = SCHEMA
    error: str | None = None
    """Why there is no answer; `decode` raises it."""
    error_kind: str | None = None
    """The `FailureKind` of it."""


@cache
def _adapter() -> TypeAdapter[Reply]:
    """The checks, built at the first answer: 20 ms."""
    return TypeAdapter(Reply)


def encode(reply: Reply) -> bytes:
    """Give an answer as one line of JSON without the line's end; what is not finite becomes null."""
    return _adapter().dump_json(reply)


def encode_error(kind: FailureKind, message: str) -> bytes:
    """Give a line that says why there is no answer: `decode` raises it as a `WireError`."""
    return encode(Reply(__version__, error=clean(message), error_kind=kind.value))


def make_reply(
    identity: NodeIdentity,
    samples: tuple[NodeSample, ...],
    now: float,
    *,
    interval_s: float | None = None,
    simulated: bool = False,
) -> Reply:
    """Give the answer of this version, at `now` of the clock that the samples carry."""
    return Reply(
        sparktop=__version__,
        boot_id=identity.boot_id,
        monotonic_s=now,
        interval_s=interval_s,
        simulated=simulated,
        identity=identity,
        samples=samples,
    )


def decode(body: bytes) -> Reply:
    """Give an answer with all text clean; times are still of the node's clock.

    Raises:
        WireError: it is too large, no JSON, of another schema, a refusal, or holds what no reading can be.
    """
    if len(body) > MOST_BYTES:
        raise WireError(FailureKind.TOO_LARGE, f"the agent's answer is over {MOST_BYTES >> 20} MiB")
    try:
        reply = _adapter().validate_json(body, strict=True)
    except ValidationError as error:
        raise _refusal(body, error) from None
    if reply.schema != SCHEMA:
        raise _other_schema(reply.schema, reply.sparktop)
    if reply.error is not None:
        raise WireError(_kind(reply.error_kind), f"the agent there: {clean(reply.error)}")
    if len(reply.samples) > _MOST_SAMPLES:
        raise WireError(FailureKind.TOO_LARGE, f"the agent's answer holds over {_MOST_SAMPLES} samples")
    return _checked(reply)


def place(reply: Reply, received_at: float) -> NodeSample | None:
    """Give the newest sample at its time by the viewer's clock, the older ones in its `missed`.

    None when the answer holds no sample.
    """
    if not reply.samples:
        return None
    offset_s = received_at - reply.monotonic_s
    # A sample from the future is a clock that errs: it cannot be younger than its receipt.
    placed = [replace(one, at=min(received_at, one.at + offset_s), missed=()) for one in reply.samples]
    return replace(placed[-1], missed=tuple(placed[:-1]))


def _refusal(body: bytes, error: ValidationError) -> WireError:
    """Say why an answer is refused: another schema comes before a field that is wrong."""
    try:
        plain = json.loads(body)
    except (ValueError, RecursionError):
        return WireError(FailureKind.MALFORMED, "the answer is no JSON: is that a sparktop agent?")
    schema = plain.get("schema") if isinstance(plain, dict) else None
    if not isinstance(schema, str) or not schema.startswith("sparktop."):
        return WireError(FailureKind.MALFORMED, "the answer is none of a sparktop agent")
    if schema != SCHEMA:
        return _other_schema(schema, plain.get("sparktop"))
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    message = clean(f"the agent's answer is wrong at {where}: {first['msg']}")
    return WireError(FailureKind.MALFORMED, message)


def _kind(word: str | None) -> FailureKind:
    """Give the kind of a refusal; a newer version may know others."""
    try:
        return FailureKind(word or "")
    except ValueError:
        return FailureKind.INTERNAL


def _other_schema(schema: str, version: object) -> WireError:
    theirs = clean(version, 40) if isinstance(version, str) else "of another version"
    message = f"sparktop {theirs} there answers {clean(schema, 40)}, this one ({__version__}) reads {SCHEMA}"
    return WireError(FailureKind.VERSION, f"{message}: update the older one")


def _checked(value: Value) -> Value:
    """Give `value` with clean text in it; what is not finite, or beyond any reading, is refused."""
    checked: Any = value
    if isinstance(value, str):
        checked = clean(value, _TEXT_LIMIT)
    elif isinstance(value, int | float):
        if not math.isfinite(value) or abs(value) > _LARGEST:
            raise WireError(FailureKind.MALFORMED, "the agent's answer holds a number that is no reading")
    elif isinstance(value, tuple):
        checked = tuple(_checked(item) for item in value)
    elif isinstance(value, Mapping):
        checked = {clean(key, _TEXT_LIMIT): _checked(item) for key, item in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        checked = replace(value, **{one.name: _checked(getattr(value, one.name)) for one in fields(value)})
    return cast("Value", checked)
