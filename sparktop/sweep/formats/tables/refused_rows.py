"""Adds rows for loads that a server refused to tables, in order among the rows of measured loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparktop.graphics.numbers import UNKNOWN
from sparktop.report.document.grid import Cell, Grid, Outside
from sparktop.sweep.compare.series import Load, Series, same_row
from sparktop.sweep.formats.tables.figure_cells import figure, load_of, load_words
from sparktop.sweep.formats.tables.layouts import by_concurrency, winners
from sparktop.sweep.result.comparison import ComparisonResult
from sparktop.sweep.terms.definitions import METRICS

REFUSED = "❌"


def winners_and_refused(comparison: ComparisonResult, metric: str, series: Sequence[Series]) -> Grid:
    """Return the table of `layouts.winners`, with a row added for each load that a target refused."""
    grid = winners(comparison, metric, [one.name for one in series])
    names = {cell.name for cell in grid.heads if isinstance(cell, Outside)}
    columns = [one for one in series if one.name in names]
    if not columns:
        return grid
    measured = [load_of(row) for row in comparison.rows if row.metric == metric]
    rows = [(load, _with_signs(row, load, columns)) for load, row in zip(measured, grid.rows, strict=True)]
    for load in dict.fromkeys(load for one in columns for load in one.refused):
        if not any(same_row(load, known) for known, _ in rows):
            rows.append((load, _row(load, metric, columns)))
    return replace(grid, rows=_sorted(rows))


def rates_and_refused(series: Series, metrics: Sequence[str], title: str) -> Grid:
    """Return the table of `layouts.by_concurrency`, with a row added for each load the server refused."""
    grid = by_concurrency(series, metrics, title)
    rows = [(level.load, row) for level, row in zip(series.levels, grid.rows, strict=True)]
    bare = [UNKNOWN] * (len(grid.heads) - 1)
    rows += [(load, (f"{REFUSED} {load_words(load)}", *bare)) for load in series.refused]
    return replace(grid, rows=_sorted(rows))


def _with_signs(row: tuple[Cell, ...], load: Load, columns: Sequence[Series]) -> tuple[Cell, ...]:
    """Return a copy of a table row in which the cells of targets that refused `load` say so.

    `REFUSED` replaces only cells without a value. `columns` are the targets in the order of the cells.
    """
    cells = [
        REFUSED if cell == UNKNOWN and _is_refused(one, load) else cell
        for one, cell in zip(columns, row[1:], strict=False)
    ]
    return (row[0], *cells, *row[len(cells) + 1 :])


def _row(load: Load, metric: str, columns: Sequence[Series]) -> tuple[Cell, ...]:
    """Return the table row of a load that cannot be compared, because too few targets accepted it."""
    figures = [
        next((level.figures.get(metric) for level in one.levels if same_row(load, level.load)), None)
        for one in columns
    ]
    cells = [
        REFUSED if _is_refused(one, load) else figure(known, METRICS[metric])
        for one, known in zip(columns, figures, strict=True)
    ]
    able = [one.name for one, known in zip(columns, figures, strict=True) if known is not None]
    only: Cell = Outside(able[0], " alone") if len(able) == 1 else UNKNOWN
    return (load_words(load), *cells, only)


def _is_refused(series: Series, load: Load) -> bool:
    return any(same_row(load, one) for one in series.refused)


def _sorted(rows: Sequence[tuple[Load, tuple[Cell, ...]]]) -> tuple[tuple[Cell, ...], ...]:
    return tuple(row for _, row in sorted(rows, key=lambda pair: pair[0].order))
