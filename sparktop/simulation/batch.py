"""The requests of a simulated engine: their state and times, the batch that runs, blocks of the KV cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from enum import Enum
from heapq import heappop, heappush
from itertools import islice

from msgspec import Struct, field

from sparktop.model.load import EndReason

# Every decoding request generates one token per step. So three numbers follow from the count of steps and
# are
# not updated per request: the tokens generated, the step in which the request ends, and the steps in which
# it
# needs another block. A hundred steps therefore cost as much computing time as one.


class Batch:
    """The running requests of one simulated engine, with the KV blocks that they hold."""

    def __init__(self, *, kv_blocks: int, block_tokens: int) -> None:
        """Create an empty batch with a KV cache of `kv_blocks` blocks of `block_tokens` tokens each."""
        self.pool = BlockPool(kv_blocks)
        self.running: dict[str, EngineSequence] = {}
        """By request id, longest running first; decoding requests come before those still in prefill."""
        self.decoding = 0
        self.context_tokens = 0
        """Number of context tokens whose KV cache entries the next step reads, summed over decoding
        requests."""
        self.steps = 0
        """Number of steps so far; steps without decoding requests may be missing."""
        self._block_tokens = block_tokens
        self._reserved_step = 0
        """The step up to whose end blocks are allocated: the last completed step, or the one in progress."""
        self._crossings = [0] * block_tokens
        """Number of decoding requests by the step, modulo `block_tokens`, in which they need a new block."""
        self._finishes: list[tuple[int, int, EngineSequence]] = []
        self._serial = 0

    @property
    def used_blocks(self) -> int:
        """Number of KV blocks in use, as vLLM counts them: a prompt takes its blocks chunk by chunk.

        Here all blocks of a prompt are reserved when its request is admitted.
        """
        size = self._block_tokens
        in_prefill = islice(reversed(self.running.values()), len(self.running) - self.decoding)
        return self.pool.held - sum(one.blocks - -(-one.computed // size) for one in in_prefill)

    def made(self, sequence: EngineSequence) -> int:
        """Return the number of tokens that a request has generated so far."""
        return self.steps - sequence.joined_step if sequence.phase is Phase.DECODE else sequence.generated

    def admit(self, sequence: EngineSequence) -> bool:
        """Move a waiting request into the batch and return True; return False if KV blocks are missing.

        Cached blocks of the prompt's beginning are shared instead of computed again. The last token is always
        computed, even if its block is cached, because this computation yields the first new token.
        """
        size, pool = self._block_tokens, self.pool
        prefix = sequence.request.block_hashes[: (sequence.length - 1) // size]
        hits = prefix[: pool.match(prefix)]
        wanted = -(-sequence.length // size) - len(hits)
        if wanted > pool.available - pool.kept_among(hits):
            return False
        pool.hold(hits)
        pool.allocate(wanted)
        sequence.shared = list(hits)
        sequence.named = len(hits)
        sequence.blocks = len(hits) + wanted
        sequence.computed = len(hits) * size
        sequence.phase = Phase.PREFILL
        self.running[sequence.request.request_id] = sequence
        return True

    def compute(self, sequence: EngineSequence, tokens: int) -> None:
        """Record that `tokens` more tokens of a request's prompt are computed.

        Blocks that become full can be shared with other requests, as in vLLM.
        """
        sequence.computed += tokens
        self._name(sequence, sequence.computed)

    def decode(self, sequence: EngineSequence) -> None:
        """Change a request from prefill to decoding: its prompt is computed and its first token generated."""
        sequence.phase = Phase.DECODE
        sequence.joined_step = self.steps - sequence.generated
        sequence.finish_step = sequence.joined_step + sequence.request.output_tokens
        self.decoding += 1
        self.context_tokens += sequence.length
        self._crossings[self._crossing(sequence)] += 1
        self._serial += 1
        heappush(self._finishes, (sequence.finish_step, self._serial, sequence))

    def leave(self, sequence: EngineSequence) -> None:
        """Remove a request that has ended or is preempted from the batch, and release its blocks."""
        size = self._block_tokens
        del self.running[sequence.request.request_id]
        if sequence.phase is Phase.DECODE:
            sequence.generated = self.made(sequence)
            self.decoding -= 1
            self.context_tokens -= sequence.length
            self._crossings[self._crossing(sequence)] -= 1
            # Its newest token is in no block yet, unless the step that stores it is under way.
            stored = sequence.length - 1 + self._reserved_step - self.steps
            sequence.blocks = -(-stored // size)
            self._name(sequence, sequence.length - 1)
        self.pool.release(sequence.blocks - len(sequence.shared), sequence.shared)
        sequence.shared = []
        sequence.blocks = sequence.computed = sequence.named = 0

    def blocks_for(self, steps: int) -> int:
        """Return the number of blocks that the next `steps` steps need, beyond those already allocated."""
        complete, rest = divmod(steps, self._block_tokens)
        first = self._reserved_step
        return complete * self.decoding + sum(
            self._crossings[-(first + step) % self._block_tokens] for step in range(rest)
        )

    def reserve_step(self) -> bool:
        """Allocate the KV blocks that the next step needs; return True.

        If too few blocks are available, allocate none and return False.
        """
        wanted = self.blocks_for(1)
        if wanted > self.pool.available:
            return False
        self.pool.allocate(wanted)
        self._reserved_step += 1
        return True

    def step(self, steps: int, *, under_way: bool) -> None:
        """Record that `steps` steps are complete.

        `under_way` is whether another step with the same batch follows at once. If so, the blocks for that
        step are allocated too.
        """
        self.steps += steps
        self.context_tokens += steps * self.decoding
        further = self.steps + under_way - self._reserved_step
        if further > 0:
            self.pool.allocate(self.blocks_for(further))
            self._reserved_step += further

    def steps_to_finish(self) -> int:
        """Return the number of steps until the first of the decoding requests ends.

        At least one request must be decoding.
        """
        finishes = self._finishes
        while finishes[0][2].phase is not Phase.DECODE or finishes[0][2].finish_step != finishes[0][0]:
            heappop(finishes)
        return finishes[0][0] - self.steps

    def finished(self) -> list[EngineSequence]:
        """Return the requests that have generated their last token since the last call of this method."""
        done: list[EngineSequence] = []
        finishes = self._finishes
        while finishes and finishes[0][0] <= self.steps:
            step, _, sequence = heappop(finishes)
            if sequence.phase is Phase.DECODE and sequence.finish_step == step:
                done.append(sequence)
        return done

    def _crossing(self, sequence: EngineSequence) -> int:
        # A request needs a block in the step that stores a token at a block's beginning: length - 1 is then a
        # multiple of the block size, and length - steps is constant while it decodes.
        return (sequence.request.prompt_tokens - sequence.joined_step - 1) % self._block_tokens

    def _name(self, sequence: EngineSequence, stored: int) -> None:
        hashes = sequence.request.block_hashes
        while sequence.named < min(len(hashes), stored // self._block_tokens):
            block = hashes[sequence.named]
            sequence.named += 1
            if self.pool.name(block):
                sequence.shared.append(block)


# Requests to a simulated engine, and their state and times in the engine.


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


class EngineSequence(Struct, eq=False):
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


# A KV cache in blocks: their allocation, and a prefix cache of released blocks.
#
# A block whose tokens have a hash can be shared: requests with the same beginning hold it together. A
# released
# block stays cached, but counts as free. If no empty block is left, the cached block that has been unused
# longest is emptied and reused, as in vLLM's block pool.


class BlockPool:
    """The blocks of one engine's KV cache.

    Each block is empty, held by one or several requests, or kept (cached, but held by no request).
    """

    def __init__(self, capacity: int) -> None:
        """Create a pool of `capacity` empty blocks."""
        self.capacity = capacity
        self._empty = capacity
        self._holders: dict[int, int] = {}
        """Number of requests that hold a block, by the block's hash."""
        self._kept: OrderedDict[int, None] = OrderedDict()
        """Hashes of cached blocks without a holder, longest unused first."""

    @property
    def available(self) -> int:
        """Number of blocks that can be allocated now."""
        return self._empty + len(self._kept)

    @property
    def held(self) -> int:
        """Number of blocks held by requests, shared ones counted once."""
        return self.capacity - self.available

    def match(self, hashes: Sequence[int]) -> int:
        """Return how many of the first blocks in `hashes` are in the cache.

        Blocks are counted up to the first one that no request holds and that is not cached either.
        """
        count = 0
        for block in hashes:
            if block not in self._holders and block not in self._kept:
                break
            count += 1
        return count

    def kept_among(self, hashes: Sequence[int]) -> int:
        """Return how many of the blocks in `hashes` are cached without a request that holds them.

        Such blocks count as available until a request holds them.
        """
        return sum(block in self._kept for block in hashes)

    def hold(self, hashes: Sequence[int]) -> None:
        """Add a holder to each block in `hashes`; each must be cached or held already (see `match`)."""
        for block in hashes:
            if block in self._kept:
                del self._kept[block]
                self._holders[block] = 1
            else:
                self._holders[block] += 1

    def allocate(self, count: int) -> None:
        """Allocate `count` blocks without a hash.

        If too few blocks are empty, reuse cached blocks, those that were unused longest first.

        Raises:
            ValueError: fewer blocks are available.
        """
        if count > self.available:
            raise ValueError(f"{count} blocks wanted, {self.available} available")
        taken = min(count, self._empty)
        self._empty -= taken
        for _ in range(count - taken):
            self._kept.popitem(last=False)

    def name(self, block: int) -> bool:
        """Assign the hash `block` to an allocated block, so that other requests find it; return True.

        If another block has this hash already, do nothing and return False.
        """
        if block in self._holders or block in self._kept:
            return False
        self._holders[block] = 1
        return True

    def release(self, anonymous: int, hashes: Sequence[int] = ()) -> None:
        """Release `anonymous` blocks that have no hash, and remove one holder of each block in `hashes`.

        Blocks without a hash become empty; a block with a hash is cached once it has no holder. The last
        block of a prefix will be reused before the earlier blocks, because without them it is useless.
        """
        self._empty += anonymous
        for block in reversed(hashes):
            holders = self._holders[block] - 1
            if holders:
                self._holders[block] = holders
            else:
                del self._holders[block]
                self._kept[block] = None

    def forget(self) -> None:
        """Make all cached blocks without a holder empty, as on a reset of the prefix cache."""
        self._empty += len(self._kept)
        self._kept.clear()
