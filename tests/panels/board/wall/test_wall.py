"""The fleet view: each size is full, the worst comes first, lines open, graphs sum what is known."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from sparktop.analysis.state import GRAVITY
from sparktop.analysis.wall import NODE_GRAVITY, node_of
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import LostGpu, MemoryReading, NodeSample
from sparktop.model.router import Fleet, FleetNode, FleetServer, FleetView, Scrape
from sparktop.model.series import HistoryTable, Series, known_sum, slot_values
from sparktop.model.snapshot import BackendState as Is
from sparktop.model.snapshot import NodeView, Snapshot
from sparktop.panels.board.layout import Boxes, PanelKey
from sparktop.panels.board.scene import Scene, flatten, is_wall
from sparktop.panels.board.view import View
from sparktop.panels.board.wall import WallOrders
from sparktop.panels.board.wall_lines import CELLS, cell_of, machine_columns
from sparktop.panels.parts.text import row_text, row_width
from stage.fleet import RehearsedFleet
from tests.panels.drawn import SIZES, flat, texts


def lines(scene: Scene) -> list[str]:
    """Return the rows of a scene as text, each checked to be as wide as the board."""
    return [row.rstrip() for row in texts(flat(scene))]


@pytest.mark.parametrize("size", SIZES)
def test_many_servers_are_a_wall_at_every_size(fleet: Snapshot, size: tuple[int, int]) -> None:
    """It fills the board exactly, begins with the totals and has the worst group first."""
    scene = Scene(fleet, *size)
    text = lines(scene)
    assert scene.layout.height == size[1] == len(text)
    assert "200 servers" in text[1]
    keys = scene.keys()
    assert next(key.name for key in keys if key.kind == "wall") == "llama-70b"
    assert PanelKey("machines", "") in keys
    down = replace(fleet, backends=tuple(replace(one, state=Is.UNREACHABLE) for one in fleet.backends))
    keys = Scene(down, *size).keys()
    assert sum(key.kind == "need attention" for key in keys) < size[1], "those in sight can be marked"


def test_few_servers_are_no_wall(fleet: Snapshot) -> None:
    """Servers that lists can show stay in lists at every size; hidden boxes do not count."""
    few = replace(fleet, backends=fleet.backends[:23], nodes=fleet.nodes[:10])
    assert not any(is_wall(few, *size, View()) for size in SIZES)
    hidden = View(boxes=Boxes(nodes=False, backends=False, events=True))
    assert not is_wall(fleet, 80, 22, hidden)


def test_the_filter_narrows_the_wall_and_says_how_to_drop_it(fleet: Snapshot) -> None:
    """The count of what is left stands in the totals; without a match, the remedy."""
    some = lines(Scene(fleet, 80, 22, View(filter="llama unreachable")))
    assert "2 of 200 servers" in some[1]
    assert "filter: llama unreachable" in some[-1]
    none = "\n".join(lines(Scene(fleet, 80, 22, View(filter="nothing like it"))))
    assert "no server or machine matches “nothing like it”" in none
    assert "esc drops the filter" in none


def test_a_filter_that_no_machine_matches_is_named_in_the_list_of_machines(fleet: Snapshot) -> None:
    """The machines are there, none of them matches: not "no machine is watched", and no other list."""
    machines = PanelKey("machines", "")
    rows = "\n".join(lines(Scene(fleet, 80, 22, View(filter="llama-001"), zoomed=machines)))
    assert "no machine matches “llama-001”" in rows
    assert "esc drops the filter" in rows
    assert "no machine is watched" not in rows
    assert "slow" not in rows


@pytest.mark.parametrize("size", SIZES)
def test_an_opened_group_has_a_line_for_each_server(fleet: Snapshot, size: tuple[int, int]) -> None:
    """The worst first; the line of one that is down says so, and its old figures are dimmed."""
    scene = Scene(fleet, *size, zoomed=PanelKey("members", "llama-70b"))
    text = lines(scene)
    keys = scene.keys()
    assert [key.name for key in keys[:2]] == ["llama-001", "llama-002"]
    assert len(keys) == sum(one.group == "llama-70b" for one in fleet.backends)
    down = next(row for row in text[1:] if "llama-001" in row)
    assert "unreachable" in down
    drawn = next(row for row in scene.draw()[0].rows[1:] if "llama-001" in row_text(row))
    assert "stale" in {role for _, role in drawn}


def test_no_two_kinds_of_trouble_look_alike() -> None:
    """Unreachable, stale and unknown differ from idle by their character, not by colour alone."""
    cells = [cell_of(state)[0] for state in ("unreachable", "stale", "unknown", "idle", "busy", "queueing")]
    assert len(set(cells)) == len(cells)
    known = {cell_of(state) for state in (*GRAVITY, *NODE_GRAVITY)}
    assert cell_of("a state of a later version") not in known
    assert not {cell for cell, _ in known} & set("·│─ ")  # what stands between figures and panels


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
SCRAPED_NODES = (
    FleetNode("n1", 100.0, state="busy", gpu_percent=80.0),
    FleetNode("n2", 100.0, down=True, state="unreachable"),
    FleetNode("n3", 100.0, state="slow clock", sm_clock_mhz=711.0),
)
VIEW = FleetView("main", "http://p:9090", Fleet(101.0, 15.0, SERVERS), age_s=4.0)


def scraped(
    view: FleetView, size: tuple[int, int] = (80, 22), *, zoomed: PanelKey | None = None
) -> list[str]:
    """Return the rows of the board with this Prometheus alone, each checked to be as wide as the board."""
    shown = Snapshot(datetime(2026, 1, 1, tzinfo=UTC), 102.0, 1.0, 2.0, fleets=(view,))
    return lines(Scene(shown, *size, None, zoomed=zoomed))


def test_the_board_begins_with_the_wall() -> None:
    """Where more servers are scraped than are read one by one: totals, age, and the worst groups."""
    text = scraped(VIEW)
    assert "every 15 s, newest 4 s old, rates over 60 s" in text[0]
    assert "rates over" not in scraped(replace(VIEW, by_rows=True))[0]
    assert "80 servers · 1 down · ≥7,900 tok/s" in text[1]
    assert text[3].startswith("│ group-2")
    assert "groups 1–4 of 10" in "\n".join(text)


def test_machines_of_a_prometheus_have_cells_and_lines() -> None:
    """One line for all on the wall; each with its state in the list that opens."""
    view = replace(VIEW, fleet=Fleet(101.0, 15.0, SERVERS, nodes=SCRAPED_NODES))
    machines = next(row for row in scraped(view, zoomed=MAIN) if row.startswith("│ machines"))
    assert "✖◐■" in machines
    assert "1 slow clock" in machines
    opened = scraped(view, zoomed=PanelKey("machines", "main"))
    assert [name for name in ("n2", "n3", "n1") if any(name in row for row in opened)] == ["n2", "n3", "n1"]
    assert "711 MHz" in "\n".join(opened)


NAMES = tuple(f"dgx-rack{rack}-node{at:02d}" for rack in (1, 2) for at in range(15))
GIB = 2**30


def with_gpu(name: str) -> FleetNode:
    """Return a machine of which all is known."""
    return FleetNode(
        name,
        state="busy",
        gpu_percent=90.0,
        power_w=41.0,
        temperature_c=61.0,
        sm_clock_mhz=2405.0,
        headroom_bytes=24.0 * GIB,
        load1=3.5,
        backends=("a-server",),
    )


@pytest.mark.parametrize("width", range(40, 198, 13))
def test_names_that_are_cut_stay_distinct(width: int) -> None:
    """No heading is cut at any width, and no line is wider or narrower than the list."""
    nodes = [with_gpu(name) for name in NAMES]
    columns = machine_columns(nodes, width)
    rows = [columns.heading, *map(columns.machine, nodes)]
    assert {row_width(row) for row in rows} == {width}
    assert len(set(columns.names.values())) == len(NAMES)
    assert "…" not in row_text(columns.heading)
    assert (width < 95) or ("servers" in row_text(columns.heading))


def test_a_machine_without_a_gpu_is_known() -> None:
    """It answers, so that its state is known; through a Prometheus its exporter may be missing."""
    sample = NodeSample(0.0, memory=MemoryReading(total_bytes=8 * GIB))
    view = NodeView("head", "ssh", sample, age_s=0.2)
    assert node_of(view).state == "no GPU"
    assert cell_of("no GPU") == cell_of("idle")
    assert node_of(replace(view, scrape=Scrape("main", 15.0))).state == "unknown"
    assert node_of(replace(view, gpus_lost=(LostGpu(0),))).state == "GPU lost"
    assert not node_of(replace(view, failure=Failure(FailureKind.LATE, "no new sample", 0.0))).down


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


def test_a_slot_has_the_sum_of_what_is_known() -> None:
    """Means of each server; a late poll holds the slot before, a server without an answer leaves the sum."""
    steady = history(dict.fromkeys(range(8, 24), 10.0))
    late = history({8.0: 4.0, 9.0: 6.0, 16.0: 7.0})
    dead = history({8.0: 1.0, 9.0: None})
    assert slot_values([steady, late, dead], range(2, 7), 4.0, known_sum) == [16.0, 16.0, 17.0, 17.0, 10.0]
    assert slot_values([late], range(5, 8), 4.0, known_sum) == [7.0, None, None]
    assert slot_values([], range(1, 2), 4.0, known_sum) == [None]


def test_a_moment_of_the_past_is_drawn_as_it_was() -> None:
    """Also after later moments, and by a board that has never drawn it; a filter sums what it leaves."""
    played, orders = RehearsedFleet(40, 0), WallOrders()
    before = played.play(14).snapshot()
    then = graphs(before, 120, orders=orders)
    later = played.play(14).snapshot()
    assert graphs(later, 120, orders=orders) != then
    assert graphs(before, 120, orders=orders) == graphs(before, 120) == then
    assert graphs(later, 120, View(filter="gemma-001")) != graphs(later, 120, View(filter="gemma"))
