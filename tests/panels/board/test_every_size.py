"""The whole board at four sizes with 1 to 12 nodes and backends in every state, checked over rows of text."""

from __future__ import annotations

from itertools import cycle, product
from typing import TypeVar

import pytest
from msgspec.structs import replace

from sparktop.demo.scenario import backend_name
from sparktop.model.balance import BalanceWord
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import BackendState, BackendView, NodeView, Snapshot, SpeedState
from sparktop.panels.board.layout import Drawn
from sparktop.panels.board.scene import Scene, flatten
from sparktop.panels.board.view import Preset, Sort, View
from sparktop.panels.parts.figures import SHORT_STATES
from sparktop.panels.parts.text import figures_width, graph_columns, graph_starts, row_text, row_width
from stage.rehearsal import Rehearsal

pytestmark = pytest.mark.long

SIZES = [(60, 14), (80, 22), (120, 34), (200, 48)]
"""Boards of screens of 60×16, 80×24, 120×36 and 200×50 cells, without header and footer."""
COUNTS = (1, 2, 5, 12)
CASES = list(product(SIZES, COUNTS))
Shown = TypeVar("Shown", NodeView, BackendView)
REFUSED = Failure(FailureKind.REFUSED, "connection refused", 90.0)


@pytest.fixture(scope="module")
def twelve() -> Snapshot:
    """Return twelve nodes and backends: four, each three times, which takes a third of the time to play."""
    four = Rehearsal(backends=4, nodes=4).play(145).snapshot()
    names = [backend_name(index) for index in range(12)]
    return replace(
        four,
        backends=tuple(
            replace(view, name=name) for name, view in zip(names, cycle(four.backends), strict=False)
        ),
        nodes=tuple(replace(view, name=name) for name, view in zip(names, cycle(four.nodes), strict=False)),
    )


def fleet(twelve: Snapshot, count: int) -> Snapshot:
    """Return the first nodes and backends, whose group oscillates."""
    backends, nodes = twelve.backends[:count], twelve.nodes[:count]
    (balance,) = twelve.balance
    judged = replace(
        balance,
        backends=tuple(view.name for view in backends),
        word=BalanceWord.OSCILLATING,
        word_now=BalanceWord.OSCILLATING,
        router="proxy",
        period_s=10.0,
        lost_percent=26.0,
        hint="use simple-shuffle: it needs no counts",
        cause="the router's counts are outdated",
    )
    return replace(twelve, backends=backends, nodes=nodes, balance=(judged,) if count > 1 else ())


def in_states(shown: Snapshot) -> list[Snapshot]:
    """Return snapshots in which the backends and nodes have each state at least once."""
    states = list(BackendState)
    moments = []
    for first in range(0, len(states), len(shown.backends)):
        chosen = cycle(states[first:] + states[:first])
        backends = tuple(in_state(view, state) for view, state in zip(shown.backends, chosen, strict=False))
        moments.append(replace(shown, backends=backends))
    slow = SpeedState("slow clock", "712 of 3003 MHz", "USB-PD power delivery", "unplug the adapter")
    broken = [replace(shown.nodes[0], failure=REFUSED), replace(shown.nodes[0], speed=slow)]
    return [*moments, *(replace(shown, nodes=(node, *shown.nodes[1:])) for node in broken)]


def in_state(view: BackendView, state: BackendState) -> BackendView:
    failure = REFUSED if state is BackendState.UNREACHABLE else None
    rule = "it does not report how many requests run" if state is BackendState.UNKNOWN else view.state_rule
    return replace(view, state=state, state_rule=rule, state_window_s=None, failure=failure)


def drawn(shown: Snapshot, size: tuple[int, int], preset: Preset = Preset.WATCH) -> tuple[Scene, list[str]]:
    scene = Scene(shown, *size, View(preset=preset))
    rows = flatten(scene.draw(), size[0], scene.layout.height)
    assert {row_width(row) for row in rows} == {size[0]}
    return scene, [row_text(row) for row in rows]


