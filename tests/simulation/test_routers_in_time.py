"""Routers before engines in virtual time: what reaches clients, and the reference table's two columns.

Each way in which a router spoils the balance of two engines, shown alone, by its signature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

import pytest
from msgspec.structs import replace

from sparktop.model.load import (
    EndReason,
    Level,
    RequestEnded,
    RequestStarted,
    concurrency_point,
)
from sparktop.simulation.calibration import LITELLM, SOLO
from sparktop.simulation.engine import Engine, EngineEvent, SimulatedRequest
from sparktop.simulation.routers import Faults, Router, RouterSettings
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import collect
from sparktop.sweep.result.results import LevelResult
from stage.clients import BURST, ClosedLoop, ProxySettings, RoutedDestination, VirtualTime
from stage.load_trace import LoadTrace, imbalance, period_s
from tests.simulation.conftest import PROFILE

pytestmark = pytest.mark.long


@cache
def burst(strategy: str, settings: RouterSettings, concurrency: int) -> tuple[LevelResult, RoutedDestination]:
    """Play a level once for all tests that compare it."""
    virtual = VirtualTime([Engine(SOLO, seed=at) for at in range(2)])
    way = RoutedDestination(virtual, Router(strategy, 2, settings, seed=1), BURST, seed=1)
    level = Level("x", concurrency_point(concurrency), 1024, 128)
    loop = ClosedLoop(virtual, way, level, runs=12)
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


def test_a_request_that_breaks_off_ends_with_its_failure() -> None:
    """After the tokens that it was allowed, it ends with an error that the router counts."""
    virtual = VirtualTime([Engine(PROFILE)])
    router = Router("least-busy", 1)
    way = RoutedDestination(virtual, router, ProxySettings(faults=Faults(share=1.0, after_tokens=5)))
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


ROOMY = replace(SOLO, max_num_seqs=128)
"""No request waits for a slot: what is slow is slow because of the batch alone."""
SPREAD = ProxySettings(arrival_spread_s=0.002)
BREAKING = replace(SPREAD, faults=Faults(share=1.0, after_tokens=100))
"""Every answer breaks off after 100 tokens with a 500."""
WARM_S, END_S = 60.0, 240.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What two engines behind a router did after the warm-up."""

    tps: float
    steady: Sequence[tuple[int, ...]]
    """Requests of each engine, four times a second."""
    e2e_s: float
    """Median of the requests that an engine worked on, failed ones included."""
    way: RoutedDestination

    @property
    def imbalance(self) -> float:
        """The variation of the loads among the engines, 0 to 1."""
        return imbalance(self.steady) or 0.0

    @property
    def period_s(self) -> float | None:
        """The period with which load swings between the engines."""
        return period_s(self.steady, 0.25)


def play(
    strategy: str = "least-busy",
    settings: RouterSettings | None = None,
    habits: ProxySettings = SPREAD,
    output: int = 128,
) -> Seen:
    """Keep 64 requests in flight at two engines behind a router."""
    engines = [Engine(ROOMY, seed=at, token_events=False) for at in range(2)]
    virtual = VirtualTime(engines)
    way = RoutedDestination(
        virtual, Router(strategy, 2, settings or RouterSettings(), seed=0), habits, seed=1
    )
    level = Level("scene", concurrency_point(64), 64, output)
    loop = ClosedLoop(virtual, way, level, steady_s=END_S + 1, seed=1)
    loop.start()
    trace = LoadTrace(virtual, way, until_s=END_S)
    virtual.run(WARM_S)
    before = sum(engine.tally.generation_tokens for engine in engines)
    virtual.run(END_S)
    made = sum(engine.tally.generation_tokens for engine in engines) - before
    started = {event.request_id: event.at for event in loop.events if isinstance(event, RequestStarted)}
    lives = [
        event.at - started[event.request_id]
        for event in loop.events
        if isinstance(event, RequestEnded)
        and event.at >= WARM_S
        and event.generated_tokens
        and event.reason is not EndReason.ABORT
    ]
    return Seen(made / (END_S - WARM_S), trace.since(WARM_S), median(lives), way)


@pytest.fixture(scope="module")
def warm() -> Seen:
    """Least-busy without errors."""
    return play()


@pytest.fixture(scope="module")
def cooling() -> Seen:
    """The same with answers that break off."""
    return play(habits=BREAKING)


def test_a_warm_router_without_errors_does_not_swing(warm: Seen) -> None:
    """The load stays at 32 to 32 throughout."""
    assert warm.imbalance < 0.05
    assert all(abs(first - second) <= 8 for first, second in warm.steady)
    assert warm.way.refused == 0


def test_cooldowns_make_a_limit_cycle(cooling: Seen, warm: Seen) -> None:
    """0/64 to 64/0 and back, with a period of two lives of a request, and a quarter of the tokens lost."""
    one_sided = [row for row in cooling.steady if max(row) >= 0.9 * sum(row) > 0]
    assert len(one_sided) > 0.6 * len(cooling.steady)
    assert {row.index(max(row)) for row in cooling.steady if max(row) == 64} == {0, 1}
    assert cooling.period_s is not None
    assert cooling.period_s == pytest.approx(2 * cooling.e2e_s, rel=0.15)
    assert cooling.tps < 0.8 * warm.tps
    assert cooling.way.failed[500] > 500


@pytest.mark.parametrize("strategy", ["least-busy", "power-of-two"])
def test_stale_counts_swing_with_fixed_lengths(strategy: str) -> None:
    """Counts polled every second: a period of two lives, a fifth of the tokens lost; of two, either way."""
    seen = play(strategy, RouterSettings(poll_s=1.0), output=60)
    shuffled = play("simple-shuffle", output=60)
    assert seen.imbalance > 0.8
    assert seen.period_s == pytest.approx(2 * seen.e2e_s, rel=0.15)
    assert 0.7 < seen.tps / shuffled.tps < 0.9
