"""Names of servers in the table: they are cut where there is no room, not beside free cells."""

from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace

from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.scene import Scene, flatten
from sparktop.panels.board.view import Preset, View
from sparktop.panels.parts.text import row_text, row_width
from stage.fleet import RehearsedFleet

LONG = "inference-eu-west-1-"
COMPACT = View(preset=Preset.COMPACT)


@cache
def servers(count: int, prefix: str = "") -> Snapshot:
    """Return a snapshot of `count` servers alone, whose names begin with `prefix`."""
    shown = RehearsedFleet(count, 0).play(20).snapshot()
    views = tuple(replace(one, name=prefix + one.name) for one in shown.backends)
    return replace(shown, backends=views, routers=(), balance=())


def table(snapshot: Snapshot, width: int, height: int) -> list[str]:
    """Return the rows of the table of all servers, each checked to be as wide as the board."""
    scene = Scene(snapshot, width, height, COMPACT)
    rows = flatten(scene.draw(), width, height)
    assert {row_width(row) for row in rows} == {width}
    return [row_text(row) for row in rows]


@pytest.mark.parametrize("count", [14, 30, 60])
def test_names_stand_whole_where_the_graph_has_room(count: int) -> None:
    """At 200 columns nothing is left out for them, and each server still has its graph."""
    long, short = table(servers(count, LONG), 200, 48), table(servers(count), 200, 48)
    assert all(f" {view.name} " in "".join(long) for view in servers(count, LONG).backends[:10])
    headings = [row[1].replace("⣿run+⡪wait", "").split() for row in (long, short)]
    assert headings[0] == headings[1]
    assert "max " in long[1]


def test_in_high_entries_names_get_the_cells_of_figures_that_are_below() -> None:
    """With six servers each has its TTFT and KV cache in rows of its own; all figures are still there."""
    rows = table(servers(6, LONG), 200, 34)
    assert "TTFT p95" not in rows[1]
    first = [at for at, row in enumerate(rows) if "…eu-west-1-" in row]
    assert len(first) == 6
    assert all(rows[at + 1].split()[1] == "TTFT" and rows[at + 3].split()[1] == "KV" for at in first)


def test_short_names_leave_the_columns_as_they_are() -> None:
    """No figure gives way, and the graph keeps its cells."""
    shown = servers(6)
    short = tuple(replace(one, name=f"spark-{at}") for at, one in enumerate(shown.backends))
    few = table(replace(shown, backends=short), 200, 48)
    assert few[1].split()[:10] == ["│", "backend", "state", "10", "s", "tok/s", "run", "wait", "KV", "TTFT"]
    many = table(servers(60), 200, 48)
    assert many[1].index("state") == len("│ ") + 17
