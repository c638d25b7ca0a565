"""Requests to a simulated engine, and their state and times there."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from sparktop.model.load import EndReason


@dataclass(frozen=True, slots=True)
class SimulatedRequest:
    """A request to a simulated engine, with the length of its answer known in advance."""

    request_id: str
    prompt_tokens: int
    output_tokens: int
    """Tokens after which it ends, at least 1."""
    reason: EndReason = EndReason.LENGTH
    block_hashes: tuple[int, ...] = ()
    """A hash for each full block of its tokens, each covering everything up to that block's end.

    Equal hashes mean equal beginnings, which the prefix cache may hold. Hashes may extend into the answer,
    for callers that know it in advance; without hashes, nothing of the request is cached.
    """


@dataclass(frozen=True, slots=True)
class RequestTimeline:
    """Times of one request in its engine, as needed for vLLM's latency histograms."""

    request: SimulatedRequest
    arrived_s: float
    admitted_s: float | None
    """Time of the first admission to a slot; None if it never came."""
    first_token_s: float | None
    last_token_s: float | None
    ended_s: float
    generated_tokens: int
    cached_tokens: int
    """Cached prompt tokens at its first admission."""
    preemptions: int
    reason: EndReason


class Phase(Enum):
    """State of a request."""

    WAITING = 0
    PREFILL = 1
    DECODE = 2
    ENDED = 3


@dataclass(slots=True, eq=False)
class Sequence:
    """A request in the engine."""

    request: SimulatedRequest
    arrived_s: float
    phase: Phase = Phase.WAITING
    generated: int = 0
    """Tokens made; not updated while it decodes, see `Batch.made`."""
    computed: int = 0
    """Tokens in the KV cache while its prompt is computed."""
    blocks: int = 0
    """KV blocks held while its prompt is computed, including shared ones."""
    shared: list[int] = field(default_factory=list)
    """Hashes of the held blocks that other requests can find."""
    named: int = 0
    """Full blocks offered to the prefix cache, whether or not it already had them."""
    joined_step: int = 0
    """While it decodes: the batch's steps minus the tokens made."""
    finish_step: int = 0
    """While it decodes: the batch's step that makes its last token."""
    cached_tokens: int = 0
    admitted_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    preemptions: int = 0

    @property
    def length(self) -> int:
        """Prompt plus made tokens; not updated while it decodes."""
        return self.request.prompt_tokens + self.generated

    def timeline(self, ended_s: float, reason: EndReason) -> RequestTimeline:
        """Return the timeline of the request at its end."""
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
