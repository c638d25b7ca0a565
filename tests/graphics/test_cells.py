"""Text, bars and half cells have exactly the width in cells that was requested."""

from __future__ import annotations

import math
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from sparktop.graphics.braille import blocks as block_table
from sparktop.graphics.cells import bar, cell_width, fit, fit_name, segments, sparkrow

TEXT = st.text(alphabet="abc…é日本한ｱ👍\u0301\u093e\u200b ", max_size=12)


@pytest.mark.parametrize(
    "first", [0x20, 0xA1, 0x370, 0x900, 0x1100, 0x2010, 0x2500, 0x2800, 0x3041, 0xAC00, 0x1F300]
)
def test_widths_agree_with_the_library_that_lays_out_the_screen(first: int) -> None:
    """For many scripts the width equals that computed by Rich."""
    for char in map(chr, range(first, first + 95)):
        if char.isprintable():
            assert cell_width(char) == cell_len(char), hex(ord(char))


@settings(max_examples=100, deadline=None)
@given(TEXT, st.integers(-1, 14), st.sampled_from(["left", "right", "center"]))
def test_fit_gives_exactly_the_width(
    text: str, width: int, align: Literal["left", "right", "center"]
) -> None:
    """Any text gets the requested width, and is complete if it fits."""
    fitted = fit(text, width, align)
    assert cell_width(fitted) == max(0, width)
    if 0 < width >= cell_width(text):
        assert text in fitted


@pytest.mark.parametrize(
    ("name", "width", "fitted"),
    [
        ("spark-a", 8, "spark-a "),
        ("spark-alpha", 8, "spark-a…"),
        ("spark-a@before", 8, "a@before"),
        ("机器@x", 3, " @x"),
    ],
)
def test_a_name_keeps_its_suffix(name: str, width: int, fitted: str) -> None:
    """The end of a name, which distinguishes the sides of a comparison, is kept."""
    assert fit_name(name, width).strip() == fitted.strip()
    assert cell_width(fit_name(name, width)) == width


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


@settings(max_examples=60, deadline=None)
@given(st.lists(FRACTION, max_size=20), st.integers(-1, 15), st.sampled_from([0.0, 1.0, math.nan, 1e308]))
def test_a_small_history_takes_its_width(values: list[float | None], width: int, top: float) -> None:
    """A row of bars has the requested width, with spaces for missing values."""
    row = sparkrow(values, width, top)
    assert len(row) == max(0, width)
    for value, char in zip(reversed(values), reversed(row), strict=False):
        assert (char == " ") == (value is None or math.isnan(value))


@pytest.mark.parametrize(
    ("braille", "blocks"),
    [
        ("⠀⣀⣤⣶⣿", " ▄▄██"),  # heights 0 to 4
        ("⡇⢸⣸⣇", "▌▐▟▙"),
        ("⡪", "▒"),  # the inside of the waiting layer
        ("⠛⠉", "▀▀"),
        ("12 % ┄", "12 % ┄"),
    ],
)
def test_each_half_of_a_cell_keeps_its_place(braille: str, blocks: str) -> None:
    """Two rows of dots become half a cell; other text stays the same."""
    assert braille.translate(block_table()) == blocks
