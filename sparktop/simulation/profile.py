"""Limits of a simulated engine, and the cost of its steps."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from sparktop.simulation.thermal import REFERENCE_CLOCK_MHZ


@dataclass(frozen=True, slots=True)
class StepCost:
    """The duration of an engine step, from the work in it.

    A step reads the weights of the experts that its rows choose, computes each row, and reads the KV cache of
    every decoding request:

        step = weights(rows) + rows x row + context x context_token + pairs x attention_pair
        weights(rows) = min(weights_one x rows ^ exponent, weights_all)

    where a row is a token that the step computes (a prompt's or a decoding request's newest). More rows
    choose more experts, until all of them are read.
    """

    weights_one_s: float
    """Reading the weights for one row, in seconds."""
    weights_exponent: float
    """Growth of the weights read with the rows: 0 would be a dense model, 1 experts that never coincide."""
    weights_all_s: float
    """Reading every expert, the most that a step can read."""
    row_s: float
    """Computing one row, which dominates long prompts."""
    context_token_s: float
    """Reading the KV cache of one context token of a decoding request."""
    attention_pair_s: float
    """Attention between a prompt's token and an earlier one: the quadratic part of prefill."""
    weights_clock_share: float = 0.3
    """Share of the reading time that scales with the SM clock; computing scales with it completely."""

    def step_s(self, rows: int, context_tokens: int, pairs: float, clock_mhz: float) -> float:
        """Return the duration of a step in seconds at an SM clock."""
        slower = REFERENCE_CLOCK_MHZ / clock_mhz
        weights_s: float = min(self.weights_one_s * rows**self.weights_exponent, self.weights_all_s)
        reading_s = weights_s + context_tokens * self.context_token_s
        computing_s = rows * self.row_s + pairs * self.attention_pair_s
        return reading_s * self._reading_factor(slower) + computing_s * slower

    def growth_s(self, requests: int, clock_mhz: float) -> float:
        """Return by how many seconds a decode step exceeds the previous one: each context grew by a token."""
        return requests * self.context_token_s * self._reading_factor(REFERENCE_CLOCK_MHZ / clock_mhz)

    def _reading_factor(self, slower: float) -> float:
        return 1.0 + self.weights_clock_share * (slower - 1.0)


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """A simulated engine's settings, in vLLM's terms, and its speed."""

    name: str
    model: str
    cost: StepCost
    max_model_len: int
    max_num_seqs: int
    """Most requests that run at once."""
    max_num_batched_tokens: int
    """Most tokens computed in a step; a longer prompt is computed in chunks."""
    kv_blocks: int
    block_tokens: int = 16
    capture_sizes: tuple[int, ...] = ()
    """Batch sizes with a CUDA graph, ascending; other batches are padded to the next size.

    Empty with `enforce_eager`, so that nothing is padded. A batch above the largest size is not padded
    either.
    """
    nodes: int = 1
    """Machines that share each step (tensor parallel)."""
    wake_s: float = 0.02
    """Seconds from a request's arrival at an idle engine to its first step: HTTP, tokenizing, scheduling.

    Requests that arrive meanwhile are included in that first step.
    """
    jitter: float = 0.0
    """Relative standard deviation of step times, drawn anew whenever the batch changes."""
    link_bytes_per_row: int = 0
    """Bytes that each node sends to the others for one row."""

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ValueError: the scheduler could not work with them.
        """
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError("max_num_batched_tokens is below max_num_seqs: a full batch could not decode")
        if min(self.max_num_seqs, self.kv_blocks, self.block_tokens, self.max_model_len) < 1:
            raise ValueError("slots, KV blocks, block size and context are at least 1")
        if self.wake_s <= 0:
            raise ValueError("wake_s is above 0: a step takes what arrived before it starts")
        if list(self.capture_sizes) != sorted(set(self.capture_sizes)):
            raise ValueError("capture sizes ascend")

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens that the KV cache holds."""
        return self.kv_blocks * self.block_tokens

    def padded(self, rows: int) -> int:
        """Return the rows computed in a step of `rows`, including padding."""
        sizes = self.capture_sizes
        at = bisect_left(sizes, rows)
        return sizes[at] if at < len(sizes) else rows
