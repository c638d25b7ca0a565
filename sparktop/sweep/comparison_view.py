"""Targets beside one another as a screen shows them: a column each, who wins, where that changes, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from sparktop.model.sweep_comparison import (
    ComparedLevel,
    ComparedMetric,
    DeviationRow,
    Measured,
    SplitRow,
    Topologies,
)
from sparktop.sweep.advice import advice
from sparktop.sweep.comparison_result import ComparisonResult, ComparisonRow
from sparktop.sweep.curve_view import measured
from sparktop.sweep.definitions import METRICS
from sparktop.sweep.level_marks import balance_word
from sparktop.sweep.results import SweepResult
from sparktop.sweep.run_split import split_words
from sparktop.sweep.series import Series

LEAST_RUNS = 5
"""Of each, for a ratio of standard deviations: of three runs chance alone gives one of 6 in a twentieth."""
_DEVIATIONS_OF = ("decode_tps", "sustained_tps")
_PAIR = 2


def topologies(
    compared: ComparisonResult,
    series: Sequence[Series],
    *,
    result: SweepResult | None = None,
) -> Topologies:
    """Give a comparison of `series`; `result` tells who answered, and in which batches."""
    metrics = tuple(
        _metric(name, list(rows), series) for name, rows in groupby(compared.rows, lambda row: row.metric)
    )
    return Topologies(
        columns=tuple(one.name for one in series),
        metrics=metrics,
        crossovers=tuple(
            f"{METRICS[one.metric].title}: {one.from_} → {one.to} between c{one.between[0]} "
            f"and c{one.between[1]}"
            for one in compared.crossovers
        ),
        splits=tuple(_splits(result)),
        deviations=tuple(_deviations(metrics, series)),
        advice=advice(metrics),
        notes=compared.notes,
        definitions=tuple(_definitions(compared)),
        baseline=compared.baseline,
    )


def _definitions(compared: ComparisonResult) -> Iterator[str]:
    """Give what each source means by a figure, a line for all that mean the same."""
    for metric, texts in compared.definitions.items():
        by_text: dict[str, list[str]] = {}
        for name, text in texts.items():
            by_text.setdefault(text, []).append(name)
        for text, names in by_text.items():
            whose = "" if len(by_text) == 1 else f" of {', '.join(names)}"
            yield f"{METRICS[metric].title}{whose}: {text}"


def _metric(name: str, rows: Sequence[ComparisonRow], series: Sequence[Series]) -> ComparedMetric:
    metric = METRICS[name]
    return ComparedMetric(
        metric=name,
        title=metric.title,
        unit=metric.unit,
        more_is_better=metric.more_is_better,
        levels=tuple(_level(row, name, series) for row in rows),
        winner_vs=next((row.winner_vs for row in rows if row.winner_vs is not None), "runner-up"),
        decimals=metric.decimals,
    )


def _level(row: ComparisonRow, metric: str, series: Sequence[Series]) -> ComparedLevel:
    return ComparedLevel(
        concurrency=row.concurrency,
        values=tuple(_value(one, row, metric) for one in series),
        winner=row.winner,
        against=row.against,
        percent=row.percent,
        significant=row.significant,
        prompt_tokens=row.pp,
    )


def _value(series: Series, row: ComparisonRow, metric: str) -> Measured | None:
    for level in series.levels:
        load = level.load
        alike = row.pp is None or (load.pp, load.tg) == (row.pp, row.tg)
        if load.concurrency == row.concurrency and alike and metric in level.figures:
            return measured(level.figures[metric])
    return None


def _splits(result: SweepResult | None) -> Iterator[SplitRow]:
    if result is None:
        return
    for target in result.targets:
        for level in target.levels:
            if level.served_by or level.busy_batch:
                yield SplitRow(
                    target=target.name,
                    concurrency=level.concurrency,
                    requests=level.served_by,
                    overhead_ms=level.router_overhead_ms,
                    runs=split_words(level),
                    batches=level.busy_batch,
                    balance_word=balance_word(level),
                )


def _deviations(metrics: Sequence[ComparedMetric], series: Sequence[Series]) -> Iterator[DeviationRow]:
    """Give, level by level, the steadiest and the most restless of all whose runs are enough to tell."""
    names = [one.name for one in series]
    for metric in metrics:
        if metric.metric not in _DEVIATIONS_OF:
            continue
        for level in metric.levels:
            known = [
                (value.std, name)
                for name, value in zip(names, level.values, strict=True)
                if value is not None and value.std is not None and (value.runs or LEAST_RUNS) >= LEAST_RUNS
            ]
            if len(known) >= _PAIR:
                (low, steady), (high, restless) = min(known), max(known)
                yield DeviationRow(metric.title, level.concurrency, steady, low, restless, high)
