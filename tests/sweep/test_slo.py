"""How many agents can it take: conditions, intervals and the search."""

from __future__ import annotations

import random
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.errors import UsageError
from sparktop.model.load import EndReason, FirstToken, LoadEvent, RequestEnded, RequestStarted, Tokens
from sparktop.sweep.level_results import level_result
from sparktop.sweep.plan import Plan, SloCondition, SweepTarget
from sparktop.sweep.slo import (
    Judgement,
    SloSearch,
    judge_level,
    parse_slo,
    quantile_interval,
    runs_needed,
    words_of,
)
from sparktop.sweep.statistics import quantile
from sparktop.sweep.trace import collect

GOOD = Judgement(holds=True, fails=False, why="")
BAD = Judgement(holds=False, fails=True, why="")
UNSURE = Judgement(holds=False, fails=False, why="")
PLAN = Plan((SweepTarget("solo", "http://127.0.0.1:8000"),))


def test_conditions_are_read() -> None:
    """Latencies hold at most, rates at least."""
    assert parse_slo("ttft_p90_ms=2000,stream_tps=15") == (
        SloCondition("ttft_p90_ms", 2000.0),
        SloCondition("stream_tps", 15.0, at_least=True),
    )
    assert words_of(SloCondition("stream_tps", 15.0, at_least=True)) == "stream_tps ≥ 15"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no condition"),
        ("ttft_p90_ms", "no condition"),
        ("ttft_p90_ms=x", "no condition"),
        ("ttft_p90_ms=-1", "no condition"),
        ("ttft_p90_ms=nan", "no condition"),
        ("ttft_p9_ms=1", "did you mean 'ttft_p9"),
        ("tftt_p90_ms=1", "did you mean 'ttft_p90_ms'"),
        ("\x1b[31m=1", "no figure"),
    ],
)
def test_what_is_no_condition_is_told(text: str, words: str) -> None:
    """One clean line says what is wrong and what to write."""
    with pytest.raises(UsageError, match=r".") as found:
        parse_slo(text)
    assert words in str(found.value)
    assert "\x1b" not in str(found.value)


def test_a_quantile_gets_the_runs_that_it_needs() -> None:
    """A p90 needs 36 requests, whatever the plan says; a mean needs two runs."""
    p90 = parse_slo("ttft_p90_ms=1")
    assert [runs_needed(p90, c, 3) for c in (1, 12, 16, 64)] == [36, 3, 3, 3]
    assert runs_needed(parse_slo("e2e_p99_ms=1"), 4, 3) == 92
    assert runs_needed(parse_slo("decode_tps=1"), 4, 1) == 2


@given(st.lists(st.floats(0, 1e6), min_size=36, max_size=200), st.sampled_from([0.1, 0.5, 0.9]))
@settings(max_examples=60)
def test_the_interval_holds_its_quantile(values: list[float], share: float) -> None:
    """From as many values as measuring asks for there is an interval, and the quantile lies inside."""
    found = quantile_interval(values, share)
    assert found is not None
    assert found[0] <= quantile(sorted(values), share) <= found[1]


def test_the_interval_covers_the_true_quantile() -> None:
    """In at least 95 % of samples the true p90 lies inside; with one value fewer there is no interval."""
    chance = random.Random(3)  # noqa: S311 - chance, no secret
    hits = 0
    for _ in range(500):
        found = quantile_interval([chance.random() for _ in range(40)], 0.9)
        assert found is not None
        hits += found[0] <= 0.9 <= found[1]
    assert hits >= 500 * 0.93
    assert quantile_interval([1.0] * 35, 0.9) is None
    assert quantile_interval([1.0] * 36, 0.9) is not None


