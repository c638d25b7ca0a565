"""The search for the concurrencies under which conditions hold.

Whether a level meets its conditions: intervals with runs as replicates.
"""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.load import (
    AnswerRead,
    EndReason,
    LoadEvent,
    RequestEnded,
    RequestStarted,
    concurrency_point,
)
from sparktop.sweep.plan.plan import Plan, SweepTarget
from sparktop.sweep.plan.slo import parse_slo
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import collect
from sparktop.sweep.run.judgement import LevelVerdicts, Verdict, judge_level
from sparktop.sweep.run.search import SloSearch
from tests.known import known

HOLDS, UNSURE, FAILS = Verdict.HOLDS, Verdict.UNSURE, Verdict.FAILS


def searched(search: SloSearch, limit: int, unsure: int = 0) -> list[int]:
    """Make levels that hold up to `limit`; the next `unsure` ones are not sure."""
    made = []
    while (level := search.next()) is not None:
        assert level not in made
        made.append(level)
        verdict = HOLDS if level <= limit else UNSURE if level <= limit + unsure else FAILS
        search.add(level, LevelVerdicts(verdict, HOLDS))
        assert len(made) < 40
    return made


@given(st.integers(1, 4096), st.lists(st.integers(1, 256), min_size=1, max_size=4))
@settings(max_examples=25)
def test_the_search_finds_the_limit(limit: int, levels: list[int]) -> None:
    """It is found to within a sixteenth or one request, never above, and in few levels."""
    search = SloSearch(levels)
    made = searched(search, limit)
    holds_to = known(search.holds_to)
    assert holds_to <= limit < holds_to + max(1.0, holds_to / 16) + 1
    assert len(made) <= len(set(levels)) + 12 + 12
    low, high = search.interval
    assert low == search.holds_to
    assert high is None or high >= limit


def test_levels_that_are_not_sure_widen_the_interval() -> None:
    """The upper end is one below the lowest measured level that surely fails."""
    search = SloSearch([16])
    searched(search, 16, unsure=8)
    assert search.interval == (16, 31)


def grown(search: SloSearch, start: float, most: float = 1000.0, top: int = 4096) -> list[int]:
    """Make levels whose rising condition holds from `start` on; growth ends at `most`, latency at `top`."""
    made: list[int] = []
    while (level := search.next()) is not None:
        assert level not in made
        made.append(level)
        reached = min(level, most) / start
        rising = HOLDS if reached >= 1 else FAILS
        search.add(level, LevelVerdicts(HOLDS if level <= top else FAILS, rising, reached=reached))
        assert len(made) < 40
    return made


@given(st.integers(1, 2000), st.lists(st.integers(1, 256), min_size=1, max_size=4))
@settings(max_examples=25)
def test_a_least_throughput_has_its_smallest_concurrency(start: int, levels: list[int]) -> None:
    """From there on it holds, up to the largest level made."""
    search = SloSearch(levels, falls=False, rises=True)
    made = grown(search, start, most=5000)
    assert start <= known(search.holds_from) <= start + max(1.0, start / 16) + 1
    assert search.holds_to == max(made)
    low, high = known(search.from_interval)
    assert known(low) <= start <= known(search.holds_from) == high


PLAN = Plan((SweepTarget("solo", "http://127.0.0.1:8000"),))


def events(requests: int, ttft_s: float, tps: float, runs: int = 4) -> list[LoadEvent]:
    """Return requests one after the other, all alike except for a little noise in the first token."""
    made: list[LoadEvent] = []
    numbers = count()
    for run in range(runs):
        for _ in range(requests // runs):
            number = next(numbers)
            name, at = f"r{number}", 100.0 * number
            first = at + ttft_s * (1 + 0.001 * (number % 7))
            made += [RequestStarted(name, at, run), AnswerRead(name, first)]
            made += [AnswerRead(name, first + (index + 1) / tps) for index in range(9)]
            made.append(RequestEnded(name, first + 9 / tps, EndReason.LENGTH))
    return made


def judged(text: str, made: list[LoadEvent]) -> LevelVerdicts:
    level = level_result(PLAN.level(PLAN.targets[0].name, concurrency_point(1)), collect(made))
    return judge_level(parse_slo(text), level, collect(made), 0.01)


def test_a_level_holds_when_all_conditions_do() -> None:
    """TTFT of 1 s and 20 tokens/s a stream against limits on both sides."""
    events_of_level = events(40, 1.0, 20.0)
    assert judged("ttft_p90_ms=1500,stream_tps=15", events_of_level).falling is HOLDS
    assert judged("ttft_p90_ms=900,stream_tps=15", events_of_level).falling is FAILS
    assert judged("ttft_p90_ms=1500,stream_tps=25", events_of_level).falling is FAILS
    assert judged("ttft_mean_ms=1500,stream_tps_p50=19.9", events_of_level).falling is HOLDS


def test_a_limit_inside_the_interval_neither_holds_nor_fails() -> None:
    """The level is not sure: it counts as not holding, and the answer's interval says so."""
    found = judged("ttft_p50_ms=1003", events(40, 1.0, 20.0))
    assert found.falling is UNSURE
    assert "not sure" in found.why


@pytest.mark.parametrize("text", ["output_tps=1", "ttft_mean_ms=99999", "ttft_p50_ms=99999"])
def test_one_run_says_nothing(text: str) -> None:
    """It has no interval: however far the limit, the level is not sure and says why."""
    found = judged(text, events(40, 1.0, 20.0, runs=1))
    assert found.both is UNSURE
    assert "1 run" in found.why


def test_failed_requests_fail_the_level() -> None:
    """However fast the others were."""
    found = events(40, 1.0, 20.0)
    found += [RequestStarted("x", 9000.0, 0), RequestEnded("x", 9001.0, EndReason.ERROR)]
    assert judged("ttft_p90_ms=1500", found).falling is FAILS
