"""Rows are exactly as wide as asked, whatever they hold."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.panels.parts.text import fit_row, framed, merged, row_text, row_width, spread_row

RUNS = st.lists(st.tuples(st.text(max_size=12), st.sampled_from(["text", "title", "bad"])), max_size=6)


@settings(max_examples=80, deadline=None)
@given(RUNS, st.integers(0, 40))
def test_a_row_is_as_wide_as_asked(runs: list[tuple[str, str]], width: int) -> None:
    """Cutting and padding give exactly the width, wide and combining characters included."""
    assert row_width(fit_row(runs, width)) == width


@settings(max_examples=80, deadline=None)
@given(RUNS, RUNS, st.integers(1, 60))
def test_both_ends_of_a_row_fill_it(
    left: list[tuple[str, str]], right: list[tuple[str, str]], width: int
) -> None:
    """A row with something at each end is as wide as asked."""
    assert row_width(spread_row(left, right, width)) == width


@settings(max_examples=60, deadline=None)
@given(RUNS, RUNS, RUNS, st.integers(8, 60), st.integers(2, 9))
def test_a_frame_is_never_broken(
    title: list[tuple[str, str]],
    status: list[tuple[str, str]],
    body: list[tuple[str, str]],
    width: int,
    height: int,
) -> None:
    """All rows of a frame have its width, and its corners and sides stand where they belong."""
    rows = framed([body, body], width, height, title=title, status=status, footnote=body, note=title)
    assert len(rows) == height
    assert [row_width(row) for row in rows] == [width] * height
    texts = [row_text(row) for row in rows]
    assert texts[0].startswith("╭")
    assert texts[0].endswith("╮")
    assert texts[-1].startswith("╰")
    assert texts[-1].endswith("╯")
    assert all(text.startswith("│") and text.endswith("│") for text in texts[1:-1])


def test_merging_joins_neighbours_of_one_role_only() -> None:
    """Neighbouring runs of one role become one; the text stays."""
    row = [("a", "text"), ("b", "text"), ("", "bad"), ("c", "bad"), ("d", "text")]
    assert merged(row) == [("ab", "text"), ("c", "bad"), ("d", "text")]
