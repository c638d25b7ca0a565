"""The result of a level at a rate: latencies from the due time, rates over the measured time, growth.

Whether a server kept up with an open-loop run, and what its requests waited for.

What a replay shows beside an open loop: its equal parts, and tokens from the prefix cache.
"""

from __future__ import annotations

from itertools import chain, takewhile

import pytest

from sparktop.model.load import (
    EndReason,
    FirstToken,
    Level,
    LoadEvent,
    LoadKind,
    LoadMode,
    LoadPoint,
    RequestEnded,
    RequestStarted,
    RunStarted,
    Tokens,
)
from sparktop.simulation.calibration import CLUSTER_TP2, SOLO
from sparktop.simulation.engine import Engine, EngineProfile
from sparktop.sweep.plan.arrivals import due_times, later_times, parse_pattern
from sparktop.sweep.result.level import PHASES, cached_tokens, level_result, phases
from sparktop.sweep.result.measure import RequestTrace, collect
from sparktop.sweep.result.open_loop import open_loop_figures, windows
from sparktop.sweep.result.results import LevelResult, OpenLoopResult
from sparktop.sweep.terms.definitions import LATENCIES
from stage.clients import DirectDestination, OpenLoop, VirtualTime

LEVEL = Level("solo", LoadPoint(LoadKind.RATE, 1.0), 100, 4)


