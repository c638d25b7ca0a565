"""The result table of a sweep: one row of values per level; the best values of each column are marked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sparktop.model.sweep_comparison import Measured
from sparktop.model.sweep_view import LevelKey, Rank, ResultRow
from sparktop.sweep.compare.compare import NOISE_FLOOR_PERCENT
from sparktop.sweep.compare.ratio import ratio_of
from sparktop.sweep.compare.series import Figure
from sparktop.sweep.result.results import LevelResult, SweepResult
from sparktop.sweep.terms.definitions import ALL_LATENCIES, METRICS, RATES
from sparktop.sweep.view.interval import over_runs
from sparktop.sweep.view.levels import result_key
from sparktop.sweep.view.marks import marks_of
from sparktop.sweep.view.words.conversations import conversation_figures

RANKED = ("prefill_tps", "decode_tps", "sustained_tps", "peak_tps", "ttft_ms")
"""Metrics whose best value is marked in the table."""


def measured_rate(level: LevelResult, metric: str) -> Measured | None:
    """Return the mean of the rate `metric` of a level with its 95 % confidence interval.

    Return None if the rate was not measured.
    """
    rate = level.rate(metric)
    if rate is None:
        return None
    low, high = rate.ci95 or (None, None)
    return Measured(rate.mean, low, high, rate.std, len(rate.values) or None)


def measured_latency(level: LevelResult, metric: str) -> Measured | None:
    """Return the mean of the latency `metric` of a level in milliseconds; None if it was not measured.

    The mean is over requests. The 95 % confidence interval is computed from the means of the runs.
    """
    latency = level.latency(metric)
    if latency is None:
        return None
    over = over_runs(latency.run_means)
    return Measured(latency.mean) if over is None else replace(over, mean=latency.mean)


def result_rows(result: SweepResult, unfinished: Iterable[LevelKey] = ()) -> tuple[ResultRow, ...]:
    """Return a row per level, target by target; levels in `unfinished` are marked as incomplete.

    Values are ranked among rows of the same prompt length and depth.
    """
    more = set(unfinished)
    pairs = [
        (_row(result_key(target.name, level, result.plan.pp), level, more), level)
        for target in result.targets
        for level in target.in_order()
    ]
    by_length: dict[tuple[int | None, int], list[int]] = {}
    for index, (row, _) in enumerate(pairs):
        by_length.setdefault((row.key.prompt_tokens, row.key.depth), []).append(index)
    rows = [row for row, _ in pairs]
    for indices in by_length.values():
        for metric in RANKED:
            _rank(rows, [level for _, level in pairs], indices, metric)
    return tuple(rows)


def _row(key: LevelKey, level: LevelResult, unfinished: set[LevelKey]) -> ResultRow:
    figures = {name: found for name in RATES if (found := measured_rate(level, name)) is not None}
    figures |= {name: found for name in ALL_LATENCIES if (found := measured_latency(level, name)) is not None}
    loop, requests = level.open_loop, level.requests
    ttft = level.ttft_ms if loop is None else level.ttft_due_ms
    return ResultRow(
        key=key,
        figures=figures,
        conversations=conversation_figures(level),
        error=level.error,
        ttft_p50_ms=None if ttft is None else ttft.p50,
        ttft_p95_ms=None if ttft is None else ttft.p95,
        ttft_growth=None if loop is None else loop.ttft_growth,
        stream_p50_tps=None if level.stream_tps is None else level.stream_tps.p50,
        runs=level.runs,
        ok=requests.ok,
        failed=requests.failed,
        cancelled=requests.cancelled,
        marks=marks_of(level),
        complete=key not in unfinished,
    )


def _rank(rows: list[ResultRow], levels: Sequence[LevelResult], indices: Sequence[int], metric: str) -> None:
    """Mark the best of the rows `indices` in a metric, and the rows that do not differ significantly from it.

    Changes `rows` in place; `levels` has the result of each row.
    """
    known = [index for index in indices if metric in rows[index].figures]
    if len(known) < 2:  # noqa: PLR2004 - the best of one says nothing
        return
    choose = max if METRICS[metric].more_is_better else min
    # A token rate that is in doubt is not the best one, as in the headline.
    sure = [index for index in known if not any(mark.doubt for mark in rows[index].marks)]
    among = sure if sure and metric in RATES else known
    best = choose(among, key=lambda index: rows[index].figures[metric].mean)
    for index in known:
        rank = Rank.BEST if index == best else None
        if index != best and _same(levels[index], levels[best], metric):
            rank = Rank.LEVEL
        if rank is not None:
            rows[index] = replace(rows[index], ranks={**rows[index].ranks, metric: rank})


def _same(one: LevelResult, best: LevelResult, metric: str) -> bool:
    """Return whether the levels `one` and `best` do not differ significantly; False if not testable."""
    figure, other = figure_of(one, metric), figure_of(best, metric)
    ratio = None if figure is None or other is None else ratio_of(figure, other)
    return ratio is not None and ratio.significant(NOISE_FLOOR_PERCENT) is False


def figure_of(level: LevelResult, metric: str) -> Figure | None:
    """Return the value of a metric of a level with the values of its runs; None if it was not measured.

    Significance tests use the values of the runs.
    """
    rate, latency = level.rate(metric), level.latency(metric)
    if rate is not None:
        return Figure(rate.mean, rate.values, rate.std)
    return None if latency is None else Figure(latency.mean, latency.run_means)