def events(requests: int, ttft_s: float, tps: float, runs: int = 2) -> list[LoadEvent]:
    """Requests one after the other, all alike but for a little noise in the first token."""
    told: list[LoadEvent] = []
    numbers = count()
    for run in range(runs):
        for _ in range(requests // runs):
            number = next(numbers)
            name, at = f"r{number}", 100.0 * number
            first = at + ttft_s * (1 + 0.001 * (number % 7))
            told += [RequestStarted(name, at, run), FirstToken(name, first)]
            told += [Tokens(name, first + (index + 1) / tps) for index in range(9)]
            told.append(RequestEnded(name, first + 9 / tps, EndReason.LENGTH))
    return told


def judged(text: str, told: list[LoadEvent]) -> Judgement:
    level = level_result(PLAN.level(PLAN.targets[0], 1), told)
    return judge_level(parse_slo(text), level, collect(told), 0.01)


def test_a_level_holds_when_all_conditions_do() -> None:
    """TTFT of 1 s and 20 tokens/s a stream against limits on both sides."""
    told = events(40, 1.0, 20.0)
    assert judged("ttft_p90_ms=1500,stream_tps=15", told).holds
    assert judged("ttft_p90_ms=900,stream_tps=15", told).fails
    assert judged("ttft_p90_ms=1500,stream_tps=25", told).fails
    assert judged("ttft_mean_ms=1500,stream_tps_p50=19.9", told).holds


def test_a_limit_inside_the_interval_neither_holds_nor_fails() -> None:
    """The level is not sure: it counts as not holding, and the answer's interval says so."""
    found = judged("ttft_p50_ms=1003", events(40, 1.0, 20.0))
    assert (found.holds, found.fails) == (False, False)
    assert "not sure" in found.why


def test_too_few_requests_tell_nothing() -> None:
    """A p90 of ten requests is neither good nor bad."""
    found = judged("ttft_p90_ms=1500", events(10, 1.0, 20.0))
    assert (found.holds, found.fails) == (False, False)


def test_failed_requests_fail_the_level() -> None:
    """However fast the others were."""
    told = events(40, 1.0, 20.0)
    broken = RequestEnded("x", 9001.0, EndReason.ERROR)
    told += [RequestStarted("x", 9000.0, 0), broken]
    assert judged("ttft_p90_ms=1500", told).fails


def searched(search: SloSearch, limit: int, unsure: int = 0) -> list[int]:
    made = []
    while (level := search.next()) is not None:
        assert level not in made
        made.append(level)
        search.tell(level, GOOD if level <= limit else UNSURE if level <= limit + unsure else BAD)
        assert len(made) < 40
    return made


def test_the_search_doubles_and_then_halves() -> None:
    """Up through the given levels, then doubling, then between the last good and the first bad one."""
    search = SloSearch([1, 4, 16])
    assert searched(search, 40)[:6] == [1, 4, 16, 32, 64, 48]
    assert search.holds_to == 40


@given(st.integers(1, 4096), st.lists(st.integers(1, 256), min_size=1, max_size=4))
@settings(max_examples=100)
def test_the_search_finds_the_limit(limit: int, levels: list[int]) -> None:
    """To within a sixteenth or one request, never above, and in few levels."""
    search = SloSearch(levels)
    made = searched(search, limit)
    assert search.holds_to is not None
    assert search.holds_to <= limit < search.holds_to + max(1.0, search.holds_to / 16) + 1
    assert len(made) <= len(set(levels)) + 12 + 12
    low, high = search.interval
    assert low == search.holds_to
    assert high is None or high >= limit


def test_nothing_holds_at_all() -> None:
    """Then there is no answer but that it is below the lowest level."""
    search = SloSearch([4, 16])
    assert searched(search, 0) == [4, 2, 1]
    assert (search.holds_to, search.interval) == (None, (None, 0))


def test_levels_that_are_not_sure_widen_the_interval() -> None:
    """The upper end is one below what surely fails."""
    search = SloSearch([16])
    searched(search, 16, unsure=8)
    low, high = search.interval
    assert low == 16
    assert high is not None
    assert high >= 24
