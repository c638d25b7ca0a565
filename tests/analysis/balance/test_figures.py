"""The figures that a verdict rests on, each compared with a value computed by hand or exactly."""

from __future__ import annotations

import math

import pytest

from sparktop.analysis.balance.load_grid import (
    LoadGrid,
    LoadTrack,
    fit_step_time,
    lay_out,
    throughput,
    variance_factor,
)
from sparktop.analysis.balance.spread import (
    dispersion,
    lost_share,
    starved_shares,
)
from sparktop.analysis.balance.swings import find_swing
from sparktop.model.balance import StepTime

STEP = StepTime(base_s=0.036, per_request_s=0.0024, pairs=100)
"""Spark-like: 15 requests double a step."""


def grid(*columns: list[float], hz: float = 4.0, slots: int | None = None, weight: float = 1.0) -> LoadGrid:
    """Build a grid of loads that were sampled at the same times; `weight` is that of the first backend."""
    times = [100 + index / hz for index in range(len(columns[0]))]
    tracks = [
        LoadTrack(
            f"spark-{index}",
            times,
            [min(load, slots or load) for load in loads],
            [max(0.0, load - slots) if slots else 0.0 for load in loads],
            slots=slots,
            weight=1.0 if index else weight,
        )
        for index, loads in enumerate(columns)
    ]
    found = lay_out(tracks, times[-1], 600.0)
    assert found is not None
    return found


@pytest.mark.parametrize(("clients", "factor"), [(16, 1.45), (128, 4.85)])
def test_random_routing_over_batching_servers_is_as_wide_as_its_birth_death_chain(
    clients: int, factor: float
) -> None:
    """The variance factor equals that of the birth-death chain with pi(n+1) / pi(n) = T(C-n) / T(n+1)."""
    makes = throughput(STEP, None)
    weights = [1.0]
    for load in range(clients):
        weights.append(weights[-1] * makes(clients - load) / makes(load + 1))
    mean = sum(n * w for n, w in enumerate(weights)) / sum(weights)
    variance = sum((n - mean) ** 2 * w for n, w in enumerate(weights)) / sum(weights)
    found = variance_factor(clients, 2, STEP)
    assert found == pytest.approx(variance / (clients / 4), rel=1e-9)
    assert found == pytest.approx(factor, rel=0.02)


def measured(batches: list[float], base: float, slope: float) -> LoadTrack:
    """Return a track that holds each batch for 5 s, with the rates that follow from these step times."""
    loads = [batch for batch in batches for _ in range(20)]
    times = [index / 4 for index in range(len(loads))]
    rates = [load / (base + slope * load) for load in loads]
    return LoadTrack("spark-a", times, loads, [0.0] * len(loads), rates)


def test_a_fifth_of_slow_steps_does_not_bend_the_line() -> None:
    """If a fifth of the steps is three times as slow, as by prefills, the fit stays the same."""
    track = measured([4.0, 8.0, 16.0, 32.0, 64.0], 0.036, 0.0024)
    speeds = [tps / 3 if index % 5 == 0 else tps for index, tps in enumerate(track.generation_tps or [])]
    slow = LoadTrack("spark-a", track.times_s, track.running, track.waiting, speeds)
    found = fit_step_time([slow], 0.0)
    assert found is not None
    assert found.base_s == pytest.approx(0.036, rel=0.05)
    assert found.per_request_s == pytest.approx(0.0024, rel=0.05)


def test_the_loss_of_all_to_nothing_follows_from_the_steps() -> None:
    """The loss of 64 and 0 requests instead of 32 and 32 follows from step times: 1 - T(64) / (2 T(32))."""
    makes = throughput(STEP, None)
    expected = 1 - makes(64) / (2 * makes(32))
    assert lost_share(grid([64.0] * 40, [0.0] * 40), range(40), STEP).share == pytest.approx(expected)
    assert lost_share(grid([32.0] * 40, [32.0] * 40), range(40), STEP).share == 0.0
    assert lost_share(grid([20.0] * 9, [10.0] * 9, weight=2.0), range(9), STEP).share == pytest.approx(0.0)


def test_the_spread_of_binomial_counts_is_1() -> None:
    """The spread is the mean of (A - B)² / (A + B): 4 for 12 and 4, 0 for 8 and 8."""
    assert dispersion(grid([12.0, 8.0], [4.0, 8.0]), [0]) == 4.0
    assert dispersion(grid([12.0, 8.0], [4.0, 8.0]), [0, 1]) == 2.0
    assert dispersion(grid([12.0, 8.0], [4.0, 8.0]), []) is None


def test_starved_is_next_to_nothing_beside_more_than_enough() -> None:
    """One request, or a tenth of the share, beside more than 1.5 shares or a queue counts as starved."""
    assert starved_shares(grid([1.0, 1.0], [30.0, 1.0]), range(2)).shares == (0.5, 0.0)
    assert starved_shares(grid([3.0, 4.0], [61.0, 60.0]), range(2)).shares == (0.5, 0.0)
    both = starved_shares(grid([0.0, 40.0, 20.0], [40.0, 0.0, 20.0]), range(3))
    assert list(both.shares) == pytest.approx([1 / 3, 1 / 3])
    assert both.anyone == pytest.approx(2 / 3)


@pytest.mark.parametrize("period_s", [3.0, 9.5])
def test_a_pure_swing_s_period_is_found(period_s: float) -> None:
    """The period of a sine between two backends is found within 4 %, with nearly all variance in it."""
    wave = [16 + 12 * math.sin(1 + 2 * math.pi * index / 4 / period_s) for index in range(240)]
    swing = find_swing(grid(wave, [32 - load for load in wave]), range(240), None)
    assert swing is not None
    assert swing.period_s == pytest.approx(period_s, rel=0.04)
    assert (swing.variance_share or 0.0) > 0.9
    assert (swing.opposite or 0.0) < -0.8
    assert (swing.rebound or 0.0) > 0.8
    assert (swing.chance or 1.0) < 0.05


def test_gaps_stay_gaps() -> None:
    """Lost samples are missing from the grid; a late sample is not a gap."""
    times = [index / 4 for index in range(40)]
    late = [time + (0.1 if index == 20 else 0.0) for index, time in enumerate(times)]
    kept = [time for index, time in enumerate(late) if index not in {10, 11}]
    tracks = [LoadTrack("a", kept, [5.0] * 38), LoadTrack("b", times, [5.0] * 40)]
    found = lay_out(tracks, 10.0, 60.0)
    assert found is not None
    assert [index for index, load in enumerate(found.loads[0]) if math.isnan(load)] == [10, 11]
    assert found.present == (0.95, 1.0)
    assert found.span_s == pytest.approx(10.0)
