"""Long prompts beside the requests of a level: how much they slow down the tokens of the short ones."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from msgspec.structs import replace

from sparktop.model.load import Level
from sparktop.sweep.compare.ratio import NOISE_FLOOR_PERCENT, ratio_of
from sparktop.sweep.generator.wire import LONG, ContextLoad, RunLoad
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import RequestTrace, Span, by_run, gaps_s
from sparktop.sweep.result.results import BesideResult, Latency
from sparktop.sweep.terms.statistics import P95_FROM, quantile, value_of

_AROUND_TOKENS = 64
"""Tokens of a long request beside its text: chat template, a few words, and the answer."""
_P95, _PERCENT = 0.95, 100.0
"""The quantile that is compared, and the percents of a whole."""


def beside_tokens(wanted: int, level: Level, max_model_len: int | None) -> int | None:
    """Return the tokens of the long prompts: `wanted`, or what fits into the server's context.

    None if that is not longer than the prompts of the level.
    """
    tokens = wanted if max_model_len is None else min(wanted, max_model_len - _AROUND_TOKENS)
    return tokens if tokens > level.prompt_tokens else None


def beside_command(load: RunLoad, tokens: int) -> RunLoad:
    """Return a run of a level with long prompts of `tokens` tokens beside its requests, each a new one."""
    return replace(load, beside=ContextLoad(tokens, salt=load.id, cache_salt=load.id + LONG, alone=True))


def beside_result(
    level: Level, tokens: int, alone: Sequence[RequestTrace], traces: Sequence[RequestTrace]
) -> BesideResult | None:
    """Return what the requests of `level` showed in runs with long prompts of `tokens` tokens.

    `alone` are the requests of its runs without them, `traces` all requests of the others; None if there are
    none.
    """
    long = [trace for trace in traces if LONG in trace.request_id]
    short = [trace for trace in traces if LONG not in trace.request_id]
    if not short:
        return None
    errors = [
        trace.ended.error for trace in long if trace.ended is not None and trace.ended.error is not None
    ]
    beside = _gaps_ms(short, [(trace.start, trace.end) for trace in long if trace.ok])
    quiet = _gaps_ms(alone, None)
    figure: Literal["p95", "mean"] = "p95"
    if min(map(len, (*beside, *quiet)), default=0) < P95_FROM:
        figure = "mean"  # each token may wait for a step with thousands of tokens of a prompt
    runs, alone_runs = _figure_of_runs(beside, figure), _figure_of_runs(quiet, figure)
    ratio = ratio_of(value_of(fmean(runs), runs), value_of(fmean(alone_runs), alone_runs)) if runs else None
    ends = None if ratio is None else ratio.ci95
    made = level_result(level, short)
    return BesideResult(
        prompt_tokens=tokens,
        arrived=sum(trace.ok for trace in long),
        failed=len(errors),
        error=errors[-1].message if errors else None,
        requests=made.requests,
        itl_ms=Latency.of_values([gap for gaps in beside for gap in gaps]),
        ttft_ms=made.ttft_ms,
        figure=figure,
        itl_runs_ms=runs,
        alone_itl_runs_ms=alone_runs,
        significant=None if ratio is None else ratio.significant(NOISE_FLOOR_PERCENT),
        change_percent=None if ends is None else (_PERCENT * (ends[0] - 1), _PERCENT * (ends[1] - 1)),
    )


def _gaps_ms(traces: Sequence[RequestTrace], spans: Sequence[Span] | None) -> list[list[float]]:
    """Return the token gaps of each run in ascending order, in milliseconds.

    With `spans`, only those that overlap one of these times.
    """
    return [sorted(1000 * gap for gap in gaps_s(run, spans)) for run in by_run(traces)]


def _figure_of_runs(runs: Sequence[Sequence[float]], figure: str) -> tuple[float, ...]:
    """Return the 95th percentile or the mean of each run's gaps; () if a run has none."""
    if not all(runs):
        return ()
    return tuple(quantile(gaps, _P95) if figure == "p95" else fmean(gaps) for gaps in runs)
