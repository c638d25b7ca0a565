"""Lists of machines: names that differ from each other at every size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.layout import Place
from sparktop.panels.board.lists import node_list
from sparktop.panels.node.table import line_shape
from sparktop.panels.parts.graph import TimeWindow
from sparktop.panels.parts.rows import row_text, row_width
from stage.fleet import RehearsedFleet


@cache
def machines(count: int) -> Snapshot:
    """Return a snapshot of `count` machines alone."""
    shown = RehearsedFleet(0, count).play(20).snapshot()
    return replace(shown, backends=(), routers=(), balance=(), alerts=())


def named(count: int, name: Callable[[int], str]) -> Snapshot:
    """Return `machines` with other names."""
    shown = machines(count)
    return replace(shown, nodes=tuple(replace(one, name=name(at)) for at, one in enumerate(shown.nodes)))


def in_cluster(at: int) -> str:
    """Return the name of a machine of a small cluster."""
    return f"spark-worker-{at}" if at else "spark-head"


def in_rack(at: int) -> str:
    """Return the name of a machine of a computing centre."""
    return f"dgx-rack{at // 10 + 1}-node{at % 10:02d}"


def drawn(shown: Snapshot, width: int, each: int = 1, columns: int = 1) -> list[str]:
    """Return the rows inside a list with `each` rows for a machine, each checked to be as wide as it."""
    lines = -(-len(shown.nodes) // columns)
    place = Place("nodes", 0, 0, 0, width, 3 - (columns > 1) + each * lines, columns)
    rows = node_list(place, shown.nodes, TimeWindow(shown.at, 60.0), None).rows
    assert {row_width(row) for row in rows} == {width}
    return [row_text(row) for row in rows[1:-1]]


@pytest.mark.parametrize("each", [1, 2, 4])
@pytest.mark.parametrize(("count", "name"), [(4, in_cluster), (30, in_rack)])
def test_names_are_whole_where_they_have_room(count: int, name: Callable[[int], str], each: int) -> None:
    """At 200 columns nothing of their lines is left out but a CPU use that stands below or beside them."""
    text = "\n".join(drawn(named(count, name), 200, each))
    assert all(f" {name(at)} " in text for at in range(count))
    assert text.count(" mem ") >= count - 1
    assert text.count("°") == count + 1


@pytest.mark.parametrize(("width", "columns"), [(80, 1), (120, 1), (80, 2), (120, 3), (80, 4)])
@pytest.mark.parametrize(("count", "name"), [(4, in_cluster), (20, in_rack)])
def test_names_that_are_cut_stay_distinct(
    count: int, name: Callable[[int], str], width: int, columns: int
) -> None:
    """They end as the whole names do, and stand before the GPU use of their machine."""
    rows = drawn(named(count, name), width, columns=columns)[columns == 1 :]
    each = (width - 2) // columns
    entries = [row[1 + at * each : 1 + (at + 1) * each] for row in rows for at in range(columns)]
    names = [entry.split()[0] for entry in entries[:count]]
    assert len(set(names)) == count
    assert all(name(at).endswith(shown.lstrip("…")) for at, shown in enumerate(names))
    assert all(" %" in entry for entry in entries[:count])


def test_short_names_leave_the_line_as_it_is() -> None:
    """The bar keeps its five cells and the name its eight."""
    assert (line_shape(machines(4).nodes, 38).name, line_shape(machines(4).nodes, 38).bar) == (8, 5)


@pytest.mark.parametrize("width", range(18, 60))
def test_values_give_way_to_names_that_would_be_alike(width: int) -> None:
    """In entries of 18 cells, too, twenty machines of two racks have twenty names."""
    shape = line_shape(named(20, in_rack).nodes, width)
    assert len(set(shape.names.values())) == 20