def panels(scene: Scene) -> list[Drawn]:
    """Return the panels with their frames, without the entries of lists."""
    return [panel for panel in scene.draw() if panel.rows]


@pytest.mark.parametrize(("size", "count"), CASES)
def test_every_node_and_backend_and_the_verdict_are_in_sight(
    twelve: Snapshot, size: tuple[int, int], count: int
) -> None:
    """Without scrolling, nodes show their GPU, backends state and load, and the group its verdict."""
    shown = fleet(twelve, count)
    for moment in in_states(shown):
        scene, lines = drawn(moment, size)
        keys = scene.keys()
        assert scene.layout.height == size[1]
        assert [key.name for key in keys if key.kind == "node"] == [view.name for view in moment.nodes]
        assert [key.name for key in keys if key.kind == "backend"] == [view.name for view in moment.backends]
        own = {(panel.key.kind, panel.key.name): text_at(panel, lines) for panel in scene.draw()}
        for node in moment.nodes:
            text = own["node", node.name]
            assert node.name in text
            assert "%" in text or node.failure is not None
        for backend in moment.backends:
            text = own["backend", backend.name]
            assert backend.name in text
            short = SHORT_STATES.get(backend.state, backend.state.value)
            assert backend.state.value in text or short in text
            assert str(round(backend.running or 0)) in text
        assert "oscillating" in "\n".join(lines) or count == 1


def text_at(panel: Drawn, lines: list[str]) -> str:
    """Return the text of the board in the place of a panel or of a list's entry."""
    place = panel.place
    rows = lines[place.y : place.y + place.height]
    return "\n".join(row[place.x : place.x + place.width] for row in rows)


@pytest.mark.parametrize(("size", "count"), CASES)
def test_no_sentence_is_cut_in_a_panel_with_a_free_row(
    twelve: Snapshot, size: tuple[int, int], count: int
) -> None:
    """Where the column of words ends in dots, no row of the same panel is empty."""
    for moment in in_states(fleet(twelve, count)):
        scene, _ = drawn(moment, size)
        for panel in panels(scene):
            words = [row_text(row)[1 : 2 + figures_width(panel.place.width)] for row in panel.rows[1:-1]]
            cut = [line for line in words if line.rstrip().endswith("…")]
            assert not cut or all(line.strip() for line in words), (panel.key, cut)


@pytest.mark.parametrize(("size", "count"), CASES)
@pytest.mark.parametrize("preset", [Preset.WATCH, Preset.COMPACT, Preset.WALL])
def test_nothing_on_the_board_is_cut(
    twelve: Snapshot, size: tuple[int, int], count: int, preset: Preset
) -> None:
    """No word, value, caption or heading ends in dots, in any state, view and order."""
    for moment in in_states(fleet(twelve, count)):
        for sort in (Sort.CONFIG, Sort.MEMORY):
            scene = Scene(moment, *size, View(preset=preset, sort=sort))
            rows = flatten(scene.draw(), size[0], scene.layout.height)
            assert not [line for line in map(row_text, rows) if "…" in line], sort


@pytest.mark.parametrize(("size", "count"), CASES)
def test_no_quarter_of_a_busy_board_is_empty(twelve: Snapshot, size: tuple[int, int], count: int) -> None:
    """The largest rectangle without a character is at most a quarter of the board, in every view."""
    for preset in (Preset.WATCH, Preset.COMPACT, Preset.WALL):
        _, lines = drawn(fleet(twelve, count), size, preset)
        assert largest_blank(lines) <= size[0] * size[1] / 4, preset


def largest_blank(lines: list[str]) -> int:
    """Return the area in cells of the largest rectangle of spaces."""
    best = 0
    heights = [0] * len(lines[0])
    for line in lines:
        heights = [height + 1 if char == " " else 0 for height, char in zip(heights, line, strict=True)]
        for start, low in enumerate(heights):
            lowest = low
            for end in range(start, len(heights)):
                lowest = min(lowest, heights[end])
                if not lowest:
                    break
                best = max(best, lowest * (end - start + 1))
    return best


