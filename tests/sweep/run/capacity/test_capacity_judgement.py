"""Whether a level meets the conditions of a capacity search, by the share of its requests that do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sparktop.model.conversation import CallStart, ConversationCall
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.load import EndReason, LoadKind, RequestEnded
from sparktop.sweep.plan.capacity import parse_conditions
from sparktop.sweep.plan.plan import Capacity
from sparktop.sweep.result.measure import RequestTrace
from sparktop.sweep.run.judgement import Judged, Verdict, judge


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
        error = Failure(FailureKind.HTTP, "refused", at) if end is EndReason.ERROR else None
        trace.ended = RequestEnded(str(number), at + (ttft_s or 0.0) + 1.0, end, error)
    return trace


def judge_all(kind: LoadKind, slo: str, traces: Sequence[RequestTrace], unstable: str = "") -> Judged:
    """Judge requests with 1 % of failures allowed."""
    capacity = Capacity(kind, parse_conditions(slo, kind))
    return judge(capacity, traces, max_error_share=0.01, unstable=unstable)


@pytest.mark.parametrize(("late", "holds"), [(0, True), (10, True), (11, False), (40, False)])
def test_a_quantile_is_a_share_of_requests(late: int, *, holds: bool) -> None:
    """p90 TTFT ≤ 2 s: of 100 requests, ten may be later."""
    traces = [request(one, 3.0 if one < late else 0.5) for one in range(100)]
    assert judge_all(LoadKind.CONCURRENCY, "ttft_p90_ms=2000", traces).holds is holds


def test_misses_in_a_row_say_less_than_scattered_ones() -> None:
    """The same number of misses in one part of the run leaves a wider interval."""
    scattered = [request(one, 3.0 if one % 10 == 0 else 0.5) for one in range(200)]
    together = [request(one, 3.0 if one < 20 else 0.5) for one in range(200)]
    widths = []
    for traces in (scattered, together):
        (share,) = judge_all(LoadKind.CONCURRENCY, "ttft_p90_ms=2000", traces).shares
        widths.append(share.high - share.low)
    assert widths[1] > 1.5 * widths[0]


@pytest.mark.parametrize(
    ("late", "holds", "certain"),
    [
        (0, True, Verdict.HOLDS),
        (8, True, Verdict.UNSURE),
        (12, False, Verdict.UNSURE),
        (120, False, Verdict.FAILS),
    ],
)
def test_a_rate_holds_by_the_share_that_meets_all_limits(late: int, certain: Verdict, *, holds: bool) -> None:
    """95 of 100 must; how certain that is, the Wilson interval of the share says."""
    traces = [request(one, 3.0 if one * 7 % 200 < late else 0.5, due=float(one)) for one in range(200)]
    found = judge_all(LoadKind.RATE, "ttft_p90_ms=2000,stream_tps=5", traces)
    assert (found.holds, found.certain) == (holds, certain)


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
    assert (found.holds, found.certain, found.trouble) == (False, Verdict.FAILS, "2 of 100 requests failed")
    assert found.shares[0].met == 98


def test_an_unstable_rate_fails_whatever_its_latencies() -> None:
    """Its latencies depend on the length of the measurement."""
    traces = [request(one, 0.5, due=float(one)) for one in range(100)]
    found = judge_all(LoadKind.RATE, "ttft_p90_ms=2000", traces, "unstable: TTFT grows 0.80 s per s")
    assert (found.holds, found.certain) == (False, Verdict.FAILS)


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
