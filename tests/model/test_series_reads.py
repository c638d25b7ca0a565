"""Reading stretches of a history at once."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.series import HistoryTable

VALUES = st.lists(st.none() | st.integers(-5, 5), max_size=40)


@settings(max_examples=150, deadline=None)
@given(VALUES, st.integers(-2, 45), st.integers(1, 12))
def test_arrays_and_ends_are_what_walking_gives(values: list[int | None], since: int, capacity: int) -> None:
    """Arrays and first and last values equal those found point by point, also in a trimmed history."""
    table = HistoryTable("a", capacity)
    for at, value in enumerate(values):
        table.append(float(at), {"a": value})
    series = table.series()["a"]
    walked = [(at, value) for at, value in series if at >= since]
    times, found = series.arrays(since)
    assert times == [at for at, _ in walked]
    assert [None if math.isnan(value) else value for value in found] == [value for _, value in walked]
    known = [value for _, value in walked if value is not None]
    assert series.ends(since) == ((known[0], known[-1]) if known else None)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 60))
def test_a_history_keeps_a_quarter_more_than_it_shows_at_most(capacity: int) -> None:
    """A history holds at most a quarter more points than its capacity."""
    table = HistoryTable("a", capacity)
    for at in range(4 * capacity + 10):
        table.append(float(at), {"a": 1.0})
        assert len(table) <= capacity + max(1, capacity // 4)
    assert len(table.series()["a"]) == capacity


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from([None, -0.0, 0.0, 1.0, 0.1, 1 / 3, 1e300, 16_777_217.0]), min_size=60, max_size=90
    )
)
def test_full_pages_keep_every_bit_of_all_kinds_of_columns(values: list[float | None]) -> None:
    """Full pages keep every bit of constant, single-precision, repeated and distinct values."""
    table = HistoryTable(("mixed", "constant", "whole", "apart"), 80)
    for at, value in enumerate(values):
        table.append(at / 3, {"mixed": value, "constant": 0.1, "whole": float(at % 5), "apart": at / 7})
    kept = table.series()
    assert [repr(value) for _, value in kept["mixed"]] == [repr(value) for value in values[-80:]]
    assert {value for _, value in kept["constant"]} == {0.1}
    places = range(len(values))[-80:]
    assert list(kept["whole"]) == [(at / 3, float(at % 5)) for at in places]
    assert list(kept["apart"]) == [(at / 3, at / 7) for at in places]
