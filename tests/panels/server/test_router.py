"""The panel of a router, and where it stands."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.colors.palette import palettes
from sparktop.model.router import Deployment, RouterView
from sparktop.model.snapshot import Snapshot
from sparktop.panels.board.layout import Boxes, PanelKey, Place, Tiling, arrange
from sparktop.panels.board.scene import Scene, flatten
from sparktop.panels.board.view import Preset, View
from sparktop.panels.parts.text import row_text, row_width
from sparktop.panels.server.router import router_panel
from stage.rehearsal import START, Outage, Rehearsal, RouterPart

pytestmark = pytest.mark.long

SIZES = [(60, 14), (80, 22), (120, 34), (200, 48)]


@pytest.fixture(scope="module")
def routed() -> Snapshot:
    return Rehearsal(router=RouterPart(strangers=1)).play(60).snapshot()


def panel(view: RouterView, width: int = 118, height: int = 4) -> list[str]:
    return [row_text(row) for row in router_panel(view, width, height)]


def router(**known: object) -> RouterView:
    names = ("spark-a", "spark-b")
    view = RouterView("proxy", "http://p:4000", kind="litellm", alive=True, age_s=1.0, backends=names)
    return replace(view, running={"spark-a": 3.0, "spark-b": 9.0}, **known)  # type: ignore[arg-type]  # a test's own


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("preset", [Preset.WATCH, Preset.COMPACT, Preset.WALL])
def test_routers_stand_between_nodes_and_backends(
    routed: Snapshot, width: int, height: int, preset: Preset
) -> None:
    """If rows are to spare, each view has a slim router panel above the backends, as wide as the terminal."""
    scene = Scene(routed, width, height, View(preset=preset))
    kinds = [place.kind for place in scene.layout.places]
    assert kinds[0] in {"node", "nodes"}
    assert "router" in kinds or height < 30
    for place in (one for one in scene.layout.places if one.kind == "router"):
        assert (place.x, place.width) == (0, width)
        assert place.height in {3, 4}
        assert kinds.index("router") == 1
    drawn = scene.draw()
    assert all(len(one.rows) in {one.place.height, 0} for one in drawn)
    assert {row_width(row) for row in flatten(drawn, width, scene.layout.height)} == {width}


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_router_alone_has_the_loads_of_its_backends(routed: Snapshot, width: int, height: int) -> None:
    """The loads of its backends are drawn below its deployments if there is room, and fill the screen."""
    scene = Scene(routed, width, height, View(), zoomed=PanelKey("router", "proxy"))
    rows = flatten(scene.draw(), width, scene.layout.height)
    text = [row_text(row) for row in rows]
    assert {row_width(row) for row in rows} == {width}
    assert (len(rows), any("requests" in row for row in text)) == (height, height > SIZES[0][1])
    empty = sum(not row.strip(" │") for row in text)
    assert empty <= height / 4 or height == SIZES[0][1]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(60, 220),
    st.integers(14, 70),
    st.integers(0, 4),
    st.integers(0, 12),
    st.integers(1, 5),
    st.sampled_from(list(Tiling)),
)
def test_no_panel_overlaps_a_router(
    width: int, height: int, nodes: int, backends: int, routers: int, tiling: Tiling
) -> None:
    """Whatever stands on the board, all panels lie apart and inside it."""
    layout = arrange(width, height, nodes, backends, Boxes(events=True), tiling=tiling, routers=routers)
    taken: set[tuple[int, int]] = set()
    for place in layout.places:
        cells = {(x, y) for x in range(place.x, place.x + place.width) for y in _rows(place)}
        assert not taken & cells
        assert place.x + place.width <= width
        assert place.y + place.height <= layout.height
        taken |= cells
    assert sum(place.kind == "router" for place in layout.places) in {0, routers}


def _rows(place: Place) -> range:
    return range(place.y, place.y + place.height)


def test_routers_belong_to_the_box_of_the_backends(routed: Snapshot) -> None:
    """Hiding the backends hides their router, and without a router every panel stands where it stood."""
    hidden = Scene(routed, 120, 34, View(boxes=Boxes(backends=False)))
    assert {place.kind for place in hidden.layout.places} == {"node"}
    plain = arrange(120, 34, 1, 2, Boxes())
    assert arrange(120, 34, 1, 2, Boxes(), routers=0) == plain
    assert Scene(replace(routed, routers=(), balance=()), 120, 34).layout == plain


def test_it_tells_who_it_is_and_where_it_sends(routed: Snapshot) -> None:
    """The panel has name, kind, version, strategy, state and since when, deployments and what is unmapped."""
    top, share, flow, edge = panel(routed.routers[0])
    assert "proxy" in top
    assert "least-busy litellm 1.106.2 " in top
    assert "(config)" not in top
    assert "┐alive┌" in top
    assert f" since {(START + timedelta(seconds=1)).astimezone():%H:%M:%S} " in top
    assert "■ spark-a" in share
    assert "▬ spark-b" in share
    assert "spark-1 → spark-a · spark-2 → spark-b · cloud-1 ✖ unmapped" in flow
    assert "://" not in edge
    assert "http://192.168.100.11:4000" in panel(routed.routers[0], height=20)[-1]


@pytest.mark.parametrize(("width", "height"), [(80, 3), (80, 4), (120, 12)])
def test_a_deployment_that_fails_is_marked(width: int, height: int) -> None:
    """At 80 columns too its outage, failures and cooldowns stand in the panel."""
    words = "outage, 58 failed answers in 60 s, in cooldown 3 times"
    view = RouterView(
        "proxy",
        "http://p:4000",
        age_s=1.0,
        alive=True,
        kind="litellm",
        deployments={"spark-a": "a", "spark-b": "b"},
        backends=("a", "b"),
        running={"a": 3.0, "b": 0.0},
        deployment_troubles={"spark-b": words},
    )
    text = "\n".join(row_text(row) for row in router_panel(view, width, height))
    assert f"spark-b: {words}" in text
    assert height == 3 or "▲" in text


def test_deployments_that_do_not_fit_are_counted() -> None:
    """The row ends with the number of further deployments and with how many of those are unmapped."""
    sent: dict[str, str | None] = {f"spark-{number}": "spark-a" for number in range(9)}
    flow = panel(router(deployments=sent), width=80)[2]
    assert flow.count("→") == 2
    assert "spark-1 → spark-a +7 more " in flow
    flow = panel(router(deployments=sent | {"cloud": None, "far": None}), width=80)[2]
    assert flow.count("→") == 1
    assert "+10 more, 2 ✖ unmapped " in flow


def test_a_configured_strategy_is_marked() -> None:
    """A label from the config never looks like the router's own word."""
    assert "shuffle (config)" in panel(router(strategy="shuffle"))[0]
    assert "(config)" not in panel(router(strategy="shuffle", strategy_read=True))[0]
    assert "strategy –" in panel(router())[0]


