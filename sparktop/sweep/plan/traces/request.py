"""A request of a trace: as its file states it, and as it is to be sent."""

from __future__ import annotations

from msgspec import Struct


class FaultError(Exception):
    """A line of a trace cannot be used; the message says why, without file and line number."""


class Recorded(Struct, frozen=True):
    """A request as a line of a trace states it, in the file's own time."""

    at_s: float | None
    """Seconds on the file's clock; None if the request only follows another one, or has no time."""
    prompt_tokens: int | None
    """None if the file holds the text instead."""
    output_tokens: int
    """0 for a request that failed when it was recorded."""
    blocks: tuple[int, ...] = ()
    """Ids of the prompt's blocks, in order; equal ids of one scope stand for equal tokens."""
    block_tokens: int = 0
    """Tokens of each block; the last one may be incomplete."""
    scope: str = ""
    """What the ids are valid for, such as a conversation; "" for the whole file. Requests of a scope without
    ids share their beginnings: the prompt of a longer one begins with that of a shorter one."""
    session: str | None = None
    """Its conversation, whose latest request has to end first; None if it belongs to none."""
    pause_s: float = 0.0
    """Seconds from the end of the predecessor to this request, if it has no time of its own."""
    text: str | None = None
    """The prompt, if the file holds it."""


class TracedRequest(Struct, frozen=True):
    """A request of a replay, in the order of the file."""

    number: int
    """Position in the replay, from 0."""
    due_s: float | None
    """Seconds after the begin of the replay at which it is due; None if only its predecessor decides."""
    prompt_tokens: int | None
    """None if the file holds the text instead."""
    output_tokens: int
    blocks: tuple[int, ...] = ()
    block_tokens: int = 0
    scope: str = ""
    """As in `Recorded`."""
    after: int | None = None
    """Number of the request of the same conversation that has to end first; None for the first one."""
    delay_s: float = 0.0
    """Pause in seconds after the end of `after`."""
    text: str | None = None
