"""Histories read into the slots of a graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.series import LATE, HistoryTable, Series
from sparktop.panels.parts.graph import held_slots, hold_last


def series(points: Sequence[tuple[float, float | None]]) -> Series:
    table = HistoryTable(("value",), 5000)
    for time, value in points:
        table.append(time, {"value": value})
    return table.series()["value"]


def test_a_slot_holds_the_mean_of_its_samples() -> None:
    """Four samples in a second make one mean; one that is missing does not count as 0."""
    history = series([(10.0, 1.0), (10.25, 2.0), (10.5, None), (10.75, 6.0), (11.0, 8.0)])
    assert held_slots((history,), 11, 1.0, 2)[0] == [3.0, 8.0]


def test_a_gap_stays_one_though_two_samples_follow_it() -> None:
    """A second without an answer is a gap, however quickly samples come after it."""
    history = series([(8.2, 1.0), (9.1, 1.0), (11.05, 1.0), (11.3, 1.0)])
    assert held_slots((history,), 11, 1.0, 3)[0] == [1.0, None, 1.0]


def test_slow_samples_before_fast_ones_are_no_gaps() -> None:
    """Polled first once and then four times a second, each slot of a quarter second has a value."""
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


def test_a_value_holds_until_its_next_sample_is_due() -> None:
    """Read every two seconds, a node has a value in each second, and none once a sample is overdue."""
    history = series([(0.5, 4.0), (2.5, 6.0)])
    means: list[float | None] = [4.0, 4.0, 6.0, None, None, None, None]
    hold_last(means, history, 6, 1.0)
    assert means == [4.0, 4.0, 6.0, 6.0, 6.0, 6.0, None]
    unknown = series([(0.5, 4.0), (2.5, None)])
    gone: list[float | None] = [4.0, 4.0, None]
    hold_last(gone, unknown, 2, 1.0)
    assert gone == [4.0, 4.0, None]


POINTS = st.lists(
    st.tuples(st.sampled_from([0.25, 0.5, 1.0, 1.0, 1.0, 1.75, 2.0, 4.0]), st.none() | st.floats(0, 1e6)),
    min_size=2,
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(
    points=POINTS,
    step=st.sampled_from([0.5, 1.0, 2.4]),
    capacity=st.sampled_from([8, 16, 5000]),
    lag=st.integers(0, 3),
)
def test_slots_read_while_a_history_grows_are_those_read_at_once(
    points: list[tuple[float, float | None]], step: float, capacity: int, lag: int
) -> None:
    """Means kept between drawings equal those computed at once, at whatever slot the graph ends."""
    times = list(accumulate((apart for apart, _ in points), initial=7.0))[1:]
    told = [(time, value) for time, (_, value) in zip(times, points, strict=True)]
    growing = HistoryTable(("value",), capacity)
    for number, (time, value) in enumerate(told, start=1):
        growing.append(time, {"value": value})
        once = HistoryTable(("value",), capacity)
        for at, earlier in told[:number]:
            once.append(at, {"value": earlier})
        end_slot = int(time // step) - lag
        seen = held_slots((growing.series()["value"],), end_slot, step, 12)[0]
        assert seen == held_slots((once.series()["value"],), end_slot, step, 12)[0]
        shown = [(at, value) for at, value in once.series()["value"] if value is not None]
        for slot, mean in enumerate(seen, start=end_slot - 11):
            inside = [value for at, value in shown if slot * step <= at < (slot + 1) * step]
            if inside:
                assert mean == pytest.approx(fmean(inside), rel=1e-9, abs=1e-6)


def computed_whole(
    points: Sequence[tuple[float, float]], first: int, step: float, count: int
) -> list[float | None]:
    """Return the means by slot, computed without any that are kept: gaps are filled from left to right."""
    times = [time for time, _ in points if time >= (first - 8) * step]
    values = [value for time, value in points if time >= (first - 8) * step]
    edges = [sum(time < (first + slot) * step for time in times) for slot in range(count + 1)]
    known = [[value for value in values[a:b] if math.isfinite(value)] for a, b in pairwise(edges)]
    means = [sum(some) / len(some) if some else None for some in known]
    slot = 0
    while slot < count:
        end = slot
        while end < count and edges[end] == edges[end + 1]:
            end += 1
        after = edges[slot]
        if slot < end < count and 0 < after < len(times):
            apart = times[after] - times[after - 1]
            before = times[after - 1] - times[after - 2] if after > 1 else 0.0
            behind = times[after + 1] - times[after] if after + 1 < len(times) else 0.0
            both = math.isfinite(values[after - 1]) and math.isfinite(values[after])
            if both and apart < LATE * max(before, behind):
                means[slot:end] = [means[slot - 1] if slot else values[after - 1]] * (end - slot)
        slot = max(end, slot + 1)
    return means


@settings(max_examples=200, deadline=None)
@given(points=POINTS, step=st.sampled_from([0.5, 1.0, 2.4]), shifts=st.lists(st.integers(-3, 3), min_size=60))
def test_slots_kept_are_those_computed_whole(
    points: list[tuple[float, float | None]], step: float, shifts: list[int]
) -> None:
    """Whatever was kept, each slot has the mean of its samples alone, and the same gaps are filled."""
    table = HistoryTable(("other", "value"), 5000)
    told: list[tuple[float, float]] = []
    time = 7.0
    for (apart, value), shift in zip(points, shifts, strict=False):
        time += apart
        table.append(time, {"value": value})
        told.append((time, math.nan if value is None else value))
        end_slot = int(time // step) + shift
        for count in (5, 12):
            seen = held_slots((table.series()["value"],), end_slot, step, count)[0]
            assert seen == computed_whole(told, end_slot - count + 1, step, count)
            assert held_slots((table.series()["other"],), end_slot, step, count)[0] == [None] * count
