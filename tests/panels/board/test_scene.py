"""The whole board drawn from the demo in virtual time."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from sparktop.colors.palette import palettes
from sparktop.config.keys import KEYS
from sparktop.demo.scenario import SCENARIOS
from sparktop.model.event import Severity
from sparktop.model.router import Sum
from sparktop.model.snapshot import BackendView, Snapshot
from sparktop.panels.board.bars import footer_row, header_row, scroll_keys
from sparktop.panels.board.layout import Boxes, PanelKey
from sparktop.panels.board.scene import Scene, flatten
from sparktop.panels.board.view import (
    Preset,
    Sort,
    View,
    backend_order,
    filtered_backends,
    filtered_nodes,
)
from sparktop.panels.parts.text import Row, row_text, row_width
from sparktop.ui.keys import keys_to_unseen
from stage.rehearsal import Outage, Rehearsal

pytestmark = pytest.mark.long

SIZES = [(60, 14), (80, 22), (120, 34), (200, 48)]


@pytest.fixture(scope="module")
def broken() -> Snapshot:
    return Rehearsal(outage=Outage(1, 100)).play(130).snapshot()


def board(snapshot: Snapshot, width: int, height: int, boxes: Boxes | None = None) -> list[Row]:
    scene = Scene(snapshot, width, height, View(boxes=boxes or Boxes()))
    return flatten(scene.draw(), width, scene.layout.height)


def text_of(snapshot: Snapshot, width: int, height: int, boxes: Boxes | None = None) -> str:
    return "\n".join(row_text(row) for row in board(snapshot, width, height, boxes))


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("boxes", [Boxes(), Boxes(events=True, self_cost=True), Boxes(nodes=False)])
def test_no_row_is_wider_than_the_terminal(
    playing: Snapshot, broken: Snapshot, width: int, height: int, boxes: Boxes
) -> None:
    """Every row of the board, alive or with a dead backend, is exactly as wide as the terminal."""
    for snapshot in (playing, broken):
        assert {row_width(row) for row in board(snapshot, width, height, boxes)} == {width}


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_borders_are_whole(broken: Snapshot, width: int, height: int) -> None:
    """Each panel has four corners, and every row inside it begins and ends with its side."""
    scene = Scene(broken, width, height, View(boxes=Boxes(events=True)))
    for panel in (drawn for drawn in scene.draw() if drawn.place.kind != "row"):
        texts = [row_text(row) for row in panel.rows]
        assert (texts[0][0], texts[0][-1], texts[-1][0], texts[-1][-1]) == ("╭", "╮", "╰", "╯")
        assert all(text[0] == text[-1] == "│" for text in texts[1:-1])
        assert len(texts) == panel.place.height


def test_every_role_on_the_board_has_a_colour_in_every_theme(broken: Snapshot) -> None:
    """No theme lacks a role that a panel draws in."""
    roles = {role for row in board(broken, 200, 48, Boxes(events=True, self_cost=True)) for _, role in row}
    for palette in palettes().values():
        for role in roles:
            assert palette.color(role)


def test_a_dead_backend_keeps_its_place_and_says_why(playing: Snapshot, broken: Snapshot) -> None:
    """A dead backend moves no panel of the fleet, and its own panel says why it is unreachable."""
    alive, dead = Scene(playing, 120, 34), Scene(broken, 120, 34)
    assert alive.layout == dead.layout
    text = text_of(broken, 120, 34)
    assert "unreachable" in text
    assert "connection refused" in text
    assert "since 09:" in text or "since " in text


def test_a_dead_backend_is_drawn_stale(broken: Snapshot) -> None:
    """All figures and graphs of a dead backend are in the one stale colour."""
    scene = Scene(broken, 120, 34)
    panel = next(p for p in scene.draw() if p.key == PanelKey("backend", "spark-b"))
    assert {role for row in panel.rows[1:-1] for _, role in row} == {"bad", "stale"}


def test_backends_of_one_group_share_a_scale(playing: Snapshot) -> None:
    """Both backends name the same upper edge for tokens and for load."""
    scene = Scene(playing, 120, 34)
    edges = [
        re.findall(r"max (\S+)", row_text(panel.rows[1]))
        for panel in scene.draw()
        if panel.key.kind == "backend"
    ]
    assert len(edges) == 2
    assert len(edges[0]) == 2
    assert edges[0] == edges[1]


def test_unknown_is_a_dash_not_a_zero() -> None:
    """A backend that never answered shows no figure at all."""
    view = BackendView("x", "http://x:1", "g")
    empty = Rehearsal().store.snapshot()
    text = text_of(replace(empty, backends=(view,), nodes=()), 120, 34)
    figures = [line[1:38] for line in text.splitlines()[1:-1]]
    assert "–" in "".join(figures)
    assert "0" not in "".join(figures).replace("p50", "").replace("p95", "").replace("10 s", "").replace(
        "60 s", ""
    )


def test_hostile_names_stay_inside_their_panel(playing: Snapshot) -> None:
    """A name with markup and wide characters shows as it is and breaks no row."""
    view = replace(playing.backends[0], name="[red]漢字[/red] " + "w" * 300, model="m" * 500)
    rows = board(replace(playing, backends=(view, playing.backends[1])), 80, 22)
    assert {row_width(row) for row in rows} == {80}
    assert any("[red]漢字[/red]" in row_text(row) for row in rows)


@pytest.mark.parametrize("width", [60, 70, 80, 100, 120, 200])
def test_header_and_footer_fit(broken: Snapshot, width: int) -> None:
    """Header and footer are exactly one row, with the alert and the word simulated kept to the last."""
    header = header_row(broken, width, moment="REWIND −2:10 12:03:20")
    assert row_width(header) == width
    assert "SIMULATED" in row_text(header)
    assert "✖" in row_text(header)
    assert "…" not in row_text(header)
    footer, spots = footer_row([("q", "quit"), ("?", "help")] * 20, width)
    assert row_width(footer) == width
    assert all(end <= width for _, end, _ in spots)


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (60, "▲ oscillating every 10 s"),
        (80, "▲ oscillating every 10 s (w)"),
        (120, "▲ proxy is oscillating, every 10 s · try simple-shuffle (w)"),
        (200, "▲ proxy is oscillating, every 10 s · try simple-shuffle or round-robin (w)"),
    ],
)
def test_the_header_says_the_worst_thing_in_words(width: int, said: str) -> None:
    """On every width the swing is named, and from 80 on with the key that says more."""
    swinging = Rehearsal(nodes=2, scenario=SCENARIOS["oscillation"]).play(120).snapshot()
    header = row_text(header_row(swinging, width))
    assert said in header
    assert "tok/s" in header
    several = replace(swinging, alerts=swinging.alerts * 3)
    assert "▲3 " in row_text(header_row(several, width))


def test_the_header_has_the_sign_of_the_panel_for_what_does_not_answer(broken: Snapshot) -> None:
    """Critical alerts have the sign of servers that are unreachable, warnings another one."""
    for width in (60, 80, 120, 200):
        assert "✖ spark-b" in row_text(header_row(broken, width))
        several = replace(
            broken, alerts=(*broken.alerts, replace(broken.alerts[0], severity=Severity.WARNING))
        )
        assert "✖2 spark-b" in row_text(header_row(several, width))
        mild = replace(broken, alerts=tuple(replace(one, severity=Severity.WARNING) for one in broken.alerts))
        assert "▲ spark-b" in row_text(header_row(mild, width))


def test_the_header_names_the_seconds_of_its_rate_beside_a_sweep(playing: Snapshot) -> None:
    """The sweep's rate is over fewer seconds: if the header named no window, they would contradict."""
    assert " tok/s (10 s) " in row_text(header_row(playing, 80, sweep="sweep 53 %"))
    assert "(10 s)" not in row_text(header_row(playing, 80))


