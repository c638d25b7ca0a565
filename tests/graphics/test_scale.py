"""Tops of axes are round, high enough and steady."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.graphics.scale import nice_ceiling


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
    """A top holds its value, is at most half as high again, and holding it again changes nothing."""
    top = nice_ceiling(value, minimum)
    assert max(value, minimum) <= top <= 1.5 * max(value, minimum) * (1 + 1e-12)
    assert nice_ceiling(top, minimum) == top


def test_strange_values_have_a_top() -> None:
    """NaN, infinity, negative values and a minimum of 0 give a finite top above 0."""
    assert nice_ceiling(math.nan) == 1
    assert nice_ceiling(math.inf) == sys.float_info.max
    assert nice_ceiling(-5) == 1
    assert nice_ceiling(0, 0) == 1
