"""The settings of a simulated engine, and the duration of its steps."""

from __future__ import annotations

from bisect import bisect_left

from msgspec import Struct

from sparktop.simulation.thermal import REFERENCE_CLOCK_MHZ


class StepCost(Struct, frozen=True):
    """The duration of an engine step, computed from the work in the step.

    A row is a token that the step computes: one of a prompt, or the newest token of a decoding request. At
    the reference clock, the duration is the sum of four parts:

        weights    min(weights_one_s x rows ^ weights_exponent, weights_all_s)
        rows       rows x row_s
        context    tokens in the contexts of all decoding requests x context_token_s
        attention  pairs of a prompt token and an earlier token x attention_pair_s

    The first part grows with the rows because more rows choose more experts, until all experts are read.
    """

    weights_one_s: float
    """Seconds to read the weights that a step with a single row (token) needs."""
    weights_exponent: float
    """Exponent with which the time to read weights grows with the rows: 0 for a dense model, 1 for experts
    that no two rows share."""
    weights_all_s: float
    """Seconds to read the weights of all experts, which is the most that a step can read."""
    row_s: float
    """Seconds to compute one row (token); for long prompts, this is most of a step's duration."""
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

        `context_tokens` is the context of all decoding requests together, in tokens. `pairs` is the number of
        token pairs for which the attention of prompts is computed.
        """
        slower = REFERENCE_CLOCK_MHZ / clock_mhz
        weights_s: float = min(self.weights_one_s * rows**self.weights_exponent, self.weights_all_s)
        reading_s = weights_s + context_tokens * self.context_token_s
        computing_s = rows * self.row_s + pairs * self.attention_pair_s
        return reading_s * self._reading_factor(slower) + computing_s * slower

    def growth_s(self, requests: int, clock_mhz: float) -> float:
        """Return the seconds by which a decode step takes longer than the step before it.

        The reason is that the context of each of the `requests` requests has grown by a token.
        """
        return requests * self.context_token_s * self._reading_factor(REFERENCE_CLOCK_MHZ / clock_mhz)

    def _reading_factor(self, slower: float) -> float:
        return 1.0 + self.weights_clock_share * (slower - 1.0)


class EngineProfile(Struct, frozen=True):
    """The settings of a simulated engine, named as in vLLM, and its speed."""

    name: str
    model: str
    cost: StepCost
    max_model_len: int
    max_num_seqs: int
    """Most requests that run at once."""
    max_num_batched_tokens: int
    """Most tokens that one step computes; a longer prompt is computed in several steps."""
    kv_blocks: int
    block_tokens: int = 16
    capture_sizes: tuple[int, ...] = ()
    """Batch sizes for which the engine has a CUDA graph, ascending; other batches are padded to the next
    size.

    A batch above the largest size is not padded. With `enforce_eager` there are no such sizes, and nothing is
    padded.
    """
    nodes: int = 1
    """Machines that share each step (tensor parallel)."""
    wake_s: float = 0.02
    """Seconds from a request's arrival at an idle engine to its first step: HTTP, tokenizing, scheduling.

    Requests that arrive meanwhile are included in that first step.
    """
    jitter: float = 0.0
    """Relative standard deviation of step times; the deviation is drawn anew whenever the batch changes."""
    link_bytes_per_row: int = 0
    """Bytes that each node sends to the others for one row (token computed)."""
    link_bytes_per_s: float | None = None
    """Bytes per second that the link between the nodes carries; None: it never delays a step."""
    host_s: float = 0.0
    """Seconds of each step in which the GPU waits for the CPU, such as scheduling and sampling."""
    host_row_s: float = 0.0
    """The same for each row (token computed), such as grammars."""

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ValueError: the scheduler could not work with these settings.
        """
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError("max_num_batched_tokens is below max_num_seqs: a full batch could not decode")
        if min(self.max_num_seqs, self.kv_blocks, self.block_tokens, self.max_model_len) < 1:
            raise ValueError("slots, KV blocks, block size and context are at least 1")
        if self.wake_s <= 0:
            raise ValueError("wake_s is above 0: a step takes what arrived before it starts")
        if list(self.capture_sizes) != sorted(set(self.capture_sizes)):
            raise ValueError("capture sizes ascend")

    def host_of(self, rows: int) -> float:
        """Return the seconds of a step with `rows` tokens in which the GPU waits for one CPU core."""
        return self.host_s + rows * self.host_row_s

    def link_of(self, rows: int) -> float:
        """Return the seconds of a step with `rows` tokens in which the nodes wait for their link."""
        return rows * self.link_bytes_per_row / self.link_bytes_per_s if self.link_bytes_per_s else 0.0

    @property
    def kv_capacity_tokens(self) -> int:
        """Number of tokens for which the KV cache has space."""
        return self.kv_blocks * self.block_tokens

    def padded(self, rows: int) -> int:
        """Return the number of rows that a step computes for `rows` tokens.

        This is the next larger or equal size in `capture_sizes`, or `rows` if no size is large enough.
        """
        sizes = self.capture_sizes
        at = bisect_left(sizes, rows)
        return sizes[at] if at < len(sizes) else rows
