"""Routers before engines in virtual time: what reaches clients, and the reference table's two columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from sparktop.model.load import EndReason, Level, LoadMode, RequestEnded, RequestStarted
from sparktop.simulation.calibration import LITELLM, SOLO
from sparktop.simulation.engine import Engine, EngineEvent, EngineProfile, SimulatedRequest
from sparktop.simulation.routers import Faults, RouterSettings, make_router
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import collect
from sparktop.sweep.result.results import LevelResult
from stage.clients import BURST, ClosedLoop, ProxyHabits, RoutedWay, VirtualTime
from stage.load_trace import LoadTrace, imbalance, period_s

pytestmark = pytest.mark.long

Maker = Callable[..., EngineProfile]


@cache
def burst(strategy: str, settings: RouterSettings, concurrency: int) -> tuple[LevelResult, RoutedWay]:
    """Play a level once for all tests that compare it."""
    virtual = VirtualTime([Engine(SOLO, seed=at) for at in range(2)])
    way = RoutedWay(virtual, make_router(strategy, 2, settings, seed=1), BURST, seed=1)
    level = Level("x", concurrency, 1024, 128, runs=30)
    loop = ClosedLoop(virtual, way, level)
    loop.start()
    virtual.run()
    return level_result(level, collect(loop.events)), way


def decode_tps(figures: LevelResult) -> float:
    assert figures.decode_tps is not None
    return figures.decode_tps.mean


def test_least_busy_loses_what_the_table_says() -> None:
    """At c = 64 the table has 338.4 and 567.9 tokens/s: 40 %; half to double of it, mostly on one."""
    shuffle, _ = burst("simple-shuffle", LITELLM, 64)
    herding, way = burst("least-busy", LITELLM, 64)
    loss = 1 - decode_tps(herding) / decode_tps(shuffle)
    assert 0.5 * 0.404 < loss < 2 * 0.404
    assert 0.7 < way.served[0] / sum(way.served) < 0.85


def test_counts_that_rise_at_once_lose_nothing() -> None:
    """The hop makes the loss: without it least-busy halves each burst and is faster than a coin."""
    shuffle, _ = burst("simple-shuffle", LITELLM, 64)
    fresh, way = burst("least-busy", RouterSettings(), 64)
    assert decode_tps(fresh) > decode_tps(shuffle)
    assert way.served[0] == way.served[1]


@pytest.mark.parametrize("concurrency", [8, 32])
def test_shuffle_wins_where_it_wins_in_the_table(concurrency: int) -> None:
    """Decode, prefill and TTFT from c = 8 up."""
    (shuffle, _), (herding, _) = (
        burst(strategy, LITELLM, concurrency) for strategy in ("simple-shuffle", "least-busy")
    )
    assert decode_tps(shuffle) > decode_tps(herding)
    assert shuffle.prefill_tps is not None
    assert herding.prefill_tps is not None
    assert shuffle.prefill_tps.mean > herding.prefill_tps.mean
    assert shuffle.ttft_ms is not None
    assert herding.ttft_ms is not None
    assert shuffle.ttft_ms.mean < herding.ttft_ms.mean


def test_a_request_that_breaks_off_ends_with_its_failure(profile: Maker) -> None:
    """After the tokens that it was allowed, it ends with an error that the router counts."""
    virtual = VirtualTime([Engine(profile())])
    router = make_router("least-busy", 1)
    way = RoutedWay(virtual, router, ProxyHabits(faults=Faults(share=1.0, after_tokens=5)))
    heard: list[EngineEvent] = []
    virtual.listeners.append(lambda _engine, event: heard.append(event))
    way.send(SimulatedRequest("a", 8, 50))
    virtual.run()
    end = heard[-1]
    assert isinstance(end, RequestEnded)
    assert (end.reason, end.generated_tokens) == (EndReason.ERROR, 5)
    assert end.error is not None
    assert router.counts(virtual.now_s) == (0,)
    assert way.failed == {500: 1}


def test_a_refusal_reaches_the_client_after_a_moment(profile: Maker) -> None:
    """With backends that refuse everything, a closed loop retries until its level ends."""
    virtual = VirtualTime([Engine(profile()) for _ in range(2)])
    faults = Faults(share=1.0, status=429)
    way = RoutedWay(virtual, make_router("round-robin", 2), ProxyHabits(faults=faults))
    loop = ClosedLoop(virtual, way, Level("x", 3, 8, 8, mode=LoadMode.STEADY, duration_s=20.0))
    loop.start()
    virtual.run()
    assert loop.done
    ends = [event for event in loop.events if isinstance(event, RequestEnded)]
    assert sum(isinstance(event, RequestStarted) for event in loop.events) == len(ends)
    assert 300 < len(ends) <= 3 * 201
    assert all(end.error for end in ends if end.reason is EndReason.ERROR)
    assert way.refused > 9 * way.failed[429] > 0
    assert way.loads == [0, 0]


def test_a_request_is_aborted_wherever_it_is(profile: Maker) -> None:
    """Requests on their way to the router or in an engine end with one event each, and no count is left."""
    virtual = VirtualTime([Engine(profile()) for _ in range(2)])
    router = make_router("least-busy", 2)
    way = RoutedWay(virtual, router, ProxyHabits(arrival_spread_s=0.5), seed=2)
    heard: list[EngineEvent] = []
    virtual.listeners.append(lambda _engine, event: heard.append(event))
    for number in range(20):
        way.send(SimulatedRequest(f"{number}", 8, 500))
    virtual.run(0.3)
    assert 0 < sum(way.loads) < 20
    for number in range(20):
        way.abort(f"{number}")
    way.abort("0")
    virtual.run()
    ends = [event for event in heard if isinstance(event, RequestEnded)]
    assert sorted(int(end.request_id) for end in ends) == list(range(20))
    assert all(end.reason is EndReason.ABORT and end.at == 0.3 for end in ends)
    assert way.loads == [0, 0]
    assert router.counts(virtual.now_s) == (0, 0)


def test_a_router_has_the_backends_there_are(profile: Maker) -> None:
    """A router of three backends before two engines raises ValueError."""
    with pytest.raises(ValueError, match="as many"):
        RoutedWay(VirtualTime([Engine(profile()), Engine(profile())]), make_router("round-robin", 3))


def test_a_trace_holds_what_is_under_way(profile: Maker) -> None:
    """It has one row every quarter of a second from its start to its end, and none later."""
    virtual = VirtualTime([Engine(profile()) for _ in range(2)])
    way = RoutedWay(virtual, make_router("round-robin", 2))
    trace = LoadTrace(virtual, way, until_s=2.0)
    virtual.call_at(0.6, lambda: way.send(SimulatedRequest("a", 8, 20)))
    virtual.run()
    assert trace.times_s == [0.25 * step for step in range(9)]
    assert trace.loads[:4] == [(0, 0), (0, 0), (0, 0), (1, 0)]
    assert trace.loads[-1] == (0, 0)
    assert trace.since(1.9) == [(0, 0)]


def test_imbalance_is_the_deviation_over_the_mean() -> None:
    """1 when one of two has everything, 0 when all are alike, None without load."""
    assert imbalance([(8, 0), (0, 8)]) == pytest.approx(1.0)
    assert imbalance([(4, 4), (0, 0)]) == 0.0
    assert imbalance([(0, 0)]) is None


def test_a_period_is_found_and_none_invented() -> None:
    """A square swing of 10 s is 10 s, not 20; a steady skew, a single change and too few turns have none."""
    swing = [(9, 1) if step // 20 % 2 else (1, 9) for step in range(400)]
    assert period_s(swing, 0.25) == pytest.approx(10.0)
    assert period_s([(9, 1)] * 400, 0.25) is None
    assert period_s(swing[:140], 0.25) is None
    assert period_s([(9, 1)] * 200 + [(1, 9)] * 200, 0.25) is None
    assert period_s([], 0.25) is None


def test_the_shortest_of_nearly_equal_periods_is_the_one() -> None:
    """A swing of 10 s with a weaker every other turn correlates more at 20 s, but its period is 10 s."""
    rows = [((1, 9), (9, 1), (2, 8), (8, 2))[step // 20 % 4] for step in range(800)]
    assert period_s(rows, 0.25) == pytest.approx(10.0)
