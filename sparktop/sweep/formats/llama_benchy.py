"""Writes a sweep's result in the JSON format of llama-benchy 0.4, for tools that read this format.

The format's standard deviations divide by n, not by n - 1. It has no fields for latency percentiles,
errors, validity or several targets. llama-benchy subtracts the network latency from the prompt processing
time at concurrency 1; sparktop subtracts nothing and states so (`latency_mode` is "none").
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from statistics import fmean, pstdev
from typing import Any

from sparktop.errors import UsageError
from sparktop.model.load import LoadKind
from sparktop.model.text import clean
from sparktop.sweep.result.results import (
    ContextPart,
    EachRequest,
    LevelResult,
    PlanResult,
    Rate,
    SweepResult,
    TargetResult,
)


def render(result: SweepResult, target: str | None = None) -> str:
    """Return the results of one target as JSON text in llama-benchy's format.

    `target` may be None if the sweep has a single target.

    Raises:
        UsageError: there are several targets and none was named, or the named one does not exist; or levels
            are not numbers of requests at once.
    """
    check_axis(result.plan.load)
    return json.dumps(to_json(result, target), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def to_json(result: SweepResult, target: str | None = None) -> dict[str, Any]:
    """Return the results of one target as an object in llama-benchy's format.

    `target` and errors are as for `render`.
    """
    chosen = _chosen(result, target)
    levels = chosen.in_order()
    return {
        "version": f"sparktop {result.sparktop}",
        "timestamp": f"{result.started_at:%Y-%m-%d %H:%M:%SZ}",
        "latency_mode": "none",
        "latency_ms": 0.0,
        "model": chosen.model or "unknown",
        "prefix_caching_enabled": any(level.depth for level in levels),
        "max_concurrency": max((level.concurrency for level in levels), default=0),
        "benchmarks": [entry for level in levels for entry in _entries(level, result.plan)],
    }


def check_axis(kind: LoadKind) -> None:
    """Check that llama-benchy's JSON can hold levels of this kind.

    Raises:
        UsageError: it has no field for their points.
    """
    if kind in {LoadKind.RATE, LoadKind.AGENTS}:
        levels = "rates" if kind is LoadKind.RATE else kind.value
        raise UsageError(f"llama-benchy's JSON holds requests at once, not {levels}: choose json, csv or md")


def _chosen(result: SweepResult, name: str | None) -> TargetResult:
    if name is not None:
        found = result.target(name)
        if found is None:
            raise UsageError(f"the sweep has no target '{clean(name, 60)}'")
        return found
    if len(result.targets) != 1:
        names = ", ".join(target.name for target in result.targets) or "none"
        raise UsageError(f"llama-benchy's JSON holds one target, this sweep has {names}; write one at a time")
    return result.targets[0]


def _entries(level: LevelResult, plan: PlanResult) -> Iterator[dict[str, Any]]:
    """Yield a level as entries of the list "benchmarks" in llama-benchy's format.

    The context of a level with depth is an entry of its own, before that of the prompt. The entry of a level
    that the server refused has no values, and has the server's message under the additional key "error".
    """
    if level.context is not None:
        yield _context_entry(level, level.context, plan)
    each = level.each or EachRequest()
    counts = [None if one is None else max(0, one - level.depth) for one in each.prompt_tokens]
    refused = {} if level.error is None else {"error": level.error}
    figures = _figures(level, counts, each.ttfr_ms, each.ttft_ms, each.stream_tps)
    yield _sizes(level, plan) | figures | refused


def _context_entry(level: LevelResult, context: ContextPart, plan: PlanResult) -> dict[str, Any]:
    """Return the entry of the runs that sent the context of a level with depth."""
    figures = _figures(
        context,
        context.each_prompt_tokens,
        context.each_ttfr_ms,
        context.each_ttft_ms,
        context.each_stream_tps,
    )
    return _sizes(level, plan) | {"is_context_prefill_phase": True} | figures


def _figures(
    measured: LevelResult | ContextPart,
    prompt_tokens: Sequence[int | None],
    ttfr_ms: Sequence[float | None],
    ttft_ms: Sequence[float | None],
    stream_tps: Sequence[float | None],
) -> dict[str, Any]:
    """Return an entry's figures from those of a level or context, and from those of each of its requests."""
    return {
        "pp_throughput": _rate(measured.prefill_tps),
        "pp_req_throughput": _metric(_speeds(prompt_tokens, ttfr_ms)),
        "tg_throughput": _rate(measured.decode_tps),
        "tg_req_throughput": _metric(_known(stream_tps)),
        "peak_throughput": _rate(measured.peak_tps),
        "peak_req_throughput": None,
        "ttfr": _metric(_known(ttfr_ms)),
        "est_ppt": _metric(_known(ttfr_ms)),
        "e2e_ttft": _metric(_known(ttft_ms)),
        "throughput_over_time": None,
        "requests_throughput_over_time": None,
    }


def _sizes(level: LevelResult, plan: PlanResult) -> dict[str, Any]:
    """Return the keys that identify an entry; of a whole prompt the context is named apart."""
    prompt = (level.pp if level.pp is not None else plan.pp) or round(level.counted_prompt_tokens or 0)
    inside = plan.context_of(prompt)
    return {
        "concurrency": level.concurrency,
        "context_size": level.depth + inside,
        "prompt_size": prompt - inside,
        "response_size": (level.tg if level.tg is not None else plan.tg) or 0,
        "is_context_prefill_phase": False,
    }


def _speeds(counts: Sequence[int | None], times_ms: Sequence[float | None]) -> list[float]:
    """Return the prompt tokens per second of each request whose tokens and time are known."""
    pairs = zip(counts, times_ms, strict=False)
    return [1000 * tokens / ms for tokens, ms in pairs if tokens is not None and ms]


def _rate(rate: Rate | None) -> dict[str, Any] | None:
    return None if rate is None else _metric(rate.values or (rate.mean,))


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _metric(values: Sequence[float]) -> dict[str, Any] | None:
    if not values:
        return None
    return {"mean": fmean(values), "std": pstdev(values), "values": list(values)}
