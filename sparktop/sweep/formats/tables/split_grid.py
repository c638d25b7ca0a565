"""Builds the table of how many requests each backend of a router answered at each level, and batch sizes."""

from __future__ import annotations

from sparktop.graphics.numbers import UNKNOWN
from sparktop.report.document.grid import Cell, Grid, Outside
from sparktop.report.markdown import code
from sparktop.sweep.formats.tables.figure_cells import load_of_level, load_words, points_head
from sparktop.sweep.plan.plan import TargetKind
from sparktop.sweep.result.results import LevelResult, TargetResult
from sparktop.sweep.result.run_split import level_split, run_shares

_NOTE = (
    "Requests are those of all runs; the largest share is of single runs, since runs that went to one "
    "server each add up to an even total. A batch is the mean of the engine's steps, or of the polls of it, "
    "while it computed anything."
)


def split_grid(target: TargetResult) -> Grid:
    """Return a table of a router: Concurrency | requests and batch size of each backend | largest share.

    The largest share is the percentage of a run's requests that a single backend answered. There is one
    row per level. The table is empty unless the target is a router with several backends.
    """
    names = sorted({name for level in target.levels for name in level.known_servers})
    title = f"Who answered: {code(target.name)}"
    if target.kind is not TargetKind.ROUTER or len(names) <= 1:
        return Grid(title, (), ())
    several = len({(level.point, level.depth) for level in target.levels}) < len(target.levels)
    levels = [level for level in target.in_order() if level.error is None]
    rows = tuple(_row(level, names, lengths=several) for level in levels)
    heads: list[Cell] = [points_head(level.point for level in levels)]
    for name in names:
        heads += [Outside(name, " requests"), Outside(name, " batch")]
    return Grid(title, (*heads, "Largest share of a run"), rows, notes=(_NOTE,))


def _row(level: LevelResult, names: list[str], *, lengths: bool) -> tuple[Cell, ...]:
    cells: list[Cell] = [load_words(load_of_level(level), lengths=lengths)]
    for name in names:
        batch = level.busy_batch.get(name)
        known = level.served_by.get(name, 0 if level.served_by else None)
        cells += [UNKNOWN if known is None else str(known), UNKNOWN if batch is None else f"{batch:.1f}"]
    shares = run_shares(level_split(level))
    if not shares:
        return (*cells, UNKNOWN)
    low, high = round(min(shares)), round(max(shares))
    return (*cells, f"{high} %" if low == high else f"{low} to {high} %")
