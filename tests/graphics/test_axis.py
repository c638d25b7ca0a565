"""Labels stand at the places they name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.graphics.axis import time_axis, value_labels


@settings(max_examples=60, deadline=None)
@given(st.integers(-1, 250), st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, 10.0, 600.0, 1e9]))
def test_a_time_axis_takes_its_width(width: int, step: float) -> None:
    """The row has exactly the width, ends in "now", and no two labels touch."""
    row = time_axis(width, step)
    assert len(row) == max(0, width)
    if width >= 3:
        assert row.endswith("now")
        assert row.split()[-1] == "now"
        assert all(word.count("-") == 1 for word in row.split()[:-1])


@pytest.mark.parametrize(
    ("width", "step", "row"),
    [
        (30, 1, "-60s         -30s          now"),
        (40, 1, "        -60s           -30s          now"),
        (40, 10, "        -10m            -5m          now"),
        (40, 60, "        -60m           -30m          now"),
        (2, 1, "  "),
    ],
)
def test_labels_stand_at_their_time(width: int, step: float, row: str) -> None:
    """Round times are named where they lie: two slots a cell, counted from the right edge."""
    assert len(row) == width
    assert time_axis(width, step) == row


@pytest.mark.parametrize(
    ("height", "top", "labels"),
    [
        (0, 100, []),
        (1, 100, ["100"]),
        (2, 100, ["100", "  0"]),
        (5, 100, ["100", "   ", " 50", "   ", "  0"]),
        (4, 2.5, [" 2.5", "    ", "1.25", "   0"]),
    ],
)
def test_values_are_named_at_both_ends_and_between(height: int, top: float, labels: list[str]) -> None:
    """The first row names the top, the last one 0, the middle one half of the top; all have one width."""
    assert value_labels(height, top) == labels
