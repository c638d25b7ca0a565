"""A capacity search as rows: tried loads, conditions as bars against their limits, what follows."""

from __future__ import annotations

from msgspec.structs import replace

from sparktop.model.sweep import ConditionBar, SearchView, SweepStatus, SweepView, TriedLoad
from sparktop.panels.parts.text import Row, row_text, row_width
from sparktop.panels.sweep.screen import title_run
from sparktop.panels.sweep.table import capacity_rows

TRIED = (
    TriedLoad("1", holds=True, certain=True),
    TriedLoad("2", holds=True, certain=True),
    TriedLoad("4", holds=True),
    TriedLoad("5", now=True),
    TriedLoad("6", holds=False),
    TriedLoad("8", holds=False, certain=True),
)
BARS = (
    ConditionBar("p90 TTFT", "463 ms", "2 s", 0.23, met_percent=100.0, needed_percent=90.0),
    ConditionBar(
        "p10 stream",
        "14.1 tok/s",
        "at least 15 tok/s",
        1.06,
        at_least=True,
        met_percent=56.0,
        needed_percent=90.0,
    ),
    ConditionBar("p90 E2E", "–", "9 s"),
)
SEARCH = SearchView("spark", TRIED, "between 4 and 5", BARS, "5 agents, 17 requests so far")


def drawn(view: SearchView, width: int, most: int = 20) -> list[str]:
    """Return the rows as text."""
    return [row_text(row).rstrip() for row in capacity_rows([view], width, most, named=False)]


def roles(row: Row) -> set[str]:
    """Return the colours of the filled cells of a bar."""
    return {role for text, role in row if "█" in text}


def test_tried_loads_have_their_verdicts() -> None:
    """✓ and ✗ where it is certain, ? where it is not, ▸ where a run is being made."""
    assert drawn(SEARCH, 76)[0] == "tried   1✓  2✓  4?  ▸5   6?  8✗"


def test_conditions_are_bars_against_their_limits() -> None:
    """The limit is at two thirds; the colour says how near it is; unknown values have no bar."""
    rows = capacity_rows([SEARCH], 100, 20, named=False)
    text = [row_text(row) for row in rows]
    assert text[1].startswith("5 agents, 17 requests so far:")
    assert "463 ms of 2 s" in text[2]
    assert "met by 56 %, needs 90 %" in text[3]
    assert [roles(row) for row in rows[2:5]] == [{"good"}, {"bad"}, set()]
    assert len({row.index("┃") for row in text[2:5]}) == 1
    assert text[5].startswith("next    between 4 and 5")
    assert {row_width(row) for row in rows} == {100}


def test_a_minimum_that_is_missed_ends_before_its_mark() -> None:
    """The bar is the value, whatever side of the limit is good."""
    missed, kept = (replace(BARS[1], ratio=ratio) for ratio in (1.06, 0.9))
    rows = [
        row_text(row) for row in capacity_rows([replace(SEARCH, bars=(missed, kept))], 100, 20, named=False)
    ]
    assert "·┃" in rows[2]
    assert "█┃" in rows[3]


def test_a_long_plan_leaves_room_for_the_status() -> None:
    """Clauses of the plan go first; what is simulated and whether it runs stay."""
    plan = "first token p90 ≤ 2 s and ≥ 15 tok/s each for 90 % of the requests"
    view = SweepView("capacity", SweepStatus.RUNNING, "runs", plan_words=plan, simulated=True)
    wide, narrow = (row_text(title_run(view, width)) for width in (120, 80))
    assert wide.endswith(f" {plan} ")
    assert narrow.endswith(" first token p90 ≤ 2 s ")
