"""Shares of a whole over time, rows of shades and who leads."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.graphics.shares import (
    FILLS,
    NOTHING,
    SHADES,
    cell_means,
    heat_row,
    lead_row,
    share_area,
)

LOADS = st.one_of(st.none(), st.floats(0, 100))


@pytest.mark.parametrize(
    ("end_slot", "cells"), [(1, [1.5, 3.5]), (0, [2.5, 4.0]), (7, [1.5, 3.5]), (8, [2.5, 4.0])]
)
def test_a_cell_holds_an_even_slot_and_the_odd_one_after_it(end_slot: int, cells: list[float]) -> None:
    """Cells begin at even slots, as those of braille graphs do, so that both pictures move together."""
    assert cell_means([1.0, 2.0, 3.0, 4.0], 2, end_slot) == cells


def test_half_a_cell_is_what_is_known_of_it_and_a_gap_stays_one() -> None:
    """One unknown slot leaves the other one; two are a gap, NaN as well, and so is what was before all."""
    assert cell_means([None, 3.0, math.nan, None], 3, 1) == [None, 3.0, None]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(LOADS, min_size=6, max_size=6), min_size=2, max_size=8), st.integers(1, 12))
def test_each_column_is_divided_by_shares(parts: list[list[float | None]], height: int) -> None:
    """Every row is as wide as there are columns, and a part has its share of the height within one row."""
    rows = share_area(parts, height)
    assert [sum(len(text) for text, _ in row) for row in rows] == [6] * height
    cells = [[part for text, part in row for _ in text] for row in rows]
    for column in range(6):
        known = [part[column] or 0.0 for part in parts]
        drawn = [row[column] for row in cells]
        if sum(known) <= 0:
            assert drawn == [NOTHING] * height
            continue
        assert drawn == sorted(drawn)
        for index, load in enumerate(known):
            assert abs(drawn.count(index) - height * load / sum(known)) <= 1


def test_neighbours_differ_without_colour() -> None:
    """Parts that touch are drawn with other characters."""
    rows = share_area([[1.0]] * 4, 4)
    assert [row[0][0] for row in rows] == list(FILLS)


def test_shades_tell_nothing_from_little_and_unknown() -> None:
    """0 is a dot, a quarter of the scale a shade each, above it the fullest one; unknown is a space."""
    values: list[float | None] = [0.0, 0.1, 2.4, 2.5, 5.0, 7.5, 10.0, 99.0, None, math.nan]
    row = heat_row(values, [0.0] * len(values), 10.0)
    assert row == [("·░░▒▓████"[:8] + "  ", 0)]
    assert set("".join(text for text, _ in row)) <= set(SHADES) | {" "}


def test_waiting_has_letters_instead_of_shades() -> None:
    """Some waiting is w, more waiting than running is W, and both are runs of their own."""
    assert heat_row([5.0, 5.0, 5.0, 0.0], [0.0, 1.0, 6.0, None], 10.0) == [("▓", 0), ("wW", 1), ("·", 0)]


def test_the_lead_is_told_by_its_margin() -> None:
    """A leads with (1 + margin) times an even share; without a margin or with nothing there nobody does."""
    a: list[float | None] = [16.0, 15.0, 4.0, 0.0, None]
    b: list[float | None] = [4.0, 5.0, 16.0, 0.0, 3.0]
    assert lead_row(a, b, 0.6) == "▲─▼─ "
    assert lead_row(a, b, None) == "──── "
