"""Parts of a result file for levels of agents."""

from __future__ import annotations

from pydantic import Field

from sparktop.sweep.result.figures import Latency
from sparktop.sweep.result.parts import Count, Number, Part, Text
from sparktop.sweep.terms.definitions import CALL_LATENCIES

_PERCENT = 100.0


class CallGroup(Part):
    """The time to first token of the calls that have something in common."""

    name: Text
    """The turn numbers of its calls, from 1: "1", "2-3", "11-20", "51+"."""
    calls: Count = 0
    ttft_ms: Latency | None = None


class TimeShares(Part):
    """What the agents did in the measured time, in percent of it; the sum is 100."""

    first_token: Number = None
    """Waiting for the first token of an answer: queue and prefill."""
    generation: Number = None
    """From the first token to the end of the answer."""
    tool: Number = None
    """Pause until the output of a tool."""
    human: Number = None
    """Pause until the next request of a person, and anything else."""


class AgentsResult(Part):
    """What a level of agents shows. A call is a request to the model; those that are measured count."""

    workload: Text | None = None
    """Name of the preset of the conversations."""
    calls: Count = 0
    unanswered: Count = 0
    """Calls without an answer at the end of the run; their TTFT is not known."""
    conversations: Count = 0
    """Conversations with a measured call."""
    after_tool_ms: Latency | None = None
    """TTFT of calls after a tool, without those after a compaction."""
    after_human_ms: Latency | None = None
    """TTFT of calls after a person's request, without first calls and those after a compaction."""
    first_ms: Latency | None = None
    """TTFT of first calls of conversations: their prompt is new except for the shared start."""
    compacted_ms: Latency | None = None
    """TTFT of calls after a compaction."""
    turns: tuple[CallGroup, ...] = ()
    """TTFT by turn, in ascending order."""
    request_ms: Latency | None = None
    """Model time of a person's whole request: the E2E of all its calls together, without tools."""
    calls_per_request: Number = None
    """Mean number of calls in these requests."""
    prompt_tokens: Count | None = None
    cached_tokens: Count | None = None
    """Prompt tokens from the server's prefix cache, as it reports with each answer; None if it does not."""
    new_tokens: Count | None = None
    """Prompt tokens that no earlier prompt or answer had: what an endless cache would leave to compute."""
    prompt_tokens_all: Count | None = None
    """Like `prompt_tokens`, of all answered calls of the level; to compare with the server's counters."""
    cached_tokens_all: Count | None = None
    server_cached_tokens: Number = None
    """Hits of the servers' prefix caches during the level, in tokens, by their own counters."""
    server_queried_tokens: Number = None
    compactions: Count = 0
    early: dict[Text, Count] = Field(default_factory=dict)
    """Conversations that ended early, by error code."""
    early_message: Text | None = None
    """The message of the latest of these errors."""
    context_tokens: Number = None
    """Mean tokens of prompt and answer."""
    shared_tokens: Count | None = None
    """Tokens of the start that all conversations share."""
    kv_capacity_tokens: Number = None
    """Tokens for which the KV caches of all servers have space."""
    interactivity_tps: Number = None
    """E2E-normalised interactivity: 1 / 90th percentile of (E2E / output tokens); not 1 / TPOT."""
    in_flight_mean: Number = None
    shares: TimeShares | None = None

    def latency(self, metric: str) -> Latency | None:
        """Return the latency `metric` of `CALL_LATENCIES`; None if it was not measured."""
        names = ("after_tool_ms", "after_human_ms", "request_ms")
        found = dict(zip(CALL_LATENCIES, names, strict=True))
        return getattr(self, found[metric]) if metric in found else None

    @property
    def early_words(self) -> str:
        """How many conversations ended early, by error: "2 (context 2)"; "" for none."""
        parts = ", ".join(f"{word} {count}" for word, count in sorted(self.early.items()))
        return f"{self.ended_early} ({parts})" if parts else ""

    @property
    def cached_percent(self) -> float | None:
        """Share of the prompt tokens that came from the prefix cache, as reported with the answers."""
        return _percent(self.cached_tokens, self.prompt_tokens)

    @property
    def server_cached_percent(self) -> float | None:
        """The same for the whole level, by the servers' own counters."""
        return _percent(self.server_cached_tokens, self.server_queried_tokens)

    @property
    def amplification(self) -> float | None:
        """Computed prompt tokens / new ones; 1 is a perfect cache."""
        if self.prompt_tokens is None or self.cached_tokens is None or not self.new_tokens:
            return None
        return (self.prompt_tokens - self.cached_tokens) / self.new_tokens

    @property
    def ended_early(self) -> int:
        """Number of conversations that ended early."""
        return sum(self.early.values())

    @property
    def fit(self) -> float | None:
        """How many conversations of mean length stay in the KV cache, the shared start counted once."""
        if self.kv_capacity_tokens is None or self.context_tokens is None:
            return None
        shared = self.shared_tokens or 0
        own = self.context_tokens - shared
        room = self.kv_capacity_tokens - shared
        return room / own if own > 0 and room > 0 else None


def _percent(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else _PERCENT * part / whole
