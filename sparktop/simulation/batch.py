"""The requests that an engine runs together, and their KV blocks.

Every decoding request makes one token a step, so nothing is kept for each of them that a count of steps can
tell: how many tokens it has made, when it ends, and in which steps it needs another block. A hundred steps
cost as much as one.
"""

from __future__ import annotations

from heapq import heappop, heappush

from sparktop.simulation.blocks import BlockPool
from sparktop.simulation.request import Phase, Sequence


class Batch:
    """The running requests of one engine."""

    def __init__(self, *, kv_blocks: int, block_tokens: int) -> None:
        """Start empty."""
        self.pool = BlockPool(kv_blocks)
        self.running: dict[str, Sequence] = {}
        """By request, the longest running first; those that decode come before those that do not yet."""
        self.decoding = 0
        self.context_tokens = 0
        """Tokens that the decoding requests attend to in the next step."""
        self.steps = 0
        """Steps so far in which something could decode."""
        self._block_tokens = block_tokens
        self._reserved_step = 0
        """Blocks are allocated up to the end of this step: the last one done or the one under way."""
        self._crossings = [0] * block_tokens
        """Decoding requests by the step, modulo a block's tokens, for which they need a new block."""
        self._finishes: list[tuple[int, int, Sequence]] = []
        self._serial = 0

    def made(self, sequence: Sequence) -> int:
        """Give the tokens that a request has made."""
        return self.steps - sequence.joined_step if sequence.phase is Phase.DECODE else sequence.generated

    def admit(self, sequence: Sequence) -> bool:
        """Run a waiting request, if there are blocks for all its tokens; blocks of its prefix are shared.

        The last token is computed even when its block is cached: its result is the next token.
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
        """Schedule a part of a prompt; its full blocks can be shared from then on (as in vLLM)."""
        sequence.computed += tokens
        self._name(sequence, sequence.computed)

    def decode(self, sequence: Sequence) -> None:
        """Let a request whose prompt is computed, and which has just made a token, make one in each step."""
        sequence.phase = Phase.DECODE
        sequence.joined_step = self.steps - sequence.generated
        sequence.finish_step = sequence.joined_step + sequence.request.output_tokens
        self.decoding += 1
        self.context_tokens += sequence.length
        self._crossings[self._crossing(sequence)] += 1
        self._serial += 1
        heappush(self._finishes, (sequence.finish_step, self._serial, sequence))

    def leave(self, sequence: Sequence) -> None:
        """Take a request out: it ends or is preempted."""
        size = self._block_tokens
        del self.running[sequence.request.request_id]
        if sequence.phase is Phase.DECODE:
            sequence.generated = self.made(sequence)
            self.decoding -= 1
            self.context_tokens -= sequence.length
            self._crossings[self._crossing(sequence)] -= 1
            # Its newest token is in no block yet, except when a step that puts it there is under way.
            stored = sequence.length - 1 + self._reserved_step - self.steps
            sequence.blocks = -(-stored // size)
            self._name(sequence, sequence.length - 1)
        self.pool.release(sequence.blocks - len(sequence.shared), sequence.shared)
        sequence.shared = []
        sequence.blocks = sequence.computed = sequence.named = 0

    def blocks_for(self, steps: int) -> int:
        """Give the blocks that so many further steps need, beyond those reserved."""
        whole, rest = divmod(steps, self._block_tokens)
        first = self._reserved_step
        return whole * self.decoding + sum(
            self._crossings[-(first + step) % self._block_tokens] for step in range(rest)
        )

    def reserve_step(self) -> bool:
        """Allocate what the next step needs; False, and nothing is, when there are not enough blocks."""
        wanted = self.blocks_for(1)
        if wanted > self.pool.available:
            return False
        self.pool.allocate(wanted)
        self._reserved_step += 1
        return True

    def step(self, steps: int, *, under_way: bool) -> None:
        """Count steps that are done; `under_way`: another of the same kind follows at once."""
        self.steps += steps
        self.context_tokens += steps * self.decoding
        further = self.steps + under_way - self._reserved_step
        if further > 0:
            self.pool.allocate(self.blocks_for(further))
            self._reserved_step += further

    def steps_to_finish(self) -> int:
        """Give the steps after which the first decoding request ends; only while one decodes."""
        finishes = self._finishes
        while finishes[0][2].phase is not Phase.DECODE or finishes[0][2].finish_step != finishes[0][0]:
            heappop(finishes)
        return finishes[0][0] - self.steps

    def finished(self) -> list[Sequence]:
        """Give the decoding requests that have made their last token, each only once."""
        done: list[Sequence] = []
        finishes = self._finishes
        while finishes and finishes[0][0] <= self.steps:
            step, _, sequence = heappop(finishes)
            if sequence.phase is Phase.DECODE and sequence.finish_step == step:
                done.append(sequence)
        return done

    def _crossing(self, sequence: Sequence) -> int:
        # It needs a block for the step that stores a token at a block's beginning: length - 1 is a multiple
        # of the block size then, and length - steps stays the same while it decodes.
        return (sequence.request.prompt_tokens - sequence.joined_step - 1) % self._block_tokens

    def _name(self, sequence: Sequence, stored: int) -> None:
        hashes = sequence.request.block_hashes
        while sequence.named < min(len(hashes), stored // self._block_tokens):
            block = hashes[sequence.named]
            sequence.named += 1
            if self.pool.name(block):
                sequence.shared.append(block)
