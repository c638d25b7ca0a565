"""The board and every view of the whole screen at four sizes, checked over rows of text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from itertools import cycle, product
from typing import TypeVar

import pytest
from msgspec.structs import replace

from sparktop.colors.palette import palettes
from sparktop.demo.scenario import SCENARIOS, backend_name
from sparktop.model.balance import BalanceWord
from sparktop.model.event import Event, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import (
    BackendHistory,
    BackendState,
    BackendView,
    Latency,
    NodeView,
    Quantile,
    Snapshot,
    SpeedState,
)
from sparktop.panels.board.bars import header_row
from sparktop.panels.board.events import events_screen
from sparktop.panels.board.layout import Boxes, Drawn, PanelKey
from sparktop.panels.board.scene import Scene, flatten
from sparktop.panels.board.view import Preset, Sort, View
from sparktop.panels.parts.figures import state_words
from sparktop.panels.parts.text import Row, graph_columns, graph_starts, row_text
from stage.rehearsal import Outage, Rehearsal
from tests.panels.drawn import SIZES, board, flat, largest_blank, texts

pytestmark = pytest.mark.long

MOST_BLANK = 0.055
"""Most part of a board in one rectangle without a character."""
COUNTS = (1, 2, 12)
CASES = list(product(SIZES, COUNTS))
Shown = TypeVar("Shown", NodeView, BackendView)
REFUSED = Failure(FailureKind.REFUSED, "connection refused", 90.0)


@pytest.fixture(scope="module")
def twelve() -> Snapshot:
    """Return twelve nodes and backends: four, each three times, which takes a third of the time to play."""
    four = Rehearsal(backends=4, nodes=4).play(100).snapshot()
    named = [(backend_name(index), index % 4) for index in range(12)]
    backends = tuple(replace(four.backends[place], name=name) for name, place in named)
    nodes = tuple(replace(four.nodes[place], name=name) for name, place in named)
    return replace(four, backends=backends, nodes=nodes)


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
    return scene, texts(flat(scene))


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
            short = state_words(backend)[-1]
            assert backend.state.value in text or short in text
            assert str(round(backend.running or 0)) in text
        assert "oscillating" in "\n".join(lines) or count == 1


def text_at(panel: Drawn, lines: list[str]) -> str:
    """Return the text of the board in the place of a panel or of a list's entry."""
    place = panel.place
    rows = lines[place.y : place.y + place.height]
    return "\n".join(row[place.x : place.x + place.width] for row in rows)


@pytest.mark.parametrize(("size", "count"), CASES)
@pytest.mark.parametrize("preset", [Preset.WATCH, Preset.COMPACT, Preset.WALL])
def test_nothing_on_the_board_is_cut(
    twelve: Snapshot, size: tuple[int, int], count: int, preset: Preset
) -> None:
    """No word, value, caption or heading ends in dots, in any state, view and order."""
    for moment in in_states(fleet(twelve, count)):
        rows = board(moment, size, View(preset=preset, sort=Sort.MEMORY))
        assert not [line for line in texts(rows) if "…" in line]


@pytest.mark.parametrize(("size", "count"), CASES)
def test_no_quarter_of_a_busy_board_is_empty(twelve: Snapshot, size: tuple[int, int], count: int) -> None:
    """The largest rectangle without a character is at most a quarter of the board, in every view."""
    for preset in (Preset.WATCH, Preset.COMPACT, Preset.WALL):
        _, lines = drawn(fleet(twelve, count), size, preset)
        assert largest_blank(lines) <= size[0] * size[1] / 4, preset


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [2, 5])
def test_all_graphs_show_the_same_time(twelve: Snapshot, size: tuple[int, int], count: int) -> None:
    """What happens at one moment on node and backend is in one column, or as far from narrow graphs' end."""
    shown = fleet(twelve, count)
    node, backend = moving(shown.nodes[0], 2.0), moving(shown.backends[0], 1.0)
    nodes = tuple(replace(node, name=view.name) for view in shown.nodes)
    backends = tuple(replace(backend, name=view.name, load=None) for view in shown.backends)
    scene, lines = drawn(replace(shown, nodes=nodes, backends=backends, at=80.3), size)
    found: dict[str, tuple[float, float]] = {}
    cells = set()
    for panel in scene.draw():
        place = panel.place
        is_wide = place.width >= size[0] - 2
        if (panel.key.kind == "node" and is_wide) or panel.key.kind == "backend":
            each = graph_columns(size[0] if is_wide else place.width)[1]
            start = graph_starts(size[0])[0] if is_wide else place.x + graph_starts(place.width)[0]
            foot = place.y + place.height - 1 - (place.kind != "row")
            top = [line[start : start + each] for line in lines[place.y : foot + 1]]
            dots = [column for column in range(each) if sum(row[column] in FULL for row in top)]
            found[panel.key.kind] = (dots[0] / each, (dots[-1] + 1) / each)
            cells.add(each)
    assert found["backend"]
    if "node" in found:
        apart = 1.01 / min(cells)
        assert all(abs(a - b) <= apart for a, b in zip(found["node"], found["backend"], strict=True))