def request(
    number: int, due: float | None, start: float, first: float, end: float, reason: EndReason = EndReason.STOP
) -> list[LoadEvent]:
    """Return the events of a request of four tokens, of which the first comes at `first`."""
    name = f"r{number}"
    return [
        RequestStarted(name, start, 0, 100, due),
        FirstToken(name, first),
        Tokens(name, end, 3),
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
    assert level.ttft_ms is not None
    assert level.ttft_due_ms is not None
    assert level.e2e_due_ms is not None
    assert level.client_wait_ms is not None
    assert level.ttft_ms.mean == pytest.approx(200)
    assert level.ttft_due_ms.mean == pytest.approx(700)
    assert level.e2e_due_ms.p50 == pytest.approx(1000)
    assert level.client_wait_ms.max == pytest.approx(500)
    assert level.each is not None
    assert level.each.wait_ms[:2] == (500.0, 500.0)


def test_requests_before_and_after_the_measured_time_are_load_alone() -> None:
    """They have no latencies and are not counted, but tokens that they get in the measured time are."""
    before = request(0, None, 5.0, 9.0, 11.0)
    after = request(1, None, 31.0, 32.0, 33.0)
    level = level_of([*before, *request(2, 12.0, 12.0, 12.5, 13.0), *after])
    assert level.requests.ok == 1
    assert level.ttft_due_ms is not None
    assert level.ttft_due_ms.count == 1
    assert level.output_tps is not None
    assert level.output_tps.mean == pytest.approx((3 + 4) / 20)
    assert level.requests_per_s is not None
    assert level.requests_per_s.mean == pytest.approx(2 / 20)
    assert level.duration_s == 20.0
    assert level.uncounted is not None
    assert len(level.uncounted.run) == 2


def test_a_request_without_an_answer_counts_with_its_age() -> None:
    """A request due 12 s before the end of the run has at least that latency, and is not a failure."""
    events: list[LoadEvent] = [
        *request(0, 12.0, 12.0, 12.5, 13.0),
        RequestStarted("late", 20.0, 0, 100, 20.0),
        RequestEnded("late", 32.0, EndReason.ABORT),
    ]
    level = level_of(events)
    assert level.open_loop is not None
    assert (level.open_loop.requests, level.open_loop.unanswered) == (2, 1)
    assert level.ttft_due_ms is not None
    assert level.ttft_due_ms.max == pytest.approx(12_000)
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
    assert level.open_loop is not None
    assert level.open_loop.unstable
    assert level.open_loop.ttft_growth == pytest.approx(1.0, rel=0.1)
    assert level.open_loop.growth_words.startswith("TTFT grows")
    assert all(level.latency(name) is None for name in LATENCIES)
    assert level.stream_tps is None


WARM_UP_S, TAIL_S = 15.0, 60.0
SATURATED_PER_S = {"solo": 2.44, "tp2": 2.02}
"""Requests per second of the two load shapes below when requests always wait."""


def made(
    profile: EngineProfile, per_s: float, pattern: str, seed: int, tokens: tuple[int, int]
) -> list[LoadEvent]:
    """Return the events of 60 s of arrivals at a simulated server, with lengths that vary by half."""
    time = VirtualTime([Engine(profile, seed=seed, token_events=False)])
    loop = OpenLoop(
        time,
        DirectDestination(time),
        lambda dice: (
            round(tokens[0] * dice.uniform(0.5, 1.5)),
            max(2, round(tokens[1] * dice.uniform(0.5, 1.5))),
        ),
        seed=seed,
    )
    how, rate, end_s = parse_pattern(pattern), LoadPoint(LoadKind.RATE, per_s), WARM_UP_S + 60.0
    dues = chain(
        due_times(how, rate, WARM_UP_S, f"{seed}/w"),
        (WARM_UP_S + one for one in due_times(how, rate, 60.0, f"{seed}")),
        takewhile(lambda at: at < end_s + TAIL_S, later_times(how, rate, end_s, f"{seed}/t")),
    )
    loop.start(dues, (WARM_UP_S, end_s), end_s + TAIL_S)
    time.run(end_s + TAIL_S + 1)
    return loop.events


def judged(shape: str, share: float, pattern: str, seed: int) -> OpenLoopResult:
    profile, tokens = {"solo": (SOLO, (256, 128)), "tp2": (CLUSTER_TP2, (512, 256))}[shape]
    events = made(profile, share * SATURATED_PER_S[shape], pattern, seed, tokens)
    found = open_loop_figures(collect(events), WARM_UP_S, WARM_UP_S + 60.0)
    assert found is not None
    return found


@pytest.mark.parametrize(("shape", "pattern"), [("solo", "bursty"), ("tp2", "poisson")])
def test_a_server_that_keeps_up_is_not_unstable(shape: str, pattern: str) -> None:
    """At 30 to 75 % of the rate that it can serve, no seed and pattern makes a server unstable."""
    for seed in range(100, 103):
        for share in (0.3, 0.75):
            found = judged(shape, share, pattern, seed)
            assert not found.unstable, (seed, share)
            assert found.ttft_growth is None


@pytest.mark.parametrize(("shape", "pattern"), [("solo", "bursty"), ("tp2", "poisson")])
def test_a_server_that_gets_too_much_is_unstable(shape: str, pattern: str) -> None:
    """At twice its rate the queue grows with every arrival that it cannot serve."""
    for seed in range(100, 102):
        found = judged(shape, 2.0, pattern, seed)
        assert found.unstable, seed
        assert found.ttft_growth is not None
        assert 0.5 < found.ttft_growth < 2.0
        assert found.completed_per_s is not None
        assert found.arrived_per_s is not None
        assert found.completed_per_s < 0.7 * found.arrived_per_s
        assert found.unanswered > 0


def test_a_server_that_answers_hardly_any_request_is_unstable() -> None:
    """At eight times its rate the ages of those without a token, smaller for later ones, hide no growth."""
    found = judged("solo", 8.0, "poisson", 100)
    assert found.unstable
    assert found.ttft_growth is not None
    assert 5.0 < found.ttft_growth < 9.0


def test_rates_and_requests_in_flight_are_counted() -> None:
    """Ten requests a second apart that last 2.5 s each: three or two in flight."""
    traces = [_trace(number, due=float(number), first=number + 0.5, end=number + 2.5) for number in range(10)]
    found = open_loop_figures(traces, 0.0, 10.0)
    assert found is not None
    assert (found.requests, found.arrived_per_s) == (10, 1.0)
    assert found.completed_per_s == pytest.approx(0.8)
    assert found.in_flight_mean == pytest.approx((8 * 2.5 + 2.0 + 1.0) / 10)
    assert found.in_flight_max == 3
    assert not found.late
    assert not found.unstable


def test_requests_that_are_sent_late_are_marked() -> None:
    """A client that writes 20 ms after the due time hides this from latencies since the write."""
    traces = [_trace(number, due=number - 0.02, first=number + 0.5, end=number + 1.0) for number in range(9)]
    found = open_loop_figures(traces, -0.02, 9.0)
    assert found is not None
    assert found.late
    assert found.client_wait_p99_ms == pytest.approx(20.0)


def _trace(number: int, *, due: float, first: float, end: float) -> RequestTrace:
    trace = RequestTrace(f"r-{number}", float(number), 0, due=due, arrivals=[(first, 1)])
    trace.ended = RequestEnded(trace.request_id, end, EndReason.STOP)
    return trace


def replayed(count: int, gap_s: float = 1.0, cached: int | None = None) -> list[RequestTrace]:
    """Return requests due every `gap_s` seconds from 100 s on; each TTFT is 0.1 s, and each takes 0.5 s."""
    events: list[LoadEvent] = []
    for number in range(count):
        due, name = 100.0 + gap_s * number, f"r{number}"
        hits = cached if number else None  # servers leave out a 0
        events += [
            RequestStarted(name, due, 0, 50, due),
            FirstToken(name, due + 0.1),
            RequestEnded(name, due + 0.5, EndReason.LENGTH, None, 50, hits, 1),
        ]
    return collect(events)


def test_the_parts_of_a_long_replay_have_rates_and_latencies() -> None:
    """1,000 requests a second apart: 100 in each part, at 1 /s; times are those of the file at 2×."""
    found = phases(replayed(1000), {0: (100.0, 1100.0)}, 60.0, 2.0, stable=True)
    assert len(found) == PHASES
    assert [one.requests for one in found] == [100] * PHASES
    assert [one.from_s for one in found][:2] == [60.0, 260.0]
    assert found[-1].to_s == 2060.0
    for one in found:
        assert one.arrived_per_s == pytest.approx(1.0)
        assert one.completed_per_s == pytest.approx(1.0)
        assert one.ttft_due_p50_ms == pytest.approx(100.0)
        assert one.ttft_due_p90_ms == pytest.approx(100.0)
    assert found[0].words == "1 min–4 min 20 s"


def test_cached_tokens_are_summed_over_answers() -> None:
    """A request without a count counts as 0, unless none has one."""
    assert cached_tokens(replayed(3, cached=32)) == (150, 64)
    assert cached_tokens(replayed(3)) == (150, None)
