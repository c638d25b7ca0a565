"""Requests to a simulated engine, and what became of them there."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from sparktop.model.load import EndReason


@dataclass(frozen=True, slots=True)
class SimulatedRequest:
    """What is asked of a simulated engine; the answer's length is known beforehand."""

    request_id: str
    prompt_tokens: int
    output_tokens: int
    """Tokens after which it ends, at least 1."""
    reason: EndReason = EndReason.LENGTH
    block_hashes: tuple[int, ...] = ()
    """A hash for each full block of its tokens, each over everything up to that block's end.

    Equal hashes are equal beginnings, which the prefix cache may hold. They may go on into the answer, for
    callers that know what it will be; with none, nothing of the request is cached.
    """


@dataclass(frozen=True, slots=True)
class RequestTimeline:
    """When things happened to one request in its engine, as vLLM's own latency histograms want them."""

    request: SimulatedRequest
    arrived_s: float
    admitted_s: float | None
    """When it first got a slot; None when it never did."""
    first_token_s: float | None
    last_token_s: float | None
    ended_s: float
    generated_tokens: int
    cached_tokens: int
    """Of its prompt, at its first admission."""
    preemptions: int
    reason: EndReason


class Phase(Enum):
    """Where a request is."""

    WAITING = 0
    PREFILL = 1
    DECODE = 2
    ENDED = 3


@dataclass(slots=True, eq=False)
class Sequence:
    """A request on its way through the engine."""

    request: SimulatedRequest
    arrived_s: float
    phase: Phase = Phase.WAITING
    generated: int = 0
    """Tokens made; while it decodes, the batch knows better."""
    computed: int = 0
    """Tokens in the KV cache while its prompt is computed."""
    blocks: int = 0
    """KV blocks held while its prompt is computed, shared ones included."""
    shared: list[int] = field(default_factory=list)
    """Hashes of those that others can find."""
    named: int = 0
    """Full blocks that were offered to the prefix cache, whether or not it had them already."""
    joined_step: int = 0
    """While it decodes: tokens made = the batch's steps - this."""
    finish_step: int = 0
    """While it decodes: the batch's step that makes its last token."""
    cached_tokens: int = 0
    admitted_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    preemptions: int = 0

    @property
    def length(self) -> int:
        """Tokens known of it: prompt and made ones; not kept up to date while it decodes."""
        return self.request.prompt_tokens + self.generated

    def timeline(self, ended_s: float, reason: EndReason) -> RequestTimeline:
        """Give what is known of it at its end."""
        return RequestTimeline(
            self.request,
            self.arrived_s,
            self.admitted_s,
            self.first_token_s,
            self.last_token_s,
            ended_s,
            self.generated,
            self.cached_tokens,
            self.preemptions,
            reason,
        )
