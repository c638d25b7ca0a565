"""Where panels go, at every size."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.panels.board.layout import MIN_HEIGHT, MIN_WIDTH, Boxes, Place, Tiling, arrange

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


def test_more_backends_than_fit_make_the_board_taller() -> None:
    """Forty backends on 80x24 each keep a readable height; the board grows instead."""
    layout = arrange(80, 22, 1, 40, Boxes())
    assert layout.height > 22
    assert all(p.height >= 5 for p in layout.places)


def test_nothing_to_watch_has_a_place_that_says_so() -> None:
    """Without backends their room is one empty place."""
    kinds = [place.kind for place in arrange(80, 22, 1, 0, Boxes()).places]
    assert kinds == ["node", "empty"]


@settings(max_examples=60, deadline=None)
@given(st.integers(MIN_WIDTH, 220), st.integers(MIN_HEIGHT - 2, 70), st.integers(2, 12), st.integers(1, 4))
def test_a_band_never_costs_a_backend_a_row_that_it_must_have(
    width: int, height: int, backends: int, groups: int
) -> None:
    """Bands take no more than is to spare: the board is as tall with them as without."""
    with_bands = arrange(width, height, 1, backends, Boxes(), groups=groups)
    assert with_bands.height == arrange(width, height, 1, backends, Boxes()).height
    bands = [place for place in with_bands.places if place.kind == "balance"]
    assert len(bands) in {0, groups}
    assert all(3 <= band.height <= 9 for band in bands)
    below = [place.y for place in with_bands.places if place.kind == "backend"]
    assert all(band.y + band.height <= min(below) for band in bands)


@pytest.mark.parametrize(("height", "band"), [(14, 0), (22, 3), (34, 6), (48, 8)])
def test_two_backends_behind_a_router_have_a_band_where_there_is_room(height: int, band: int) -> None:
    """At 80×24 it is one row of words, at 120×36 and more it has graphs; the smallest board has none."""
    places = arrange(120, height, 1, 2, Boxes(), routers=1, groups=1).places
    assert [place.height for place in places if place.kind == "balance"] == ([band] if band else [])
