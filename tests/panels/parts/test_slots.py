"""Histories read into the slots of a graph."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.series import HistoryTable, Series
from sparktop.panels.parts.slots import held_slots, slots_of


def series(points: Sequence[tuple[float, float | None]]) -> Series:
    table = HistoryTable(("value",), 5000)
    for time, value in points:
        table.append(time, {"value": value})
    return table.series()["value"]


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.tuples(st.floats(1.0, 4.0), st.one_of(st.none(), st.integers(0, 99))), max_size=80),
    st.sampled_from([0.25, 0.5, 1.0]),
    st.integers(1, 60),
)
def test_it_gives_what_the_series_itself_gives(
    steps: list[tuple[float, int | None]], step: float, count: int
) -> None:
    """With a sample a slot at most, the quick way and the plain one say the same of every slot.

    But for the oldest one: what was before it is known too.
    """
    at, points = 5.0, []
    for gap, value in steps:
        at += gap
        points.append((at, None if value is None else float(value)))
    history = series(points)
    expected = history.slots(at, step, count)
    found = slots_of(history, math.floor(at / step), step, count)
    assert found[1:] == pytest.approx(expected[1:])
    assert found[0] == expected[0] or expected[0] is None


def test_a_slot_holds_the_mean_of_its_samples() -> None:
    """Four samples in a second make one mean; one that is missing does not count as 0."""
    history = series([(10.0, 1.0), (10.25, 2.0), (10.5, None), (10.75, 6.0), (11.0, 8.0)])
    assert slots_of(history, 11, 1.0, 2) == [3.0, 8.0]


def test_a_gap_stays_one_though_two_samples_follow_it() -> None:
    """A second without an answer is a gap, however quickly samples come after it."""
    history = series([(8.2, 1.0), (9.1, 1.0), (11.05, 1.0), (11.3, 1.0)])
    assert slots_of(history, 11, 1.0, 3) == [1.0, None, 1.0]


def test_slow_samples_before_fast_ones_are_no_gaps() -> None:
    """Looked at once a second and then four times, each slot of a quarter second has its value."""
    slow = [(float(second), 3.0) for second in range(6)]
    fast = [(5 + quarter / 4, 7.0) for quarter in range(1, 9)]
    assert held_slots((series(slow + fast),), 28, 0.25, 24)[0] == [3.0] * 16 + [7.0] * 8
    back = [(7 + float(second), 9.0) for second in range(1, 4)]
    assert None not in held_slots((series(slow + fast + back),), 40, 0.25, 40)[0]


def test_a_sample_missed_at_a_steady_rate_is_a_gap() -> None:
    """At four a second one that is not there leaves its slot empty, and so does one without a value."""
    points = [(quarter / 4, 5.0) for quarter in range(20) if quarter != 10]
    assert held_slots((series(points),), 19, 0.25, 20)[0].index(None) == 10
    told = [(quarter / 4, None if quarter == 10 else 5.0) for quarter in range(20)]
    assert [
        index for index, value in enumerate(held_slots((series(told),), 19, 0.25, 20)[0]) if value is None
    ] == [10]


def test_nothing_is_held_beyond_the_newest_sample() -> None:
    """After the last sample every slot is empty, and a history without samples has none."""
    assert (
        held_slots((series([(1.0, 4.0), (1.25, 4.0)]),), 8, 0.25, 5)[0]
        == [4.0, 4.0, None, None, None][:1] + [4.0] + [None] * 3
    )
    history = series([(1.0, 4.0), (1.25, 4.0)])
    assert held_slots((history,), 8, 0.25, 5) == [[4.0, 4.0, None, None, None]]
    assert held_slots((Series(),), 8, 0.25, 5) == [[None] * 5]
