"""Counters of a simulated engine since its start, as vLLM exposes them."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct, field

from sparktop.model.load import EndReason


class EngineTally(Struct, eq=False):
    """Counters of one simulated engine, which never decrease."""

    prompt_tokens: int = 0
    """Prompt tokens of requests that have generated their first token."""
    prompt_tokens_cached: int = 0
    """The part of `prompt_tokens` that came from the prefix cache."""
    generation_tokens: int = 0
    preemptions: int = 0
    prefix_queries: int = 0
    """Number of tokens for which the prefix cache was searched."""
    prefix_hits: int = 0
    ended: Counter[EndReason] = field(default_factory=Counter)
    step_rows: Counter[int] = field(default_factory=Counter)
    """Number of steps, by the number of rows (tokens) computed in a step."""
    busy_s: float = 0.0
    """Seconds that the engine has spent in steps."""
    padded_rows: int = 0
    """Rows computed in addition to tokens, because the batch was padded to the next size with a CUDA
    graph."""

    @property
    def steps(self) -> int:
        """Number of engine steps so far."""
        return self.step_rows.total()

    @property
    def rows(self) -> int:
        """Number of rows (tokens) computed so far, without padding."""
        return sum(rows * steps for rows, steps in self.step_rows.items())
