"""An agent's answer about NCCL's ranks as one line of JSON of schema "sparktop.ranks/1", over HTTP and ssh.

A reader ignores unknown fields and sets missing ones to their defaults, as for `sparktop.sources.wire.reply`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparktop import __version__
from sparktop.hardware.ras import Found
from sparktop.model.failure import Failure
from sparktop.model.ranks import RanksAnswer
from sparktop.model.text import clean
from sparktop.sources.wire.json_line import json_line

SCHEMA = "sparktop.ranks/1"
ASKS_RANKS = "X-Sparktop-Ranks"
"""The header without which an agent does not ask NCCL: a web page of another server cannot send it."""


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


def encode_ranks(found: Found | Failure) -> bytes:
    """Serialize what NCCL answered, or why it did not, as one line of JSON without the line end."""
    if isinstance(found, Failure):
        reply = RanksReply(SCHEMA, __version__, error=clean(found.message, 300), error_kind=found.kind.value)
    else:
        reply = RanksReply(SCHEMA, __version__, found.answer, found.warning)
    return json_line(reply)
