"""Whether a level meets the conditions of a capacity search, by the share of its requests that do.

The search for the largest load: doubling, bisection, repetition, and its certainty.

The loads that a capacity search chooses from, and how it counts requests that are not independent.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.failure import FailureKind, RequestFailure
from sparktop.model.load import CallStart, ConversationCall, EndReason, LoadKind, RequestEnded
from sparktop.sweep.plan.capacity import RATIO, parse_conditions
from sparktop.sweep.plan.plan import Capacity
from sparktop.sweep.result.measure import RequestTrace
from sparktop.sweep.run.judgement import LoadVerdict, Shares, judge
from sparktop.sweep.run.search import CapacitySearch
from tests.known import known


def request(
    number: int,
    ttft_s: float | None,
    *,
    due: float | None = None,
    call: ConversationCall | None = None,
    end: EndReason | None = EndReason.STOP,
) -> RequestTrace:
    """Return a request that begins at `number` seconds; its answer of 11 tokens takes a second."""
    at = float(number)
    trace = RequestTrace(str(number), at, 0, 100, due, call)
    if ttft_s is not None:
        trace.arrivals = [(at + ttft_s, 1), (at + ttft_s + 1.0, 10)]
        trace.first_answer = at + ttft_s
    if end is not None:
        error = RequestFailure(FailureKind.HTTP, "refused", at) if end is EndReason.ERROR else None
        trace.ended = RequestEnded(str(number), at + (ttft_s or 0.0) + 1.0, end, error)
    return trace


def judge_all(kind: LoadKind, slo: str, traces: Sequence[RequestTrace], unstable: str = "") -> LoadVerdict:
    """Judge requests with 1 % of failures allowed."""
    capacity = Capacity(kind, parse_conditions(slo, kind))
    return judge(capacity, traces, max_error_share=0.01, unstable=unstable)


@pytest.mark.parametrize(
    ("late", "holds", "is_certain"),
    [(0, True, True), (8, True, False), (12, False, False), (120, False, True)],
)
def test_a_rate_holds_by_the_share_that_meets_all_limits(late: int, *, holds: bool, is_certain: bool) -> None:
    """95 of 100 must; how certain that is, the Wilson interval of the share says."""
    traces = [request(one, 3.0 if one * 7 % 200 < late else 0.5, due=float(one)) for one in range(200)]
    found = judge_all(LoadKind.RATE, "ttft_p90_ms=2000,stream_tps=5", traces)
    both = found.shares[-1]
    assert (found.holds, both.low >= 0.95 or both.high < 0.95) == (holds, is_certain)


def test_a_rate_is_judged_from_the_due_time_and_by_all_limits_together() -> None:
    """Sent 2 s late, a first token after 0.5 s is too late; the shares of single limits stay beside it."""
    traces = [request(one, 0.5, due=one - 2.0) for one in range(100)]
    found = judge_all(LoadKind.RATE, "ttft_p90_ms=2000,stream_tps=5", traces)
    assert not found.holds
    assert [one.met for one in found.shares] == [0, 100, 0]


def test_unanswered_arrivals_are_misses() -> None:
    """At a rate always; of other loads where they have waited longer than the limit."""
    traces = [request(one, 0.5, due=float(one)) for one in range(95)]
    traces += [request(one, None, due=float(one), end=EndReason.ABORT) for one in range(95, 100)]
    assert judge_all(LoadKind.RATE, "ttft_p90_ms=2000", traces).shares[-1].met == 95
    (share,) = judge_all(LoadKind.CONCURRENCY, "ttft_p90_ms=2000", traces).shares
    assert (share.met, share.count) == (95, 95)
    (share,) = judge_all(LoadKind.CONCURRENCY, "ttft_p90_ms=900", traces).shares
    assert (share.met, share.count) == (95, 100)


def test_failed_requests_are_misses_and_too_many_fail_the_level() -> None:
    """If too many fail, the reason has the number of failures."""
    traces = [request(one, 0.5, end=EndReason.ERROR if one < 2 else EndReason.STOP) for one in range(100)]
    found = judge_all(LoadKind.CONCURRENCY, "ttft_p90_ms=2000", traces)
    assert (found.holds, found.trouble) == (False, "2 of 100 requests failed")
    assert found.shares[0].met == 98


def test_agents_calls_are_told_apart_by_what_they_follow() -> None:
    """TTFT after a tool counts calls after tools only, and warm-up calls nowhere."""

    def call(turn: int, start: CallStart, *, measured: bool = True) -> ConversationCall:
        return ConversationCall(0, 0, turn, 0, start, None, 0, 10, measured=measured)

    traces = [request(one, 0.5, call=call(one, CallStart.TOOL)) for one in range(1, 21)]
    traces += [request(one, 9.0, call=call(one, CallStart.HUMAN)) for one in range(21, 31)]
    traces.append(request(40, 9.0, call=call(0, CallStart.TOOL, measured=False)))
    found = judge_all(LoadKind.AGENTS, "ttft_tool_p90_ms=2000,ttft_human_p90_ms=2000", traces)
    assert [(one.met, one.count) for one in found.shares] == [(20, 20), (0, 10)]
    assert found.shares[1].value == 9000


CONDITIONS = parse_conditions("ttft_p90_ms=2000", LoadKind.AGENTS)


def judged(met: int, count: int = 100) -> LoadVerdict:
    """Return the judgement of a level of which `met` of `count` requests meet the condition."""
    return LoadVerdict(met >= 0.9 * count, (Shares(CONDITIONS[0], 0.9, met, count, 0.0, 1.0),), count, 1.0)


def searched(search: CapacitySearch, limit: float) -> list[tuple[float, int]]:
    """Run levels that hold up to `limit` for certain; return (load, run) of each."""
    made = []
    while (value := search.next()) is not None:
        made.append((value, search.runs.get(value, 0)))
        search.add(value, judged(100 if value <= limit else 0))
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
    searched(search, limit)
    if search.holds is None:
        assert limit < first / 3.9
    else:
        assert search.holds <= limit
        assert known(search.fails) <= search.holds * RATIO * 1.01


def test_a_level_that_held_by_luck_moves_the_answer_down() -> None:
    """Its second run fails: both together decide, and the search says so."""
    search = CapacitySearch(Capacity(LoadKind.AGENTS, CONDITIONS, most=4.0))
    for value, met in ((1.0, 100), (2.0, 100), (4.0, 92)):
        search.add(value, judged(met))
    assert search.next() == 4.0
    search.add(4.0, judged(160, 200))
    assert (search.holds, search.fails, search.moved_from) == (2, 4, 4)
