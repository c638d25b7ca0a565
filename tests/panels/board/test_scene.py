"""The whole board drawn from the demo in virtual time."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.demo.scenario import SCENARIOS
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import Alert, Severity
from sparktop.model.node import NodeSample, Workload, Workloads
from sparktop.model.router import Sum
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import SEARCHED_PORTS
from sparktop.panels.board.bars import footer_row, header_row
from sparktop.panels.board.layout import MIN_HEIGHT, MIN_WIDTH, Boxes, Place, Tiling, arrange
from sparktop.panels.board.scene import Scene, empty_rows
from sparktop.panels.board.view import Preset, View
from sparktop.panels.parts.text import Row, row_text, row_width
from sparktop.watch.discovery import USUAL_PORTS
from stage.rehearsal import START, Outage, Rehearsal
from tests.panels.drawn import fitted, flat, text_of, texts


@pytest.fixture(scope="module")
def broken() -> Snapshot:
    return Rehearsal(outage=Outage(1, 30)).play(60).snapshot()


@pytest.mark.long
@pytest.mark.parametrize("width", [60, 70, 80, 100, 120, 200])
def test_header_and_footer_fit(broken: Snapshot, width: int) -> None:
    """Header and footer are exactly one row, with the alert and the word simulated kept to the last."""
    (header,) = fitted([header_row(broken, width, moment="REWIND −2:10 12:03:20")], width)
    assert "SIMULATED" in header
    assert "✖" in header
    assert "…" not in header
    assert "poll" not in header, "the keys beside it change the speed of playing then"
    footer, spots = footer_row([("q", "quit"), ("?", "help")] * 20, width)
    assert row_width(footer) == width
    assert all(end <= width for _, end, _ in spots)


def test_a_count_of_thousands_has_the_digits_that_the_lists_show(broken: Snapshot) -> None:
    """Also a lower bound of it, beside the totals of the wall."""
    totals = replace(broken.totals, running=Sum(2285.0, 1, 2))
    assert "run ≥2,285 " in row_text(header_row(replace(broken, totals=totals, alerts=()), 200))


@pytest.mark.long
def test_the_header_says_the_worst_thing_in_words() -> None:
    """On every width the swing is named with its cost, and with room the key that says more."""
    swinging = Rehearsal(nodes=2, scenario=SCENARIOS["oscillation"]).play(75).snapshot()
    for width, said in (
        (60, "▲ oscillating −15 ± 11 % tok/s (w)"),
        (80, "▲ oscillating −15 ± 11 % tok/s"),
        (120, "▲ proxy is oscillating, −15 ± 11 % tok/s → try simple-shuffle (w)"),
        (200, "▲ proxy is oscillating, −15 ± 11 % tok/s → try simple-shuffle or round-robin (w)"),
    ):
        header = row_text(header_row(swinging, width))
        assert said in header
        assert "tok/s" in header
        several = replace(swinging, alerts=swinging.alerts * 3)
        assert "▲3 " in row_text(header_row(several, width))


@pytest.mark.long
@pytest.mark.parametrize("width", [60, 80])
def test_all_keys_are_on_some_page_of_the_row(width: int) -> None:
    """Each page has the help key, and the key for the next page with the number of keys elsewhere."""
    keys = [("q", "quit"), ("?", "help"), *((letter, f"{letter}-key") for letter in "abcdefghijklmn")]
    seen: list[str] = []
    for page in range(3):
        row, spots = footer_row(keys, width, page=page, more=".")
        shown = [key for _, _, key in spots]
        assert shown[-2:] == ["?", "."]
        (text,) = fitted([row], width)
        assert f" . {len(keys) - 1 - len(shown[:-2])} more " in f"{text} "
        seen += [key for key in shown[:-2] if key not in seen]
    assert seen == [key for key, _ in keys if key != "?"]
    assert footer_row(keys, 60, page=0, more=".") == footer_row(keys, 60, page=3, more=".")


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("height", [8, 11, 20])
def test_without_a_server_the_panel_says_what_to_start(width: int, height: int) -> None:
    """No row is cut, the ports are those of the search; a low panel has fewer engines, never none."""
    shown = replace(Rehearsal().store.snapshot(), backends=(), searching=("127.0.0.1",))
    text = "\n".join(fitted(empty_rows(shown, width, height), width, height))
    assert "…" not in text
    assert "found yet on this machine" in text
    assert "looking again every 10 s" in text
    assert f"tried ports {', '.join(map(str, SEARCHED_PORTS))} " in text
    assert set(SEARCHED_PORTS) == set(USUAL_PORTS.http)
    commands = ("vllm serve", "sglang serve", "llama-server", "ollama serve")
    assert sum(command in text for command in commands) == (1 if height == 8 else 4)
    assert "sparktop demo" in text


@pytest.mark.parametrize(
    ("port", "words"),
    [
        (8000, "llamacpp is seen, and appears once"),
        (9000, "llamacpp has port 9000: sparktop localhost:9000"),
    ],
)
def test_a_server_that_does_not_answer_yet_is_seen_by_its_process(port: int, words: str) -> None:
    """One that was started and loads its model, or that listens where nobody looks; the line fits."""
    shown = Rehearsal().store.snapshot()
    loads = Workloads((Workload(7, "llamacpp", "server", port=port),))
    node = replace(shown.nodes[0], sample=NodeSample(1.0, workloads=loads))
    alone = replace(shown, backends=(), nodes=(node,), searching=("127.0.0.1",))
    text = text_of(empty_rows(alone, 80, 20))
    assert words in text
    assert "…" not in text


def test_a_filter_that_hides_every_server_is_named() -> None:
    """In the first row; nothing is missing then, and nothing is to be started."""
    shown = replace(Rehearsal().store.snapshot(), backends=(), searching=("spark-a",))
    rows = texts(empty_rows(shown, 80, 20, filtered_by="sprak"))
    text = "\n".join(rows)
    assert "no server matches “sprak”" in rows[1]
    assert "esc drops the filter" in text
    assert "vllm serve" not in text


SIZES = [(80, 24), (120, 36), (200, 50)]
LANES = "spark-a DP ranks"
SWINGS = Balance(
    LANES,
    ("spark-a/0", "spark-a/1"),
    *(BalanceWord.OSCILLATING,) * 2,
    router="spark-a",
    period_s=6.0,
    lanes_of="spark-a",
    within="m",
)
ALERT = Alert(f"balance:{LANES}:oscillating", Severity.WARNING, LANES, "oscillating", START)


@cache
def shown() -> Snapshot:
    taken = Rehearsal(lanes=2, nodes=2).play(20).snapshot()
    first, *others = taken.backends
    group = Balance("m", ("spark-a", "spark-b"), *(BalanceWord.BALANCED,) * 2, router="proxy")
    backends = (replace(first, lanes_balance=SWINGS), *others)
    return replace(taken, backends=backends, balance=(group, SWINGS), alerts=(ALERT,))


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_board_has_one_row_for_the_group_and_the_lanes_on_their_panel(width: int, height: int) -> None:
    """Lanes have no panel of their own; the edge of their server's panel names the swing in full."""
    scene = Scene(shown(), width, height)
    assert [one.key.name for one in scene.draw() if one.key.kind == "balance"] == ["m"]
    assert text_of(flat(scene)).count("▲ DP ranks oscillating, every 6 s") == 1


