"""Slots of a running sweep: no event is ever lost, however often two slots become one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.sweep.view.series import FIRST_STEP_S, MOST_POINTS, Amounts, Points, Readings, TimeGrid

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


def test_a_reading_holds_until_the_next_one_but_not_over_a_gap() -> None:
    """Two readings a second apart fill the slots between; ten seconds apart they do not."""
    readings = Readings()
    readings.add(0, 5.0, 2)
    readings.add(2, 7.0, 2)
    readings.add(9, 8.0, 2)
    assert readings.slots(10) == (5.0, 5.0, 7.0, None, None, None, None, None, None, 8.0)


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
