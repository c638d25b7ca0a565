"""Graphs of the board: one window for all widths, seldom samples, and the colours of low graphs."""

from __future__ import annotations

import pytest

from sparktop.colors.palette import LEVELS
from sparktop.model.series import HistoryTable, Series
from sparktop.panels.parts.graph import TimeAxis, TimeWindow, area_rows, caption, stacked_rows
from sparktop.panels.parts.rows import row_text


def every(seconds: float, until: float = 80.0) -> Series:
    """Return a series whose values are its times."""
    table = HistoryTable(("value",))
    for index in range(round(until / seconds) + 1):
        table.append(seconds * index, {"value": seconds * index})
    return table.series()["value"]


@pytest.mark.parametrize("width", [12, 18, 38, 70])
def test_a_window_is_as_long_for_every_width(width: int) -> None:
    """Whatever its width, a graph begins and ends at the times of the window."""
    axis = TimeWindow(80.0, 72.0).axis(width)
    assert axis.span_s(width) == pytest.approx(72.0)
    values = axis.values(every(0.25), width)
    assert values[-1] == pytest.approx(80.0, abs=2 * axis.step)
    assert values[0] == pytest.approx(80.0 - 72.0, abs=3 * axis.step)


@pytest.mark.parametrize("end", [79.9, 80.3, 81.4, 82.2])
@pytest.mark.parametrize("width", [3, 4, 11])
def test_a_seldom_sample_fills_the_slots_until_the_next(end: float, width: int) -> None:
    """A node that is read every two seconds has its newest value in each second, and no gap."""
    axis = TimeAxis(end, 1.0)
    values = axis.values(every(2.0), width)
    first = axis.end_slot - len(values) + 1
    assert len(values) == 2 * width - (1 - axis.end_slot % 2)
    assert values == [float(min(80, slot // 2 * 2)) for slot in range(first, axis.end_slot + 1)]


def test_a_graph_of_one_row_is_coloured_by_value() -> None:
    """A low cell has the first colour of the gradient and a full one the last: idle is not drawn as hot."""
    (row,) = area_rows([0.0, 0.0, 100.0, 100.0], 2, 1, 100.0, "gpu", end_slot=1)
    assert row == [("⣀", "gpu/0"), ("⣿", f"gpu/{LEVELS - 1}")]


def test_a_stack_of_one_row_is_coloured_by_value() -> None:
    """One running request is not drawn as the peak, and waiting ones keep their own gradient."""
    gradients = ("running", "waiting")
    (row,) = stacked_rows([4.0, 4.0, 40.0, 40.0], [0.0] * 4, 2, 1, 40.0, gradients, end_slot=1)
    assert row == [("⣀", "running/0"), ("⣿", f"running/{LEVELS - 1}")]
    (row,) = stacked_rows([4.0, 4.0], [36.0, 36.0], 1, 1, 40.0, gradients, end_slot=1)
    assert [role.partition("/")[0] for _, role in row] == ["waiting"]


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (20, "⣿run+⡪wait    max 40"),
        (13, "⣿run+⡪wait 40"),
        (12, "run+wait  40"),
        (9, "load   40"),
    ],
)
def test_a_caption_has_shorter_words_where_it_is_narrow(width: int, text: str) -> None:
    """The scale's end stays; no word is cut."""
    words = [("⣿run+⡪wait", "running")]
    row = caption(words, "max 40", width, [("run+wait", "running")], [("load", "running")])
    assert row_text(row) == text
