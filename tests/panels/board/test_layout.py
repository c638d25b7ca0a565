"""Where panels go, at every size."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.panels.board.layout import MIN_HEIGHT, MIN_WIDTH, Boxes, Place, Tiling, arrange, entry_rows

SIZES = [(80, 22), (120, 34), (200, 48)]


def _cells(place: Place) -> set[tuple[int, int]]:
    return {
        (x, y) for x in range(place.x, place.x + place.width) for y in range(place.y, place.y + place.height)
    }


@settings(max_examples=60, deadline=None)
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


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_node_and_two_backends_fill_the_board(width: int, height: int) -> None:
    """At the three sizes that count, one node and two backends fill the screen without scrolling."""
    layout = arrange(width, height, 1, 2, Boxes())
    assert layout.height == height
    assert sum(len(_cells(place)) for place in layout.places) == width * height


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_two_backends_stand_under_each_other(width: int, height: int) -> None:
    """Two backends share their left edge and their width, so that their time axes line up."""
    backends = [p for p in arrange(width, height, 1, 2, Boxes()).places if p.kind == "backend"]
    assert len({(p.x, p.width) for p in backends}) == 1
    assert len({p.y for p in backends}) == 2


def test_more_backends_than_fit_scroll_inside_their_list() -> None:
    """Forty backends on 80x24 have a list that fills the board below the node, which stays in sight."""
    layout = arrange(80, 22, 1, 40, Boxes())
    assert layout.height == 22
    assert [(place.kind, place.height) for place in layout.places] == [("nodes", 3), ("table", 19)]


def test_nothing_to_watch_has_a_place_that_says_so() -> None:
    """Without backends, a single empty panel takes their room."""
    kinds = [place.kind for place in arrange(80, 22, 1, 0, Boxes()).places]
    assert kinds == ["node", "empty"]


@settings(max_examples=200, deadline=None)
@given(
    st.integers(MIN_WIDTH, 220),
    st.integers(MIN_HEIGHT - 2, 70),
    st.integers(0, 12),
    st.integers(1, 12),
    st.tuples(st.integers(0, 2), st.integers(0, 3)),
)
def test_up_to_twelve_of_each_are_on_every_screen(
    width: int, height: int, nodes: int, backends: int, more: tuple[int, int]
) -> None:
    """Nothing is below the fold on the smallest screen, and panels of a kind have one height."""
    routers, groups = more
    layout = arrange(width, height, nodes, backends, Boxes(), routers=routers, groups=groups)
    assert layout.height == height
    for kind in ("node", "router", "balance", "backend"):
        assert len({place.height for place in layout.places if place.kind == kind}) <= 1
    lists = {"nodes": nodes, "table": backends}
    for place in layout.places:
        if place.kind in lists:
            each, heading = entry_rows(place, lists[place.kind])
            lines = -(-lists[place.kind] // place.columns)
            assert each * lines + heading <= place.height - 2


@pytest.mark.parametrize(("height", "band"), [(14, 4), (22, 5), (34, 7), (48, 10)])
def test_two_backends_behind_a_router_always_have_a_band(height: int, band: int) -> None:
    """On a low board it has words, with more rows it has graphs."""
    places = arrange(120, height, 1, 2, Boxes(), routers=1, groups=1).places
    assert [place.height for place in places if place.kind == "balance"] == [band]


def test_the_order_in_which_panels_shrink() -> None:
    """As rows go, the router's panel goes first, then the graphs of the balance, then panels become lists."""
    seen = [
        {place.kind for place in arrange(80, height, 2, 2, Boxes(), routers=1, groups=1).places}
        for height in (34, 24, 16, 10, 8)
    ]
    assert seen == [
        {"nodes", "router", "balance", "backend"},
        {"nodes", "balance", "backend"},
        {"nodes", "balance", "table"},
        {"nodes", "table"},
        {"nodes", "table"},
    ]