def test_shares_add_up_and_carry_signs() -> None:
    """A quarter of the requests is a quarter of the bar, with sign, number and percent."""
    share = panel(router(), width=200)[1]
    bar = share.split("run ")[1].split("  ")[0]
    assert (len(bar), bar[0], bar[10]) == (40, "■", "▬")
    assert "■ spark-a   3  25 %" in share
    assert "▬ spark-b   9  75 %" in share


def test_nothing_running_and_nothing_known_differ() -> None:
    """An idle group has an empty bar and zeros; a group without reported counts has dashes."""
    idle = panel(replace(router(), running={"spark-a": 0.0, "spark-b": 0.0}))[1]
    dumb = panel(replace(router(), running={"spark-a": None, "spark-b": None}))[1]
    assert "····" in idle
    assert "0" in idle
    assert "––––" in dumb
    assert "0" not in dumb


def test_what_it_does_not_tell_is_said_once() -> None:
    """Without a key the panel says once what to do: in the row of the deployments or on its edge."""
    note = "needs api_key_env to list its deployments"
    assert "\n".join(panel(router(note=note))).count(note) == 1
    assert "\n".join(panel(router(note=note), height=3)).count(note) == 1
    assert "deployments –" in panel(router(note=note), height=3)[1]


def test_a_router_that_is_down_says_since_when_and_why() -> None:
    """Its last answer is drawn stale; the shares come from the backends and keep their colours."""
    snapshot = Rehearsal(router=RouterPart(down_at_s=40), outage=Outage(1, 40)).play(60).snapshot()
    rows = router_panel(snapshot.routers[0], 118, 4)
    text = "\n".join(row_text(row) for row in rows)
    assert "┐down┌" in text
    assert " since 09:00:41 " in text
    assert "connection refused" in text
    assert "last answer" in text
    assert any(role == "stale" and "spark-1" in words for words, role in rows[2])
    assert not any(role == "stale" for _, role in rows[1])
    assert "▬ spark-b   –" in text


