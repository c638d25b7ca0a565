"""Writes a sweep's result as CSV: one row per level, one column per value; unknown values are empty."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from sparktop.model.text import spreadsheet_text
from sparktop.sweep.compare.series import Series
from sparktop.sweep.result.level import largest_run_share
from sparktop.sweep.result.results import LevelResult, SweepResult, TargetResult
from sparktop.sweep.terms.definitions import ALL_LATENCIES, METRICS, RATES
from sparktop.sweep.view.marks import UNBALANCED, marks_of

_LATENCY_PARTS = ("mean", "std", "p50", "p90", "p95", "p99", "max")


def render(result: SweepResult) -> str:
    """Return a sweep's result as CSV text with a header line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    levels = [(target, level) for target in result.targets for level in target.in_order()]
    rows = [dict(_fields(result, target, level)) for target, level in levels]
    heads = list(dict(_fields(result, _NO_TARGET, _NO_LEVEL)))
    writer.writerow(heads)
    writer.writerows([row[head] for head in heads] for row in rows)
    return out.getvalue()


_NAMES = ("target", "source", "tool", "model", "load", "value", "concurrency", "pp", "tg", "depth", "runs")


def render_series(series: Sequence[Series]) -> str:
    """Return series of other tools' results and of published tables as CSV: one row per level."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    known = [name for name in METRICS if any(name in one.metrics() for one in series)]
    heads = [f"{name}_{part}" for name in known for part in ("mean", "std")]
    writer.writerow([*_NAMES, *heads])
    for one in series:
        words = [spreadsheet_text(text) for text in (one.name, one.source, one.tool, one.model or "")]
        for level in one.levels:
            figures = [level.figures.get(name) for name in known]
            cells = [getattr(figure, part, None) for figure in figures for part in ("mean", "std")]
            load, point = level.load, level.load.point
            axis = (point.kind.value, point.words, load.concurrency or None)
            writer.writerow([*words, *axis, load.pp, load.tg, load.depth, level.runs, *cells])
    return out.getvalue()


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


def _fields(
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
    yield from _context(level)
    yield "runs", level.runs
    yield "duration_s", level.duration_s
    yield "ok", level.requests.ok
    yield "failed", level.requests.failed
    yield "cancelled", level.requests.cancelled
    yield "prompt_tokens", level.tokens.prompt
    yield "asked_prompt_tokens", level.asked_prompt_tokens
    yield "counted_prompt_tokens", level.counted_prompt_tokens
    yield "generated_tokens", level.tokens.generated
    for name in RATES:
        rate = level.rate(name)
        yield f"{name}_mean", rate.mean if rate else None
        yield f"{name}_std", rate.std if rate else None
        yield f"{name}_ci95_low", rate.ci95[0] if rate and rate.ci95 else None
        yield f"{name}_ci95_high", rate.ci95[1] if rate and rate.ci95 else None
    for name in ALL_LATENCIES:
        latency = level.latency(name)
        for part in _LATENCY_PARTS:
            yield f"{name}_{part}", getattr(latency, part) if latency else None
    yield from _of_axis(level)
    yield "stream_tps_p10", level.stream_tps.p10 if level.stream_tps else None
    yield "stream_tps_p50", level.stream_tps.p50 if level.stream_tps else None
    yield "largest_run_share_percent", largest_run_share(level)
    yield "router_overhead_ms", level.own_overhead_ms
    yield "router_overhead_from", level.router_overhead_from
    for name in ("spec_accept_percent", "spec_accepted_per_draft"):
        yield name, getattr(level.server, name) if level.server is not None else None
    yield "padding_percent", level.padding_percent
    yield "roofline_percent", level.roofline_percent
    yield "joules_per_token", level.joules_per_token
    yield "error", spreadsheet_text(level.error or "")
    yield "validity", spreadsheet_text(" ".join(one.code for one in level.validity))
    slow = (mark for mark in marks_of(level) if not mark.doubt)
    words = (mark.word if mark.code == UNBALANCED else mark.code for mark in slow)
    yield "why_slow", spreadsheet_text(" ".join(words))


def _of_axis(level: LevelResult) -> Iterator[tuple[str, str | float | None]]:
    """Yield the columns of levels on other axes than concurrency."""
    for name in _OPEN_LOOP:
        yield name, getattr(level.open_loop, name) if level.open_loop else None
    for name in _AGENTS:
        yield f"agents_{name}", getattr(level.agents, name) if level.agents else None
    yield "trace", spreadsheet_text(level.trace or "")
    for name in _REPLAY:
        yield name, getattr(level.replay, name) if level.replay else None


def _context(level: LevelResult) -> Iterator[tuple[str, str | float | None]]:
    """Yield the columns of the runs that sent the context of a level with depth."""
    part = level.context
    for name in ("prefill_tps", "decode_tps"):
        rate = None if part is None else getattr(part, name)
        yield f"context_{name}_mean", None if rate is None else rate.mean
        yield f"context_{name}_std", None if rate is None else rate.std
    yield "context_ttft_ms_mean", part.ttft_ms.mean if part is not None and part.ttft_ms else None
    yield "context_found_percent", None if part is None else part.found_percent
    yield "context_found_from", None if part is None else part.found_from
    yield "context_counted_percent", None if part is None else part.counted_percent


_NO_TARGET = TargetResult(name="", url="")
_NO_LEVEL = LevelResult(concurrency=1)
