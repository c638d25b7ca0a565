"""What the prefix cache saves, and how much other traffic a prompt outlasts in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import sqrt

from sparktop.model.load import LoadKind
from sparktop.sweep.result.figures import Latency
from sparktop.sweep.result.results import LevelResult, SweepResult, TargetResult
from sparktop.sweep.view.depth import depth_sentences

_OFF_PERCENT = 1.0
_HALF_PERCENT = 50.0
_DEVIATIONS = 2.0
"""Standard errors of a difference of means within which it is noise."""
_NOISE_SHARE = 0.03
"""Share of the cold TTFT within which a difference is noise, however many prompts there were."""
_ENOUGH = 8
"""Prompts from which on the TTFT cold and warm are compared."""


def context_sentences(result: SweepResult, name: Callable[[str], str] = str) -> Iterator[str]:
    """Yield sentences on the prefix cache, or on what context costs, the most important first."""
    several = sum(any(map(_is_twice, target.levels)) for target in result.targets) > 1
    for target in result.targets:
        levels = sorted((one for one in target.levels if _is_twice(one)), key=lambda one: one.point)
        where = f"{name(target.name)}: " if several else ""
        yield from (f"{where}{one}" for one in _of_target(target, levels))
    yield from depth_sentences(result, name)


def _is_twice(level: LevelResult) -> bool:
    return level.load is LoadKind.POOLS and level.context is not None and level.ttft_ms is not None


def _of_target(target: TargetResult, levels: Sequence[LevelResult]) -> Iterator[str]:
    """Yield the sentences of one target; `levels` are those whose prompts were sent twice, ascending."""
    if not levels:
        return
    first = levels[0]
    if not first.value and first.ttft_ms is not None and first.context is not None:
        if is_off(first):
            yield _off_words(first)
            return
        cold = first.context.ttft_ms
        if first.context.found_percent is None and (few := _too_few(cold, first.ttft_ms)):
            yield f"{few}; no hits reported"
        elif cold is not None and first.ttft_ms.mean:
            length = f"{first.pp:,} tokens" if first.pp is not None else "unknown length"
            yield (
                f"a prompt of {length} has its first token after {cold.mean:,.0f} ms cold and "
                f"{first.ttft_ms.mean:,.0f} ms warm, {cold.mean / first.ttft_ms.mean:.1f} × sooner"
                f"{_found_words(first)}"
            )
    later = [one for one in levels if one.value]
    parts = [
        f"{one.point.label} {one.ttft_ms.mean:,.0f} ms{_found_words(one)}" for one in later if one.ttft_ms
    ]
    if parts:
        yield f"{'; '.join(parts)}{_half_life(levels)}"
    failed = [one for one in target.levels if one.load is LoadKind.POOLS and one.error is not None]
    if failed:
        yield f"{', '.join(one.point.label for one in failed)}: not measured: {failed[0].error}"


def is_off(level: LevelResult) -> bool:
    """Return whether a level of prompts that were sent again at once shows no prefix cache."""
    context = level.context
    if context is None:
        return False
    if context.found_percent is not None:
        return context.found_percent < _OFF_PERCENT
    return not _too_few(context.ttft_ms, level.ttft_ms) and _alike(context.ttft_ms, level.ttft_ms)


def _too_few(cold: Latency | None, warm: Latency | None) -> str:
    """Return that the prompts are too few to compare their TTFT cold and warm, with both; else ""."""
    if cold is None or warm is None:
        return ""
    count = min(cold.count or _ENOUGH, warm.count or _ENOUGH)
    if count >= _ENOUGH:
        return ""
    are = "prompt is" if count == 1 else "prompts are"
    return f"{count} {are} too few: TTFT {cold.mean:,.0f} ms cold, {warm.mean:,.0f} ms warm"


def _alike(first: Latency | None, second: Latency | None) -> bool:
    """Return whether the means of two latencies differ by no more than the noise."""
    if first is None or second is None:
        return False
    error = sqrt(sum((one.std or 0.0) ** 2 / (one.count or _ENOUGH) for one in (first, second)))
    noise = max(_DEVIATIONS * error, _NOISE_SHARE * first.mean)
    return abs(first.mean - second.mean) <= noise


def _off_words(level: LevelResult) -> str:
    cold = level.context.ttft_ms if level.context is not None else None
    counted = (
        "no hits reported" if level.context and level.context.found_percent is None else "no hits counted"
    )
    is_on = level.context is not None and level.context.asked_tokens
    off = "prefix cache is on and gave nothing" if is_on else "prefix cache is off"
    if cold is None or level.ttft_ms is None:
        return f"{off}: {counted}"
    if few := _too_few(cold, level.ttft_ms):
        return f"{off}: {counted}; {few}"
    alike = "warm = cold within the noise" if _alike(cold, level.ttft_ms) else "TTFT"
    return f"{off}: {alike} ({level.ttft_ms.mean:,.0f} and {cold.mean:,.0f} ms), {counted}"


def _found_words(level: LevelResult) -> str:
    percent = None if level.context is None else level.context.found_percent
    return "" if percent is None else f" ({percent:.0f} % from the cache)"


def _half_life(levels: Sequence[LevelResult]) -> str:
    """Return after how much other traffic half of a prompt is gone, as the end of a sentence."""
    known = [
        (one.value, one.context.found_percent)
        for one in levels
        if one.value is not None and one.context is not None and one.context.found_percent is not None
    ]
    if not known or known[0][1] < _HALF_PERCENT:
        return ""
    lost = next((pools for pools, percent in known if percent < _HALF_PERCENT), None)
    if lost is None:
        return f": more than half of it outlasts other prompts of {known[-1][0]:g} × the KV cache"
    kept = max(pools for pools, percent in known if pools < lost and percent >= _HALF_PERCENT)
    return f": half of it is evicted by other prompts of {kept:g} to {lost:g} × the KV cache"
