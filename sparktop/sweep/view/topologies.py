"""The comparison of targets for the screen: one column per target, winners, crossovers, and advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from sparktop.model.load import LoadKind
from sparktop.model.sweep_comparison import (
    ComparedLevel,
    ComparedMetric,
    DeviationRow,
    SplitRow,
    Topologies,
    Value,
)
from sparktop.sweep.compare.independent import engines_sentences
from sparktop.sweep.compare.series import Load, Series, SeriesLevel, aligned, load_at
from sparktop.sweep.result.level import split_words
from sparktop.sweep.result.results import ComparisonResult, ComparisonRow, SweepResult
from sparktop.sweep.terms.definitions import METRICS, Metric
from sparktop.sweep.view.evidence import overhead_words
from sparktop.sweep.view.levels import result_key
from sparktop.sweep.view.marks import balance_word
from sparktop.sweep.view.words.targets import main_sentences

LEAST_RUNS = 5
"""Minimum runs for a ratio of standard deviations: with three runs, 5 % of ratios exceed 6 by chance."""
_DEVIATIONS_OF = ("decode_tps", "sustained_tps")
_PAIR = 2
_GIVEN = ("table", "baseline")
"""Values of `winner_vs` other than the runner-up, which percentages refer to by default."""

_Aligned = Sequence[Mapping[Load, SeriesLevel]]


def topologies(
    compared: ComparisonResult,
    series: Sequence[Series],
    *,
    result: SweepResult | None = None,
) -> Topologies:
    """Convert a comparison of `series` to the values that the screen shows, with one column per series.

    If `result` is given, it adds which backends answered the requests of routers, and their batch sizes.
    """
    metrics = tuple(
        _metric(name, list(rows), compared, series)
        for name, rows in groupby(compared.rows, lambda row: row.metric)
    )
    return Topologies(
        columns=tuple(one.name for one in series),
        metrics=metrics,
        crossovers=tuple(
            f"{METRICS[one.metric].title}: {one.from_} → {one.to} between {one.words}"
            f"{'' if one.significant else ' (as published)'}"
            for one in compared.crossovers
        ),
        splits=tuple(_splits(result)),
        deviations=tuple(_deviations(metrics, series)),
        engines=tuple(engines_sentences(compared.independent_engines)),
        sentences=tuple(main_sentences(metrics)),
        notes=compared.notes,
        definitions=tuple(_definitions(compared)),
        baseline=compared.baseline,
    )


def _definitions(compared: ComparisonResult) -> Iterator[str]:
    """Yield one line per definition, for each metric that a source defines differently from sparktop."""
    for metric, text, names in compared.names_by_definition:
        whose = "" if len(names) == len(compared.definitions[metric]) else f" of {', '.join(names)}"
        yield f"{METRICS[metric].title}{whose}: {text}"


def _metric(
    name: str, rows: Sequence[ComparisonRow], compared: ComparisonResult, series: Sequence[Series]
) -> ComparedMetric:
    metric = METRICS[name]
    placed = aligned(series)
    return ComparedMetric(
        metric=name,
        title=metric.title,
        unit=metric.unit,
        more_is_better=metric.more_is_better,
        levels=tuple(
            _level(row, metric, placed, words) for row, words in zip(rows, _names(rows), strict=True)
        ),
        winner_vs=next((vs for vs in _GIVEN if any(row.winner_vs == vs for row in rows)), "runner-up"),
        decimals=metric.decimals,
        noise_floor_percent=compared.noise_floor_percent.get(name, 0.0),
    )


def _level(row: ComparisonRow, metric: Metric, levels: _Aligned, where: str) -> ComparedLevel:
    load = load_at(row.point, row.pp, row.tg, row.depth)
    return ComparedLevel(
        concurrency=row.concurrency,
        position=load.position,
        values=tuple(_value(one.get(load), metric.name) for one in levels),
        winner=row.winner,
        ahead=row.ahead,
        beats=row.beats,
        against=row.against,
        percent=row.percent,
        significant=row.significant,
        prompt_tokens=row.pp,
        depth=load.depth,
        where=where,
    )


def _names(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return the levels' names within a sentence: "c16", "5,000 in" where only lengths differ, or both."""
    lengths = {row.pp for row in rows}
    names = [row.point.short + (f" @ {row.depth:,}" if row.depth else "") for row in rows]
    if len(lengths) == 1:
        return names
    inputs = [f"{row.pp or 0:,} in" for row in rows]
    if len({row.point for row in rows}) == 1:
        return inputs
    return [f"{name} {length}" for name, length in zip(names, inputs, strict=True)]


def _value(level: SeriesLevel | None, metric: str) -> Value | None:
    return None if level is None else level.figures.get(metric)


def _splits(result: SweepResult | None) -> Iterator[SplitRow]:
    if result is None:
        return
    for target in result.targets:
        for level in target.levels:
            if level.served_by or level.busy_batch:
                yield SplitRow(
                    target=target.name,
                    concurrency=level.concurrency,
                    position=None if level.load is LoadKind.CONCURRENCY else level.point,
                    requests=level.served_by,
                    overhead=overhead_words(level),
                    runs=split_words(level),
                    batches=level.busy_batch,
                    balance_word=balance_word(level),
                    prompt_tokens=result_key(target.name, level, result.plan.pp).prompt_tokens,
                    depth=level.depth,
                )


def _deviations(metrics: Sequence[ComparedMetric], series: Sequence[Series]) -> Iterator[DeviationRow]:
    """Yield for each level which targets have the smallest and the largest standard deviation over runs.

    Only targets with at least `LEAST_RUNS` runs are compared. Levels with fewer than two such targets are
    left out.
    """
    names = [one.name for one in series]
    for metric in metrics:
        if metric.metric not in _DEVIATIONS_OF:
            continue
        for level in metric.levels:
            known = [
                (value.std, name)
                for name, value in zip(names, level.values, strict=True)
                if value is not None and value.std is not None and not 0 < len(value.runs) < LEAST_RUNS
            ]
            if len(known) >= _PAIR:
                (low, steady), (high, restless) = min(known), max(known)
                yield DeviationRow(
                    metric.title,
                    level.concurrency,
                    steady,
                    low,
                    restless,
                    high,
                    level.prompt_tokens,
                    level.position,
                    level.depth,
                )
