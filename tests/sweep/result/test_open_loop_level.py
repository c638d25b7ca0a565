"""The result of a level at a rate: latencies from the due time, rates over the measured time, growth.

Whether a server kept up with an open-loop run, and what its requests waited for.

What a replay shows beside an open loop: its equal parts, and tokens from the prefix cache.
"""

from __future__ import annotations

import pytest

from sparktop.model.load import (
    AnswerRead,
    EndReason,
    Level,
    LoadEvent,
    LoadKind,
    LoadMode,
    LoadPoint,
    RequestEnded,
    RequestStarted,
    RunStarted,
)
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import RequestTrace, collect
from sparktop.sweep.result.open_loop import open_loop_figures, windows
from sparktop.sweep.result.results import LevelResult
from sparktop.sweep.terms.definitions import LATENCIES
from tests.known import known

LEVEL = Level("solo", LoadPoint(LoadKind.RATE, 1.0), 100, 4)


def request(
    number: int, due: float | None, start: float, first: float, end: float, reason: EndReason = EndReason.STOP
) -> list[LoadEvent]:
    """Return the events of a request of four tokens, of which the first comes at `first`."""
    name = f"r{number}"
    return [
        RequestStarted(name, start, 0, 100, due),
        AnswerRead(name, first),
        AnswerRead(name, end, 3),
        RequestEnded(name, end, reason, generated_tokens=4 if reason is EndReason.STOP else None),
    ]


def level_of(events: list[LoadEvent]) -> LevelResult:
    """Return the result of a run with these events, measured from 10 s to 30 s."""
    all_events: list[LoadEvent] = [RunStarted(0.0, 0, (10.0, 30.0)), *events]
    traces = collect(all_events)
    return level_result(LEVEL, traces, windows(all_events, traces), mode=LoadMode.OPEN)


def test_latencies_are_measured_from_the_due_time() -> None:
    """Requests that waited 0.5 s in the client have that in TTFT and E2E from the due time alone."""
    events = [
        event
        for number in range(20)
        for event in request(number, 10.0 + number, 10.5 + number, 10.7 + number, 11.0 + number)
    ]
    level = level_of(events)
    assert level.point.label == "1 /s"
    assert known(level.ttft_ms).mean == pytest.approx(200)
    assert known(level.ttft_due_ms).mean == pytest.approx(700)
    assert known(level.e2e_due_ms).p50 == pytest.approx(1000)
    assert known(level.client_wait_ms).max == pytest.approx(500)
    assert known(level.each).wait_ms[:2] == (500.0, 500.0)


def test_requests_before_and_after_the_measured_time_are_load_alone() -> None:
    """They have no latencies and are not counted, but tokens that they get in the measured time are."""
    before = request(0, None, 5.0, 9.0, 11.0)
    after = request(1, None, 31.0, 32.0, 33.0)
    level = level_of([*before, *request(2, 12.0, 12.0, 12.5, 13.0), *after])
    assert level.requests.ok == 1
    assert known(level.ttft_due_ms).count == 1
    assert known(level.output_tps).mean == pytest.approx((3 + 4) / 20)
    assert known(level.requests_per_s).mean == pytest.approx(2 / 20)
    assert level.duration_s == 20.0
    assert len(known(level.uncounted).run) == 2


def test_a_request_without_an_answer_counts_with_its_age() -> None:
    """A request due 12 s before the end of the run has at least that latency, and is not a failure."""
    events: list[LoadEvent] = [
        *request(0, 12.0, 12.0, 12.5, 13.0),
        RequestStarted("late", 20.0, 0, 100, 20.0),
        RequestEnded("late", 32.0, EndReason.ABORT),
    ]
    level = level_of(events)
    assert (known(level.open_loop).requests, known(level.open_loop).unanswered) == (2, 1)
    assert known(level.ttft_due_ms).max == pytest.approx(12_000)
    assert level.requests.failed == 0


def test_an_unstable_level_has_its_growth_and_no_latency() -> None:
    """A server that serves one request a second gets two: the TTFT grows by one second each second."""
    events = [
        event
        for number in range(60)
        for event in request(
            number,
            10.0 + number / 2 if number < 40 else None,
            10.0 + number / 2,
            10.5 + number,
            11.0 + number,
        )
    ]
    level = level_of(events)
    found = known(level.open_loop)
    assert found.unstable
    assert found.ttft_growth == pytest.approx(1.0, rel=0.1)
    assert found.growth_words.startswith("TTFT grows")
    assert all(level.latency(name) is None for name in LATENCIES)
    assert level.stream_tps is None


def test_rates_and_requests_in_flight_are_counted() -> None:
    """Ten requests a second apart that last 2.5 s each: three or two in flight."""
    traces = [_trace(number, due=float(number), first=number + 0.5, end=number + 2.5) for number in range(10)]
    found = known(open_loop_figures(traces, 0.0, 10.0))
    assert (found.requests, found.arrived_per_s) == (10, 1.0)
    assert found.completed_per_s == pytest.approx(0.8)
    assert found.in_flight_mean == pytest.approx((8 * 2.5 + 2.0 + 1.0) / 10)
    assert found.in_flight_max == 3
    assert not found.late
    assert not found.unstable


def test_requests_that_are_sent_late_are_marked() -> None:
    """A client that writes 20 ms after the due time hides this from latencies since the write."""
    traces = [_trace(number, due=number - 0.02, first=number + 0.5, end=number + 1.0) for number in range(9)]
    found = known(open_loop_figures(traces, -0.02, 9.0))
    assert found.late
    assert found.client_wait_p99_ms == pytest.approx(20.0)


def _trace(number: int, *, due: float, first: float, end: float) -> RequestTrace:
    trace = RequestTrace(f"r-{number}", float(number), 0, due=due, arrivals=[(first, 1)])
    trace.ended = RequestEnded(trace.request_id, end, EndReason.STOP)
    return trace


def test_a_server_that_answers_no_request_is_unstable() -> None:
    """Nobody gets a token: the queue grows with every arrival, and how the TTFT grows is unknown."""
    starts = [RequestStarted(f"r{one}", 10.0 + one / 2, 0, 100, 10.0 + one / 2) for one in range(40)]
    ends = [RequestEnded(one.request_id, 60.0, EndReason.ABORT) for one in starts]
    found = known(level_of([*starts, *ends]).open_loop)
    assert (found.unstable, found.ttft_growth, found.unanswered) == (True, None, 40)
