"""Tops of axes are round, high enough and stable."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.graphics.axes import Top, nice_ceiling, top_without_spikes, widest_top


@pytest.mark.parametrize(
    ("value", "top"),
    [(0, 1), (1, 1), (1.1, 1.5), (2.1, 2.5), (2.6, 3), (7, 8), (100, 100), (101, 150), (310, 400), (None, 1)],
)
def test_tops_are_round(value: float | None, top: float) -> None:
    """The top is the next of a few round numbers times a power of ten."""
    assert nice_ceiling(value) == top


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


def test_one_backend_of_many_that_is_higher_for_a_while_counts() -> None:
    """A high level of one backend among many calm ones counts: each graph is judged by itself."""
    assert top_without_spikes([*[[4.0] * 50] * 200, [4.0] * 40 + [90.0] * 5 + [4.0] * 5]) == Top(100.0)


def test_nothing_known_has_the_least_top() -> None:
    """Without known values the scale has the minimum, also without any graph."""
    assert top_without_spikes([[], [None, None], [0.0]], 4.0) == Top(4.0)
    assert top_without_spikes([], 4.0) == Top(4.0) == widest_top([], 4.0)


def test_the_widest_of_several_scales_may_hold_the_spikes_of_others() -> None:
    """Of several scales the widest is returned, with the height of any spike above it."""
    assert widest_top([Top(10.0, 90.0), Top(40.0)], 4.0) == Top(40.0, 90.0)
    assert widest_top([Top(10.0, 90.0), Top(100.0)], 4.0) == Top(100.0)


def test_a_graph_of_one_old_value_has_an_end() -> None:
    """A spike with nothing beside it, and nothing in the newest slots, has a scale."""
    values = [0.0] * 100 + [30.0, None, None]
    assert top_without_spikes([values], 10.0) == Top(10.0, 30.0)
