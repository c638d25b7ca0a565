"""Requests to a simulated engine, and their state and times in the engine."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct, field

from sparktop.model.load import EndReason


class SimulatedRequest(Struct, frozen=True):
    """A request to a simulated engine, with the length of its answer known in advance."""

    request_id: str
    prompt_tokens: int
    output_tokens: int
    """Number of tokens after which the request ends, at least 1."""
    reason: EndReason = EndReason.LENGTH
    block_hashes: tuple[int, ...] = ()
    """A hash for each full block of the request's tokens, which covers all tokens up to the block's end.

    Equal hashes mean equal beginnings, which the prefix cache may hold. Hashes may extend into the answer,
    for callers that know the answer in advance. Without hashes, nothing of the request is cached.
    """


class RequestTimeline(Struct, frozen=True):
    """The times of one request in its simulated engine, from which vLLM's latency histograms are computed."""

    request: SimulatedRequest
    arrived_s: float
    admitted_s: float | None
    """Time when the request first joined the batch; None if it never did."""
    first_token_s: float | None
    last_token_s: float | None
    ended_s: float
    generated_tokens: int
    cached_tokens: int
    """Prompt tokens that were in the prefix cache when the request first joined the batch."""
    preemptions: int
    reason: EndReason


class Phase(Enum):
    """State of a request in a simulated engine."""

    WAITING = 0
    PREFILL = 1
    DECODE = 2
    ENDED = 3


class Sequence(Struct, eq=False):
    """A request in a simulated engine, with its progress and times."""

    request: SimulatedRequest
    arrived_s: float
    phase: Phase = Phase.WAITING
    generated: int = 0
    """Number of tokens generated; not updated while the request decodes (see `Batch.made`)."""
    computed: int = 0
    """Number of tokens in the KV cache; counted only while the request's prompt is computed."""
    blocks: int = 0
    """Number of KV blocks held, including shared ones; counted only while the request's prompt is
    computed."""
    shared: list[int] = field(default_factory=list)
    """Hashes of those blocks of the request that other requests can find and share."""
    named: int = 0
    """Number of full blocks offered to the prefix cache, including those that it already had."""
    joined_step: int = 0
    """Used while the request decodes: the batch's step count minus the request's generated tokens, which
    is constant."""
    finish_step: int = 0
    """Used while the request decodes: the batch's step count at which the request's last token is
    generated."""
    cached_tokens: int = 0
    admitted_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    preemptions: int = 0

    @property
    def length(self) -> int:
        """Number of prompt tokens and of generated tokens.

        While the request decodes, tokens generated since decoding began are not included (see `Batch.made`).
        """
        return self.request.prompt_tokens + self.generated

    def timeline(self, ended_s: float, reason: EndReason) -> RequestTimeline:
        """Return the times of the request, which ended at `ended_s` for `reason`."""
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