FULL = set("⣿⣾⣷⣶⣦⣴⡆⢰⢸⡇⣧⣼⣇⣸⣭⡅⢨")


def moving(view: Shown, every_s: float) -> Shown:
    """Return a node or backend that was busy from second 40 to second 60 alone."""
    names = ("gpu_percent", "generation_tps", "running", "waiting")
    table = HistoryTable(names)
    for step in range(round(80 / every_s) + 1):
        time = step * every_s
        table.append(time, dict.fromkeys(names, 100.0 if 40 <= time < 60 else 0.0))
    series = {name: one for name, one in table.series().items() if hasattr(view.history, name)}
    return replace(view, history=replace(view.history, **series))


KINDS = ("backend", "node", "router", "balance", "evidence", "events")
NAMED = re.compile(r"VLLM::|vllm server|systemd-journ|nvme Compo")
"""Rows with the names of processes and sensors, which may be longer than any column."""
MORE = re.compile(r"… \d+ more")


@pytest.fixture(scope="module")
def shown() -> list[Snapshot]:
    """Return two servers behind a router that swings, the same with one that is dead, and three."""
    scenario = SCENARIOS["oscillation"]
    pair = (Rehearsal(nodes=2, scenario=scenario, outage=outage) for outage in (None, Outage(1, 40)))
    return [*(live.play(70).snapshot() for live in pair), Rehearsal(backends=3, nodes=3).play(70).snapshot()]


def view_rows(snapshot: Snapshot, kind: str, size: tuple[int, int]) -> list[Row]:
    """Return one view of the whole screen; what scrolls is longer than the screen."""
    if kind == "events":
        at = snapshot.taken_at
        message = "queue of 12 requests: " + "the first one waits for a free slot of the server, " * 4
        events = tuple(
            Event(at + timedelta(seconds=index), Severity.WARNING, "spark-a", message) for index in range(30)
        )
        return events_screen(Snapshot(at, snapshot.at, 1.0, 1.0, events=events), *size)
    names = {
        "backend": [view.name for view in snapshot.backends],
        "node": [view.name for view in snapshot.nodes],
        "router": [view.name for view in snapshot.routers],
    }.get(kind, [snapshot.balance[0].group])
    return board(snapshot, size, zoomed=PanelKey(kind, names[-1])) if names else []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_view_uses_its_room_and_cuts_nothing(
    shown: list[Snapshot], kind: str, size: tuple[int, int]
) -> None:
    """At most a quarter is empty in one place; no value or sentence is cut, and each role has a colour.

    A router of two deployments has no more to show, nor has a group without samples.
    """
    for snapshot in shown:
        rows = view_rows(snapshot, kind, size)
        lines = texts(rows)
        if kind != "router" and (kind != "evidence" or snapshot.balance[0].swing):
            part = 3 if kind == "evidence" else 4  # half of its plot is empty where loads have no rhythm
            assert not rows or largest_blank(lines[: size[1]]) <= size[0] * size[1] / part
        cut = [row for row in lines if "…" in row and not NAMED.search(row) and not MORE.search(row)]
        full = all(row.strip("│ ") for row in lines[: size[1]])
        assert not cut or (full and (snapshot is shown[1] or kind in {"router", "events"})), cut
        assert all(palette.color(role) for palette in palettes().values() for row in rows for _, role in row)


CUT = re.compile(r"\d[\d.,]*( ?[A-Za-zµ%°/×]+)?…")
"""Matches a figure, or a figure and its unit, that ends in dots."""
LABELS = """tok/s max run wait cached computed prompt output gen KV load power GPU CPU TTFT ITL E2E queue mem
    req/s hits context rx tx swap headroom GiB tok req mean p50 p95 p99 limit last over of batch steps"""
