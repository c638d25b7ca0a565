"""A node agent's replies as JSON of schema "sparktop.node/1", over HTTP and over ssh.

{"schema": "sparktop.node/1", "sparktop": "0.2.0", "boot_id": "...", "monotonic_s": 5120.25,
 "interval_s": 1.0, "simulated": false, "identity": {...}, "samples": [{"at": 5120.0, ...}, ...]}

`monotonic_s` is the node's clock at the time of the reply, and each sample's `at` is a time of the same
clock: the difference is the sample's age. The viewer dates a sample at the time of receipt less this age.
Fields have the names of `sparktop.model.node`. A reader ignores unknown fields and sets missing ones to None,
so that neighbouring versions are compatible. Only a change of meaning changes the schema's number.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sparktop import __version__
from sparktop.model.failure import FailureKind
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.text import clean
from sparktop.sources.wire.json_line import json_line

SCHEMA = "sparktop.node/1"


@dataclass(frozen=True, slots=True)
class Reply:
    """A node agent's reply to a request for samples."""

    sparktop: str
    """Version of the agent."""
    boot_id: str | None = None
    """Changes with each boot of the machine, which resets `monotonic_s`."""
    monotonic_s: float = 0.0
    """The node's clock at the time of the reply, in seconds."""
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
    interval_s: float | None = None,
    simulated: bool = False,
) -> Reply:
    """Return a reply with this machine's samples and the version of this sparktop.

    `now` is the current time of the clock that stamps the samples.
    """
    return Reply(
        sparktop=__version__,
        boot_id=identity.boot_id,
        monotonic_s=now,
        interval_s=interval_s,
        simulated=simulated,
        identity=identity,
        samples=samples,
    )
