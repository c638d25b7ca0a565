"""Levels that differ only in prompt length are distinguished on every screen of a sweep."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from sparktop.model.sweep import (
    DeviationRow,
    LevelKey,
    LevelSpan,
    LevelState,
    PlannedLevel,
    SweepView,
    Topologies,
)
from sparktop.panels.parts.text import Row, row_text
from sparktop.panels.sweep.screen import sweep_screen
from sparktop.panels.sweep.table import table_rows
from sparktop.panels.sweep.topology import difference_screen, topology_screen
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import Load, Series, SeriesLevel, series_of
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.terms.statistics import value_of
from sparktop.sweep.view.difference import difference
from sparktop.sweep.view.result import topologies
from tests.panels.sweep_views import running
from tests.sweep.made_results import made_level, made_sweep

LENGTHS = (1024, 131_072)
WIDTHS = (80, 120, 200)


def texts(rows: Sequence[Row]) -> list[str]:
    return [row_text(row) for row in rows]


def series(name: str, lengths: Sequence[int] = LENGTHS, *, speed: float = 100.0) -> Series:
    """Return a series with levels of 64 requests at once, a level per prompt length."""
    figure = value_of(speed, (speed, speed * 1.01, speed * 0.99))
    levels = tuple(SeriesLevel(Load(64, length, 4), {"decode_tps": figure}) for length in lengths)
    return Series(name, levels, source=f"{name}.json", tool="sparktop 1.0", model="m")


def routed(lengths: Sequence[int]) -> SweepResult:
    """Return a sweep of two routers whose levels differ only in prompt length."""
    level = made_level(2).model_copy(update={"served_by": {"p": 2, "q": 4}})
    levels = tuple(level.model_copy(update={"pp": length}) for length in lengths)
    return made_sweep(("x", levels), ("y", levels))


def compared(lengths: Sequence[int]) -> Topologies:
    result = routed(lengths)
    found = topologies(compare(series_of(result)), series_of(result), result=result)
    spread = tuple(
        DeviationRow("Decode", 2, "x", 0.5, "y", 1.5, length if len(lengths) > 1 else None)
        for length in lengths
    )
    return replace(found, deviations=spread)


def of_lengths(view: SweepView, first_s: float) -> SweepView:
    """Return a running sweep with levels of two prompt lengths, the first of which took `first_s`."""
    live = view.live
    assert live is not None
    keys = [LevelKey("spark-a", 2, length) for length in LENGTHS]
    spans = (
        LevelSpan(keys[0], live.start_at, live.start_at + first_s),
        LevelSpan(keys[1], live.start_at + first_s),
    )
    levels = tuple(PlannedLevel(key, LevelState.RUNNING) for key in keys)
    return replace(view, levels=levels, rows=(), live=replace(live, spans=spans))


@pytest.mark.parametrize("width", WIDTHS)
def test_compared_levels_have_their_whole_length(width: int) -> None:
    """In the tables, the spread of the runs and the shares of servers, each level has its uncut length."""
    rows = texts(topology_screen(compared(LENGTHS), width, 60))
    shown = "\n".join(rows)
    for length in LENGTHS:
        word = f"c2/{length} "
        assert any(f"│ {word:>10}" in row for row in rows)
        assert f"Decode c2/{length}: " in shown
        assert f" x      {word}" in shown
    assert "c2/…" not in shown


@pytest.mark.parametrize("width", WIDTHS)
def test_a_difference_has_lengths_where_there_are_several(width: int) -> None:
    """Each row of a difference has its length and its uncut change; the verdict names the lengths."""
    found = difference(series("x"), series("y", speed=150.0))
    rows = texts(difference_screen(found, width, 24))
    for length in LENGTHS:
        (row,) = [one for one in rows if f" c64/{length} " in one and "→" in one]
        assert "▲ better" in row
    assert "c64/1024, c64/131072" in found.verdict
    alike = texts(difference_screen(difference(series("x"), series("y")), width, 24))
    assert sum("none shown" in row or "no clear difference" in row for row in alike if "c64/" in row) >= 2


@pytest.mark.parametrize("width", WIDTHS)
def test_the_tracks_name_the_length_of_each_level(width: int) -> None:
    """The strip above the tracks has the same names as the table."""
    for first_s, name in ((10.0, "▏A c2/1024"), (4.0, "▏A c2/131072─")):
        (strip,) = [
            row for row in texts(sweep_screen(of_lengths(running(), first_s), width, 40)) if "▏" in row
        ]
        assert name in strip
    assert "c2/" not in "\n".join(texts(sweep_screen(running(), width, 40)))


def test_a_table_without_a_plan_names_the_lengths_of_its_rows() -> None:
    """If a sweep's plan is unknown, the table has its measured levels; an unknown length is "–" there."""
    (row, *_) = running().rows
    keys = [LevelKey("spark-a", 64, length) for length in (*LENGTHS, None)]
    view = replace(running(), levels=(), rows=tuple(replace(row, key=key) for key in keys))
    shown = "\n".join(texts(table_rows(view, 80, 10)))
    assert all(f" c64/{length} " in shown for length in (*LENGTHS, "–"))
