"""Plots of metrics over concurrency: curves of targets, curves of published tables, and limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from msgspec.structs import replace

from sparktop.model.load import LoadKind, LoadPoint, concurrency_point
from sparktop.model.sweep import (
    CurveLine,
    CurvePlot,
    CurvePoint,
    LimitLine,
    SweepView,
    short_tokens,
)
from sparktop.model.text import names_in_words
from sparktop.model.yardsticks import Reference
from sparktop.sweep.compare.series import LevelSeries, has_like_lengths, published_series, series_of
from sparktop.sweep.plan.slo import plain_words, stored_condition
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.terms.definitions import FEW_RUNS, METRICS, TOO_SHORT
from sparktop.sweep.view.capacity import condition_plots

CURVES = ("decode_tps", "sustained_tps", "prefill_tps", "ttft_ms")
"""Metrics that have a plot, in this order."""
RATE_CURVES = ("output_tps", "ttft_due_ms", "e2e_due_ms")
"""The same over rates. A level with which the server does not keep up has no latencies."""
AGENT_CURVES = ("ttft_tool_ms", "ttft_human_ms", "output_tps")
_DECODES = frozenset({"decode_tps", "sustained_tps"})
_ROOFLINE_AT = 1
"""The concurrency for which the roofline (the limit by memory bandwidth) is known: a single request reads all
weights for each token."""
_MILD = frozenset({FEW_RUNS, TOO_SHORT})
"""Doubts that do not make a point doubtful: the confidence interval, or its absence, shows them already."""


def curve_plots(
    series: Sequence[LevelSeries],
    references: Iterable[Reference] = (),
    limits: Sequence[LimitLine] = (),
    *,
    beside: Sequence[LevelSeries] = (),
) -> tuple[CurvePlot, ...]:
    """Return a plot for each metric of `CURVES` for which any of `series` has values.

    If no series has a decode rate, a plot of "output_tps" comes first. Each plot also has the curves of
    `references` (published tables) and of `beside` (other series), and the `limits` for its metric.
    """
    kinds = {level.load.point.kind for a_series in series for level in a_series.levels}
    series_beside = [
        replace(a_series, levels=tuple(level for level in a_series.levels if level.load.point.kind in kinds))
        for a_series in (*chain.from_iterable(map(published_series, references)), *beside)
    ]
    own = [*by_depth(series, alone=len(series) == 1 and not series_beside)]
    theirs = [*by_depth(series_beside)]
    plots = []
    lengths = {level.load.pp for one in own for level in one.levels}
    of_lengths = f"{min(pp or 0 for pp in lengths):,} tokens in" if len(lengths) > 1 else ""
    metrics = {name for a_series in series for name in a_series.metrics()}
    # Some tools report no other rate of generated tokens.
    names: tuple[str, ...] = CURVES if metrics & _DECODES else ("output_tps", *CURVES)
    names = AGENT_CURVES if LoadKind.AGENTS in kinds else names
    names = RATE_CURVES if LoadKind.RATE in kinds else names
    for name in names:
        curves = [_curve_line(a_series, name, index, len(own)) for index, a_series in enumerate(own + theirs)]
        if not any(curves[: len(own)]):
            continue
        metric = METRICS[name]
        plots.append(
            CurvePlot(
                metric=name,
                title=metric.title,
                unit=metric.unit,
                definition=metric.definition,
                more_is_better=metric.more_is_better,
                lines=tuple(filter(None, curves)),
                limits=tuple(limit for limit in limits if limit.metric == name),
                decimals=metric.decimals,
                of_lengths=of_lengths,
            )
        )
    return tuple(plots)


def by_depth(series: Iterable[LevelSeries], *, alone: bool = False) -> Iterator[LevelSeries]:
    """Yield a series for each depth and kind of text of each of `series`, which never share a curve.

    `alone` is whether all are of one target, whose name then need not stand before a kind of text.
    """
    for a_series in (part for one_series in series for part in by_text(one_series, alone=alone)):
        depths = sorted({level.load.depth for level in a_series.levels})
        for depth in depths:
            levels = tuple(level for level in a_series.levels if level.load.depth == depth)
            yield replace(
                a_series,
                name=f"{a_series.name} @{short_tokens(depth)}" if len(depths) > 1 else a_series.name,
                levels=levels,
            )


def by_text(series: LevelSeries, *, alone: bool = False) -> Iterator[LevelSeries]:
    """Yield a series for each kind of built-in text of `series`, `alone` as in `by_depth`; itself without."""
    for text in dict.fromkeys(level.load.point.text for level in series.levels):
        if text is None:
            yield series
            continue
        levels = tuple(level for level in series.levels if level.load.point.text == text)
        yield replace(series, name=text if alone else f"{series.name} {text}", levels=levels)


def _curve_line(series: LevelSeries, metric: str, place: int, own: int) -> CurveLine | None:
    """Return the line at this place of all, of which the first `own` are targets; None without a value."""
    points: dict[LoadPoint, CurvePoint] = {}
    for level in sorted(series.levels, key=lambda level: level.load.pp or 0):
        figure = level.figures.get(metric)
        if figure is not None:
            # Of several prompt lengths at one concurrency, the shortest is drawn.
            doubtful = bool(set(level.validity) - _MILD)
            points.setdefault(level.load.point, CurvePoint(level.load.point, figure, doubtful))
    if not points:
        return None
    ordered = tuple(points[point] for point in sorted(points))
    reference = series.source if place >= own else None
    number = place if place < own else place - own
    return CurveLine(series.name, ordered, reference, series.definitions.get(metric), place, number)


def limits_of(result: SweepResult) -> tuple[LimitLine, ...]:
    """Return the limits that are drawn in the plots of a sweep.

    They are the decode rate that the memory bandwidth allows (roofline), and the limits of SLO conditions.
    """
    return (*_roofline(result), *_slo_limits(result))


def _roofline(result: SweepResult) -> Iterable[LimitLine]:
    """Yield a limit line for the decode rate that the memory bandwidth allows a single request.

    The rate is computed from a level's decode rate and from `roofline_percent`, the percentage of the
    limit that this level reached. Targets with equal limits share one line; several lines name theirs.
    """
    by_limit: dict[int, tuple[float, list[str]]] = {}
    for target in result.targets:
        for level in target.levels:
            rate, share = level.decode_tps, level.roofline_percent
            if level.point != concurrency_point(_ROOFLINE_AT) or rate is None or not share:
                continue
            limit = 100 * rate.mean / share
            by_limit.setdefault(round(limit), (limit, []))[1].append(target.name)
    for limit, names in by_limit.values():
        several = len(by_limit) > 1
        of_servers = f"{names_in_words(list(dict.fromkeys(names)))}: " if several else ""
        words = f"{of_servers}memory bandwidth allows one request {limit:.0f} tok/s"
        own_name = names[0] if several else ""
        yield LimitLine("decode_tps", words, limit, concurrency=_ROOFLINE_AT, target=own_name)


def _slo_limits(result: SweepResult) -> Iterable[LimitLine]:
    slo = result.slo
    if slo is None:
        return
    for text in slo.conditions:
        condition = stored_condition(text)
        metric = None if condition is None else condition.figure
        if metric is not None and metric.startswith("ttft"):
            metric = "ttft_ms"
        if condition is not None and metric in METRICS:
            yield LimitLine(metric, f"wanted: {plain_words(text)}", condition.limit)


def sweep_plots(result: SweepResult, references: Iterable[Reference] = ()) -> tuple[CurvePlot, ...]:
    """Return the plots of a sweep, with the curves of `references` (published tables) and with limits.

    Those of a capacity search begin with its conditions.
    """
    curves = curve_plots(series_of(result), references, limits_of(result))
    return curves if result.capacity is None else (*condition_plots(result.capacity), *curves)


def fits(reference: Reference, view: SweepView) -> bool:
    """Return whether a published table has values that can be drawn into one of the sweep's plots.

    It must have the plot's metric with similar lengths, at concurrencies that overlap the measured ones.
    """
    loads = {row.key for row in view.rows}
    for plot in view.plots:
        points = [point.point for line in plot.lines if line.reference is None for point in line.points]
        for series in published_series(reference):
            theirs = [
                level.load.point
                for level in series.levels
                if plot.metric in level.figures and any(has_like_lengths(load, level.load) for load in loads)
            ]
            if points and theirs and not max(points) < min(theirs) and not max(theirs) < min(points):
                return True
    return False
