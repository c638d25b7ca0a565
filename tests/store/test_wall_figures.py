"""Where all servers of a Prometheus are read sample by sample, its wall and the title sum the rows."""

from __future__ import annotations

from msgspec.structs import replace

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import Fleet, FleetServer, FleetView
from sparktop.model.snapshot import BackendView
from sparktop.store.figures import totals
from sparktop.store.tracks import WallFigures

SERVERS = tuple(
    FleetServer(f"h:{port}", f"http://h:{port}", "g", 90.0, running=2.0, waiting=1.0, generation_tps=122.5)
    for port in (8000, 8001)
)
WALL = FleetView("prom", "http://p:9090", Fleet(100.0, 15.0, SERVERS))
ROWS = tuple(
    BackendView(one.name, one.url, "g", age_s=3.0, running=4.0, waiting=0.0, generation_tps=200.5)
    for one in SERVERS
)


def test_the_title_is_the_sum_of_the_rows() -> None:
    """The rates of the Prometheus over a minute are those of neither; equal answers stay the same object."""
    figures = WallFigures()
    (view,) = figures.of([WALL], ROWS)
    assert view.by_rows
    assert view.fleet is not None
    assert [one.generation_tps for one in view.fleet.servers] == [200.5, 200.5]
    assert totals(ROWS, [view]).generation_tps.value == 401.0
    assert figures.of([WALL], ROWS)[0].fleet is view.fleet
    changed = (replace(ROWS[0], running=5.0), ROWS[1])
    assert totals(changed, figures.of([WALL], changed)).running.value == 9.0


def test_with_a_server_that_has_no_row_the_rates_are_those_of_the_prometheus() -> None:
    """Rates of two windows are not added; the wall says which it has."""
    (view,) = WallFigures().of([WALL], [ROWS[0], replace(ROWS[1], url="http://other:1")])
    assert view is WALL
    assert WallFigures().of([WALL], ROWS[:1]) == (WALL,)


def test_a_server_without_an_answer_keeps_what_the_wall_says() -> None:
    """One is down; the other's row has no sample yet, or a failure."""
    assert WALL.fleet is not None
    down = replace(SERVERS[0], down=True, running=None)
    wall = replace(WALL, fleet=replace(WALL.fleet, servers=(down, SERVERS[1])))
    late = Failure(FailureKind.LATE, "no new sample", 90.0)
    for row in (replace(ROWS[1], age_s=None), replace(ROWS[1], failure=late)):
        (view,) = WallFigures().of([wall], [ROWS[0], row])
        assert view.fleet is not None
        assert view.fleet.servers == (down, SERVERS[1])
