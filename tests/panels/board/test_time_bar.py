"""The bar of the time that can be shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sparktop.model.event import Severity
from sparktop.panels.board.bars import TimeBar, cell_of, time_bar_row, time_of
from sparktop.panels.parts.text import row_text, row_width

FIRST = datetime(2026, 1, 15, 9, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return FIRST + timedelta(seconds=seconds)


BAR = TimeBar(
    FIRST,
    after(100),
    after(50),
    ((after(10), Severity.INFO), (after(10), Severity.CRITICAL), (after(90), Severity.WARNING)),
    tuple((after(second), float(second)) for second in range(0, 101, 20)),
)


@pytest.mark.parametrize("width", [10, 24, 60, 80, 200, 500])
def test_a_bar_is_one_row_with_the_moment_and_the_worst_events(width: int) -> None:
    """At each width; a warning does not hide the critical one in the same cell."""
    row, first, cells = time_bar_row(BAR, width)
    assert row_width(row) == width
    text = row_text(row)
    assert [text.count(sign) for sign in "┃✖▲•"] == [1, 1, 1, 0]
    assert text[first + cell_of(BAR, BAR.shown, cells)] == "┃"
    assert ("✖", "bad") in row


def test_load_between_two_samples_is_held_and_a_gap_is_a_line() -> None:
    """Where samples are missing for long, nothing is drawn."""
    text = row_text(time_bar_row(BAR, 120)[0])
    assert "─" not in text[11:80]
    gap = TimeBar(
        FIRST, after(100), after(99), (), tuple((after(s), 5.0) for s in (*range(30), *range(70, 100)))
    )
    assert "─" * 30 in row_text(time_bar_row(gap, 120)[0])


def test_an_empty_bar_and_times_outside() -> None:
    """A bar without duration or load is drawn; what is outside of it is in its first or last cell."""
    row, _, cells = time_bar_row(TimeBar(FIRST, FIRST, after(900)), 80)
    assert row_width(row) == 80
    assert [cell_of(BAR, after(at), cells) for at in (-5, 1e6)] == [0, cells - 1]


def test_a_cell_is_found_again_by_its_time() -> None:
    """A click on a cell shows the moment that the cell stands for."""
    assert [cell_of(BAR, time_of(BAR, cell, 60), 60) for cell in range(60)] == [*range(60)]


@pytest.mark.parametrize(("hours", "dated"), [(1.0, False), (23.99, True), (30.0, True)])
def test_a_bar_of_a_day_names_its_days(hours: float, *, dated: bool) -> None:
    """Without a date, the same time of the next day would look as if no time had passed."""
    text = row_text(time_bar_row(TimeBar(FIRST, after(hours * 3600), FIRST), 80)[0])
    assert text.startswith(f" {FIRST.astimezone():%m-%d} ") is dated
