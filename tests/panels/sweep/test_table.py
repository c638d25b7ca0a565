"""The table of a sweep's levels: what it says of levels that are hidden, and of every sign that it shows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.model.sweep import Mark, Rank
from sparktop.panels.parts.text import row_text
from sparktop.panels.sweep.screen import sweep_band
from sparktop.panels.sweep.table import columns_for, table_rows
from tests.panels.sweep_views import done, running


@pytest.mark.parametrize(
    ("chosen", "words"), [(0, "↓ 3 more, PgDn"), (2, "↑ 1 ↓ 2 more, PgDn"), (5, "↑ 3 more, PgUp")]
)
def test_the_table_names_the_direction_and_the_key_of_hidden_levels(chosen: int, words: str) -> None:
    """A bare number does not say where the levels are."""
    view = done()
    rows = table_rows(view, 76, 5, chosen=view.levels[chosen].key)
    assert row_text(rows[-1]).rstrip().endswith(words)


def test_a_finished_sweep_on_the_board_explains_its_signs() -> None:
    """What is best and what is alike stands at the edge, where marks of doubt are explained, too."""
    view = done()
    assert {Rank.BEST, Rank.LEVEL} <= {rank for row in view.rows for rank in row.ranks.values()}
    for size in ((80, 9), (120, 13), (200, 18)):
        edge = row_text(sweep_band(view, *size)[-1])
        assert "◆ best" in edge
        assert "◇ no clear difference" in edge
    plain = replace(view, rows=tuple(replace(row, ranks={}, marks=()) for row in view.rows))
    assert not set("◆◇!▾") & set(row_text(table_rows(plain, 120, 12)[-1]))


def test_words_of_marks_never_take_the_room_of_the_figures() -> None:
    """However long the words of a mark are, its sign is enough: a level without figures is of no use."""
    mark = Mark("slow", "limited by memory bandwidth", "…", doubt=False)
    view = done()
    long = replace(view, rows=tuple(replace(row, marks=(mark,)) for row in view.rows))
    for width in range(44, 120):
        assert {"decode", "TTFT mean"} <= {column.heading for column in columns_for(long, width)}, width


def test_a_running_sweep_fills_its_column_on_the_board() -> None:
    """Levels that run and levels ahead follow those that are done, as far as there are rows; none is cut."""
    view = running()
    large = [row_text(row) for row in sweep_band(view, 200, 18)]
    assert sum(" ahead" in row for row in large) == sum(level.runs_done == 0 for level in view.levels)
    small = [row_text(row) for row in sweep_band(view, 120, 13)]
    assert any("running 1/3 runs" in row for row in small)
    assert not any("…" in row for row in [*large, *small])


def test_no_sign_of_a_mark_stands_alone_at_80_columns() -> None:
    """Where a reason has no room in full, it is one word; a sign alone does not say what to change."""
    mark = Mark("limited", "limited by memory bandwidth", "…", doubt=False, brief="bandwidth")
    view = done()
    rows = tuple(replace(row, marks=(mark,)) for row in view.rows)
    for width in (56, 76):
        shown = [row_text(row) for row in table_rows(replace(view, rows=rows), width, 12)]
        assert sum("▾bandwidth" in row for row in shown) == len(rows), width
    assert any(
        "▾limited by memory bandwidth" in row_text(row)
        for row in table_rows(replace(view, rows=rows), 118, 12)
    )
