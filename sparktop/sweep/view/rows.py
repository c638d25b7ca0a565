"""The result table of a sweep as rows of values, with the best of each column and those on a par with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sparktop.model.sweep_comparison import Measured
from sparktop.model.sweep_view import LevelKey, Rank, ResultRow
from sparktop.sweep.compare.compare import NOISE_FLOOR_PERCENT
from sparktop.sweep.compare.ratio import ratio_of
from sparktop.sweep.compare.series import Figure
from sparktop.sweep.result.results import LevelResult, SweepResult
from sparktop.sweep.terms.definitions import LATENCIES, METRICS, RATES
from sparktop.sweep.view.interval import over_runs
from sparktop.sweep.view.levels import result_key
from sparktop.sweep.view.marks import marks_of

RANKED = ("prefill_tps", "decode_tps", "sustained_tps", "peak_tps", "ttft_ms")
"""Columns of which the best value is marked."""


def measured_rate(level: LevelResult, metric: str) -> Measured | None:
    """Return a rate of a level with its 95 % interval; None if it was not measured."""
    rate = level.rate(metric)
    if rate is None:
        return None
    low, high = rate.ci95 or (None, None)
    return Measured(rate.mean, low, high, rate.std, len(rate.values) or None)


def measured_latency(level: LevelResult, metric: str) -> Measured | None:
    """Return a latency's mean over requests with the interval over the means of runs; None if unknown."""
    latency = level.latency(metric)
    if latency is None:
        return None
    over = over_runs(latency.run_means)
    return Measured(latency.mean) if over is None else replace(over, mean=latency.mean)


def result_rows(result: SweepResult, unfinished: Iterable[LevelKey] = ()) -> tuple[ResultRow, ...]:
    """Return a row per level, target by target; levels in `unfinished` are marked as incomplete.

    Values are ranked among rows of the same prompt length.
    """
    more = set(unfinished)
    pairs = [
        (_row(result_key(target.name, level, result.plan.pp), level, more), level)
        for target in result.targets
        for level in target.in_order()
    ]
    by_length: dict[int | None, list[int]] = {}
    for index, (row, _) in enumerate(pairs):
        by_length.setdefault(row.key.prompt_tokens, []).append(index)
    rows = [row for row, _ in pairs]
    for indices in by_length.values():
        for metric in RANKED:
            _rank(rows, [level for _, level in pairs], indices, metric)
    return tuple(rows)


def _row(key: LevelKey, level: LevelResult, unfinished: set[LevelKey]) -> ResultRow:
    figures = {name: found for name in RATES if (found := measured_rate(level, name)) is not None}
    figures |= {name: found for name in LATENCIES if (found := measured_latency(level, name)) is not None}
    ttft, requests = level.ttft_ms, level.requests
    return ResultRow(
        key=key,
        figures=figures,
        error=level.error,
        ttft_p50_ms=None if ttft is None else ttft.p50,
        ttft_p95_ms=None if ttft is None else ttft.p95,
        stream_p50_tps=None if level.stream_tps is None else level.stream_tps.p50,
        runs=level.runs,
        ok=requests.ok,
        failed=requests.failed,
        cancelled=requests.cancelled,
        marks=marks_of(level),
        complete=key not in unfinished,
    )


def _rank(rows: list[ResultRow], levels: Sequence[LevelResult], indices: Sequence[int], metric: str) -> None:
    """Mark the best of the rows in this figure, and those that do not differ from it significantly."""
    known = [index for index in indices if metric in rows[index].figures]
    if len(known) < 2:  # noqa: PLR2004 - the best of one says nothing
        return
    choose = max if METRICS[metric].more_is_better else min
    best = choose(known, key=lambda index: _shown(rows[index], metric))
    for index in known:
        rank = Rank.BEST if index == best else None
        if index != best and _same(levels[index], levels[best], metric):
            rank = Rank.LEVEL
        if rank is not None:
            rows[index] = replace(rows[index], ranks={**rows[index].ranks, metric: rank})


def _shown(row: ResultRow, metric: str) -> float:
    """Return the value shown in the table: the median for the time to first token, else the mean."""
    if metric == "ttft_ms" and row.ttft_p50_ms is not None:
        return row.ttft_p50_ms
    return row.figures[metric].mean


def _same(one: LevelResult, best: LevelResult, metric: str) -> bool:
    """Return whether the runs show no difference of a level from the best one; False if they are too few."""
    figure, other = figure_of(one, metric), figure_of(best, metric)
    ratio = None if figure is None or other is None else ratio_of(figure, other)
    return ratio is not None and ratio.significant(NOISE_FLOOR_PERCENT) is False


def figure_of(level: LevelResult, metric: str) -> Figure | None:
    """Return a figure with its values by run, as comparisons use it; None if it was not measured."""
    rate, latency = level.rate(metric), level.latency(metric)
    if rate is not None:
        return Figure(rate.mean, rate.values, rate.std)
    return None if latency is None else Figure(latency.mean, latency.run_means)
