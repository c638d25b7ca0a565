"""Slots of a running sweep: no event is ever lost, however often two slots become one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.sweep.view.series import FIRST_STEP_S, MOST_POINTS, Amounts, Points, Readings, States, TimeGrid

TIMES = st.lists(st.integers(0, 5000), min_size=1, max_size=80).map(sorted)


@given(TIMES)
@settings(max_examples=60)
def test_no_token_is_lost_when_slots_are_joined(tenths: list[int]) -> None:
    """All slots together hold every token, on a grid of 16 slots and over hundreds of seconds."""
    grid = TimeGrid(0.0, most=16)
    tokens = grid.column(Amounts)
    for tenth in tenths:
        tokens.add(grid.slot(tenth * FIRST_STEP_S), 3)
    rates = tokens.rates(16, grid.step_s)
    assert sum(rate or 0.0 for rate in rates) * grid.step_s == pytest.approx(3 * len(tenths))


@given(TIMES)
@settings(max_examples=60)
def test_a_token_stays_in_its_own_time(tenths: list[int]) -> None:
    """After all joining, a slot has tokens exactly when some came in its time."""
    grid = TimeGrid(0.0, most=16)
    tokens = grid.column(Amounts)
    for tenth in tenths:
        tokens.add(grid.slot(tenth * FIRST_STEP_S), 1)
    held = [bool(rate) for rate in tokens.rates(16, grid.step_s)]
    width = round(grid.step_s / FIRST_STEP_S)
    assert held == [any(tenth // width == slot for tenth in tenths) for slot in range(16)]


def test_slots_begin_at_the_edges_of_the_bins() -> None:
    """A bin of the generator lies in one slot although 1000.3 is not represented exactly."""
    grid = TimeGrid(1000.03)
    assert [grid.slot(1000 + tenth / 10) for tenth in range(5)] == [0, 1, 2, 3, 4]


def test_what_comes_from_before_counts_for_the_first_slot() -> None:
    """An event with an earlier time is not lost and does not break anything."""
    assert TimeGrid(1000.0).slot(3.0) == 0


def test_a_reading_holds_until_the_next_one_but_not_over_a_gap() -> None:
    """Two readings a second apart fill the slots between; ten seconds apart they do not."""
    readings = Readings()
    readings.add(0, 5.0, 2)
    readings.add(2, 7.0, 2)
    readings.add(9, 8.0, 2)
    assert readings.slots(10) == (5.0, 5.0, 7.0, None, None, None, None, None, None, 8.0)


def test_a_missing_reading_is_a_gap() -> None:
    """None is not zero and is not filled from the readings before."""
    readings = Readings()
    readings.add(0, 5.0, 3)
    readings.add(1, None, 3)
    assert readings.slots(4, hold_slots=2) == (5.0, None, None, None)


def test_the_newest_reading_holds_only_for_a_while() -> None:
    """A server that stopped to answer becomes a gap."""
    readings = Readings()
    readings.add(0, 5.0, 2)
    assert readings.slots(5, hold_slots=2) == (5.0, 5.0, 5.0, None, None)


def test_a_state_holds_until_it_changes() -> None:
    """Requests in flight are known between two events: nothing happened there."""
    states = States()
    states.put(1, 4.0)
    states.put(4, 0.0)
    assert states.slots(6) == (None, 4.0, 4.0, 4.0, 0.0, 0.0)


def test_joined_states_keep_the_newer_one() -> None:
    """Of two slots that become one the later state stands."""
    states = States()
    states.put(0, 4.0)
    states.put(1, 8.0)
    states.put(2, 2.0)
    states.fold()
    assert states.slots(2) == (8.0, 2.0)


@given(st.lists(st.floats(1.0, 1e5), min_size=1, max_size=200))
@settings(max_examples=60)
def test_thinned_points_keep_the_least_and_the_most(values: list[float]) -> None:
    """Of any number of points a slot keeps few, but both ends."""
    points = Points()
    for value in values:
        points.add(0, value)
    (kept,) = points.slots(1)
    assert len(kept) <= 2 * MOST_POINTS
    assert (min(kept), max(kept)) == (min(values), max(values))
