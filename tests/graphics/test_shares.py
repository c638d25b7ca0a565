"""Means of the two time slots of a cell, and which backend leads."""

from __future__ import annotations

import math

import pytest

from sparktop.graphics.braille import (
    cell_means,
    lead_row,
)


@pytest.mark.parametrize(
    ("end_slot", "cells"), [(1, [1.5, 3.5]), (0, [2.5, 4.0]), (7, [1.5, 3.5]), (8, [2.5, 4.0])]
)
def test_a_cell_holds_an_even_slot_and_the_odd_one_after_it(end_slot: int, cells: list[float]) -> None:
    """Cells begin at even slots, like those of braille graphs, so that both move together."""
    assert cell_means([1.0, 2.0, 3.0, 4.0], 2, end_slot) == cells


def test_half_a_cell_is_what_is_known_of_it_and_a_gap_stays_one() -> None:
    """The mean of a cell is of its known slots; without a known slot it is a gap."""
    assert cell_means([None, 3.0, math.nan, None], 3, 1) == [None, 3.0, None]


def test_the_lead_is_told_by_its_margin() -> None:
    """A backend leads with (1 + margin) times an even share; without margin or load there is no lead."""
    a: list[float | None] = [16.0, 15.0, 4.0, 0.0, None]
    b: list[float | None] = [4.0, 5.0, 16.0, 0.0, 3.0]
    assert lead_row(a, b, 0.6) == "▲─▼─ "
    assert lead_row(a, b, None) == "──── "
