"""All screens and reports of sweeps write numbers in one style, whatever the size of the screen."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from sparktop.model.text import with_units_joined
from sparktop.panels.parts.figures import wrap_sentence
from sparktop.panels.parts.text import Row, row_text
from sparktop.panels.sweep.evidence import evidence_screen
from sparktop.panels.sweep.screen import sweep_band, sweep_screen
from tests.panels.sweep_views import done, evidence, finished, running

SIZES = ((80, 24), (120, 36), (200, 50))
WRONG = re.compile(r"(?<![\d.,:])\d{4,} (?:tok/s|tok|requests|tokens)\b|\d%|\d(?:tok/s|ms|GiB|°C)\b")
"""Digits that are not grouped before such a unit, and a unit without a space before it."""


def wrong_in(rows: list[Row]) -> list[str]:
    """Return the numbers in rows that have another style."""
    return WRONG.findall("\n".join(row_text(row) for row in rows))


@pytest.mark.parametrize("size", SIZES)
def test_screens_of_sweeps(size: tuple[int, int]) -> None:
    """Counts and rates have commas, and each unit has a space before it."""
    for view in (running(), done(), finished()):
        fast = tuple(
            replace(row, figures={name: replace(one, mean=4567.0) for name, one in row.figures.items()})
            for row in view.rows
        )
        shown = replace(view, rows=fast)
        assert not wrong_in(sweep_screen(shown, *size))
        assert not wrong_in(sweep_band(shown, size[0], 3 * size[1] // 8))
    assert "4,567" in "".join(row_text(row) for row in sweep_screen(shown, *size))
    assert not wrong_in(evidence_screen(evidence(), *size))


def test_a_line_never_ends_between_a_number_and_its_unit() -> None:
    """A lone % at the beginning of a line belongs to nothing."""
    text = "5 runs with a spread of 9.3 % last 12 s and 3 GiB, 4,567 tok/s at 61 °C in 4 servers, c = 16"
    assert with_units_joined(text, "_").count("_") == 7
    for width in range(12, 60):
        lines = wrap_sentence(text, width)
        assert " ".join(lines) == text
        assert not [line for line in lines if re.match(r"%|=|16|s |GiB|tok/s|°C", line)]
