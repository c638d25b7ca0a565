"""What a simulated engine has counted since its start: vLLM's counters and histograms."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from sparktop.demo.load import Request

# Bucket bounds as vLLM 0.32 exposes them.
_TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0),
    *(80.0, 160.0, 640.0, 2560.0),
)
_ITL_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0),
    80.0,
)
_REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0),
    *(960.0, 1920.0, 7680.0),
)
_LENGTH_TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)
_STEP_TOKENS = (1.0, *(float(1 << power) for power in range(3, 15)))

FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")
"""Labels of finished requests, in vLLM's order."""


class Buckets:
    """A histogram that counts into buckets."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Start empty; `bounds` ascend and are finite."""
        self.bounds = tuple(bounds)
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def cumulative(self) -> list[int]:
        """Values at or below each bound; one more than there are bounds, the last for all."""
        return list(accumulate(self._counts))


class Tally:
    """Everything that the engine counts; each method is one thing that happened."""

    def __init__(self) -> None:
        """Start at nothing."""
        self.prompt_tokens = 0
        self.prompt_tokens_cached = 0
        self.generation_tokens = 0
        self.preemptions = 0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.ended = dict.fromkeys(FINISH_REASONS, 0)
        self.ttft_s = Buckets(_TTFT_S)
        self.itl_s = Buckets(_ITL_S)
        self.tpot_s = Buckets(_ITL_S)
        self.e2e_s = Buckets(_REQUEST_S)
        self.queue_s = Buckets(_REQUEST_S)
        self.inference_s = Buckets(_REQUEST_S)
        self.prefill_s = Buckets(_REQUEST_S)
        self.decode_s = Buckets(_REQUEST_S)
        self.request_prompt_tokens = Buckets(_LENGTH_TOKENS)
        self.request_generation_tokens = Buckets(_LENGTH_TOKENS)
        self.step_tokens = Buckets(_STEP_TOKENS)

    def admitted(self, request: Request) -> None:
        """Count a request that got a slot: its prompt was looked up in the prefix cache."""
        self.prefix_queries += request.prompt_tokens
        self.prefix_hits += request.cached_tokens

    def first_token(self, request: Request, ttft_s: float) -> None:
        """Count a prompt that is computed and its first token."""
        self.prompt_tokens += request.prompt_tokens
        self.prompt_tokens_cached += request.cached_tokens
        self.generation_tokens += 1
        self.ttft_s.observe(ttft_s)

    def next_token(self, itl_s: float) -> None:
        """Count a token that followed another."""
        self.generation_tokens += 1
        self.itl_s.observe(itl_s)

    def stepped(self, tokens: int) -> None:
        """Count an engine step that computed so many tokens."""
        self.step_tokens.observe(tokens)

    def preempted(self) -> None:
        """Count a request that lost its KV blocks."""
        self.preemptions += 1

    def finished(self, request: Request, admitted_s: float, first_s: float, end_s: float) -> None:
        """Count a request that has made its last token; times are model seconds."""
        self.ended[request.reason] += 1
        self.e2e_s.observe(end_s - request.at_s)
        self.queue_s.observe(admitted_s - request.at_s)
        self.inference_s.observe(end_s - admitted_s)
        self.prefill_s.observe(first_s - admitted_s)
        self.decode_s.observe(end_s - first_s)
        self.tpot_s.observe((end_s - first_s) / max(1, request.output_tokens - 1))
        self.request_prompt_tokens.observe(request.prompt_tokens)
        self.request_generation_tokens.observe(request.output_tokens)
