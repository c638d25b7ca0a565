"""The context of a level with depth: its figures, and whether prompts found it in the prefix cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, Literal

from msgspec.structs import replace

from sparktop.model.load import Level
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import RequestTrace
from sparktop.sweep.result.results import ContextPart, LevelResult, Validity
from sparktop.sweep.run.server_side import Counters
from sparktop.sweep.terms.definitions import CONTEXT_LENGTH, CONTEXT_LOST, CONTEXT_UNKNOWN, NO_PREFIX_CACHE

_PERCENT = 100.0
_LOST_SHARE = 0.1
"""Share (0 to 1) of a context that may be missing from the cache."""
_LONGEST_BLOCK = 560
"""Tokens of the longest cache blocks, of models that mix attention with other layers. The last block of a
context is never found, because it also holds the beginning of the prompt."""
_CACHE_OFF_PERCENT = 1.0
"""Share of the contexts, in percent, below which the prefix cache is taken to be off."""
_LENGTH_TOLERANCE = 0.01
"""Share (0 to 1) by which the length of a context that the server counted may differ from the wanted one."""
_FIGURES = ("prefill_tps", "decode_tps", "peak_tps", "ttfr_ms", "ttft_ms")
"""Figures of the requests that send contexts alone; the next: those of each request."""
_COLUMNS = ("prompt_tokens", "ttfr_ms", "ttft_ms", "stream_tps")
TEMPLATE_TOKENS = 16
"""Tokens that a chat template may add for a message."""


def context_part(
    level: Level,
    contexts: Sequence[RequestTrace],
    prompts: Sequence[RequestTrace],
    growth: Counters | None,
) -> ContextPart | None:
    """Return the context part of a level's result; None for a level without depth.

    `contexts` are the requests that sent contexts alone, `prompts` those that followed. `growth` is that of
    the servers' counters over both; None if unknown.
    """
    if not level.depth:
        return None
    context_level = level_result(replace(level, pp=level.depth, depth=0), contexts)
    columns = context_level.each
    counts = [prompt.counted_prompt_tokens for prompt in prompts if prompt.ok]
    # What the server counted beyond its prompt is the context of a request.
    context_tokens = [max(0, count - (level.pp or 0)) for count in counts if count is not None]
    mean_tokens = fmean(context_tokens) if context_tokens else None
    # What a chat template adds for the context's message is not looked for in the cache.
    expected = min(level.depth, mean_tokens or level.depth)
    counted_percent = _counted_percent(expected, prompts, growth)
    answered_percent = _answered_percent(expected, prompts)
    found_from: Literal["answers", "counters"] | None = None
    if counted_percent is not None or answered_percent is not None:
        found_from = "counters" if answered_percent is None else "answers"
    figures: dict[str, Any] = {name: getattr(context_level, name) for name in _FIGURES}
    figures |= {f"each_{name}": getattr(columns, name, ()) for name in _COLUMNS}
    return ContextPart(
        counted_tokens=mean_tokens,
        ok=context_level.requests.ok,
        failed=context_level.requests.failed,
        **figures,
        found_percent=counted_percent if answered_percent is None else answered_percent,
        found_from=found_from,
        asked_tokens=None if growth is None else growth.cache_queries,
        counted_percent=counted_percent,
    )


def _answered_percent(tokens: float, prompts: Sequence[RequestTrace]) -> float | None:
    """Return how much of contexts of `tokens` tokens all answers together report as found, in percent."""
    ends = [trace.ended for trace in prompts if trace.ended is not None and trace.ok]
    cached = [min(tokens, end.cached_tokens) for end in ends if end.cached_tokens is not None]
    return _PERCENT * sum(cached) / (tokens * len(ends)) if cached and len(cached) == len(ends) else None


def _counted_percent(tokens: float, prompts: Sequence[RequestTrace], growth: Counters | None) -> float | None:
    """Return how much of contexts of `tokens` tokens the servers' counters report as found, in percent."""
    ends = sum(trace.ended is not None and trace.ok for trace in prompts)
    if growth is None or growth.cache_queries is None or growth.cache_hits is None or not ends:
        return None
    # Each context is new, so that hits are those of the prompts after it. A cache that is off counts none.
    return min(_PERCENT, _PERCENT * growth.cache_hits / (tokens * ends))


def context_doubts(level: LevelResult) -> Iterator[Validity]:
    """Yield a reason to doubt a level with depth if its context was not, or not surely, in the cache."""
    if level.context is None:
        return
    counted = level.context.counted_tokens
    if (
        level.depth
        and counted is not None
        and abs(counted - level.depth) > max(_LENGTH_TOLERANCE * level.depth, TEMPLATE_TOKENS)
    ):
        message = f"the server counted {counted:,.0f} tokens of context, {level.depth:,} were asked for"
        yield Validity(code=CONTEXT_LENGTH, message=message)
    percent = level.context.found_percent
    if percent is None:
        message = "whether the context was in the prefix cache is unknown: the server reports no hits"
        yield Validity(code=CONTEXT_UNKNOWN, message=message)
    elif percent < _CACHE_OFF_PERCENT:
        tokens = level.context.asked_tokens
        if tokens:
            message = (
                f"nothing was found in the prefix cache, which is on: it was asked for {tokens:,.0f} tokens"
            )
        else:
            message = "nothing was in the prefix cache: is it off (--no-enable-prefix-caching)?"
        yield Validity(code=NO_PREFIX_CACHE, message=message)
    else:
        missing = level.depth * (1 - percent / _PERCENT)
        if missing > max(_LOST_SHARE * level.depth, _LONGEST_BLOCK):
            message = (
                f"only {percent:.0f} % of the context was still in the prefix cache: {missing:,.0f} of "
                f"{level.depth:,} tokens were computed again with the prompt"
            )
            yield Validity(code=CONTEXT_LOST, message=message)
