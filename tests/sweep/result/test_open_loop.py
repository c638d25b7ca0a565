"""Whether a server kept up with an open-loop run, and what its requests waited for."""

from __future__ import annotations

from itertools import chain, takewhile

import pytest

from sparktop.model.load import EndReason, LoadEvent, LoadKind, LoadPoint, RequestEnded
from sparktop.simulation.calibration import CLUSTER_TP2, SOLO
from sparktop.simulation.engine import Engine, EngineProfile
from sparktop.sweep.plan.arrivals import due_times, later_times, parse_pattern
from sparktop.sweep.result.measure import RequestTrace, collect
from sparktop.sweep.result.open_loop import open_loop_figures
from sparktop.sweep.result.results import OpenLoopResult
from stage.clients import DirectWay, OpenLoop, VirtualTime

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
        DirectWay(time),
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
