"""A sweep's result for other programs: CSV, and the JSON of llama-benchy."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from statistics import fmean, pstdev
from typing import Any

from sparktop.errors import UsageError
from sparktop.model.load import LoadKind
from sparktop.model.sweep import MarkKind
from sparktop.model.text import spreadsheet_text
from sparktop.model.yardsticks import YARDSTICK_KEYS
from sparktop.sweep.compare.series import LevelSeries
from sparktop.sweep.result.level import run_shares
from sparktop.sweep.result.results import (
    ContextPart,
    LevelResult,
    PlanResult,
    Rate,
    RequestColumns,
    SweepResult,
    TargetResult,
)
from sparktop.sweep.terms.definitions import ALL_LATENCIES, METRICS, RATES
from sparktop.sweep.view.marks import UNBALANCED, marks_of

_LATENCY_PARTS = ("mean", "std", "p50", "p90", "p95", "p99", "max")


def to_csv(result: SweepResult) -> str:
    """Return a sweep's result as CSV text with a header line."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    levels = [(target, level) for target in result.targets for level in target.in_order()]
    rows = [dict(_level_fields(result, target, level)) for target, level in levels]
    heads = list(dict(_level_fields(result, _NO_TARGET, _NO_LEVEL)))
    writer.writerow(heads)
    writer.writerows([row[head] for head in heads] for row in rows)
    return buffer.getvalue()


_NAMES = ("target", "source", "tool", "model", "load", "value", "concurrency", "pp", "tg", "depth", "runs")


