"""Lists of machines: names that differ from each other, and why a machine cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from msgspec.structs import replace

from sparktop.analysis.state import verdict
from sparktop.model.event import Alert, Severity
from sparktop.model.failure import Failure, FailureKind, failure_words
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.bars import header_row
from sparktop.panels.board.layout import Place
from sparktop.panels.board.scene import node_list
from sparktop.panels.machine.panel import line_shape, node_panel, state_run
from sparktop.panels.parts.graph import TimeWindow
from sparktop.panels.parts.text import row_text, row_width
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


FAILURES = (
    (FailureKind.HOST_KEY, "ssh", "host key not trusted"),
    (FailureKind.UNAUTHORIZED, "ssh", "key refused"),
    (FailureKind.UNAUTHORIZED, "agent", "token refused"),
    (FailureKind.DNS, "ssh", "no such host"),
    (FailureKind.TIMEOUT, "ssh", "no answer"),
)


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize(("kind", "via", "words"), FAILURES)
def test_a_row_says_in_words_why_a_machine_cannot_be_read(
    kind: FailureKind, via: str, words: str, width: int
) -> None:
    """The message is far too long for it; the frame of its panel and the title say the same words."""
    shown = named(4, in_cluster)
    broken = replace(shown.nodes[1], sample=None, via=via, failure=Failure(kind, "why " * 50, shown.at))
    shown = replace(shown, nodes=(shown.nodes[0], broken, *shown.nodes[2:]))
    assert f" ✖ {words} " in "\n".join(drawn(shown, width))
    assert state_run(broken) == (words, "bad")
    title = verdict(shown).words
    assert title == f"{broken.name}: {words}" or words == "no answer"


def test_the_title_names_the_kind_of_failure_once_there_is_an_alert() -> None:
    """It said "down" of a machine whose alert was too long for it."""
    shown = named(4, in_cluster)
    broken = replace(shown.nodes[1], via="ssh", failure=Failure(FailureKind.HOST_KEY, "why " * 50, shown.at))
    alert = Alert(
        "node:spark-worker-1:unreachable", Severity.CRITICAL, broken.name, "why " * 50, shown.taken_at
    )
    shown = replace(shown, nodes=(broken,), alerts=(alert,))
    assert verdict(shown).words == "spark-worker-1: host key not trusted"
    assert verdict(shown).short == "spark-worker-1 down"


@pytest.mark.parametrize("width", [80, 120, 200])
def test_no_old_figure_of_a_dead_machine_stands_in_a_list(width: int) -> None:
    """Below its line stands the message in place of its CPU use and load; its panel has their age."""
    shown = named(4, in_cluster)
    message = "no answer from spark-worker-1 for 16 s: is the machine stuck? see its console and its power"
    dead = replace(shown.nodes[1], age_s=16.0, failure=Failure(FailureKind.TIMEOUT, message, shown.at))
    shown = replace(shown, nodes=(shown.nodes[0], dead, *shown.nodes[2:]))
    rows = drawn(shown, width, each=4)[5:9]
    cells = [row[1 : 2 + line_shape(shown.nodes, 54 if width == 200 else 38).width] for row in rows]
    assert not any(word in cell for cell in cells for word in ("CPU", "load", "mem"))
    assert " ".join(" ".join(cells[1:]).split()) == message
    edge = row_text(node_panel(dead, 120, 8, TimeWindow(shown.at, 60.0), 100.0)[-1])
    assert "✖, figures 16 s old: no answer" in edge


def test_every_kind_of_failure_has_words() -> None:
    """None is longer than a row of 80 columns has beside a name."""
    words = [failure_words(Failure(kind, "", 0.0)) for kind in FailureKind]
    assert all(0 < len(one) <= 24 for one in words)


def test_the_title_of_80_columns_names_the_fault_of_a_long_name() -> None:
    """The name is cut; before, only the number of alerts was left."""
    name = "gpu-server-with-a-very-long-name.cluster.example.company.com"
    shown = machines(4)
    alert = Alert(f"node:{name}:thermal", Severity.CRITICAL, name, "why " * 50, shown.taken_at)
    title = row_text(header_row(replace(shown, alerts=(alert,)), 80))
    assert "✖ gpu-server-with-a-very-… near its thermal limit" in title
