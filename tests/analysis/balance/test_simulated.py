"""Verdicts on simulated routers, in a few cases."""

from __future__ import annotations

import pytest

from sparktop.analysis.balance.judge import judge
from sparktop.analysis.balance.load_grid import GroupLoad
from sparktop.model.balance import BalanceWord as Is
from tests.analysis.balance.routed_load import Scene, follow, simulate

pytestmark = pytest.mark.long

ALARMS = {Is.OSCILLATING, Is.STARVED}


@pytest.mark.parametrize("lengths", ["fixed", "log-normal"])
@pytest.mark.parametrize("clients", [8, 16, 64])
@pytest.mark.parametrize("policy", ["shuffle", "round-robin"])
def test_calm_routers_raise_no_alarm(policy: str, clients: int, lengths: str) -> None:
    """Two minutes of random or round-robin routing, sampled at 1 Hz, are never oscillating or starved."""
    seen = simulate(Scene(policy, clients, 2, lengths, 5.0, 1.0, 120.0, seed=clients))
    assert not ALARMS & {step.balance.word for step in follow(seen.tracks, seen.e2e_s)}


@pytest.mark.parametrize(
    ("policy", "clients", "servers", "lengths", "life_s", "stale_s"),
    [
        ("lag", 16, 2, "fixed", 4.0, 1.0),
        ("lag", 32, 2, "uniform", 8.0, 3.0),
        ("lag", 64, 2, "log-normal", 10.0, 4.0),
        ("poll", 64, 2, "fixed", 5.0, 2.0),
        ("lag", 64, 4, "uniform", 7.0, 3.0),
    ],
)
def test_herding_is_found_in_time(
    policy: str, clients: int, servers: int, lengths: str, life_s: float, stale_s: float
) -> None:
    """Least-busy on outdated counts is called oscillating within 60 s or 8 lifetimes."""
    seconds = max(60.0, 8 * life_s) + 5
    seen = simulate(Scene(policy, clients, servers, lengths, life_s, 2.0, seconds, 3, stale_s))
    limit = max(60.0, 8 * seen.e2e_s)
    steps = [step for step in follow(seen.tracks, seen.e2e_s) if step.at_s <= limit]
    assert steps[-1].balance.word is Is.OSCILLATING
    period_s = steps[-1].balance.period_s
    # Herds may be found before the loads have swung there and back.
    assert period_s is None or 1.0 <= period_s / seen.e2e_s <= 3.0


def test_fresh_counts_are_balanced() -> None:
    """Least-busy on current counts is balanced."""
    seen = simulate(Scene("least-busy", 32, 2, "uniform", 6.0, 2.0, 80.0))
    found = judge(GroupLoad("proxy", seen.tracks, seen.e2e_s), 80.0)
    assert found.word is Is.BALANCED
    assert found.reasons[0].startswith("even: ")


def test_the_spread_of_simulated_random_routing_is_1() -> None:
    """Over 20 minutes of random routing the spread relative to chance is near 1."""
    spreads = []
    for seed in range(4):
        seen = simulate(Scene("shuffle", 32, 2, "uniform", 5.0, 1.0, 300.0, seed))
        for at in (100.0, 200.0, 300.0):
            found = judge(GroupLoad("proxy", seen.tracks, 40.0), at)
            spreads.append(found.dispersion_z or 0.0)
    assert sum(spreads) / len(spreads) == pytest.approx(1.0, abs=0.25)