def series_to_csv(series: Sequence[LevelSeries]) -> str:
    """Return series of other tools' results and of published tables as CSV: one row per level."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    metrics = [name for name in METRICS if any(name in a_series.metrics() for a_series in series)]
    heads = [f"{name}_{part}" for name in metrics for part in ("mean", "std")]
    writer.writerow([*_NAMES, *heads])
    for a_series in series:
        words = [
            spreadsheet_text(text)
            for text in (a_series.name, a_series.source, a_series.tool, a_series.model or "")
        ]
        for level in a_series.levels:
            figures = [level.figures.get(name) for name in metrics]
            cells = [getattr(figure, part, None) for figure in figures for part in ("mean", "std")]
            load, point = level.load, level.load.point
            axis = (point.kind.value, point.words, point.concurrency or None)
            writer.writerow([*words, *axis, load.pp, load.tg, load.depth, level.runs, *cells])
    return buffer.getvalue()


_OPEN_LOOP = (
    "offered_per_s",
    "arrived_per_s",
    "completed_per_s",
    "in_flight_mean",
    "in_flight_max",
    "unanswered",
    "overloaded",
    "unstable",
    "ttft_growth",
    "queue_growth_per_s",
)


_AGENTS = (
    "calls",
    "unanswered",
    "conversations",
    "calls_per_request",
    "cached_percent",
    "server_cached_percent",
    "amplification",
    "compactions",
    "ended_early",
    "context_tokens",
    "kv_capacity_tokens",
    "fit",
    "interactivity_tps",
    "in_flight_mean",
)
_REPLAY = ("cached_percent", "repeated_percent", "beyond_context", "not_due")


def _level_fields(
    result: SweepResult, target: TargetResult, level: LevelResult
) -> Iterator[tuple[str, str | float | None]]:
    plan = result.plan
    yield "target", spreadsheet_text(target.name)
    yield "kind", target.kind.value
    yield "model", spreadsheet_text(target.model or "")
    yield "mode", plan.mode.value
    yield "load", level.load.value
    yield "value", level.point.words
    yield "concurrency", level.concurrency
    yield "pp", level.pp if level.pp is not None else plan.pp
    yield "tg", level.tg if level.tg is not None else plan.tg
    yield "depth", level.depth
    context = level.context
    for name in ("prefill_tps", "decode_tps"):
        yield from _fields(f"context_{name}_", getattr(context, name, None), ("mean", "std"))
    yield from _fields("context_ttft_ms_", getattr(context, "ttft_ms", None), ("mean",))
    yield from _fields("context_", context, ("found_percent", "found_from", "counted_percent"))
    yield from _fields("", level, ("runs", "duration_s"))
    yield from _fields("", level.requests, ("ok", "failed", "cancelled"))
    yield "prompt_tokens", level.tokens.prompt
    yield from _fields("", level, ("asked_prompt_tokens", "counted_prompt_tokens"))
    yield "generated_tokens", level.tokens.generated
    for name in RATES:
        rate = level.rate(name)
        low, high = rate.ci95 if rate and rate.ci95 else (None, None)
        yield from _fields(f"{name}_", rate, ("mean", "std"))
        yield f"{name}_ci95_low", low
        yield f"{name}_ci95_high", high
    for name in ALL_LATENCIES:
        yield from _fields(f"{name}_", level.latency(name), _LATENCY_PARTS)
    yield from _fields("", level.open_loop, _OPEN_LOOP)
    yield from _fields("agents_", level.agents, _AGENTS)
    yield "trace", spreadsheet_text(level.trace or "")
    yield "text", spreadsheet_text(level.text or "")
    yield from _fields("", level.replay, _REPLAY)
    yield from _fields("stream_tps_", level.stream_tps, ("p10", "p50"))
    yield "largest_run_share_percent", max(run_shares(level.runs_split), default=None)
    yield "router_overhead_ms", level.own_overhead_ms
    yield "router_overhead_from", level.router_overhead_from
    yield from _fields("", level.server, ("spec_accept_percent", "spec_accepted_per_draft"))
    yield from _fields("", level, ("padding_percent", "roofline_percent"))
    yardsticks = {yardstick.name: yardstick for yardstick in level.yardsticks}
    for name, column in YARDSTICK_KEYS.items():
        yield from _fields(f"{column}_", yardsticks.get(name), ("tps", "percent"))
    yield "joules_per_token", level.joules_per_token
    beside = level.beside
    yield from _fields("beside_", beside, ("prompt_tokens",))
    yield from _fields("beside_itl_ms_", getattr(beside, "itl_ms", None), ("mean", "p95"))
    yield from _fields("beside_", beside, ("significant",))
    yield from _fields("beside_", getattr(beside, "requests", None), ("ok", "failed"))
    yield "error", spreadsheet_text(level.error or "")
    yield "validity", spreadsheet_text(" ".join(mark.code for mark in level.validity))
    slow = (mark for mark in marks_of(level) if mark.kind is MarkKind.SLOW)
    words = (mark.word if mark.code == UNBALANCED else mark.code for mark in slow)
    yield "why_slow", spreadsheet_text(" ".join(words))


def _fields(prefix: str, part: object, names: Sequence[str]) -> Iterator[tuple[str, str | float | None]]:
    """Yield fields of a part of a level; their values are None where the level lacks the part."""
    return ((f"{prefix}{name}", getattr(part, name, None)) for name in names)


_NO_TARGET = TargetResult(name="", url="")
_NO_LEVEL = LevelResult(concurrency=1)


def to_llama_benchy(result: SweepResult) -> str:
    """Return the result of a sweep of one target as JSON text in the format of llama-benchy 0.4.

    The format's standard deviations divide by n, not by n - 1. It has no fields for latency percentiles,
    errors, validity or several targets. llama-benchy subtracts the network latency from the prompt processing
    time at concurrency 1; sparktop subtracts nothing and states so (`latency_mode` is "none").

    Raises:
        UsageError: there are several targets, or levels are not numbers of requests at once.
    """
    check_llama_benchy(result.plan.load, [target.name for target in result.targets])
    (target,) = result.targets
    levels = target.in_order()
    values = {
        "version": f"sparktop {result.sparktop}",
        "timestamp": f"{result.started_at:%Y-%m-%d %H:%M:%SZ}",
        "latency_mode": "none",
        "latency_ms": 0.0,
        "model": target.model or "unknown",
        "prefix_caching_enabled": any(level.depth for level in levels),
        "max_concurrency": max((level.concurrency for level in levels), default=0),
        "benchmarks": [entry for level in levels for entry in _entries(level, result.plan)],
    }
    return json.dumps(values, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def check_llama_benchy(kind: LoadKind, names: Sequence[str]) -> None:
    """Check that llama-benchy's JSON can hold levels of this kind, of the targets with these names.

    Raises:
        UsageError: it has no field for their points, or holds one target.
    """
    if len(names) != 1:
        limit_words = f"llama-benchy's JSON holds one target, this sweep has {', '.join(names) or 'none'}"
        raise UsageError(f"{limit_words}: choose one (sparktop report --target NAME), or json")
    if kind is not LoadKind.CONCURRENCY:
        amount = LoadKind.CONCURRENCY.amount
        raise UsageError(f"llama-benchy's JSON holds {amount}, not {kind.amount}: choose json, csv or md")


def _entries(level: LevelResult, plan: PlanResult) -> Iterator[dict[str, Any]]:
    """Yield a level as entries of the list "benchmarks" in llama-benchy's format.

    The context of a level with depth is an entry of its own, before that of the prompt. The entry of a level
    that the server refused has no values, and has the server's message under the additional key "error".
    """
    context = level.context
    if context is not None:
        counts, times_ms = context.each_prompt_tokens, context.each_ttfr_ms
        figures = _entry_figures(context, counts, times_ms, context.each_ttft_ms, context.each_stream_tps)
        yield _entry_sizes(level, plan) | {"is_context_prefill_phase": True} | figures
    columns = level.each or RequestColumns()
    counts = tuple(None if count is None else max(0, count - level.depth) for count in columns.prompt_tokens)
    refused = {} if level.error is None else {"error": level.error}
    figures = _entry_figures(level, counts, columns.ttfr_ms, columns.ttft_ms, columns.stream_tps)
    yield _entry_sizes(level, plan) | figures | refused


def _entry_figures(
    measured: LevelResult | ContextPart,
    prompt_tokens: Sequence[int | None],
    ttfr_ms: Sequence[float | None],
    ttft_ms: Sequence[float | None],
    stream_tps: Sequence[float | None],
) -> dict[str, Any]:
    """Return an entry's figures from those of a level or context, and from those of each of its requests."""
    pairs = zip(prompt_tokens, ttfr_ms, strict=False)
    return {
        "pp_throughput": _rate_json(measured.prefill_tps),
        "pp_req_throughput": _mean_and_std(
            [1000 * count / ms for count, ms in pairs if count is not None and ms]
        ),
        "tg_throughput": _rate_json(measured.decode_tps),
        "tg_req_throughput": _mean_and_std(stream_tps),
        "peak_throughput": _rate_json(measured.peak_tps),
        "peak_req_throughput": None,
        "ttfr": _mean_and_std(ttfr_ms),
        "est_ppt": _mean_and_std(ttfr_ms),
        "e2e_ttft": _mean_and_std(ttft_ms),
        "throughput_over_time": None,
        "requests_throughput_over_time": None,
    }


def _entry_sizes(level: LevelResult, plan: PlanResult) -> dict[str, Any]:
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


def _rate_json(rate: Rate | None) -> dict[str, Any] | None:
    return None if rate is None else _mean_and_std(rate.values or (rate.mean,))


def _mean_and_std(values: Sequence[float | None]) -> dict[str, Any] | None:
    numbers = [value for value in values if value is not None]
    return {"mean": fmean(numbers), "std": pstdev(numbers), "values": numbers} if numbers else None
