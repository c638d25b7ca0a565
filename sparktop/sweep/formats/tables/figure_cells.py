"""The text of single table cells: values of metrics, changes, token counts and loads."""

from __future__ import annotations

from collections.abc import Iterable

from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.load import LoadKind, LoadPoint
from sparktop.model.sweep_comparison import Value
from sparktop.sweep.compare.series import Load, Series, load_at
from sparktop.sweep.result.comparison import ComparisonRow
from sparktop.sweep.result.results import LevelResult
from sparktop.sweep.terms.definitions import Metric


def figure(known: Value | None, metric: Metric) -> str:
    """Return a value without its unit, a range as "low to high"; "–" for None."""
    if known is not None and known.span is not None:
        return " to ".join(metric.text(end) for end in known.span)
    return metric.text(known.mean if known else None)


def with_unit(known: Value | None, metric: Metric) -> str:
    """Return a value with its unit, a range as "low to high"; "–" for None."""
    return UNKNOWN if known is None else f"{figure(known, metric)} {metric.unit}"


def tokens(count: int | None) -> str:
    """Return a number of tokens such as "1,024 tokens"; "–" for None."""
    return UNKNOWN if count is None else f"{count:,} tokens"


def load_words(load: Load, *, lengths: bool = True) -> str:
    """Return a load such as "c16, 1,024 in, 128 out": its point on the axis, prompt tokens, output tokens.

    Unknown lengths are left out. If `lengths` is False, all lengths are left out.
    """
    words = load.point.short + (f" @ {load.depth:,}" if load.depth else "")
    if lengths and load.pp is not None:
        words += f", {load.pp:,} in"
    if lengths and load.tg is not None:
        words += f", {load.tg:,} out"
    return words


def load_of_level(level: LevelResult) -> Load:
    """Return the load of a level; lengths that it does not state are None."""
    return load_at(level.point, level.pp, level.tg, level.depth)


def load_of(row: ComparisonRow) -> Load:
    """Return the load of a row of a comparison."""
    return load_at(row.point, row.pp, row.tg, row.depth)


_HEADS = {
    LoadKind.CONCURRENCY: "Concurrency",
    LoadKind.RATE: "Rate",
    LoadKind.AGENTS: "Agents",
}
"""Headings of the column with the points on the axis."""


def axis_head(series: Series) -> str:
    """Return the heading of the column with the points of a series on its axis."""
    return points_head(level.load.point for level in series.levels)


def points_head(points: Iterable[LoadPoint]) -> str:
    """Return the heading of a column with points on an axis: "Rate", "Agents"; "Load" for several axes."""
    kinds = {point.kind for point in points} or {LoadKind.CONCURRENCY}
    return _HEADS[kinds.pop()] if len(kinds) == 1 else "Load"
