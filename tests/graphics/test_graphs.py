"""Braille graphs show each value as a dot column, in its slot and at its height.

Axes, scales, curves and gradients: round, high enough, and at their place.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sparktop.colors.mixing import contrast
from sparktop.graphics.axes import ScaleTop, nice_ceiling, time_axis, top_without_spikes
from sparktop.graphics.braille import UPPER, area, draw_mirrored, draw_stacked

Reader = Callable[[Sequence[str]], list[list[bool]]]
VALUE = st.one_of(
    st.none(),
    st.floats(0, 120),
    st.integers(0, 12).map(float),
    st.sampled_from([0.0, math.nan, math.inf, -3.0]),
)
VALUES = st.lists(VALUE, max_size=24)
PAIRS = st.lists(st.tuples(VALUE, VALUE), max_size=24)
Pairs = list[tuple[float | None, float | None]]
SIZE = {"width": st.integers(1, 9), "height": st.integers(1, 5), "end_slot": st.integers(-3, 40)}
TOP = st.sampled_from([1.0, 10.0, 100.0, 99.9])
moderate = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else max(0.0, value)


def height_of(value: float | None, dots: int, top: float) -> int:
    """Return the expected height of a column in dots: 0 for a gap, 1 for the baseline, at most all."""
    number = known(value)
    if number is None:
        return 0
    return max(1, math.floor(min(1.0, number / top) * dots + 0.5))


def slots(values: Sequence[float | None], width: int, end_slot: int) -> list[float | None]:
    """Return the value that each dot column of `width` cells must show."""
    first = 2 * (end_slot // 2 - width + 1)
    by_slot = {end_slot - age: value for age, value in enumerate(reversed(values))}
    return [by_slot.get(first + column) for column in range(2 * width)]


@moderate
@given(values=VALUES, top=TOP, **SIZE)
def test_an_area_is_filled_up_to_each_value(
    read_dots: Reader, values: list[float | None], width: int, height: int, end_slot: int, top: float
) -> None:
    """Each column is filled up to its value, clipped, with at least one dot; a gap has none."""
    rows = area(values, width, height, top, end_slot=end_slot)
    assert [len(row) for row in rows] == [width] * height
    for value, column in zip(slots(values, width, end_slot), read_dots(rows), strict=True):
        filled = sum(column)
        assert column == [True] * filled + [False] * (4 * height - filled)
        # A value halfway between two dots may be rounded to either.
        assert abs(filled - height_of(value, 4 * height, top)) <= (1 if filled > 1 else 0)


@moderate
@given(both=PAIRS, top=TOP, **SIZE)
@example(both=[(0.0, 4.0), (98.0, 1.0)], top=100.0, width=1, height=6, end_slot=1)
@example(both=[(100.0, 1.0), (100.0, 1.0)], top=100.0, width=1, height=2, end_slot=1)
def test_a_stack_shows_both_layers(
    read_dots: Reader, both: Pairs, width: int, height: int, end_slot: int, top: float
) -> None:
    """Every row has the requested width, and each column is as high as the sum of both values."""
    lower, upper = [low for low, _ in both], [high for _, high in both]
    rows = draw_stacked(lower, upper, width, height, top, end_slot=end_slot)
    texts = ["".join(text for text, _ in row) for row in rows]
    assert [len(text) for text in texts] == [width] * height
    pairs = zip(slots(lower, width, end_slot), slots(upper, width, end_slot), strict=True)
    for (low, high), column in zip(pairs, read_dots(texts), strict=True):
        a, b = known(low), known(high)
        total = None if a is None and b is None else (a or 0.0) + (b or 0.0)
        wanted = height_of(total, 4 * height, top)
        reached = max((row + 1 for row, dot in enumerate(column) if dot), default=0)
        # A dotted row leaves out its right dots.
        assert (wanted == reached == 0) or (reached > 0 and wanted - 2 <= reached <= wanted + 1)


@moderate
@given(both=PAIRS, top=TOP, **SIZE)
@example(both=[(24.0, 4.0), (24.0, 0.0)], top=32.0, width=1, height=1, end_slot=1)
@example(both=[(1.0, 0.01), (1.0, 0.0)], top=32.0, width=1, height=3, end_slot=1)
def test_waiting_is_never_invisible(both: Pairs, width: int, height: int, end_slot: int, top: float) -> None:
    """Each column of cells in which a request waited has a cell in the colour of waiting.

    Graphs of one or two rows are an exception: there one cell would look like a large share.
    """
    lower, upper = [low for low, _ in both], [high for _, high in both]
    rows = draw_stacked(lower, upper, width, height, top, end_slot=end_slot)
    layers = [[layer for text, layer in row for _ in text] for row in rows]
    pairs = zip(slots(lower, width, end_slot), slots(upper, width, end_slot), strict=True)
    waited = [height > 2 and (known(b) or 0.0) > 0 for _, b in pairs]
    for cell in range(width):
        if waited[2 * cell] or waited[2 * cell + 1]:
            assert any(row[cell] == UPPER for row in layers)


@moderate
@given(up=VALUES, down=VALUES, top=TOP, **SIZE)
def test_a_mirror_fills_from_its_centre(
    read_dots: Reader,
    up: list[float | None],
    down: list[float | None],
    width: int,
    height: int,
    end_slot: int,
    top: float,
) -> None:
    """Each half is filled from the centre to its value; a gap has no dot."""
    rows = draw_mirrored(up, down, width, height, top, end_slot=end_slot)
    assert [len(row) for row in rows] == [width] * height
    half = 2 * height
    columns = read_dots(rows)
    pairs = zip(slots(up, width, end_slot), slots(down, width, end_slot), strict=True)
    for (above, below), column in zip(pairs, columns, strict=True):
        for value, part in ((above, column[half:]), (below, column[half - 1 :: -1])):
            filled = sum(part)
            assert part == [True] * filled + [False] * (half - filled)
            assert abs(filled - height_of(value, half, top)) <= (1 if filled > 1 else 0)


def test_an_odd_tick_changes_only_the_newest_cell() -> None:
    """A cell holds slots 2k and 2k+1: an odd slot changes the last cell, an even one moves the picture."""
    values = [float(10 + 7 * (i % 9)) for i in range(40)]
    even = area(values[:30], 10, 4, 100, end_slot=30)
    odd = area(values[:31], 10, 4, 100, end_slot=31)
    after = area(values[:32], 10, 4, 100, end_slot=32)
    assert [row[:-1] for row in odd] == [row[:-1] for row in even]
    assert [row[:-1] for row in after] == [row[1:] for row in odd]


@given(st.integers(-1, 250), st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, 10.0, 600.0, 1e9]))
def test_a_time_axis_takes_its_width(width: int, step: float) -> None:
    """The row has exactly the requested width and ends in "now"; labels do not touch."""
    row = time_axis(width, step)
    assert len(row) == max(0, width)
    if width >= 3:
        assert row.endswith("now")
        assert re.fullmatch(r" *(?:−[\d.e+]+ (?:s|min|h) +)*now", row)


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
    assert top_without_spikes([spike, [10.0] * 43]) == ScaleTop(10.0, 250.0)
    assert top_without_spikes([spike[1:30]], 4.0) == ScaleTop(8.0, 250.0)


def test_contrast_is_that_of_the_guideline() -> None:
    """Contrast is that of WCAG: 21 for black on white, 4.5 for #767676 on white, in any order."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#777777") == pytest.approx(1)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)
    assert contrast("#ffffff", "#767676") == contrast("#767676", "#ffffff")
