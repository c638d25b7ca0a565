"""The requests that an engine runs together, and their KV blocks.

Every decoding request makes one token per step, so whatever follows from a count of steps is not kept per
request: the tokens made, the step of its end, and the steps that need another block. A hundred steps cost as
much as a single one.
"""

from __future__ import annotations

from heapq import heappop, heappush

from sparktop.simulation.blocks import BlockPool
from sparktop.simulation.request import Phase, Sequence


class Batch:
    """The running requests of one engine."""

    def __init__(self, *, kv_blocks: int, block_tokens: int) -> None:
        """Start without requests; `block_tokens` is the number of tokens per KV block."""
        self.pool = BlockPool(kv_blocks)
        self.running: dict[str, Sequence] = {}
        """By request id, longest running first; decoding requests come before those still in prefill."""
        self.decoding = 0
        self.context_tokens = 0
        """Tokens that the decoding requests attend to in the next step."""
        self.steps = 0
        """Steps so far, counted while requests may decode."""
        self._block_tokens = block_tokens
        self._reserved_step = 0
        """Blocks are allocated up to the end of this step: the last completed one, or the one under way."""
        self._crossings = [0] * block_tokens
        """Count of decoding requests by the step, modulo a block's tokens, that needs a new block for
        them."""
        self._finishes: list[tuple[int, int, Sequence]] = []
        self._serial = 0

    def made(self, sequence: Sequence) -> int:
        """Return the number of tokens that a request has made."""
        return self.steps - sequence.joined_step if sequence.phase is Phase.DECODE else sequence.generated

    def admit(self, sequence: Sequence) -> bool:
        """Start a waiting request if there are blocks for all its tokens.

        Cached blocks of its prefix are shared.

        The last token is computed even if its block is cached, because its result is the next token.
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

    def compute(self, sequence: Sequence, tokens: int) -> None:
        """Schedule `tokens` of a prompt; its full blocks can be shared from then on, as in vLLM."""
        sequence.computed += tokens
        self._name(sequence, sequence.computed)

    def decode(self, sequence: Sequence) -> None:
        """Move a request with a computed prompt and a first token into decoding, one token per step."""
        sequence.phase = Phase.DECODE
        sequence.joined_step = self.steps - sequence.generated
        sequence.finish_step = sequence.joined_step + sequence.request.output_tokens
        self.decoding += 1
        self.context_tokens += sequence.length
        self._crossings[self._crossing(sequence)] += 1
        self._serial += 1
        heappush(self._finishes, (sequence.finish_step, self._serial, sequence))

    def leave(self, sequence: Sequence) -> None:
        """Remove a request that ended or is preempted, and release its blocks."""
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
        """Return the number of blocks that `steps` further steps need, beyond the reserved ones."""
        complete, rest = divmod(steps, self._block_tokens)
        first = self._reserved_step
        return complete * self.decoding + sum(
            self._crossings[-(first + step) % self._block_tokens] for step in range(rest)
        )

    def reserve_step(self) -> bool:
        """Allocate the blocks of the next step; return False, allocating nothing, if there are too few."""
        wanted = self.blocks_for(1)
        if wanted > self.pool.available:
            return False
        self.pool.allocate(wanted)
        self._reserved_step += 1
        return True

    def step(self, steps: int, *, under_way: bool) -> None:
        """Count completed steps; `under_way`: another of the same kind follows at once."""
        self.steps += steps
        self.context_tokens += steps * self.decoding
        further = self.steps + under_way - self._reserved_step
        if further > 0:
            self.pool.allocate(self.blocks_for(further))
            self._reserved_step += further

    def steps_to_finish(self) -> int:
        """Return the steps until the first decoding request ends; requires a decoding request."""
        finishes = self._finishes
        while finishes[0][2].phase is not Phase.DECODE or finishes[0][2].finish_step != finishes[0][0]:
            heappop(finishes)
        return finishes[0][0] - self.steps

    def finished(self) -> list[Sequence]:
        """Return the decoding requests that have made their last token, each exactly once."""
        done: list[Sequence] = []
        finishes = self._finishes
        while finishes and finishes[0][0] <= self.steps:
            step, _, sequence = heappop(finishes)
            if sequence.phase is Phase.DECODE and sequence.finish_step == step:
                done.append(sequence)
        return done

    def _crossing(self, sequence: Sequence) -> int:
        # A request needs a block in the step that stores a token at a block's beginning: length - 1 is then a
        # multiple of the block size, and length - steps is constant while it decodes.
        return (sequence.request.prompt_tokens - sequence.joined_step - 1) % self._block_tokens

    def _name(self, sequence: Sequence, stored: int) -> None:
        hashes = sequence.request.block_hashes
        while sequence.named < min(len(hashes), stored // self._block_tokens):
            block = hashes[sequence.named]
            sequence.named += 1
            if self.pool.name(block):
                sequence.shared.append(block)