@pytest.mark.parametrize(("size", "count"), [case for case in CASES if case[1] > 1])
def test_equal_loads_look_equal(twelve: Snapshot, size: tuple[int, int], count: int) -> None:
    """Backends with one history have the same dots, whichever place on the board they have."""
    shown = fleet(twelve, count)
    first = shown.backends[0]
    same = tuple(replace(first, name=view.name, load=None) for view in shown.backends)
    scene, lines = drawn(replace(shown, backends=same), size)
    graphs = []
    starts = graph_starts(size[0])
    for panel in scene.draw():
        place = panel.place
        if panel.key.kind == "backend" and place.width >= size[0] - 2:
            inside = lines[place.y : place.y + place.height]
            dots = [
                "".join(c if "\u2800" <= c <= "\u28ff" else " " for c in row[starts[0] :]) for row in inside
            ]
            graphs.append([row for row in dots if row.strip()])
    assert len({place.height for place in scene.layout.places if place.kind == "backend"}) <= 1
    assert graphs or any(place.columns > 1 for place in scene.layout.places)
    assert all(graph == graphs[0] for graph in graphs)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [2, 5])
def test_all_graphs_show_the_same_time(twelve: Snapshot, size: tuple[int, int], count: int) -> None:
    """What happens at one moment on node and backend stands in one column: dips above dips."""
    shown = fleet(twelve, count)
    node, backend = moving(shown.nodes[0], 2.0), moving(shown.backends[0], 1.0)
    nodes = tuple(replace(node, name=view.name) for view in shown.nodes)
    backends = tuple(replace(backend, name=view.name, load=None) for view in shown.backends)
    scene, lines = drawn(replace(shown, nodes=nodes, backends=backends, at=80.3), size)
    each = graph_columns(size[0])[1]
    start = graph_starts(size[0])[0]
    found = {}
    for panel in scene.draw():
        place = panel.place
        if panel.key.kind in {"node", "backend"} and place.width >= size[0] - 2:
            foot = place.y + place.height - 1 - (place.kind != "row")
            top = [line[start : start + each] for line in lines[place.y : foot + 1]]
            dots = [column for column in range(each) if sum(row[column] in FULL for row in top)]
            found[panel.key.kind] = dots
    assert found["backend"]
    if "node" in found:
        assert max(abs(a - b) for a, b in zip(ends(found["node"]), ends(found["backend"]), strict=True)) <= 1


FULL = set("⣿⣾⣷⣶⣦⣴⡆⢰⢸⡇⣧⣼⣇⣸⣭⡅⢨")


def ends(columns: list[int]) -> tuple[int, int]:
    return columns[0], columns[-1]


def moving(view: Shown, every_s: float) -> Shown:
    """Return a node or backend that was busy from second 40 to second 60 alone."""
    names = ("gpu_percent", "generation_tps", "running", "waiting")
    table = HistoryTable(names)
    for step in range(round(80 / every_s) + 1):
        time = step * every_s
        table.append(time, dict.fromkeys(names, 100.0 if 40 <= time < 60 else 0.0))
    series = {name: one for name, one in table.series().items() if hasattr(view.history, name)}
    return replace(view, history=replace(view.history, **series))


@pytest.mark.parametrize("preset", [Preset.WATCH, Preset.COMPACT, Preset.WALL])
def test_five_backends_fit_on_the_smallest_board(twelve: Snapshot, preset: Preset) -> None:
    """At 60×16 all five nodes and backends are in sight in each view; the board's list has its headings."""
    scene, lines = drawn(fleet(twelve, 5), SIZES[0], preset)
    assert scene.layout.height == SIZES[0][1]
    keys = scene.keys()
    names = [view.name for view in twelve.backends[:5]]
    assert [key.name for key in keys if key.kind == "backend"] == names
    assert preset is Preset.WALL or any("tok/s" in line and "wait" in line for line in lines)
