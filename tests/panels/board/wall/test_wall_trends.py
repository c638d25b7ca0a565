"""Graphs of a wall's groups: tokens per second of the last minutes, summed once for each slot of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from sparktop.analysis.state import WallGroup, wall_of
from sparktop.model.router import Fleet, FleetServer, FleetView
from sparktop.model.series import HistoryTable, Series
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board import wall_lines
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.board.scene import Scene, flatten
from sparktop.panels.board.view import View
from sparktop.panels.board.wall import WallOrders
from sparktop.panels.board.wall_lines import CELLS, GroupTrends, slot_sums
from sparktop.panels.parts.text import row_text
from stage.fleet import RehearsedFleet


def history(points: Mapping[float, float | None]) -> Series:
    """Return a series with these points."""
    table = HistoryTable(("value",))
    for time, value in points.items():
        table.append(time, {"value": value})
    return table.series()["value"]


def graphs(
    snapshot: Snapshot, width: int, view: View | None = None, orders: WallOrders | None = None
) -> list[str]:
    """Return the graphs of the groups on a board, from top to bottom."""
    scene = Scene(snapshot, width, 34, view or View(), orders=orders)
    rows = [row_text(row) for row in flatten(scene.draw(), width, 34)]
    heading = next(row for row in rows if " group " in row)
    if "tok/s, " not in heading:
        return []
    at = heading.index("tok/s, ")
    return [row[at : at + CELLS] for row in rows if any("⠀" < char < "⣿⣿" for char in row[at : at + CELLS])]


def group(snapshot: Snapshot, name: str, words: str = "") -> WallGroup:
    """Return a group of the wall."""
    found = wall_of(snapshot, words).group(name)
    assert found is not None
    return found


def test_a_slot_has_the_sum_of_what_is_known() -> None:
    """Means of each server; a late poll holds the slot before, a server without an answer leaves the sum."""
    steady = history(dict.fromkeys(range(8, 24), 10.0))
    late = history({8.0: 4.0, 9.0: 6.0, 16.0: 7.0})
    dead = history({8.0: 1.0, 9.0: None})
    assert slot_sums([steady, late, dead], range(2, 7), 4.0) == {2: 16.0, 3: 16.0, 4: 17.0, 5: 17.0, 6: 10.0}
    assert slot_sums([late], range(5, 8), 4.0) == {5: 7.0, 6: None, 7: None}
    assert slot_sums([], range(1, 2), 4.0) == {1: None}


@pytest.mark.parametrize(("width", "shown"), [(80, False), (120, True), (200, True)])
def test_groups_have_graphs_where_lines_are_long(fleet: Snapshot, width: int, *, shown: bool) -> None:
    """Every group in sight has one; an idle one too, at the height of 0."""
    found = graphs(fleet, width)
    assert len(found) == (12 if shown else 0)
    assert (sum("⣀" in one and "⣿" not in one for one in found) == 1) is shown


def test_the_servers_of_a_prometheus_have_no_graphs(fleet: Snapshot) -> None:
    """Their histories are not kept: no figure is made up."""
    servers = tuple(FleetServer(f"s{n}", f"http://s{n}", "g", fleet.at, running=1.0) for n in range(300))
    view = FleetView("main", "http://p:9090", Fleet(fleet.at, 15.0, servers), age_s=1.0)
    scraped = replace(fleet, backends=(), nodes=(), balance=(), routers=(), fleets=(view,))
    scene = Scene(scraped, 120, 34, zoomed=PanelKey("prometheus", "main"))
    assert not any("tok/s, " in row_text(row) for row in scene.draw()[0].rows)


def test_a_slot_that_is_over_is_summed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawings in between read no history, and the next slot is the only one that is summed."""
    played = RehearsedFleet(60, 0)
    played.play(60)
    asked: list[int] = []

    def counted(histories: Sequence[Series], slots: range, step: float) -> Mapping[int, float | None]:
        asked.append(len(slots))
        return slot_sums(histories, slots, step)

    monkeypatch.setattr(wall_lines, "slot_sums", counted)
    kept = GroupTrends()
    for _ in range(9):
        snapshot = played.play(1).snapshot()
        kept.until(snapshot.at, 1.0).row(group(snapshot, "gemma"))
    assert asked[0] >= 2 * CELLS - 1
    assert len(asked) <= 4
    assert sum(asked[1:]) <= 4


def test_a_moment_of_the_past_is_drawn_as_it_was() -> None:
    """Also after later moments, and by a board that has never drawn it; a filter sums what it leaves."""
    played, orders = RehearsedFleet(120, 0), WallOrders()
    before = played.play(40).snapshot()
    then = graphs(before, 120, orders=orders)
    later = played.play(40).snapshot()
    assert graphs(later, 120, orders=orders) != then
    assert graphs(before, 120, orders=orders) == graphs(before, 120) == then
    trend = GroupTrends().until(later.at, 1.0)
    slots = range(trend.end_slot - 2, trend.end_slot)
    whole, part = (
        trend.trends.sums(group(later, "gemma", words), slots, trend.step) for words in ("", "gemma-001")
    )
    assert all(
        some is not None and every is not None and some < every
        for some, every in zip(part, whole, strict=True)
    )
