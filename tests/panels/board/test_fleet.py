"""The wall of a Prometheus: the worst group first, a cell for each server, every row as wide as its panel."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.fleet import Fleet, FleetServer, FleetView
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.flat import flatten
from sparktop.panels.board.fleet import fleet_panel, fleet_screen, groups_of
from sparktop.panels.board.scene import PanelKey, Scene
from sparktop.panels.parts.rows import Row, row_width

SERVERS = tuple(
    FleetServer(
        f"s{number}",
        f"http://s{number}",
        f"group-{number // 8}",
        at=100.0,
        down=number == 17,
        running=None if number == 17 else float(number % 3),
        waiting=None if number == 17 else float(5 * (number // 8 == 4)),
        kv_cache_percent=10.0,
        generation_tps=100.0,
    )
    for number in range(80)
)
VIEW = FleetView("main", "http://p:9090", Fleet(101.0, 15.0, SERVERS), age_s=4.0)


def text(rows: list[Row]) -> list[str]:
    """Return the rows as plain text."""
    return ["".join(part for part, _ in row).rstrip() for row in rows]


def snapshot(view: FleetView) -> Snapshot:
    """Return a snapshot with this Prometheus alone."""
    return Snapshot(datetime(2026, 1, 1, tzinfo=UTC), 102.0, 1.0, 2.0, fleets=(view,))


def test_groups_that_are_down_or_wait_come_first() -> None:
    """A server that is down, then waiting requests, then the name."""
    names = [group.name for group in groups_of(SERVERS)]
    assert names[:3] == ["group-2", "group-4", "group-0"]


@pytest.mark.parametrize(("width", "height"), [(80, 8), (120, 12), (200, 16), (40, 3)])
def test_the_panel_fills_its_place(width: int, height: int) -> None:
    """Each row is exactly as wide as the panel."""
    rows = fleet_panel(VIEW, width, height)
    assert len(rows) == height
    assert {row_width(row) for row in rows} == {width}


def test_the_panel_says_how_old_the_samples_are() -> None:
    """Interval and age in the edge, totals below, and how many groups had no room."""
    rows = text(fleet_panel(VIEW, 80, 8))
    assert "every 15 s, newest 4 s old" in rows[0]
    assert "80 servers · 1 down · 8,000 tok/s" in rows[1]
    assert rows[3].startswith("│ group-2                ✖")
    assert "7 more groups" in rows[6]


def test_a_failure_stands_in_the_lower_edge() -> None:
    """The message of a Prometheus that does not answer, or is late."""
    failed = replace(VIEW, failure=Failure(FailureKind.LATE, "main itself is late", 100.0))
    assert "main itself is late" in text(fleet_panel(failed, 80, 8))[-1]


def test_the_whole_wall_has_every_group() -> None:
    """On the full screen, with what each cell means."""
    rows = text(fleet_screen(VIEW, 80, 10))
    assert sum("group-" in row for row in rows) == 10
    assert "✖ unreachable" in rows[2]
    marked = text(fleet_screen(VIEW, 80, 10, marked=PanelKey("wall", "group-4")))
    assert [row.split()[1] for row in marked if "◀" in row] == ["group-4"]


def test_the_board_begins_with_the_wall() -> None:
    """Where more servers are scraped than are read one by one; enter shows it alone."""
    scene = Scene(snapshot(VIEW), 80, 22)
    assert scene.keys()[0] == PanelKey("prometheus", "main")
    rows = text(flatten(scene.draw(), 80, scene.layout.height))
    assert "80 servers" in rows[1]
    alone = Scene(snapshot(VIEW), 80, 22, zoomed=PanelKey("prometheus", "main"))
    assert sum("group-" in row for row in text(flatten(alone.draw(), 80, alone.layout.height))) == 10
