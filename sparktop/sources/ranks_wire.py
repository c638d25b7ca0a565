"""An agent's answer about NCCL's ranks as one line of JSON of schema "sparktop.ranks/1", over HTTP and ssh.

A reader ignores unknown fields and sets missing ones to their defaults, as `sparktop.sources.wire` does.
"""

from __future__ import annotations

from functools import cache

from pydantic import TypeAdapter, ValidationError

from sparktop import __version__
from sparktop.hardware.ras.reader import Found
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.ranks import RanksAnswer
from sparktop.model.text import clean
from sparktop.sources.wire import MOST_BYTES, WireError, checked
from sparktop.values import dataclass

SCHEMA = "sparktop.ranks/1"
_OLD_AGENT = "sparktop there is too old to ask NCCL: update it"


@dataclass(frozen=True, slots=True)
class RanksReply:
    """An agent's reply to the request to ask NCCL."""

    schema: str
    sparktop: str
    """Version of the agent."""
    answer: RanksAnswer | None = None
    warning: str | None = None
    error: str | None = None
    """Why there is no answer."""
    error_kind: str | None = None
    """The `FailureKind` of `error`."""


@cache
def _adapter() -> TypeAdapter[RanksReply]:
    """Return the pydantic validator of `RanksReply`, built at the first call."""
    return TypeAdapter(RanksReply)


def encode_ranks(found: Found | Failure) -> bytes:
    """Serialize what NCCL answered, or why it did not, as one line of JSON without the line end."""
    if isinstance(found, Failure):
        reply = RanksReply(SCHEMA, __version__, error=clean(found.message, 300), error_kind=found.kind.value)
    else:
        reply = RanksReply(SCHEMA, __version__, found.answer, found.warning)
    return _adapter().dump_json(reply)


def decode_ranks(body: bytes) -> Found:
    """Parse a reply and clean all its text.

    Raises:
        WireError: the reply says why there is no answer, is of another schema (an older agent sends samples
            instead), or is malformed.
    """
    if len(body) > MOST_BYTES:
        raise WireError(FailureKind.TOO_LARGE, f"the agent's answer is over {MOST_BYTES >> 20} MiB")
    try:
        reply = _adapter().validate_json(body)
    except ValidationError:
        kind = FailureKind.VERSION if b'"sparktop.node/' in body[:200] else FailureKind.MALFORMED
        message = _OLD_AGENT if kind is FailureKind.VERSION else "unexpected answer of the agent about ranks"
        raise WireError(kind, message) from None
    if reply.schema != SCHEMA:
        raise WireError(FailureKind.VERSION, _OLD_AGENT)
    if reply.answer is None:
        kind = next((one for one in FailureKind if one.value == reply.error_kind), FailureKind.INTERNAL)
        raise WireError(kind, clean(reply.error or "no answer and no reason for it", 300))
    clean_reply = checked(reply)
    assert clean_reply.answer is not None  # noqa: S101 - checked above, and cleaning keeps it
    return Found(clean_reply.answer, clean_reply.warning)
