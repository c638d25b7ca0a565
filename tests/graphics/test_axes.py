"""Axes, scales, curves and gradients: round, high enough, and at their place."""

from __future__ import annotations

import math
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.colors.mixing import contrast, ramp
from sparktop.graphics.axes import PlotAxis, Top, nice_ceiling, time_axis, top_without_spikes
from sparktop.graphics.braille import (
    lead_row,
)


@settings(max_examples=60, deadline=None)
@given(st.integers(-1, 250), st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, 10.0, 600.0, 1e9]))
def test_a_time_axis_takes_its_width(width: int, step: float) -> None:
    """The row has exactly the requested width and ends in "now"; labels do not touch."""
    row = time_axis(width, step)
    assert len(row) == max(0, width)
    if width >= 3:
        assert row.endswith("now")
        assert re.fullmatch(r" *(?:−[\d.e+]+ (?:s|min|h) +)*now", row)


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


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-290, 1e307), st.floats(1e-290, 1e300))
def test_a_top_is_never_below_the_value_nor_far_above(value: float, minimum: float) -> None:
    """A top is at least the value and at most 1.5 times as high; the top of a top is itself."""
    top = nice_ceiling(value, minimum)
    assert max(value, minimum) <= top <= 1.5 * max(value, minimum) * (1 + 1e-12)
    assert nice_ceiling(top, minimum) == top


def test_strange_values_have_a_top() -> None:
    """NaN, infinity, negative values and a minimum of 0 give a finite top above 0."""
    assert nice_ceiling(math.nan) == 1
    assert nice_ceiling(math.inf) == sys.float_info.max
    assert nice_ceiling(-5) == 1
    assert nice_ceiling(0, 0) == 1


def test_a_spike_at_the_start_does_not_flatten_the_rest() -> None:
    """A spike, also across two slots, is left out of the scale; its height is returned."""
    spike = [0.0, 90.0, 250.0, *[8.0] * 40]
    assert top_without_spikes([spike, [10.0] * 43]) == Top(10.0, 250.0)
    assert top_without_spikes([spike[1:30]], 4.0) == Top(8.0, 250.0)


@pytest.mark.parametrize(
    "values",
    [
        [*[8.0] * 30, *[250.0] * 3, *[8.0] * 30],  # it lasts
        [*[8.0] * 40, 250.0],  # it may last
        [*[8.0] * 9, 250.0, 8.0, 8.0],  # too few values
        [*[200.0] * 30, 250.0, *[200.0] * 30],  # no spike
        [None] * 40 + [250.0] * 3,
    ],
)
def test_a_level_that_lasts_is_never_clipped(values: list[float | None]) -> None:
    """Three of 40 slots, the newest slots, and any of few values are not spikes and are never clipped."""
    assert top_without_spikes([[8.0] * 60, values]) == Top(250.0)


def test_the_lead_is_told_by_its_margin() -> None:
    """A backend leads with (1 + margin) times an even share; without margin or load there is no lead."""
    a: list[float | None] = [16.0, 15.0, 4.0, 0.0, None]
    b: list[float | None] = [4.0, 5.0, 16.0, 0.0, 3.0]
    assert lead_row(a, b, 0.6) == "▲─▼─ "
    assert lead_row(a, b, None) == "──── "


def test_a_ramp_passes_every_colour() -> None:
    """A gradient starts and ends with its outer colours and passes the inner ones."""
    assert ramp(["#000000", "#ff0000", "#ffffff"], 5) == [
        "#000000",
        "#800000",
        "#ff0000",
        "#ff8080",
        "#ffffff",
    ]
    assert ramp(["#123456"], 3) == ["#123456"] * 3
    assert ramp(["#000000", "#ffffff"], 1) == ["#000000"]
    assert ramp(["#000000"], 0) == []


def test_contrast_is_that_of_the_guideline() -> None:
    """Contrast is that of WCAG: 21 for black on white, 4.5 for #767676 on white, in any order."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#777777") == pytest.approx(1)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)
    assert contrast("#ffffff", "#767676") == contrast("#767676", "#ffffff")