def test_alone_it_lists_every_deployment(routed: Snapshot) -> None:
    """Zoomed, each deployment has a row with its address and model, and what does not fit is counted."""
    key = PanelKey("router", "proxy")
    scene = Scene(routed, 120, 34, selected=key, zoomed=key)
    assert scene.keys() == [key]
    text = "\n".join(row_text(row) for row in scene.draw()[0].rows)
    assert "http://192.168.100.11:8000/v1" in text
    assert "cloud-1    → ✖ unmapped" in text
    many = tuple(Deployment(f"d{number}") for number in range(40))
    view = router(told=many, deployments=dict.fromkeys((one.id for one in many), "spark-a"))
    assert "… and 30 more deployments" in "\n".join(panel(view, height=16))


@settings(max_examples=80, deadline=None)
@given(
    st.integers(60, 200),
    st.integers(3, 12),
    st.lists(st.tuples(st.text(max_size=30), st.none() | st.floats(0, 1e6)), max_size=60),
    st.dictionaries(st.text(max_size=90), st.none() | st.text(min_size=1, max_size=30), max_size=30),
    st.none() | st.text(max_size=200),
)
def test_any_router_fits_its_panel(
    width: int,
    height: int,
    loads: list[tuple[str, float | None]],
    deployments: dict[str, str | None],
    words: str | None,
) -> None:
    """However many backends and deployments, and whatever they are called, the panel keeps its shape."""
    printable = {"".join(c for c in name if c.isprintable()): load for name, load in loads}
    names = tuple(printable)
    view = replace(
        router(note="".join(c for c in words or "" if c.isprintable()), strategy=words and "x" * len(words)),
        backends=names,
        running=printable,
        deployments={"".join(c for c in name if c.isprintable()): to for name, to in deployments.items()},
    )
    rows = router_panel(view, width, height)
    assert len(rows) == height
    assert {row_width(row) for row in rows} == {width}


def test_every_theme_colours_every_part() -> None:
    """Nine backends use every colour of the bar, and no theme lacks one."""
    names = tuple(f"b{number}" for number in range(9))
    view = replace(router(), backends=names, running=dict.fromkeys(names, 1.0))
    roles = {role for row in router_panel(view, 200, 4) for _, role in row}
    assert all(palette.color(role) for palette in palettes().values() for role in roles)


def test_a_router_that_counts_its_requests_shows_them() -> None:
    """Without a watched backend the bar shows the router's own counts; this kind reports no strategy."""
    sent = {"http://10.0.0.7:8000": 5.0, "http://10.0.0.8:8000": 2.0}
    view = RouterView(
        "front", "http://f:1", kind="production-stack", alive=True, age_s=1.0, sent=sent, in_flight=7.0
    )
    text = "\n".join(panel(view, 80, 4))
    assert "10.0.0.7:8000   5  71 %" in text
    assert "production-stack · in flight 7" in text
    assert "strategy" not in text
    queued = replace(view, kind="dynamo", sent=None, queued=4.0)
    assert "run queued 4, in flight 7" in "\n".join(panel(queued, 80, 4))
