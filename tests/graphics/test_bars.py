"""Bars have the requested width and show their value."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.graphics.cells import bar, segments, sparkrow

FRACTION = st.one_of(st.none(), st.floats(-1, 2), st.sampled_from([0.0, 1.0, math.nan, math.inf, 1e-9]))


@settings(max_examples=60, deadline=None)
@given(FRACTION, st.integers(-1, 40))
def test_a_bar_takes_its_width(fraction: float | None, width: int) -> None:
    """Filled and empty part fill the width, and any value above 0 is visible."""
    filled, empty = bar(fraction, width)
    assert len(filled) + len(empty) == max(0, width)
    if width > 0:
        assert bool(filled) == (fraction is not None and not math.isnan(fraction) and fraction > 0)


def test_bars_end_in_eighths() -> None:
    """A bar is exact to an eighth of a cell, and an unknown value looks different from 0."""
    assert bar(0.55, 10) == ("█████▌", "····")
    assert bar(1 / 80, 10) == ("▏", "·········")
    assert bar(1, 3) == ("███", "")
    assert bar(0, 3) == ("", "···")
    assert bar(None, 3) == ("", "–––")


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(0, 1e308) | st.floats(0, 10) | st.just(math.nan), max_size=6),
    st.floats(0, 1e308) | st.floats(0, 50),
    st.integers(0, 30),
)
def test_segments_fill_the_width(parts: list[float], total: float, width: int) -> None:
    """The cells add up to the width, and each part above 0 has at least one if there are enough."""
    widths = segments(parts, total, width)
    assert len(widths) == len(parts) + 1
    assert sum(widths) == width
    assert min(widths) >= 0
    largest = max([part for part in parts if part > 0] + [total], default=0.0)
    visible = [index for index, part in enumerate(parts) if part > 0 and part / largest > 0]
    assert sum(widths[index] > 0 for index in visible) >= min(len(visible), width)


def test_segments_go_by_the_largest_remainder() -> None:
    """Cells are distributed by largest remainder; small parts get a cell from the widest one."""
    assert segments([60, 20], 100, 20) == [12, 4, 4]
    assert segments([1, 1, 1], 3, 20) == [7, 7, 6, 0]
    assert segments([99.9, 0.1], 100, 10) == [9, 1, 0]
    assert segments([3, 2, 1], 6, 2) == [1, 1, 0, 0]
    assert segments([8, 8], 10, 4) == [2, 2, 0]
    assert segments([], 0, 4) == [4]


@settings(max_examples=60, deadline=None)
@given(st.lists(FRACTION, max_size=20), st.integers(-1, 15), st.sampled_from([0.0, 1.0, math.nan, 1e308]))
def test_a_small_history_takes_its_width(values: list[float | None], width: int, top: float) -> None:
    """A row of bars has the requested width, with spaces for missing values."""
    row = sparkrow(values, width, top)
    assert len(row) == max(0, width)
    for value, char in zip(reversed(values), reversed(row), strict=False):
        assert (char == " ") == (value is None or math.isnan(value))


def test_a_small_history_goes_from_0_to_the_top() -> None:
    """0 is the lowest bar, a gap is a space, the top and above a full cell; the newest is rightmost."""
    assert sparkrow([None, 0, 1, 50, 99, 100, 120], 8, 100) == "  ▁▁▅███"
    assert sparkrow([1, 2, 3], 2, 4) == "▅▇"
