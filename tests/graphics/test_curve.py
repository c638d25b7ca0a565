"""Curves over lags and periods."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.graphics.axes import PlotAxis, labelled, pointed


@settings(max_examples=60, deadline=None)
@given(
    points=st.lists(st.floats(1, 500), min_size=2, max_size=120, unique=True),
    width=st.integers(4, 60),
    ratios=st.booleans(),
    data=st.data(),
)
def test_the_largest_point_is_always_drawn_in_its_column(
    points: list[float], width: int, *, ratios: bool, data: st.DataObject
) -> None:
    """A column shows the value furthest from 0 of all its points."""
    points.sort()
    values = [0.1] * len(points)
    peak = data.draw(st.integers(0, len(points) - 1))
    values[peak] = -0.9
    axis = PlotAxis(points[0], points[-1], width, ratios=ratios)
    columns = axis.columns(points, values)
    assert len(columns) == 2 * width
    first = 2 * axis.cell(points[peak])
    assert -0.9 in columns[max(0, first - 1) : first + 3]
    assert None not in columns


def test_equal_ratios_are_equally_far_apart() -> None:
    """On a logarithmic axis from 1 to 100 the middle is 10; on a linear one it is 50.5."""
    assert PlotAxis(1, 100, 40, ratios=True).cell(10) == 20
    assert PlotAxis(1, 100, 40).cell(50.5) == 20
    assert PlotAxis(1, 100, 40, ratios=True).value(0.5) == pytest.approx(10)


def test_beyond_the_edges_is_the_nearest_cell_and_counts_for_no_column() -> None:
    """A mark beyond the axis is in the nearest cell; a point beyond it is not the largest of a column."""
    axis = PlotAxis(10, 20, 5)
    assert (axis.cell(3), axis.cell(99)) == (0, 4)
    assert axis.columns([1.0, 12.0, 18.0, 99.0], [9.0, 1.0, 2.0, 9.0]) == [1.0] * 5 + [2.0] * 5
    assert axis.columns([12.0, 18.0], [1.0, 2.0]) == [None] * 2 + [1.0] * 3 + [2.0] * 4 + [None]


@settings(max_examples=60, deadline=None)
@given(
    low=st.floats(0.1, 50),
    ratio=st.floats(1.2, 100),
    width=st.integers(3, 120),
    ratios=st.booleans(),
)
def test_labels_are_round_and_exactly_as_wide_as_the_plot(
    low: float, ratio: float, width: int, *, ratios: bool
) -> None:
    """The row of labels has the width of the plot, and each label is a number within the axis."""
    axis = PlotAxis(low, low * ratio, width, ratios=ratios)
    row = axis.labels()
    assert len(row) == width
    for word in row.split():
        number = float(word.removesuffix("k")) * (1000 if word.endswith("k") else 1)
        assert 0.99 * low <= number <= 1.01 * low * ratio


def test_a_word_that_would_touch_another_is_left_out() -> None:
    """A label that would touch another is left out; a pointer's first character is at its value."""
    axis = PlotAxis(0, 10, 10)
    assert labelled([(2, "abc"), (4, "def"), (8, "ghi")], axis) == " abc   ghi"
    assert pointed([(2, "^ab"), (4, "^cd"), (6, "^e")], axis) == "  ^ab ^e  "