def test_scroll_keys_count_the_rows_in_each_direction() -> None:
    """At the top there is nothing above, at the end nothing below."""
    assert scroll_keys(0, 13) == [("↓", "13 more rows")]
    assert scroll_keys(2, 1) == [("↑", "2 above"), ("↓", "1 more row")]
    assert scroll_keys(0, 0) == []


def test_a_key_is_highlighted_in_its_word() -> None:
    """A key that does not occur in its label precedes it, so that the row is short and each key is shown."""
    footer, spots = footer_row([("q", "quit"), ("P", "processes"), ("/", "filter"), ("esc", "back")], 60)
    assert row_text(footer).split() == ["quit", "Processes", "/", "filter", "esc", "back"]
    assert [text for text, role in footer if role == "key"] == ["q", "P", "/", "esc"]
    assert [key for _, _, key in spots] == ["q", "P", "/", "esc"]


def test_nothing_found_says_what_to_do() -> None:
    """Without any backend the board shows what was tried and what to type."""
    empty = replace(Rehearsal().store.snapshot(), backends=(), searching=("localhost",))
    text = text_of(empty, 80, 22)
    assert "No inference server found yet" in text
    assert "sparktop http://HOST:8000" in text


@pytest.mark.parametrize("preset", list(Preset))
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_preset_fits_every_size(broken: Snapshot, width: int, height: int, preset: Preset) -> None:
    """Whatever the preset, every row of the board is exactly as wide as the terminal."""
    scene = Scene(broken, width, height, View(preset=preset, boxes=Boxes(events=True)))
    rows = flatten(scene.draw(), width, scene.layout.height)
    assert {row_width(row) for row in rows} == {width}


