"""The wall of servers that are polled: every size is full, lines can be opened, few rows are drawn."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.analysis.state import GRAVITY, NODE_GRAVITY, Stated, Top, Wall, WallGroup
from sparktop.model.router import FleetNode, FleetServer
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.layout import Boxes, PanelKey
from sparktop.panels.board.scene import Scene, flatten, is_wall
from sparktop.panels.board.view import Preset, View
from sparktop.panels.board.wall import Look, draw_wall
from sparktop.panels.board.wall_lines import cell_of, legend, state_run, strip
from sparktop.panels.parts.text import Run, row_text, row_width

SIZES = [(60, 14), (80, 22), (120, 34), (200, 48)]


def lines(scene: Scene) -> list[str]:
    """Return the rows of a scene as text, each checked to be as wide as the board."""
    rows = flatten(scene.draw(), scene.width, scene.layout.height)
    assert {row_width(row) for row in rows} == {scene.width}
    return [row_text(row).rstrip() for row in rows]


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


@pytest.mark.parametrize("size", SIZES)
def test_no_heading_is_cut(fleet: Snapshot, size: tuple[int, int]) -> None:
    """Columns without room are left out, with their headings."""
    heading = next(row for row in lines(Scene(fleet, *size)) if "tok/s TTFT" in row)
    assert "TTFT p95" in heading
    assert "…" not in heading
    assert ("balance" in heading) is (size[0] > 60)


@pytest.mark.parametrize("preset", [Preset.COMPACT, Preset.ONE])
def test_other_views_have_no_wall(fleet: Snapshot, preset: Preset) -> None:
    """The table and one backend stay what they are."""
    assert not is_wall(fleet, 80, 22, View(preset=preset))


@pytest.mark.parametrize(("wall_from", "expected"), [(None, True), (0, False), (200, True), (201, False)])
def test_the_number_from_which_it_is_a_wall_can_be_set(
    fleet: Snapshot, wall_from: int | None, *, expected: bool
) -> None:
    """0 means never; without a number, the size decides."""
    assert is_wall(fleet, 80, 22, View(wall_from=wall_from)) is expected


def test_few_servers_are_no_wall(fleet: Snapshot) -> None:
    """Servers that lists can show stay in lists at every size; hidden boxes do not count."""
    few = replace(fleet, backends=fleet.backends[:23], nodes=fleet.nodes[:10])
    assert not any(is_wall(few, *size, View()) for size in SIZES)
    hidden = View(boxes=Boxes(nodes=False, backends=False, events=True))
    assert not is_wall(fleet, 80, 22, hidden)


def test_lists_stand_beside_the_groups_or_below_or_not_at_all(fleet: Snapshot) -> None:
    """By the room: beside at 200×50, below at 120×36; at 80×24 the key shows one after the other."""
    for size, listed in (((80, 22), False), ((120, 34), True), ((200, 48), True)):
        keys = Scene(fleet, *size).keys()
        assert any(key.kind == Top.WAITING for key in keys) is listed
    full = Scene(fleet, 80, 22, View(top=Top.KV))
    keys = full.keys()
    assert {key.kind for key in keys} == {"backend"}
    assert "fullest KV" in "\n".join(lines(full))


def test_an_empty_list_says_what_is_not_there(fleet: Snapshot) -> None:
    """An empty list says in words that no request waits, or that no machine is watched."""
    calm = replace(fleet, backends=tuple(replace(one, waiting=0.0) for one in fleet.backends))
    assert "no request waits" in "\n".join(lines(Scene(calm, 80, 22, View(top=Top.WAITING))))
    alone = replace(fleet, nodes=())
    assert "no machine is watched" in "\n".join(lines(Scene(alone, 80, 22, View(top=Top.CLOCK))))


def test_the_filter_narrows_the_wall_and_says_how_to_drop_it(fleet: Snapshot) -> None:
    """The count of what is left stands in the totals; without a match, the remedy."""
    some = lines(Scene(fleet, 80, 22, View(filter="llama unreachable")))
    assert "2 of 200 servers" in some[1]
    assert "filter: llama unreachable" in some[-1]
    none = "\n".join(lines(Scene(fleet, 80, 22, View(filter="nothing like it"))))
    assert "no server or machine matches “nothing like it”" in none
    assert "esc drops the filter" in none


@pytest.mark.parametrize("size", SIZES)
def test_an_opened_group_has_a_line_for_each_server(fleet: Snapshot, size: tuple[int, int]) -> None:
    """The worst first; the line of one that is down says so, and its old figures are dimmed."""
    scene = Scene(fleet, *size, zoomed=PanelKey("members", "llama-70b"))
    text = lines(scene)
    keys = scene.keys()
    assert [key.name for key in keys[:2]] == ["llama-001", "llama-002"]
    assert len(keys) == sum(one.group == "llama-70b" for one in fleet.backends)
    down = next(row for row in text if "llama-001" in row)
    assert "unreachable" in down
    drawn = next(row for row in scene.draw()[0].rows if "llama-001" in row_text(row))
    assert "stale" in {role for _, role in drawn}


def test_the_opened_machines_have_a_line_each(fleet: Snapshot) -> None:
    """With state, GPU use, clock and headroom; the worst first."""
    scene = Scene(fleet, 120, 34, zoomed=PanelKey("machines", ""))
    text = "\n".join(lines(scene))
    assert len(scene.keys()) == 40
    assert "low memory" in text
    assert "711 MHz" in text


def test_a_long_list_keeps_the_marked_line_in_sight(fleet: Snapshot) -> None:
    """The lines in sight follow the mark, and the lower edge counts them."""
    members = [one.name for one in fleet.backends if one.group == "gpt-oss"]
    zoomed = PanelKey("members", "gpt-oss")
    last = Scene(fleet, 80, 22, zoomed=zoomed).keys()[-1]
    scene = Scene(fleet, 80, 22, zoomed=zoomed, selected=last)
    text = lines(scene)
    assert sum(name in row for row in text for name in members) < len(members)
    assert any(row.startswith("│▶") and last.name in row for row in text)
    assert f"of {len(members)}" in text[-1]


def test_a_group_that_is_gone_leaves_the_board(fleet: Snapshot) -> None:
    """Its servers were removed meanwhile: the wall is shown."""
    scene = Scene(fleet, 80, 22, zoomed=PanelKey("members", "no such group"))
    assert scene.layout.places[0].kind == "wall"


def test_no_two_kinds_of_trouble_look_alike() -> None:
    """Unreachable, stale and unknown differ from idle by their character, not by colour alone."""
    cells = [cell_of(state)[0] for state in ("unreachable", "stale", "unknown", "idle", "busy", "queueing")]
    assert len(set(cells)) == len(cells)
    known = {cell_of(state) for state in (*GRAVITY, *NODE_GRAVITY)}
    assert cell_of("a state of a later version") not in known
    assert not {cell for cell, _ in known} & set("·│─ ")  # what stands between figures and panels


@pytest.mark.parametrize("width", [4, 9, 40, 70])
def test_a_strip_shows_each_state_at_least_once(width: int) -> None:
    """A cell for each server where there is room, else by share; always exactly as wide as asked."""
    states = ["unreachable"] + ["queueing"] * 9 + ["busy"] * 40
    row = strip(states, width)
    assert row_width(row) == width
    drawn = row_text(row)
    assert [cell in drawn for cell in "✖▲■"] == [True] * 3
    assert drawn.count("✖") == 1


def test_the_legend_counts_the_states() -> None:
    """In full where there is room, else without blanks."""
    states = {"unreachable": 2, "idle": 1200}
    assert list(map(row_text, legend(states, 60).values())) == ["✖ 2 unreachable  ", "▫ 1,200 idle  "]
    assert list(map(row_text, legend(states, 22).values())) == ["✖2 down ", "▫1,200 idle "]


def test_only_what_is_in_sight_is_drawn(fleet: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is made for no more servers than the panel has rows."""
    made: list[str] = []

    def counted(state: str, width: int) -> Run:
        made.append(state)
        return state_run(state, width)

    monkeypatch.setattr("sparktop.panels.board.wall_lines.state_run", counted)
    Scene(fleet, 80, 22, zoomed=PanelKey("members", "gpt-oss")).draw()
    assert 0 < len(made) <= 20


@pytest.mark.parametrize("machines", [0, 1, 2])
@pytest.mark.parametrize("height", range(3, 12))
def test_a_low_wall_shows_groups_before_headings(height: int, machines: int) -> None:
    """At least one group is shown before any heading; the frame's range names the groups in sight, if any."""
    servers = tuple(Stated(FleetServer(f"s{at}", f"http://s{at}", f"group-{at}"), "busy") for at in range(3))
    groups = tuple(WallGroup(f"group-{at}", (one,), {"busy": 1}) for at, one in enumerate(servers))
    nodes = tuple(FleetNode(f"spark-{at}", state="busy") for at in range(machines))
    wall = Wall(groups, nodes, 3, machines)
    drawn = draw_wall(wall, 80, height, Look([]))
    text = "\n".join(row_text(row) for row in drawn.rows)
    shown = sum(f"group-{at} " in text for at in range(3))
    assert len(drawn.rows) == height
    assert shown >= min(1, height - 3)
    assert ("groups 1–" in text) == (0 < shown < 3)
    assert f"1–{shown} of 3" in text or shown in {0, 3}
    assert "1 machines" not in text
    assert len(drawn.keys) >= 3 + bool(machines)
