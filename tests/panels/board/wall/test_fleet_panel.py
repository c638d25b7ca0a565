"""The wall of a Prometheus: the worst group first, a cell for each server, every row as wide as its panel."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import Fleet, FleetNode, FleetServer, FleetView
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import PrometheusTarget, StateThresholds, Thresholds, Watch
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.board.scene import Scene, flatten
from sparktop.panels.board.view import View
from sparktop.panels.board.wall import direct_wall, fleet_wall
from sparktop.panels.parts.text import row_text, row_width
from sparktop.report.json_snapshot import to_json
from sparktop.store import SourceKey, Store

MAIN = PanelKey("prometheus", "main")
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
NODES = (
    FleetNode("n1", 100.0, state="busy", gpu_percent=80.0),
    FleetNode("n2", 100.0, down=True, state="unreachable"),
    FleetNode("n3", 100.0, state="slow clock", sm_clock_mhz=711.0),
)
VIEW = FleetView("main", "http://p:9090", Fleet(101.0, 15.0, SERVERS), age_s=4.0)


def lines(
    view: FleetView,
    size: tuple[int, int] = (80, 22),
    *,
    chosen: View | None = None,
    zoomed: PanelKey | None = None,
    selected: PanelKey | None = None,
) -> list[str]:
    """Return the rows of the board with this Prometheus alone, each checked to be as wide as the board."""
    shown = Snapshot(datetime(2026, 1, 1, tzinfo=UTC), 102.0, 1.0, 2.0, fleets=(view,))
    scene = Scene(shown, *size, chosen, zoomed=zoomed, selected=selected)
    rows = flatten(scene.draw(), size[0], scene.layout.height)
    assert {row_width(row) for row in rows} == {size[0]}
    return [row_text(row).rstrip() for row in rows]


def test_the_board_begins_with_the_wall() -> None:
    """Where more servers are scraped than are read one by one: totals, age, and the worst groups."""
    text = lines(VIEW)
    assert "every 15 s, newest 4 s old, rates over 60 s" in text[0]
    assert "rates over" not in lines(replace(VIEW, by_rows=True))[0]
    assert "80 servers · 1 down · ≥7,900 tok/s" in text[1]
    assert text[3].startswith("│ group-2")
    assert "groups 1–4 of 10" in "\n".join(text)


@pytest.mark.parametrize("size", [(60, 14), (80, 22), (120, 34), (200, 48)])
def test_alone_it_has_every_group_and_the_legend(size: tuple[int, int]) -> None:
    """Groups are sorted: down first, then waiting; the legend has the number of servers in each state."""
    text = lines(VIEW, size, zoomed=MAIN)
    found = [row.split()[1].removeprefix("│") for row in text if row.startswith("│ group-")]
    assert found[:3] == ["group-2", "group-4", "group-0"]
    assert any("✖" in row and ("1 unreachable" in row or "✖1 down" in row) for row in text[:3])


def test_a_marked_group_has_an_arrow() -> None:
    """The mark is that of lists."""
    marked = lines(VIEW, zoomed=MAIN, selected=PanelKey("wall", "group-4"))
    assert [row.split()[0] for row in marked if "▶" in row] == ["│▶group-4"]


def test_a_group_opens_with_a_line_for_each_server() -> None:
    """An opened group lists each server by its name, whichever Prometheus it is read from."""
    text = lines(VIEW, zoomed=PanelKey("scraped", "group-2"))
    assert "8 servers · 1 down" in text[1]
    assert "s17" in text[4]
    assert "unreachable" in text[4]


def test_machines_of_a_prometheus_have_cells_and_lines() -> None:
    """One line for all on the wall; each with its state in the list that opens."""
    view = replace(VIEW, fleet=Fleet(101.0, 15.0, SERVERS, nodes=NODES))
    machines = next(row for row in lines(view, zoomed=MAIN) if row.startswith("│ machines"))
    assert "✖◐■" in machines
    assert "1 slow clock" in machines
    opened = lines(view, zoomed=PanelKey("machines", "main"))
    assert [name for name in ("n2", "n3", "n1") if any(name in row for row in opened)] == ["n2", "n3", "n1"]
    assert "711 MHz" in "\n".join(opened)


def test_a_failure_stands_in_the_lower_edge() -> None:
    """The lower edge has the message of a Prometheus that does not answer or is late."""
    failed = replace(VIEW, failure=Failure(FailureKind.LATE, "main itself is late", 100.0))
    assert "main itself is late" in lines(failed, zoomed=MAIN)[-1]


def test_before_the_first_answer_the_wall_is_empty_and_says_so() -> None:
    """Neither zeros nor a claim that nothing is there."""
    text = lines(replace(VIEW, fleet=None, age_s=None), zoomed=MAIN)
    assert "no sample yet" in text[0]
    assert "no server yet" in text[1]


def test_the_filter_narrows_the_wall() -> None:
    """The filter matches names, groups and states."""
    text = lines(VIEW, chosen=View(filter="unreachable"), zoomed=MAIN)
    assert "1 of 80 servers" in text[1]


def test_the_same_answer_is_grouped_once() -> None:
    """10,000 servers are sorted at every answer, filter and change of limits, but not at every drawing."""
    fleet, usual = Fleet(101.0, 15.0, SERVERS), StateThresholds()
    assert fleet_wall(fleet, "", usual) is fleet_wall(fleet, "", StateThresholds())
    assert fleet_wall(fleet, "group-1", usual) is not fleet_wall(fleet, "", usual)
    assert fleet_wall(replace(fleet, at=102.0), "", usual) is not fleet_wall(fleet, "", usual)
    assert fleet_wall(fleet, "", StateThresholds(kv_full_percent=90)) is not fleet_wall(fleet, "", usual)


def test_a_key_groups_what_is_watched_directly_no_second_time() -> None:
    """The wall of a snapshot is built once per filter; another snapshot is grouped anew."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    first, second = (Snapshot(now, at, 1.0, 2.0) for at in (100.0, 101.0))
    wall = direct_wall(first, "")
    assert direct_wall(first, "") is wall
    assert direct_wall(first, "group-1") is not wall
    assert direct_wall(second, "") is not wall


def test_the_configured_thresholds_judge_the_wall() -> None:
    """They apply on the screen and in JSON, as to a polled server; a reload applies other ones."""
    configured = StateThresholds(kv_full_percent=80.0, busy_running=2.0)
    servers = (
        FleetServer("a", "http://a", "g", at=90.0, running=1.0, kv_cache_percent=85.0),
        FleetServer("b", "http://b", "g", at=90.0, running=2.0, waiting=0.0, generation_tps=10.0),
    )
    watch = Watch(prometheus=(PrometheusTarget("main", "http://p"),), thresholds=configured, source="test")
    store = Store(watch, clock=lambda: 100.0)
    store.accept(SourceKey.prometheus("main"), Fleet(100.0, 15.0, servers), 1.0)

    def states() -> list[str]:
        shown = store.snapshot()
        found: Any = to_json(shown)["prometheus"]
        in_json = [one["state"] for one in found[0]["servers"]]
        rows = flatten(Scene(shown, 100, 30, View(), zoomed=MAIN).draw(), 100, 30)
        drawn = "\n".join(row_text(row) for row in rows)
        assert all(state in drawn for state in in_json)
        return in_json

    assert states() == ["KV-full", "busy"]
    store.set_thresholds(Thresholds())
    assert states() == ["bored", "bored"]
