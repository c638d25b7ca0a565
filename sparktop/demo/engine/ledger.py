"""Counts the requests of a simulated engine into the same histograms that vLLM has."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate

from sparktop.model.load import EndReason, FirstToken, RequestEnded, Tokens
from sparktop.simulation.engine import EngineEvent
from sparktop.simulation.request import RequestTimeline

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
_STEP_TOKENS = (1.0, *(float(1 << power) for power in range(3, 15)))
_CHOICES = (1.0, 2.0, 5.0, 10.0, 20.0)
_PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)


class Buckets:
    """A histogram with fixed bucket bounds, to which observations can be added."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Start without observations; `bounds` are the upper bounds of the buckets, finite and ascending."""
        self.bounds = tuple(bounds)
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Add `times` observations of `value`."""
        self._counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def cumulative(self) -> list[int]:
        """Number of observations up to each bound, and as the last element the number of all observations."""
        return list(accumulate(self._counts))


def step_buckets(step_rows: Mapping[int, int]) -> Buckets:
    """Return the histogram of tokens per engine step.

    `step_rows` has the number of steps by the number of tokens in a step.
    """
    buckets = Buckets(_STEP_TOKENS)
    for rows, steps in step_rows.items():
        buckets.observe(rows, steps)
    return buckets


def length_bounds(longest: int) -> tuple[float, ...]:
    """Return vLLM's bucket bounds for token counts: 1, 2, 5, 10, 20, 50, … up to `longest`."""
    bounds: list[float] = []
    size = 1
    while True:
        for digit in (1, 2, 5):
            if digit * size > longest:
                return tuple(bounds)
            bounds.append(float(digit * size))
        size *= 10


class Ledger:
    """Counts the events of a simulated engine into histograms, as vLLM does.

    Times to first tokens and gaps between tokens are counted when they occur, other values when a request
    ends. If a client aborted its request, nothing is counted at the request's end.
    """

    def __init__(self, max_model_len: int) -> None:
        """Start at zero; `max_model_len` limits the bucket bounds for token counts."""
        lengths = length_bounds(max_model_len)
        self.ttft_s = Buckets(_TTFT_S)
        self.itl_s = Buckets(_ITL_S)
        self.tpot_s = Buckets(_ITL_S)
        self.e2e_s = Buckets(_REQUEST_S)
        self.queue_s = Buckets(_REQUEST_S)
        self.inference_s = Buckets(_REQUEST_S)
        self.prefill_s = Buckets(_REQUEST_S)
        self.decode_s = Buckets(_REQUEST_S)
        self.prompt_tokens = Buckets(lengths)
        self.generation_tokens = Buckets(lengths)
        self.max_generation_tokens = Buckets(lengths)
        self.choices = Buckets(_CHOICES)
        self.max_tokens = Buckets(lengths)
        self.preemptions = Buckets(_PREEMPTIONS)
        self.computed_tokens = Buckets(lengths)
        self.ended = {EndReason.STOP: 0, EndReason.LENGTH: 0}
        """Number of requests that ended normally, by reason."""
        self._newest_s: dict[str, float] = {}
        """By id of each request in flight: time of its newest token, or of its arrival."""
        self._asked: dict[str, int] = {}

    def arrived(self, request_id: str, at: float, max_tokens: int) -> None:
        """Record that a request with the token limit `max_tokens` arrived at the time `at` (seconds)."""
        self._newest_s[request_id] = at
        self._asked[request_id] = max_tokens

    def hear(self, event: EngineEvent) -> None:
        """Count the time to a request's first token, or the time between two of its tokens.

        The end of a request is not counted here; it only removes the stored time of the request's last token.
        """
        if isinstance(event, RequestEnded):
            self._newest_s.pop(event.request_id, None)
            return
        before_s = self._newest_s.get(event.request_id)
        if before_s is None:
            return
        if isinstance(event, FirstToken):
            self.ttft_s.observe(event.at - before_s)
        elif isinstance(event, Tokens):
            self.itl_s.observe(event.at - before_s)
        self._newest_s[event.request_id] = event.at

    def finished(self, timeline: RequestTimeline) -> None:
        """Count a request that has ended; the engine is created with this method as its `on_end` callback."""
        request, reason = timeline.request, timeline.reason
        asked = self._asked.pop(request.request_id, timeline.generated_tokens)
        admitted_s, first_s, last_s = timeline.admitted_s, timeline.first_token_s, timeline.last_token_s
        if reason not in self.ended or admitted_s is None or first_s is None or last_s is None:
            return
        self.ended[reason] += 1
        self.e2e_s.observe(timeline.ended_s - timeline.arrived_s)
        self.queue_s.observe(admitted_s - timeline.arrived_s)
        self.inference_s.observe(last_s - admitted_s)
        self.prefill_s.observe(first_s - admitted_s)
        self.decode_s.observe(last_s - first_s)
        self.tpot_s.observe((last_s - first_s) / max(1, timeline.generated_tokens - 1))
        self.prompt_tokens.observe(request.prompt_tokens)
        self.generation_tokens.observe(timeline.generated_tokens)
        self.max_generation_tokens.observe(timeline.generated_tokens)
        self.choices.observe(1)
        self.max_tokens.observe(asked)
        self.preemptions.observe(timeline.preemptions)
        self.computed_tokens.observe(request.prompt_tokens - timeline.cached_tokens)
