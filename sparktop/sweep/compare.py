"""Series beside one another: winners, percentages, crossovers, and which differences the runs bear out.

A difference is called only if the 95 % interval of the ratio of means leaves out 1 (Welch's t on logarithms
of the runs' values: runs are the replicates, requests are not) and the ratio is beyond the noise floor. That
is what two measurements of the same thing differ by, where there are such, else 3 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal

from sparktop.sweep.comparison_notes import definitions_of, notes_of
from sparktop.sweep.comparison_result import Change, ComparisonResult, ComparisonRow, Crossover
from sparktop.sweep.definitions import METRICS, Metric
from sparktop.sweep.ratio import LEAST_RUNS, Ratio, ratio_of
from sparktop.sweep.series import Figure, Load, Series, TableRule

NOISE_FLOOR_PERCENT = 3.0
"""Where nobody measured the same thing twice."""
_Levels = Mapping[str, Mapping[Load, Mapping[str, Figure]]]
_Vs = Literal["runner-up", "baseline", "table"]


def compare(
    series: Sequence[Series],
    *,
    baseline: str | None = None,
    table: TableRule | None = None,
    same: tuple[str, str] | None = None,
) -> ComparisonResult:
    """Compare series of different names.

    `baseline` names the one that percentages are against; `table` is the rule of a reference that stands
    alone; `same` names two series of the same thing, whose difference is noise. Two targets of one sweep with
    the same address and model are such a pair too.
    """
    levels = _comparable(series)
    pair = same or _same_address(series)
    floors = {name: _floor(levels, name, pair) for name in METRICS}
    rows: list[ComparisonRow] = []
    for metric in METRICS.values():
        rows.extend(_rows(levels, metric, floors[metric.name], baseline, table))
    told = {row.metric for row in rows}
    return ComparisonResult(
        baseline=baseline,
        rows=tuple(rows),
        crossovers=tuple(_crossovers(rows)),
        notes=tuple(notes_of(series, rows, pair, table)),
        definitions=definitions_of(series, told),
        noise_floor_percent={name: floor for name, floor in floors.items() if name in told},
    )


def _comparable(series: Sequence[Series]) -> _Levels:
    """Give each series' figures by load; prompt and output length count only where a series varies them."""
    short = all(len({level.load.concurrency for level in one.levels}) == len(one.levels) for one in series)
    return {
        one.name: {
            Load(level.load.concurrency) if short else level.load: level.figures for level in one.levels
        }
        for one in series
    }


def _rows(
    levels: _Levels, metric: Metric, floor: float, baseline: str | None, table: TableRule | None
) -> list[ComparisonRow]:
    rows: list[ComparisonRow] = []
    crossed, first_winner = False, None
    for load in sorted({load for one in levels.values() for load in one}, key=_order):
        figures = {
            name: one[load][metric.name] for name, one in levels.items() if metric.name in one.get(load, {})
        }
        if len(figures) < LEAST_RUNS:
            continue
        ranked = sorted(figures, key=lambda name: figures[name].mean, reverse=metric.more_is_better)
        first_winner = first_winner or ranked[0]
        crossed = crossed or ranked[0] != first_winner
        rows.append(_row(metric, load, figures, ranked, floor, baseline, table, crossed=crossed))
    return rows


def _row(
    metric: Metric,
    load: Load,
    figures: Mapping[str, Figure],
    ranked: Sequence[str],
    floor: float,
    baseline: str | None,
    table: TableRule | None,
    *,
    crossed: bool,
) -> ComparisonRow:
    winner = ranked[0]
    vs, against = _against(ranked, baseline, table, crossed=crossed)
    ratio = ratio_of(figures[winner], figures[against])
    tied = figures[winner].mean == figures[ranked[1]].mean
    others = (name for name in figures if baseline in figures and name != baseline)
    return ComparisonRow(
        metric=metric.name,
        concurrency=load.concurrency,
        pp=load.pp,
        tg=load.tg,
        values={name: figure.mean for name, figure in figures.items()},
        winner=None if tied else winner,
        winner_vs=vs,
        against=against,
        percent=ratio.percent if ratio else None,
        ratio_ci95=ratio.ci95 if ratio else None,
        significant=ratio.significant(floor) if ratio else None,
        changes={name: _change(ratio_of(figures[name], figures[baseline or ""]), floor) for name in others},
    )


def _against(
    ranked: Sequence[str], baseline: str | None, table: TableRule | None, *, crossed: bool
) -> tuple[_Vs, str]:
    if baseline in ranked[1:]:
        return "baseline", str(baseline)
    if table is not None and baseline is None:
        stated = table.then if crossed else table.first
        if stated in ranked[1:]:
            return "table", stated
    return "runner-up", ranked[1]


def _change(ratio: Ratio | None, floor: float) -> Change:
    if ratio is None:
        return Change()
    return Change(percent=ratio.percent, ratio_ci95=ratio.ci95, significant=ratio.significant(floor))


def _crossovers(rows: Sequence[ComparisonRow]) -> Iterator[Crossover]:
    """Give where the winner changes from one level with a winner to the next; no difference is no winner."""
    by_metric: dict[tuple[str, int | None, int | None], list[ComparisonRow]] = {}
    for row in rows:
        if row.winner is not None and row.significant is not False:
            by_metric.setdefault((row.metric, row.pp, row.tg), []).append(row)
    for called in by_metric.values():
        for before, after in pairwise(called):
            if before.winner != after.winner:
                yield Crossover(
                    metric=before.metric,
                    between=(before.concurrency, after.concurrency),
                    from_=str(before.winner),
                    to=str(after.winner),
                )


def _floor(levels: _Levels, metric: str, pair: tuple[str, str] | None) -> float:
    """Give what the same thing measured twice differs by, in percent; the usual where nobody did."""
    if pair is None:
        return NOISE_FLOOR_PERCENT
    first, second = (levels.get(name, {}) for name in pair)
    ratios = (
        ratio_of(figures[metric], second[load][metric])
        for load, figures in first.items()
        if metric in figures and metric in second.get(load, {})
    )
    return max((abs(ratio.percent) for ratio in ratios if ratio), default=NOISE_FLOOR_PERCENT)


def _same_address(series: Sequence[Series]) -> tuple[str, str] | None:
    """Give two targets of one sweep that are the same server and model."""
    known: dict[tuple[str, str, str | None], str] = {}
    for one in series:
        if one.address is None:
            continue
        key = (one.source, one.address, one.model)
        if key in known:
            return known[key], one.name
        known[key] = one.name
    return None


def _order(load: Load) -> tuple[int, int, int]:
    return load.concurrency, load.pp or 0, load.tg or 0
