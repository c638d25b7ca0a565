"""Routers before engines in virtual time: what reaches clients, and the reference table's two columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from sparktop.model.load import EndReason, Level, RequestEnded
from sparktop.simulation.calibration import LITELLM, SOLO
from sparktop.simulation.engine import Engine, EngineEvent, EngineProfile, SimulatedRequest
from sparktop.simulation.routers import Faults, RouterSettings, make_router
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import collect
from sparktop.sweep.result.results import LevelResult
from stage.clients import BURST, ClosedLoop, ProxyHabits, RoutedWay, VirtualTime

pytestmark = pytest.mark.long

Maker = Callable[..., EngineProfile]


@cache
def burst(strategy: str, settings: RouterSettings, concurrency: int) -> tuple[LevelResult, RoutedWay]:
    """Play a level once for all tests that compare it."""
    virtual = VirtualTime([Engine(SOLO, seed=at) for at in range(2)])
    way = RoutedWay(virtual, make_router(strategy, 2, settings, seed=1), BURST, seed=1)
    level = Level("x", concurrency, 1024, 128, runs=12)
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


def test_shuffle_wins_where_it_wins_in_the_table() -> None:
    """Decode, prefill and TTFT from c = 8 up."""
    (shuffle, _), (herding, _) = (
        burst(strategy, LITELLM, 16) for strategy in ("simple-shuffle", "least-busy")
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
