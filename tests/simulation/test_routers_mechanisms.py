"""Each way in which a router spoils the balance of two engines, shown alone, by its signature."""

from __future__ import annotations

from statistics import fmean, pstdev

import pytest
from msgspec.structs import replace

from sparktop.model.load import EndReason, RequestEnded
from sparktop.simulation.engine import Engine, SimulatedRequest
from sparktop.simulation.routers import Faults, LeastBusy, RouterSettings
from stage.clients import ProxyHabits, RoutedWay, VirtualTime
from tests.simulation.routed_scene import ROOMY, Scene, Seen, one_sided, play, skew

pytestmark = pytest.mark.long

BREAKING = ProxyHabits(arrival_spread_s=0.002, faults=Faults(share=1.0, after_tokens=100))
"""Every answer breaks off after 100 tokens with a 500."""
LATE = RouterSettings(increment_lag_s=0.02, decrement_lag_s=0.02)


@pytest.fixture(scope="module")
def warm() -> Seen:
    """Least-busy, 64 clients, one process, no errors."""
    return play(Scene())


@pytest.fixture(scope="module")
def cooling() -> Seen:
    """The same with answers that break off."""
    return play(Scene(habits=BREAKING))


def test_a_warm_router_without_errors_does_not_swing(warm: Seen) -> None:
    """The load stays at 32 to 32 throughout."""
    assert warm.imbalance < 0.05
    assert all(abs(first - second) <= 8 for first, second in warm.steady)
    assert warm.way.refused == 0


def test_cooldowns_make_a_limit_cycle(cooling: Seen, warm: Seen) -> None:
    """0/64 to 64/0 and back, with a period of two lives of a request, and a quarter of the tokens lost."""
    assert one_sided(cooling.steady) > 0.6
    assert {row.index(max(row)) for row in cooling.steady if max(row) == 64} == {0, 1}
    assert cooling.period_s is not None
    assert cooling.period_s == pytest.approx(2 * cooling.e2e_s, rel=0.15)
    assert cooling.tps < 0.8 * warm.tps
    assert cooling.way.failed[500] > 500


def test_one_429_empties_a_backend() -> None:
    """A refusal is enough: five seconds with nothing new, then everything new."""
    habits = ProxyHabits(
        arrival_spread_s=0.002,
        faults=Faults(share=1.0, status=429, backends=frozenset({0}), from_s=60.0, until_s=66.0),
    )
    seen = play(Scene(habits=habits, variable=True, warm_s=50.0, seconds=100.0))
    quiet = [abs(value) for value in skew(seen.loads[30 * 4 : 58 * 4])]
    # 12 s after the first refusal what the backend had is done, but for a few.
    after = skew(seen.loads[66 * 4 : 80 * 4])
    assert fmean(quiet) < 0.1
    assert min(after) < -0.4
    assert seen.way.failed[429] >= 1


def test_counts_that_expire_freeze_the_skew_of_that_moment() -> None:
    """All counts are forgotten while a cold burst is one-sided: it stays so, constant, no swing."""
    late = replace(LATE, expiry_s=4.0)
    seen = play(Scene(settings=late, clients=32, variable=True, seconds=200.0))
    even = play(Scene(settings=LATE, clients=32, variable=True, seconds=200.0))
    assert all(value > 0.2 for value in skew(seen.steady))
    assert pstdev(skew(seen.steady)) < 0.15
    assert seen.tps < even.tps
    assert abs(fmean(skew(even.steady))) < 0.1


def leak(*, leaks: bool) -> list[int]:
    """Abort 14 requests at the first backend, then send 32; return the number of those on each backend."""
    virtual = VirtualTime([Engine(ROOMY, token_events=False) for _ in range(2)])
    way = RoutedWay(virtual, LeastBusy(2), ProxyHabits(leaks=leaks))
    for number in range(28):
        way.send(SimulatedRequest(f"gone-{number}", 64, 100))
    virtual.run(1.0)
    for number in range(0, 28, 2):
        way.abort(f"gone-{number}")
    virtual.run()
    for number in range(32):
        way.send(SimulatedRequest(f"here-{number}", 64, 100))
    return list(way.loads)


def test_counts_that_leak_leave_a_constant_skew() -> None:
    """If 14 disconnects still count, 32 requests are spread 9 to 23; if they do not, 16 to 16."""
    assert leak(leaks=True) == [9, 23]
    assert leak(leaks=False) == [16, 16]


@pytest.mark.parametrize("strategy", ["least-busy", "power-of-two"])
def test_stale_counts_swing_with_fixed_lengths(strategy: str) -> None:
    """Counts polled every second: a period of two lives, a fifth of the tokens lost; of two, either way."""
    seen = play(Scene(strategy, RouterSettings(poll_s=1.0), output=60))
    shuffled = play(Scene("simple-shuffle", output=60))
    assert seen.imbalance > 0.8
    assert seen.period_s == pytest.approx(2 * seen.e2e_s, rel=0.15)
    assert 0.7 < seen.tps / shuffled.tps < 0.9


def test_refused_requests_are_the_routers_own_failures(cooling: Seen) -> None:
    """While both cool down the router refuses, names no backend, and the clients try again."""
    refused = [
        event
        for event in cooling.events
        if isinstance(event, RequestEnded) and event.error and "no deployments" in event.error.message
    ]
    assert len(refused) == cooling.way.refused > 0
    assert all(event.reason is EndReason.ERROR and event.generated_tokens is None for event in refused)