def test_a_table_keeps_its_heading_and_shows_the_selected_row() -> None:
    """With too many rows the heading stays, the selected row is in sight, and the frame counts them."""
    snapshot = Rehearsal(backends=20).play(12).snapshot()
    last = PanelKey("backend", snapshot.backends[-1].name)
    scene = Scene(snapshot, 80, 22, View(preset=Preset.COMPACT), selected=last)
    text = "\n".join(row_text(row) for row in flatten(scene.draw(), 80, 22))
    assert "tok/s" in next(line for line in text.splitlines() if "TTFT p95" in line)
    assert f"▶{last.name}" in text
    assert "of 20" in text
    assert scene.keys()[-1] == last


def test_the_order_by_load_puts_the_fullest_first_and_unknown_last(playing: Snapshot) -> None:
    """Sorting by a figure is descending; a backend whose figure is unknown comes last."""
    low, high = (
        replace(playing.backends[0], name=n, running=r, waiting=0.0) for n, r in (("a", 1.0), ("b", 9.0))
    )
    unknown = replace(playing.backends[0], name="c", running=None)
    assert backend_order([unknown, low, high], Sort.LOAD) == ["b", "a", "c"]
    assert backend_order([unknown, low, high], Sort.NAME) == ["a", "b", "c"]
    assert backend_order([unknown, low, high], Sort.CONFIG) == ["c", "a", "b"]


def test_what_is_down_comes_first_by_state(broken: Snapshot) -> None:
    """Sorting by state begins with what wants attention."""
    assert backend_order(broken.backends, Sort.STATE)[0] == "spark-b"


def test_a_filter_needs_all_its_words_in_any_case(playing: Snapshot) -> None:
    """Names, models, URLs and states are searched for the words; all of them must occur."""
    assert [b.name for b in filtered_backends(playing.backends, "SPARK-B oss")] == ["spark-b"]
    assert filtered_backends(playing.backends, "spark-b nowhere") == []
    assert len(filtered_backends(playing.backends, "")) == 2
    assert [n.name for n in filtered_nodes(playing.nodes, "gb10")] == ["spark-a"]


def test_keys_that_do_not_fit_are_counted_beside_the_key_that_lists_them() -> None:
    """The help stands last with the number of keys left out; where all fit, it stays in its place."""
    keys = [("q", "quit"), ("?", "help"), *((letter, f"{letter}-key") for letter in "abcdefghij")]
    row, spots = footer_row(keys, 60)
    assert "".join(text for text, _ in row).split("? ")[1].strip() == "4 more keys"
    assert [key for _, _, key in spots] == ["q", *"abcdef", "?"]
    assert [key for _, _, key in footer_row(keys, 120)[1]] == [key for key, _ in keys]


@pytest.mark.parametrize("width", [60, 80])
def test_all_keys_are_on_some_page_of_the_row(width: int) -> None:
    """Each page has the help key, and the key for the next page with the number of keys elsewhere."""
    keys = [("q", "quit"), ("?", "help"), *((letter, f"{letter}-key") for letter in "abcdefghijklmn")]
    seen: list[str] = []
    for page in range(3):
        row, spots = footer_row(keys, width, page=page, more=".")
        shown = [key for _, _, key in spots]
        assert shown[-2:] == ["?", "."]
        text = "".join(text for text, _ in row)
        assert len(text) == width
        assert f" . {len(keys) - 1 - len(shown[:-2])} more " in f"{text} "
        seen += [key for key in shown[:-2] if key not in seen]
    assert seen == [key for key, _ in keys if key != "?"]
    assert footer_row(keys, 60, page=0, more=".") == footer_row(keys, 60, page=3, more=".")


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (View(), []),
        (View(preset=Preset.ONE), ["view: 1 of 2 backends shown"]),
        (View(boxes=Boxes(backends=False)), ["shows backends, hidden now"]),
    ],
)
def test_what_a_view_leaves_out_is_named_in_the_row_of_keys(
    broken: Snapshot, view: View, words: list[str]
) -> None:
    """A remembered view may hide backends: the first key says so, and shows them."""
    assert [word for _, word in keys_to_unseen(KEYS, view, broken)] == words


@pytest.mark.parametrize(
    ("rate", "said"), [(412.0, "412 tok/s"), (9_412.0, "9,412 tok/s"), (24_133.4, "24,133 tok/s")]
)
def test_the_header_has_the_rates_with_commas_as_walls_have(
    playing: Snapshot, rate: float, said: str
) -> None:
    """At every width: the totals of a wall have the same number in the same form."""
    some = replace(
        playing, totals=replace(playing.totals, generation_tps=Sum(rate, 1, 1), prompt_tps=Sum(rate, 1, 1))
    )
    for width in (60, 80, 120, 200):
        header = row_text(header_row(some, width))
        assert f" {said}" in header
        assert not re.search(r"\d{5}", header)
    assert re.search(rf"prompt +{said}", header)
