"""The context of a level with depth, in its result: how it was computed, and whether the cache kept it."""

from __future__ import annotations

from typing import Literal

from sparktop.sweep.result.figures import Latency, Rate
from sparktop.sweep.result.parts import Count, Number, Part


class ContextPart(Part):
    """The runs that sent the context alone, and what the prompts after it found in the prefix cache.

    llama-benchy's rows `ctx_pp @ d4096` and `ctx_tg @ d4096`. The columns `each_…` have an entry per request.
    """

    counted_tokens: Number = None
    """Mean length of the context as the server counted it with the prompts; None if it sent no counts, and in
    older files."""
    ok: Count = 0
    failed: Count = 0
    prefill_tps: Rate | None = None
    decode_tps: Rate | None = None
    peak_tps: Rate | None = None
    ttfr_ms: Latency | None = None
    ttft_ms: Latency | None = None
    each_prompt_tokens: tuple[int | None, ...] = ()
    each_ttfr_ms: tuple[Number, ...] = ()
    each_ttft_ms: tuple[Number, ...] = ()
    each_stream_tps: tuple[Number, ...] = ()
    found_percent: Number = None
    """Mean share (0 to 100) of the context's tokens that the prompts found in the cache; None if unknown."""
    found_from: Literal["answers", "counters"] | None = None
    """What reported it: the usage of each answer, or the servers' counters."""
    asked_tokens: Number = None
    """Tokens that the servers looked for in their prefix caches, by their counters: 0 where it is off; None
    where they do not count them."""
    counted_percent: Number = None
    """The same share as the servers' counters report it; None if unknown."""

    def figure(self, metric: str) -> Rate | Latency | None:
        """Return the rate or latency `metric` of the context; None if it was not measured."""
        found = getattr(self, metric, None)
        return found if isinstance(found, Rate | Latency) else None
