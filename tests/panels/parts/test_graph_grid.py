"""Graphs side by side on one axis."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.series import HistoryTable, Series
from sparktop.panels.parts.graph import GRAPH_HEIGHT, Graph, TimeAxis, grid_rows
from sparktop.panels.parts.text import row_text, row_width

AXIS = TimeAxis(100.0, 1.0)


def series(*values: float | None) -> Series:
    history = HistoryTable(("value",))
    for index, value in enumerate(values):
        history.append(100.0 - len(values) + 1 + index, {"value": value})
    return history.series()["value"]


def graph(name: str = "g", *values: float | None, over: Series | None = None, both: bool = False) -> Graph:
    return Graph(
        [(name, "title")],
        series(*values),
        "cpu",
        lambda top: f"{top:g} s",
        over=over,
        over_gradient="waiting",
        over_holds_both=both,
        empty="no traffic",
    )


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 180), st.integers(0, 60), st.integers(0, 14))
def test_the_grid_fills_its_place(width: int, height: int, count: int) -> None:
    """The grid has exactly the rows and the width of its place."""
    rows = grid_rows([graph(f"g{index}", 1.0, None, 3.0) for index in range(count)], width, height, AXIS)
    assert len(rows) == height
    assert {row_width(row) for row in rows} <= {width}


def test_graphs_stay_tall_enough_to_read() -> None:
    """Where twelve graphs would be too low, the last ones are left out."""
    text = "\n".join(
        row_text(row) for row in grid_rows([graph(f"g{i:02}", 1.0) for i in range(12)], 60, 19, AXIS)
    )
    assert 18 // GRAPH_HEIGHT * 2 == 6
    assert [f"g{i:02}" in text for i in range(12)] == [True] * 6 + [False] * 6


def test_nothing_to_draw_says_why() -> None:
    """Without a single value the reason stands in the middle, and no scale."""
    texts = [row_text(row) for row in graph("TTFT", None, None).rows(30, 5, AXIS)]
    assert "no traffic" in "".join(texts)
    assert " s" not in texts[0]


@pytest.mark.parametrize(("both", "edge"), [(True, "max 5 s"), (False, "max 10 s")])
def test_p95_is_not_added_to_p50(edge: str, *, both: bool) -> None:
    """If the upper curve includes the lower one, the edge is the upper curve's peak, else their sum's."""
    one = graph("x", 2.0, 4.0, over=series(3.0, 5.0), both=both)
    assert row_text(one.rows(30, 5, AXIS)[0]).endswith(edge)


def test_a_narrow_caption_gives_up_the_word_max() -> None:
    """If "max" does not fit beside the words, only the value of the edge is shown."""
    head = row_text(graph("a long name of 20 ce", 10.0).rows(26, 5, AXIS)[0])
    assert head.endswith(" 10 s")
    assert "max" not in head
