"""The settings of a simulated engine, and the duration of its steps."""

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
    """Seconds to read the weights that one row needs."""
    weights_exponent: float
    """Exponent with which the weights read grow with the rows: 0 would be a dense model, 1 experts that
    never coincide."""
    weights_all_s: float
    """Seconds to read all experts, the most that a step can read."""
    row_s: float
    """Seconds to compute one row, which dominates long prompts."""
    context_token_s: float
    """Seconds to read the KV cache of one context token of a decoding request."""
    attention_pair_s: float
    """Seconds for attention between a token of a prompt and an earlier token: the quadratic part of
    prefill."""
    weights_clock_share: float = 0.3
    """Share of the reading time, 0 to 1, that scales with the SM clock; computing time scales with it
    completely."""

    def step_s(self, rows: int, context_tokens: int, pairs: float, clock_mhz: float) -> float:
        """Return the duration in seconds of a step that computes `rows` tokens at an SM clock of `clock_mhz`.

        `context_tokens` are those of all decoding requests, `pairs` the pairs of tokens for the attention of
        prompts.
        """
        slower = REFERENCE_CLOCK_MHZ / clock_mhz
        weights_s: float = min(self.weights_one_s * rows**self.weights_exponent, self.weights_all_s)
        reading_s = weights_s + context_tokens * self.context_token_s
        computing_s = rows * self.row_s + pairs * self.attention_pair_s
        return reading_s * self._reading_factor(slower) + computing_s * slower

    def growth_s(self, requests: int, clock_mhz: float) -> float:
        """Return the seconds by which a decode step of `requests` requests takes longer than the step before.

        Each context has grown by a token.
        """
        return requests * self.context_token_s * self._reading_factor(REFERENCE_CLOCK_MHZ / clock_mhz)

    def _reading_factor(self, slower: float) -> float:
        return 1.0 + self.weights_clock_share * (slower - 1.0)


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """The settings of a simulated engine, named as in vLLM, and its speed."""

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
    """Bytes that each node sends to the others for one row (token computed)."""

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
        """Number of tokens for which the KV cache has space."""
        return self.kv_blocks * self.block_tokens

    def padded(self, rows: int) -> int:
        """Return the number of rows (tokens) computed in a step of `rows` rows, padded to a captured size."""
        sizes = self.capture_sizes
        at = bisect_left(sizes, rows)
        return sizes[at] if at < len(sizes) else rows
