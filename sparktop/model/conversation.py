"""The place of a request in a conversation between a person or an agent and a model."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class CallStart(StrEnum):
    """What a model call follows."""

    HUMAN = "human"
    """A person's request."""
    TOOL = "tool"
    """The output of a tool that the answer before asked for."""


class ConversationCall(Struct, frozen=True):
    """The place of a model call in its conversation."""

    lane: int
    """Number of the user or agent, from 0; it has one conversation after the other."""
    conversation: int
    """Number of the conversation in its lane, from 0."""
    turn: int
    """Number of the call in its conversation, from 0."""
    request: int
    """Number of the human request in the conversation, from 0."""
    start: CallStart
    then: CallStart | None
    """What the next call of the conversation follows; None after its last call."""
    known_tokens: int
    """Tokens at the beginning of the prompt that the server has computed before, for this conversation or, of
    the shared start, for another: what an endless prefix cache would hold."""
    new_tokens: int
    """The other tokens of the prompt."""
    compacted: bool = False
    """Whether the context was compacted just before this call."""
    measured: bool = True
    """False for the call that sends the past of a conversation that begins in the middle of its life."""


class Turn(Struct, frozen=True):
    """The next model call of a conversation, with the lengths that are known before it is sent."""

    place: ConversationCall
    pause_s: float
    """Seconds from the end of the answer before, also of an earlier conversation; 0 for the first call."""
    prompt_tokens: int
    output_tokens: int
    shared_tokens: int
    """Tokens at the beginning of the prompt that all conversations share."""
    compactions: int
    """How often the conversation's context has been compacted, this call included."""
    fits: bool = True
    """False if prompt and answer are too long together, although the context was compacted."""
