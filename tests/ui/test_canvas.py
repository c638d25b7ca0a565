"""The canvas repaints what changed and nothing else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.panels.parts.rows import Row, row_width
from sparktop.ui.canvas import changed_spans, joined

WIDTH = 24


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """A row of WIDTH cells, wide characters among them."""
    row: Row = []
    left = WIDTH
    while left:
        text = draw(st.text(alphabet="ab⣿ 漢", min_size=1, max_size=6))
        cells = row_width([(text, "text")])
        if cells > left:
            text, cells = "x" * left, left
        row.append((text, draw(st.sampled_from(["text", "bad"]))))
        left -= cells
    return row


def cells_of(row: Row) -> list[tuple[str, str]]:
    """Return each cell's character and role; the second cell of a wide character is empty."""
    cells: list[tuple[str, str]] = []
    for text, role in row:
        for char in text:
            cells.append((char, role))
            cells += [("", role)] * (row_width([(char, role)]) - 1)
    return cells


@settings(max_examples=200, deadline=None)
@given(rows(), rows())
def test_every_changed_cell_is_in_a_span(old: Row, new: Row) -> None:
    """Painting just the spans over the old row gives the new row."""
    before, after = cells_of(old), cells_of(new)
    painted = list(before)
    for start, end in joined(changed_spans(old, new), new):
        assert 0 <= start < end <= WIDTH
        painted[start:end] = after[start:end]
    assert painted == after


def test_one_new_character_is_one_cell() -> None:
    """A graph whose last cell changed repaints that cell alone."""
    old: Row = [("gen 12 ", "text"), ("⣀⣀⣀⣀⡀", "graph")]
    new: Row = [("gen 12 ", "text"), ("⣀⣀⣀⣀⣀", "graph")]
    assert list(changed_spans(old, new)) == [(11, 12)]


def test_equal_rows_change_nothing() -> None:
    """No span for two equal rows."""
    assert list(changed_spans([("abc", "text")], [("abc", "text")])) == []


def test_a_long_unchanged_middle_is_not_sent_again() -> None:
    """Two changes far apart are two spans; close together they are one."""
    middle = "⣿" * 40
    old: Row = [("⡀" + middle + "⡀", "graph")]
    new: Row = [("⣀" + middle + "⣀", "graph")]
    assert list(joined(changed_spans(old, new), new)) == [(0, 1), (41, 42)]
    old, new = [("⡀" + middle[:4] + "⡀", "graph")], [("⣀" + middle[:4] + "⣀", "graph")]
    assert list(joined(changed_spans(old, new), new)) == [(0, 6)]
