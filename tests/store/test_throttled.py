"""The share of the last minute that reasons slowed GPUs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.node import GpuReading
from sparktop.store.node import ThrottledMinute

HEAT = "software thermal"


def gpu(percent: float | None, index: int = 0, **others: float | None) -> GpuReading:
    return GpuReading(index, throttled_percent={HEAT: percent, **others})


def test_looks_count_by_the_time_that_they_cover() -> None:
    """10 s at 60 % and 30 s at 20 % are 30 %; a sample without a share has no weight."""
    minute = ThrottledMinute()
    minute.add(1010, 10, [gpu(60)])
    minute.add(1040, 30, [gpu(20)])
    minute.add(1050, 10, [gpu(None)])
    assert minute.shares(0) == pytest.approx({HEAT: 30})
    worst = minute.worst()
    assert worst is not None
    assert (worst.index, worst.covered_s) == (0, 40)


def test_what_is_older_than_a_minute_is_forgotten() -> None:
    """A minute after the last throttled sample nothing is left of it."""
    minute = ThrottledMinute()
    minute.add(1000, 2, [gpu(100)])
    for at in range(1002, 1062, 2):
        minute.add(at, 2, [gpu(0)])
    assert minute.shares(0) == {HEAT: 0}


def test_the_worst_gpu_is_told_whole() -> None:
    """It is the GPU with the largest share, with all its reasons; None if no share is known."""
    minute = ThrottledMinute()
    assert minute.worst() is None
    minute.add(1000, 2, [gpu(30, 0), gpu(10, 1, other=31.0), GpuReading(2)])
    worst = minute.worst()
    assert worst is not None
    assert (worst.index, worst.percent) == (1, {HEAT: 10, "other": 31})
    minute.clear()
    assert (minute.worst(), minute.shares(0)) == (None, {})


@given(
    st.lists(
        st.tuples(st.floats(0.1, 30), st.none() | st.floats(0, 100), st.none() | st.floats(0, 100)),
        min_size=1,
        max_size=120,
    )
)
@settings(max_examples=100, deadline=None)
def test_the_running_sums_are_what_a_fresh_count_gives(
    looks: list[tuple[float, float | None, float | None]],
) -> None:
    """However long it runs, the shares are the weighted means of the last minute's samples."""
    minute, at, past = ThrottledMinute(), 0.0, []
    for span_s, first, second in looks:
        at += span_s
        minute.add(at, span_s, [gpu(first), gpu(second, 1)])
        past.append((at, span_s, first, second))
    for index in (0, 1):
        kept = [(one[1], one[2 + index]) for one in past if one[0] > at - 60 and one[2 + index] is not None]
        weight = math.fsum(span_s for span_s, _ in kept)
        expected = math.fsum(span_s * (percent or 0) for span_s, percent in kept) / weight if kept else None
        assert minute.shares(index) == ({} if expected is None else pytest.approx({HEAT: expected}, abs=1e-6))
