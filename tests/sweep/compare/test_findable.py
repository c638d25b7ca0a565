"""What a number of runs can show: in the advice of a result, and of a plan before it is made."""

from __future__ import annotations

import random

import pytest

from sparktop.panels.sweep.topology import topology_screen
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.findable import Design, could_show_words, findable_percent, runs_needed
from sparktop.sweep.compare.resolution import resolution_words
from sparktop.sweep.plan.plan import Plan, SweepTarget
from sparktop.sweep.result.comparison import CouldShow
from sparktop.sweep.view.topologies import topologies
from tests.sweep.made_results import made_level, made_series, made_sweep

FIRST_RATE = 0.0125


def test_more_runs_and_more_levels_find_smaller_differences() -> None:
    """Single runs find none; the spread of several levels is known better than that of one."""
    found = [findable_percent(Design(runs, 7, FIRST_RATE), 6.5) for runs in (1, 2, 3, 5, 10)]
    assert found[0] is None
    known = [value for value in found if value is not None]
    assert known == sorted(known, reverse=True)
    alone = findable_percent(Design(3, 1, FIRST_RATE), 6.5)
    assert alone is not None
    assert alone > known[1] > 15


@pytest.mark.parametrize("percent", [10.0, 20.0, 84.0])
def test_the_runs_that_are_needed_find_the_difference(percent: float) -> None:
    """One run fewer does not."""
    design = Design(2, 4, FIRST_RATE)
    needed = runs_needed(percent, design, 6.5)
    assert needed is not None
    assert (findable_percent(Design(needed, 4, FIRST_RATE), 6.5) or 999) <= percent
    assert needed == 2 or (findable_percent(Design(needed - 1, 4, FIRST_RATE), 6.5) or 999) > percent


def test_a_difference_too_small_for_any_runs_needs_none() -> None:
    """A thousandth is not worth hundreds of runs."""
    assert runs_needed(0.1, Design(3, 7, FIRST_RATE), 6.5) is None


def test_advice_says_how_many_runs_a_large_difference_needs() -> None:
    """+84 % of two runs may be chance, and the advice names the other target; it is not "either"."""
    fast, slow = (160.0, 208.0), (90.0, 110.0)
    series = [made_series("a", {4: slow}), made_series("b", {4: fast})]
    compared = topologies(compare(series), series)
    (row,) = compared.advice
    assert (row.target, row.unproven) == (None, True)
    assert row.why == "decode: b's +84 % against a may be chance (2 runs cannot decide it, 3 would)"
    text = "\n".join("".join(text for text, _ in line) for line in topology_screen(compared, 80, 24))
    assert "no winner shown" in text
    assert "either" not in text


def test_advice_for_single_runs_takes_the_usual_spread() -> None:
    """The target that is ahead is named with its lead; a few runs would settle it."""
    series = [made_series("a", {1: (100.0,), 2: (100.0,)}), made_series("b", {1: (150.0,), 2: (152.0,)})]
    (row,) = topologies(compare(series), series).advice
    assert (row.target, row.unproven, row.sure) == (None, True, None)
    assert row.why == (
        "decode: b's +52 % against a at c2 may be chance "
        "(a single run cannot decide it, 2 would if they spread 6.5 %)"
    )


def test_alike_targets_are_either() -> None:
    """Within the noise floor nothing is left to prove."""
    series = [made_series("a", {1: (100.0, 101.0)}), made_series("b", {1: (100.5, 101.5)})]
    (row,) = topologies(compare(series), series).advice
    assert (row.target, row.unproven) == (None, False)
    assert row.why == "decode: no difference shown"


@pytest.mark.parametrize("count", [2, 3, 4])
def test_nothing_of_a_table_is_cut_at_80_columns(count: int) -> None:
    """Neither the words for no difference nor a winner with its percentage are cut."""
    luck = random.Random(count)  # noqa: S311 - made values
    names = ("solo", "tp2", "shuffle", "busy")[:count]
    series = [
        made_series(name, {c: tuple(100 * luck.uniform(0.9, 1.1) for _ in range(3)) for c in (1, 64)})
        for name in names
    ]
    rows = topology_screen(topologies(compare(series), series), 80, 24)
    text = ["".join(text for text, _ in row) for row in rows]
    assert any("no difference shown" in line or "no winner shown" in line for line in text)
    assert not any("…" in line for line in text)


def plan(runs: int, targets: int = 2) -> Plan:
    names = ("a", "b", "c")[:targets]
    return Plan(
        targets=tuple(SweepTarget(name, f"http://127.0.0.1/{name}") for name in names),
        concurrency=(1, 2, 4, 8, 16, 32, 64),
        runs=runs,
    )


def test_a_plan_says_what_its_runs_can_show() -> None:
    """By the usual spread, or by that of earlier runs of the same targets."""
    usual = "if equal runs differ by 6.5 % (usual for equal runs on a Spark)"
    assert resolution_words(plan(3)) == f"3 runs show differences between targets from +21 % on, {usual}"
    assert resolution_words(plan(3, 1)).startswith("3 runs show a later change from +21 % on")
    assert resolution_words(plan(1)).startswith(
        "single runs cannot show differences between targets: 3 runs do from +21 %"
    )
    earlier = made_sweep(("a", [made_level(2), made_level(4), made_level(8)]))
    words = resolution_words(plan(3), [earlier])
    assert "if equal runs differ by 1.0 % (as your earlier runs do)" in words


def test_runs_that_differ_too_much_show_no_difference() -> None:
    """No sentence states a difference of thousands of percent as one that the runs can show."""
    wide = CouldShow(runs=2, levels=3, error_rate_percent=1.0, spread_percent=78.5, percent=5932.0)
    assert could_show_words(wide) == (
        "the runs differ too much from each other, by 78 %, to show differences"
    )
    assert could_show_words(wide.model_copy(update={"percent": None})) == could_show_words(wide)
    close = wide.model_copy(update={"spread_percent": 3.0, "percent": 6.2})
    assert could_show_words(close).startswith("2 or more runs with a spread of 3.0 % can show differences of")
    single = could_show_words(wide.model_copy(update={"spread_percent": None, "percent": None}))
    assert single == "single runs show no difference, however large"
