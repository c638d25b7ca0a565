"""Graphs of the board: one window for all widths, seldom samples, and the colours of low graphs."""

from __future__ import annotations

import pytest

from sparktop.colors.palette import LEVELS
from sparktop.graphics.axes import Top
from sparktop.model.series import HistoryTable, Series
from sparktop.panels.parts.graph import (
    TimeAxis,
    TimeWindow,
    area_rows,
    caption,
    stacked_rows,
    top_words,
    with_time_axis,
)
from sparktop.panels.parts.text import framed, row_text


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


@pytest.mark.parametrize("height", [1, 2, 3])
@pytest.mark.parametrize(("end_slot", "marked"), [(1, "  ↑ "), (2, " ↑  ")])
def test_a_clipped_spike_is_marked_at_the_upper_edge(height: int, end_slot: int, marked: str) -> None:
    """Its column has an arrow in the uppermost row, and nothing else has one."""
    values = [5.0, 5.0, 5.0, 5.0, 250.0, 5.0, 5.0, 5.0]
    zeros = [0.0] * len(values)
    single = area_rows(values, 4, height, 10.0, "generation", end_slot=end_slot)
    stack = stacked_rows(values, zeros, 4, height, 10.0, ("running", "waiting"), end_slot=end_slot)
    for rows in (single, stack):
        first, *rest = (row_text(row) for row in rows)
        assert "".join("↑" if char == "↑" else " " for char in first) == marked
        assert len(first) == 4
        assert not any("↑" in row for row in rest)


@pytest.mark.parametrize(
    ("words", "axes"),
    [("", 2), ("busy with requests", 2), ("a reason that is longer than the figures are", 1)],
)
def test_a_long_reason_takes_the_place_of_the_first_axis(words: str, axes: int) -> None:
    """The reason replaces the first axis in the lower edge; the time under one graph applies to both."""
    panel = framed([], 80, 3, role="backend_edge")
    rows = with_time_axis(panel, 80, TimeWindow(80.0, 72.0), "backend_edge", [(f" {words} ", "muted")])
    edge = row_text(rows[-1])
    assert len(edge) == 80
    assert words in edge
    assert edge.count("now") == axes
    assert edge.endswith("now─╯")


def test_a_little_above_the_scale_is_no_spike() -> None:
    """A value that rounding lifts above the end of the scale has no mark."""
    (row,) = area_rows([11.0] * 4, 2, 1, 10.0, "generation", end_slot=1)
    assert row_text(row) == "⣿⣿"


def test_the_scale_says_how_high_a_clipped_spike_is() -> None:
    """The end of the scale, the mark as in the graph, and the true maximum."""
    assert top_words(Top(40.0)) == "max 40"
    assert top_words(Top(40.0, 1870.0)) == "40 ↑ 1.87k"


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
