"""The batch of a simulated engine: the requests that run together, and their blocks of the KV cache.

Every decoding request generates one token per step. So three numbers follow from the count of steps and are
not updated per request: the tokens generated, the step in which the request ends, and the steps in which it
needs another block. A hundred steps therefore cost as much computing time as one.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import islice

from sparktop.simulation.blocks import BlockPool
from sparktop.simulation.request import Phase, Sequence


class Batch:
    """The running requests of one simulated engine, with the KV blocks that they hold."""

    def __init__(self, *, kv_blocks: int, block_tokens: int) -> None:
        """Create an empty batch with a KV cache of `kv_blocks` blocks of `block_tokens` tokens each."""
        self.pool = BlockPool(kv_blocks)
        self.running: dict[str, Sequence] = {}
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
        self._finishes: list[tuple[int, int, Sequence]] = []
        self._serial = 0

    @property
    def used_blocks(self) -> int:
        """Number of KV blocks in use, as vLLM counts them: a prompt takes its blocks chunk by chunk.

        Here all blocks of a prompt are reserved when its request is admitted.
        """
        size = self._block_tokens
        in_prefill = islice(reversed(self.running.values()), len(self.running) - self.decoding)
        return self.pool.held - sum(one.blocks - -(-one.computed // size) for one in in_prefill)

    def made(self, sequence: Sequence) -> int:
        """Return the number of tokens that a request has generated so far."""
        return self.steps - sequence.joined_step if sequence.phase is Phase.DECODE else sequence.generated

    def admit(self, sequence: Sequence) -> bool:
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

    def compute(self, sequence: Sequence, tokens: int) -> None:
        """Record that `tokens` more tokens of a request's prompt are computed.

        Blocks that become full can be shared with other requests, as in vLLM.
        """
        sequence.computed += tokens
        self._name(sequence, sequence.computed)

    def decode(self, sequence: Sequence) -> None:
        """Change a request from prefill to decoding: its prompt is computed and its first token generated."""
        sequence.phase = Phase.DECODE
        sequence.joined_step = self.steps - sequence.generated
        sequence.finish_step = sequence.joined_step + sequence.request.output_tokens
        self.decoding += 1
        self.context_tokens += sequence.length
        self._crossings[self._crossing(sequence)] += 1
        self._serial += 1
        heappush(self._finishes, (sequence.finish_step, self._serial, sequence))

    def leave(self, sequence: Sequence) -> None:
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

    def finished(self) -> list[Sequence]:
        """Return the requests that have generated their last token since the last call of this method."""
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