GLUED = re.compile(rf"(?<![A-Za-z])({'|'.join(LABELS.split())})\d")
NAMES = re.compile(r"VLLM::|vllm server|sparkrun_")
"""Rows with names of processes and containers, whose ends may be left out."""
FIGURE_SIZES = [(60, 14), (80, 22), (93, 26), (200, 48)]
SCENES = ["oscillation", "kv-starved", "tp2"]
SCALES = [1.0, 37.7, 1234.5]


def large(view: BackendView, scale: float) -> BackendView:
    """Return a backend whose rates, counts, latencies and histories are `scale` times as large."""

    def latency(of: Latency) -> Latency:
        return replace(of, mean_s=scale, p50=Quantile(scale), p95=Quantile(9 * scale), count=90 * scale)

    table = HistoryTable(BackendHistory.__struct_fields__)
    for second in range(100):
        table.append(second, dict.fromkeys(table.series(), scale * (second % 7)))
    return replace(
        view,
        generation_tps=11.3 * scale,
        generation_tps_1s=10.7 * scale,
        prompt_tps=99.9 * scale,
        prompt_cached_tps=17.3 * scale,
        requests_per_s=1.1 * scale,
        running=round(3 * scale),
        waiting=round(2 * scale),
        slots=round(4 * scale),
        generation_tokens=1e4 * scale,
        history=BackendHistory(**table.series()),
        ttft=latency(view.ttft),
        itl=latency(view.itl),
        e2e=latency(view.e2e),
        queue=latency(view.queue),
    )


def every_text(shown: Snapshot, size: tuple[int, int]) -> Iterator[str]:
    """Yield the rows of the header, of the board in each view, and of each kind of full screen."""
    width, height = size
    yield row_text(header_row(shown, width))
    scenes = [Scene(shown, width, height, View(preset=preset)) for preset in Preset]
    alone = [PanelKey("node", shown.nodes[0].name), PanelKey("backend", shown.backends[0].name)]
    alone += [PanelKey(kind, one.group) for one in shown.balance for kind in ("balance", "evidence")]
    scenes += [Scene(shown, width, height, zoomed=key) for key in alone]
    for scene in scenes:
        rows = flatten(scene.draw(), width, scene.layout.height)
        yield from (text for text in map(row_text, rows) if not NAMES.search(text))


@pytest.fixture(scope="module", params=SCENES)
def scene(request: pytest.FixtureRequest) -> Snapshot:
    """Return a scenario after a minute."""
    count = 3 if request.param == "kv-starved" else 2
    return Rehearsal(backends=count, nodes=count, scenario=SCENARIOS[request.param]).play(62).snapshot()


@pytest.mark.parametrize("size", FIGURE_SIZES)
def test_no_figure_is_cut_and_none_touches_its_label(scene: Snapshot, size: tuple[int, int]) -> None:
    """Whatever the values, no digits or units end in dots, and a space stands before each figure."""
    for scale in SCALES:
        views = tuple(large(view, scale) if scale > 1 else view for view in scene.backends)
        shown = replace(scene, backends=views)
        wrong = [text for text in every_text(shown, size) if CUT.search(text) or GLUED.search(text)]
        assert not wrong, (scale, wrong)


@pytest.mark.parametrize("boxes", [Boxes(), Boxes(backends=False), Boxes(nodes=False)])
@pytest.mark.parametrize("play_s", [20, 60])
def test_no_box_is_mostly_blank_in_the_first_minutes(boxes: Boxes, play_s: float) -> None:
    """Graphs show what is known, not a longer time, and a high machine's panel has its cores and sensors."""
    snapshot = Rehearsal(nodes=2, scenario=SCENARIOS["oscillation"]).play(play_s).snapshot()
    for size in SIZES:
        lines = texts(board(snapshot, size, View(boxes=boxes)))
        assert largest_blank(lines) <= size[0] * size[1] * MOST_BLANK, "\n".join(lines)
        assert ("processor · 20 cores" in "\n".join(lines)) == (not boxes.backends and size[1] > 30)


def test_the_time_that_graphs_show_grows_with_the_history() -> None:
    """The axis says which time it is, until it is the whole."""
    rehearsal = Rehearsal(nodes=2, scenario=SCENARIOS["oscillation"])
    for play_s, label in ((40, "−40 s"), (100, "−120 s")):
        lines = texts(board(rehearsal.play(play_s).snapshot(), (200, 48)))
        assert label in lines[-1]
