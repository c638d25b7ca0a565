"""The search for the largest load: doubling, bisection, repetition, and its certainty."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.load import LoadKind
from sparktop.sweep.plan.capacity import RATIO, parse_conditions
from sparktop.sweep.plan.plan import Capacity
from sparktop.sweep.run.judgement import Judged, Shares, Verdict
from sparktop.sweep.run.search import CapacitySearch

CONDITIONS = parse_conditions("ttft_p90_ms=2000", LoadKind.AGENTS)


def judged(met: int, count: int = 100, certain: Verdict | None = None) -> Judged:
    """Return the judgement of a level of which `met` of `count` requests meet the condition."""
    holds = met >= 0.9 * count
    sure = certain if certain is not None else Verdict.HOLDS if holds else Verdict.FAILS
    return Judged(holds, sure, (Shares(CONDITIONS[0], 0.9, met, count, 0.0, 1.0),), count, 1.0)


def searched(search: CapacitySearch, limit: float) -> list[tuple[float, int]]:
    """Run levels that hold up to `limit` for certain; return (load, run) of each."""
    made = []
    while (probe := search.next()) is not None:
        made.append((probe.point.value, probe.run))
        search.add(probe.point.value, judged(100 if probe.point.value <= limit else 0))
        assert len(made) < 30
    return made


def test_it_doubles_and_bisects_and_repeats_the_last_that_held() -> None:
    """1, 2, 4, 8, 16, then where the answer may be; it is run once more with other requests."""
    search = CapacitySearch(Capacity(LoadKind.AGENTS, CONDITIONS))
    made = searched(search, 9)
    assert made[:5] == [(1, 0), (2, 0), (4, 0), (8, 0), (16, 0)]
    assert all(8 <= value < 16 for value, _ in made[5:])
    assert {(9, 0), (9, 1), (10, 0)} <= set(made)
    assert (search.holds, search.fails, search.interval) == (9, 10, (9, 10))
    assert not search.at_least


@given(st.integers(0, 300), st.integers(1, 256))
@settings(max_examples=3, deadline=None)
def test_whole_numbers_are_found(limit: int, most: int) -> None:
    """Exactly up to 64, to a sixteenth above; never beyond the largest number that is allowed."""
    search = CapacitySearch(Capacity(LoadKind.AGENTS, CONDITIONS, most=float(most)))
    made = searched(search, limit)
    assert max(value for value, _ in made) <= most
    true = min(limit, most)
    found = search.holds or 0.0
    assert found == true if true <= 64 else found <= true < found * (1 + 1 / 16) + 1
    assert search.at_least is (limit >= most)


@given(st.floats(0.01, 200), st.floats(0.05, 5))
@settings(max_examples=3, deadline=None)
def test_rates_are_found_within_ten_percent(limit: float, first: float) -> None:
    """Unless the limit is far below the first rate; then none holds."""
    search = CapacitySearch(Capacity(LoadKind.RATE, CONDITIONS, most=256.0), first)
    while (probe := search.next()) is not None:
        search.add(probe.point.value, judged(100 if probe.point.value <= limit else 0))
    if search.holds is None:
        assert limit < first / 3.9
    else:
        assert search.holds <= limit
        assert search.fails is not None
        assert search.fails <= search.holds * RATIO * 1.01


def test_a_level_that_held_by_luck_moves_the_answer_down() -> None:
    """Its second run fails: both together decide, and the search says so."""
    search = CapacitySearch(Capacity(LoadKind.AGENTS, CONDITIONS, most=4.0))
    for value, met in ((1.0, 100), (2.0, 100), (4.0, 92)):
        search.add(value, judged(met, certain=Verdict.HOLDS if met == 100 else Verdict.UNSURE))
    probe = search.next()
    assert probe is not None
    assert (probe.point.value, probe.run) == (4.0, 1)
    search.add(4.0, judged(160, 200))
    assert (search.holds, search.fails, search.moved_from) == (2, 4, 4)


def test_one_unlucky_level_among_others_decides_nothing() -> None:
    """20 of 100 miss at 2, none of 300 at 4: the nearest falling shares hold at both."""
    search = CapacitySearch(Capacity(LoadKind.AGENTS, CONDITIONS))
    search.add(1.0, judged(100))
    search.add(2.0, judged(80, 100, Verdict.UNSURE))
    assert search.fails == 2
    search.add(4.0, judged(300, 300))
    assert search.holds == 4
    assert search.fails is None


def test_a_close_decision_is_repeated_until_it_is_certain_within_one() -> None:
    """At 8 nine of ten meet the condition, within a hair; a clear border needs fewer runs than this one."""
    dice = Random(3)  # noqa: S311 - no secret
    made = []
    for width in (0.02, 0.5):
        search = CapacitySearch(Capacity(LoadKind.AGENTS, CONDITIONS))
        while (probe := search.next()) is not None:
            value = probe.point.value
            share = max(0.0, min(1.0, 0.9 + width * (8.5 - value)))
            runs = search.runs.get(value, 0) + 1
            met = sum(dice.random() < share for _ in range(60 * runs))
            search.add(value, judged(met, 60 * runs, Verdict.UNSURE))
        made.append(search.made)
        low, high = search.interval
        assert (low or 0) <= 8 < (high or 65)
    assert made[0] > 1.5 * made[1]