def _cells(place: Place) -> set[tuple[int, int]]:
    return {
        (x, y) for x in range(place.x, place.x + place.width) for y in range(place.y, place.y + place.height)
    }


@given(
    st.integers(MIN_WIDTH, 220),
    st.integers(MIN_HEIGHT - 2, 70),
    st.integers(0, 5),
    st.integers(0, 12),
    st.builds(Boxes, events=st.booleans(), self_cost=st.booleans()),
    st.tuples(st.integers(0, 2), st.integers(0, 4), st.sampled_from(Tiling)),
)
def test_panels_never_overlap_or_leave_the_board(
    width: int, height: int, nodes: int, backends: int, boxes: Boxes, more: tuple[int, int, Tiling]
) -> None:
    """Every panel lies on the board, is at least a border with one row, and shares no cell with another."""
    routers, groups, tiling = more
    layout = arrange(width, height, nodes, backends, boxes, routers=routers, groups=groups, tiling=tiling)
    taken: set[tuple[int, int]] = set()
    for place in layout.places:
        assert place.width >= 3
        assert place.height >= 3
        assert place.x + place.width <= width
        assert place.y + place.height <= layout.height
        cells = _cells(place)
        assert not taken & cells
        taken |= cells
    assert layout.height >= height


def test_on_wide_boards_servers_that_do_not_fit_one_below_another_stand_abreast() -> None:
    """Eight machines with their servers fit 240×58 as panels; a higher board has one server on each line."""
    for height, abreast in ((58, 2), (100, 1)):
        layout = arrange(240, height, 8, 8, Boxes(), routers=1, groups=1)
        assert layout.height == height
        servers = [place for place in layout.places if place.kind == "backend"]
        assert [place.index for place in servers] == list(range(8))
        assert {place.width for place in servers} == {240 // abreast}
        assert len({place.x for place in servers}) == abreast


CASES = {"oscillation": 75, "memory": 60, "outage": 40, "hang-a": 175}
"""Seconds to play by scenario; in "outage", a server stops answering after 10 s."""
SEEN_S = 5
"""A single failed poll, and a verdict of one window, is red before its alert begins: for less than this."""
EDGES = set("─│╭╮╰╯┌┐╞╡ ")


def red(rows: list[Row]) -> set[str]:
    """Return the texts in the role "bad", without frames."""
    found = {text for row in rows for text, role in row if role == "bad"}
    return {text.strip() for text in found if not set(text) <= EDGES}


def red_panels(shown: Snapshot) -> set[tuple[str, str]]:
    """Return kind and name of the panels with red text, in any view; lists have the name ""."""
    scenes = [Scene(shown, 120, 60, View(preset=preset)) for preset in (Preset.WATCH, Preset.COMPACT)]
    panels = [panel for scene in scenes for panel in scene.draw() if panel.key.kind != "events"]
    return {(panel.key.kind, panel.key.name) for panel in panels if red(panel.rows)}


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_what_stays_red_is_in_the_alert_count(name: str) -> None:
    """A panel that is red twice in a row has an alert about its source; a red header has at least one."""
    outage = Outage(0, 10.0) if name == "outage" else None
    live = Rehearsal(nodes=2, scenario=SCENARIOS.get(name), outage=outage)
    before: set[tuple[str, str]] = set()
    for _ in range(0, CASES[name], SEEN_S):
        shown = live.play(SEEN_S).snapshot()
        subjects = {alert.subject for alert in shown.alerts}
        now = red_panels(shown)
        behind = {one.name: set(one.backends) for one in shown.routers}
        for kind, source in now & before:
            about = {source, *(behind[source] if kind == "router" else ())}
            assert about & subjects or (not source and subjects), (kind, source, shown.taken_at)
        assert shown.alerts or not red([header_row(shown, 120)])
        if all(alert.severity is not Severity.CRITICAL for alert in shown.alerts):
            assert "router" not in {kind for kind, _ in now}, "a backend that is perhaps stuck is a warning"
        before = now
