"""Replies of node agents as JSON lines. They travel over ssh: the standard library writes them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct, field

from sparktop import __version__
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.ranks import RanksReply
from sparktop.model.text import clean


def json_line(record: object) -> bytes:
    """Return a record as one line of JSON in UTF-8, without the line end.

    Numbers that are not finite become null, and a text's lone surrogates become "?".
    """
    try:
        text = _ENCODER.encode(record)
    except ValueError:
        text = _ENCODER.encode(_without_infinite(record))
    return text.encode("utf-8", "replace")


def _as_json(value: object) -> dict[str, object] | str:
    """Return `value`, which the JSON encoder does not know, as a mapping or text, which it knows.

    Raises:
        TypeError: the type of `value` does not belong into a reply.
    """
    if isinstance(value, Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"no JSON for {type(value).__name__}")


_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), default=_as_json
)


def _without_infinite(value: object) -> object:
    """Return a copy of `value` with None in place of numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_without_infinite(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _without_infinite(item) for key, item in value.items()}
    if isinstance(value, Struct):
        return _without_infinite(_as_json(value))
    return value


# A node agent's replies as JSON of schema "sparktop.node/1", over HTTP and over ssh.
#
# {"schema": "sparktop.node/1", "sparktop": "0.2.0", "boot_id": "...", "monotonic_s": 5120.25,
#  "interval_s": 1.0, "simulated": false, "identity": {...}, "samples": [{"at": 5120.0, ...}, ...]}
#
# `monotonic_s` is the node's clock at the time of the reply, and each sample's `at` is a time of the same
# clock: the difference is the sample's age. The viewer dates a sample at the time of receipt less this age.
# Fields have the names of `sparktop.model.node`. A reader ignores unknown fields and sets missing ones to
# None, so that neighbouring versions are compatible. Only a change of meaning changes the schema's number.


SCHEMA = "sparktop.node/1"


class Reply(Struct, frozen=True):
    """A node agent's reply to a request for samples."""

    sparktop: str
    """Version of the agent."""
    boot_id: str | None = None
    """Changes with each boot of the machine, which resets `monotonic_s`."""
    monotonic_s: float = 0.0
    """The node's clock at the time of the reply, in seconds."""
    wall_s: float | None = None
    """The node's wall clock at that time, as Unix time; None from an older agent."""
    interval_s: float | None = None
    """Current seconds between samples."""
    simulated: bool = False
    identity: NodeIdentity = field(default_factory=NodeIdentity)
    samples: tuple[NodeSample, ...] = ()
    """Oldest first; `at` is a time of the node's clock."""
    schema: str = SCHEMA
    error: str | None = None
    """Reason of a refusal, which `decode` raises; None for a reply."""
    error_kind: str | None = None
    """The refusal's `FailureKind`."""


def encode(reply: Reply) -> bytes:
    """Serialize a reply as one line of JSON, without the line end; NaN and infinity become null."""
    return json_line(reply)


def encode_error(kind: FailureKind, message: str) -> bytes:
    """Serialize the refusal of a request, which `decode` raises as a `WireError` at the other end."""
    return encode(Reply(__version__, error=clean(message), error_kind=kind.value))


def make_reply(
    identity: NodeIdentity,
    samples: tuple[NodeSample, ...],
    now: float,
    *,
    wall_s: float | None = None,
    interval_s: float | None = None,
    simulated: bool = False,
) -> Reply:
    """Return a reply with this machine's samples and the version of this sparktop.

    `now` is the current time of the clock that stamps the samples, `wall_s` that of the wall clock.
    """
    return Reply(
        sparktop=__version__,
        boot_id=identity.boot_id,
        monotonic_s=now,
        wall_s=wall_s,
        interval_s=interval_s,
        simulated=simulated,
        identity=identity,
        samples=samples,
    )


# An agent's answer about NCCL's ranks as one line of JSON of schema "sparktop.ranks/1", over HTTP and ssh.
#
# A reader ignores unknown fields and sets missing ones to their defaults, as of `Reply`.


ASKS_RANKS = "X-Sparktop-Ranks"
"""The header without which an agent does not ask NCCL: a web page of another server cannot send it."""


def encode_ranks(reply: RanksReply | Failure) -> bytes:
    """Serialize what NCCL answered, or why it did not, as one line of JSON without the line end."""
    if isinstance(reply, Failure):
        reply = RanksReply(error=clean(reply.message, 300), error_kind=reply.kind.value)
    return json_line(reply)
