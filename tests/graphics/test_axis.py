"""Labels of an axis are at the positions that they name."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.graphics.axes import time_axis


@settings(max_examples=60, deadline=None)
@given(st.integers(-1, 250), st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, 10.0, 600.0, 1e9]))
def test_a_time_axis_takes_its_width(width: int, step: float) -> None:
    """The row has exactly the requested width and ends in "now"; labels do not touch."""
    row = time_axis(width, step)
    assert len(row) == max(0, width)
    if width >= 3:
        assert row.endswith("now")
        assert re.fullmatch(r" *(?:−[\d.e+]+ (?:s|min|h) +)*now", row)


@pytest.mark.parametrize(
    ("width", "step", "row"),
    [
        (30, 1, "−60 s        −30 s         now"),
        (40, 1, "        −60 s          −30 s         now"),
        (40, 10, "       −10 min        −5 min         now"),
        (40, 60, "       −60 min        −30 min        now"),
        (2, 1, "  "),
    ],
)
def test_labels_stand_at_their_time(width: int, step: float, row: str) -> None:
    """Round times are at their positions: two time slots per cell, counted from the right edge."""
    assert len(row) == width
    assert time_axis(width, step) == row
