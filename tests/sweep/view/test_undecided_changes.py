"""Changes that are not significant: none shown, not certain, or too small to count."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.model.judgement import NO_DIFFERENCE
from sparktop.model.load import concurrency_point
from sparktop.model.sweep import (
    NOT_CERTAIN,
    WITHIN_NOISE,
    Difference,
    DifferenceRow,
    Value,
)
from sparktop.panels.parts.text import row_text
from sparktop.panels.sweep.topology import difference_screen
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import Load
from sparktop.sweep.formats.report import comparison_markdown
from sparktop.sweep.view.difference import difference
from tests.sweep.made_results import made_series


def row(
    percent: float, low: float, high: float, *, floor: float = 1.0, significant: bool = False
) -> DifferenceRow:
    return DifferenceRow(
        "Decode",
        "tok/s",
        more_is_better=True,
        point=concurrency_point(4),
        before=Value(100.0),
        after=Value(100.0 + percent),
        percent=percent,
        low_percent=low,
        high_percent=high,
        significant=significant,
        noise_floor_percent=floor,
    )


@pytest.mark.parametrize(
    ("one", "word"),
    [
        (row(3.8, -0.8, 8.6), NO_DIFFERENCE),
        (row(19.0, 0.1, 40.0), NOT_CERTAIN),
        (row(0.6, 0.2, 1.0), WITHIN_NOISE),
        (row(31.0, 26.0, 37.0, significant=True), None),
    ],
)
def test_an_interval_without_zero_is_never_called_no_difference(one: DifferenceRow, word: str | None) -> None:
    """The words say what the drawn interval shows."""
    assert one.undecided == word


def test_the_reason_stands_below_the_headline() -> None:
    """The reason for "not certain" is above the table, at the narrow size too."""
    found = Difference(
        "a", "b", (row(19.0, 0.1, 40.0),), "decode: not certain at 1 level", why="not certain: so many rows"
    )
    rows = [row_text(one) for one in difference_screen(found, 80, 24)]
    assert "▸ decode: not certain at 1 level" in rows[1]
    assert "not certain: so many rows" in rows[2]
    assert any("+0.1 % to +40 %" in one and "not certain" in one for one in rows[3:])


def test_results_of_other_lengths_are_not_compared() -> None:
    """The first sentence says that the loads are not alike; no change is called better or worse."""
    slow = made_series("a", {1: (10.0, 10.1, 10.2)})
    fast = made_series("b", {1: (30.0, 30.1, 30.2)})
    other = replace(
        fast, levels=tuple(replace(one, load=Load(concurrency_point(1), 1024, 128)) for one in fast.levels)
    )
    unlike = difference(slow, other)
    assert unlike.verdict == "not alike: prompt / output tokens: 100 / 4 (a); 1024 / 128 (b)"
    assert [(row.percent, row.better) for row in unlike.rows] == [(None, None)]
    assert difference(slow, fast).rows[0].better is True
    report = comparison_markdown(compare([slow, other]), [slow, other])
    assert report.splitlines()[2].startswith("**Not the same load** (`prompt / output tokens: 100 / 4 (a); ")


def test_a_comparison_ends_with_its_answer() -> None:
    """A terminal shows the last lines of a long report."""
    pair = [made_series("a", {1: (10.0, 10.1, 10.2)}), made_series("b", {1: (30.0, 30.1, 30.2)})]
    report = comparison_markdown(compare(pair), pair)
    assert report.strip().splitlines()[-1] == "**Decode: `b` best at c1 (+198 % against `a`).**"
    assert "### Answer" not in comparison_markdown(compare(pair[:1]), pair[:1])
