"""The search for the concurrencies under which conditions hold."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.sweep.run.judgement import Judgement, Verdict
from sparktop.sweep.run.search import SloSearch

HOLDS, UNSURE, FAILS = Verdict.HOLDS, Verdict.UNSURE, Verdict.FAILS


def searched(search: SloSearch, limit: int, unsure: int = 0) -> list[int]:
    """Make levels that hold up to `limit`; the next `unsure` ones are not sure."""
    made = []
    while (level := search.next()) is not None:
        assert level not in made
        made.append(level)
        verdict = HOLDS if level <= limit else UNSURE if level <= limit + unsure else FAILS
        search.add(level, Judgement(verdict, HOLDS))
        assert len(made) < 40
    return made


def test_the_search_doubles_and_then_halves() -> None:
    """Up through the given levels, then doubling, then between the last good and the first bad one."""
    search = SloSearch([1, 4, 16])
    assert searched(search, 40)[:6] == [1, 4, 16, 32, 64, 48]
    assert search.holds_to == 40
    assert (search.holds_from, search.from_interval) == (None, None)


@given(st.integers(1, 4096), st.lists(st.integers(1, 256), min_size=1, max_size=4))
@settings(max_examples=25)
def test_the_search_finds_the_limit(limit: int, levels: list[int]) -> None:
    """It is found to within a sixteenth or one request, never above, and in few levels."""
    search = SloSearch(levels)
    made = searched(search, limit)
    assert search.holds_to is not None
    assert search.holds_to <= limit < search.holds_to + max(1.0, search.holds_to / 16) + 1
    assert len(made) <= len(set(levels)) + 12 + 12
    low, high = search.interval
    assert low == search.holds_to
    assert high is None or high >= limit


def test_levels_that_are_not_sure_widen_the_interval() -> None:
    """The upper end is one below the lowest level that surely fails, which is searched for, too."""
    search = SloSearch([16])
    searched(search, 16, unsure=8)
    low, high = search.interval
    assert low == 16
    assert high is not None
    assert 24 <= high <= 30


def grown(search: SloSearch, start: float, most: float = 1000.0, top: int = 4096) -> list[int]:
    """Make levels whose rising condition holds from `start` on; growth ends at `most`, latency at `top`."""
    made: list[int] = []
    while (level := search.next()) is not None:
        assert level not in made
        made.append(level)
        reached = min(level, most) / start
        rising = HOLDS if reached >= 1 else FAILS
        search.add(level, Judgement(HOLDS if level <= top else FAILS, rising, reached=reached))
        assert len(made) < 40
    return made


@given(st.integers(1, 2000), st.lists(st.integers(1, 256), min_size=1, max_size=4))
@settings(max_examples=25)
def test_a_least_throughput_has_its_smallest_concurrency(start: int, levels: list[int]) -> None:
    """From there on it holds, up to the largest level made."""
    search = SloSearch(levels, falls=False, rises=True)
    made = grown(search, start, most=5000)
    assert search.holds_from is not None
    assert start <= search.holds_from <= start + max(1.0, start / 16) + 1
    assert search.holds_to == max(made)
    assert search.from_interval is not None
    low, high = search.from_interval
    assert low is not None
    assert low <= start <= search.holds_from == high


def test_both_kinds_of_conditions_leave_a_range() -> None:
    """600 tokens/s need 24 requests at once, the latency allows 40."""
    search = SloSearch([1, 4, 16], falls=True, rises=True)
    grown(search, 24, top=40)
    assert (search.holds_from, search.holds_to) == (24, 40)
    assert search.interval[0] == 40
    assert search.from_interval == (24, 24)
