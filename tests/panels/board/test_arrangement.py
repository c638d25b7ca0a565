"""Sorted rows change places only for a lasting or large difference, and never under the cursor."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from sparktop.analysis.state import GRAVITY, wall_of
from sparktop.model.snapshot import BackendState, Snapshot
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.board.view import FLEET, Arrangement, Sort, View, backend_order
from stage.rehearsal import Rehearsal

NAMES = ("spark-a", "spark-b", "spark-c", "spark-d")
LOAD = View(sort=Sort.LOAD)


@pytest.fixture(scope="module")
def four() -> Snapshot:
    return Rehearsal(backends=4).play(3).snapshot()


def loaded(four: Snapshot, at: float, *loads: float | None) -> Snapshot:
    """Return a picture at second `at` in which the backends run these numbers of requests; none wait."""
    backends = zip(four.backends, loads, strict=True)
    return replace(
        four, at=at, backends=tuple(replace(view, running=load, waiting=0.0) for view, load in backends)
    )


def names(shown: Snapshot) -> tuple[str, ...]:
    return tuple(view.name for view in shown.backends)


def test_a_swinging_load_moves_no_row(four: Snapshot) -> None:
    """Two backends that take turns every five seconds keep their places once their means are known."""
    rows, orders = Arrangement(), list[tuple[str, ...]]()
    for second in range(120):
        swing = (32.0, 0.0) if second // 5 % 2 else (0.0, 32.0)
        orders.append(names(rows.of(loaded(four, 100.0 + second, *swing, 8.0, 1.0), LOAD)))
    assert set(orders[30:]) == {("spark-b", "spark-a", "spark-c", "spark-d")}


def test_a_lasting_difference_moves_a_row(four: Snapshot) -> None:
    """A backend that has more for half a minute is above the others; a little more is not enough."""
    rows = Arrangement()
    assert names(rows.of(loaded(four, 100.0, 16.0, 15.0, 8.0, 1.0), LOAD)) == NAMES
    for second in range(60):
        assert names(rows.of(loaded(four, 101.0 + second, 15.0, 16.0, 8.0, 1.0), LOAD)) == NAMES
    for second in range(30):
        after = names(rows.of(loaded(four, 161.0 + second, 15.0, 16.0, 30.0, 1.0), LOAD))
    assert after == ("spark-c", "spark-a", "spark-b", "spark-d")


def test_by_state_the_order_is_that_of_a_wall(four: Snapshot) -> None:
    """A server that sleeps or connects is not above one that is stuck; every state has a place."""
    assert set(GRAVITY) == set(BackendState)
    for worse, better in pairwise(GRAVITY):
        states = [better, worse, better, worse]
        shown = [replace(one, state=state) for one, state in zip(four.backends, states, strict=True)]
        order = backend_order(shown, Sort.STATE)
        walled = wall_of(replace(four, backends=tuple(replace(one, group="") for one in shown))).groups
        assert order == ["spark-b", "spark-d", "spark-a", "spark-c"]
        assert walled[0].states == [worse, worse, better, better]


def test_a_failure_moves_its_row_within_seconds(four: Snapshot) -> None:
    """By state, what needs attention comes first without a long wait."""
    rows, view = Arrangement(), View(sort=Sort.STATE)
    states = [replace(one, state=BackendState.BUSY) for one in four.backends]
    assert names(rows.of(replace(four, at=100.0, backends=tuple(states)), view)) == NAMES
    states[3] = replace(states[3], state=BackendState.UNREACHABLE)
    for second in range(1, 7):
        after = rows.of(replace(four, at=100.0 + second, backends=tuple(states)), view)
    assert names(after)[0] == "spark-d"


def test_the_marked_row_stays_under_the_cursor(four: Snapshot) -> None:
    """Other rows move around the marked one; without the mark, it moves to its own place."""
    rows, mark = Arrangement(), PanelKey("backend", "spark-b")
    rows.of(loaded(four, 100.0, 30.0, 20.0, 10.0, 1.0), LOAD, mark)
    for second in range(1, 90):
        after = rows.of(loaded(four, 100.0 + second, 30.0, 2.0, 10.0, 20.0), LOAD, mark)
        assert names(after).index("spark-b") == 1
    assert names(after) == ("spark-a", "spark-b", "spark-d", "spark-c")
    for second in range(90, 100):
        after = rows.of(loaded(four, 100.0 + second, 30.0, 2.0, 10.0, 20.0), LOAD, None)
    assert names(after) == ("spark-a", "spark-d", "spark-c", "spark-b")


def test_unknown_values_and_new_rows_come_last(four: Snapshot) -> None:
    """A backend without a value sinks at the next order; one that appears is added below."""
    rows = Arrangement()
    first = loaded(four, 100.0, 30.0, 20.0, 10.0, 5.0)
    assert names(rows.of(replace(first, backends=first.backends[1:]), LOAD)) == NAMES[1:]
    assert names(rows.of(loaded(four, 101.0, 3.0, 20.0, 10.0, 5.0), LOAD)) == (*NAMES[1:], "spark-a")
    for second in range(2, 12):
        after = rows.of(loaded(four, 100.0 + second, 3.0, None, 10.0, 5.0), LOAD)
    assert names(after)[-1] == "spark-b"


def test_going_back_in_time_orders_anew(four: Snapshot) -> None:
    """A past moment is ordered by its own values."""
    rows = Arrangement()
    rows.of(loaded(four, 100.0, 30.0, 20.0, 10.0, 5.0), LOAD)
    assert names(rows.of(loaded(four, 50.0, 5.0, 10.0, 20.0, 30.0), LOAD)) == NAMES[::-1]


def test_a_fleet_in_configured_order_begins_with_what_needs_attention(four: Snapshot) -> None:
    """Hundreds of servers are never all visible; with as many as fit, the configured order stays."""
    one = replace(four.backends[0], state=BackendState.BUSY)
    fleet = [replace(one, name=f"s{number:03d}") for number in range(FLEET + 1)]
    fleet[40] = replace(fleet[40], state=BackendState.UNREACHABLE)
    shown = names(Arrangement().of(replace(four, backends=tuple(fleet)), View()))
    assert shown[:3] == ("s040", "s000", "s001")
    assert len(shown) == FLEET + 1
    few = replace(four, backends=tuple(fleet[:FLEET]))
    assert Arrangement().of(few, View()) is few
