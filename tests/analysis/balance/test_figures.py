"""The parts of a verdict, each against what can be worked out by hand or exactly."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.analysis.balance.dispersion import dispersion, free_slot_share, lost_share, skew, starved_shares
from sparktop.analysis.balance.lead import follow_lead, lead_margin
from sparktop.analysis.balance.load_grid import LoadGrid, LoadTrack, lay_out, load_track
from sparktop.analysis.balance.periodicity import find_swing
from sparktop.analysis.balance.step_time import fit_step_time, throughput, variance_factor
from sparktop.analysis.balance.swing_score import swing_score
from sparktop.model.balance import StepTime, Swing
from sparktop.model.series import HistoryTable

STEP = StepTime(base_s=0.036, per_request_s=0.0024, pairs=100)
"""Spark-like: 15 requests double a step."""


def grid(*columns: list[float], hz: float = 4.0, slots: int | None = None, weight: float = 1.0) -> LoadGrid:
    """Lay out loads that were sampled in step; `weight` is the first backend's."""
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


@pytest.mark.parametrize(("clients", "factor"), [(16, 1.45), (32, 1.94), (64, 2.91), (128, 4.85)])
def test_random_routing_over_batching_servers_is_as_wide_as_its_birth_death_chain(
    clients: int, factor: float
) -> None:
    """The closed form gives the chain's variance over the binomial's: pi(n+1)/pi(n) = T(C-n)/T(n+1)."""
    makes = throughput(STEP, None)
    weights = [1.0]
    for load in range(clients):
        weights.append(weights[-1] * makes(clients - load) / makes(load + 1))
    mean = sum(n * w for n, w in enumerate(weights)) / sum(weights)
    variance = sum((n - mean) ** 2 * w for n, w in enumerate(weights)) / sum(weights)
    found = variance_factor(clients, 2, STEP)
    assert found == pytest.approx(variance / (clients / 4), rel=1e-9)
    assert found == pytest.approx(factor, rel=0.02)


def test_slots_that_are_never_full_change_nothing() -> None:
    """The chain worked out state by state agrees with the closed form where no slot runs out."""
    assert variance_factor(32, 2, STEP, slots=32) == pytest.approx(variance_factor(32, 2, STEP))
    assert variance_factor(64, 4, STEP, slots=31) == pytest.approx(variance_factor(64, 4, STEP), rel=0.05)


def test_full_slots_make_random_routing_wider() -> None:
    """Queues do not get slower as they grow, so chance drives them further apart."""
    assert variance_factor(48, 2, STEP, slots=16) > 2 * variance_factor(48, 2, STEP)


def test_without_a_step_time_random_routing_is_binomial() -> None:
    """Nothing is assumed of servers that were not measured."""
    assert variance_factor(64, 2, None) == 1.0


def measured(batches: list[float], base: float, slope: float) -> LoadTrack:
    """Give a track that held each batch for 5 s, with the rates that such steps make."""
    loads = [batch for batch in batches for _ in range(20)]
    times = [index / 4 for index in range(len(loads))]
    rates = [load / (base + slope * load) for load in loads]
    return LoadTrack("spark-a", times, loads, [0.0] * len(loads), rates)


@given(
    st.floats(0.01, 0.1),
    st.floats(0.0005, 0.01),
    st.lists(st.integers(1, 64), min_size=4, max_size=10, unique=True),
)
@settings(max_examples=40, deadline=None)
def test_a_step_time_line_is_found_again(base: float, slope: float, batches: list[int]) -> None:
    """Of exact steps the fit gives the line back, or None where the batches span less than a factor of 2."""
    track = measured([float(batch) for batch in batches], base, slope)
    found = fit_step_time([track], 0.0)
    if max(batches) < 2 * min(batches):
        assert found is None
    elif found is not None:
        for batch in (min(batches), max(batches)):
            assert found.base_s + found.per_request_s * batch == pytest.approx(base + slope * batch, rel=0.05)


def test_a_fifth_of_slow_steps_does_not_bend_the_line() -> None:
    """Prefills lengthen some steps threefold; the medians do not follow them."""
    track = measured([4.0, 8.0, 16.0, 32.0, 64.0], 0.036, 0.0024)
    speeds = [tps / 3 if index % 5 == 0 else tps for index, tps in enumerate(track.generation_tps or [])]
    slow = LoadTrack("spark-a", track.times_s, track.running, track.waiting, speeds)
    found = fit_step_time([slow], 0.0)
    assert found is not None
    assert found.base_s == pytest.approx(0.036, rel=0.05)
    assert found.per_request_s == pytest.approx(0.0024, rel=0.05)


def test_one_batch_tells_no_line() -> None:
    """Without a factor of 2 between batches there is no fit, and so no estimate of a loss."""
    assert fit_step_time([measured([31.0, 32.0, 33.0, 34.0], 0.036, 0.0024)], 0.0) is None
    assert lost_share(grid([32.0] * 40, [32.0] * 40), range(40), None).share is None


def test_the_loss_of_all_to_nothing_follows_from_the_steps() -> None:
    """64 and 0 make T(64) where 32 and 32 would make 2 T(32): 0.034 less of each token a second."""
    makes = throughput(STEP, None)
    expected = 1 - makes(64) / (2 * makes(32))
    assert lost_share(grid([64.0] * 40, [0.0] * 40), range(40), STEP).share == pytest.approx(expected)
    assert lost_share(grid([32.0] * 40, [32.0] * 40), range(40), STEP).share == 0.0
    assert lost_share(grid([20.0] * 9, [10.0] * 9, weight=2.0), range(9), STEP).share == pytest.approx(0.0)


def test_the_spread_of_binomial_counts_is_1() -> None:
    """(A - B) squared over A + B, averaged: 12 and 4 are 64 / 16, 8 and 8 are 0."""
    assert dispersion(grid([12.0, 8.0], [4.0, 8.0]), [0]) == 4.0
    assert dispersion(grid([12.0, 8.0], [4.0, 8.0]), [0, 1]) == 2.0
    assert dispersion(grid([12.0, 8.0], [4.0, 8.0]), []) is None


def test_a_faster_backend_s_share_is_larger() -> None:
    """With twice the weight, 20 beside 10 is even, and 15 beside 15 is not."""
    assert dispersion(grid([20.0] * 9, [10.0] * 9, weight=2.0), range(9)) == pytest.approx(0.0)
    assert dispersion(grid([15.0] * 9, [15.0] * 9, weight=2.0), range(9)) == pytest.approx(25 / 20 + 25 / 10)


def test_starved_is_next_to_nothing_beside_more_than_enough() -> None:
    """One request beside 30 is starved, beside 2 is not; a tenth of the share counts as nothing."""
    assert starved_shares(grid([1.0, 1.0], [30.0, 1.0]), range(2)).shares == (0.5, 0.0)
    assert starved_shares(grid([3.0, 4.0], [61.0, 60.0]), range(2)).shares == (0.5, 0.0)
    both = starved_shares(grid([0.0, 40.0, 20.0], [40.0, 0.0, 20.0]), range(3))
    assert list(both.shares) == pytest.approx([1 / 3, 1 / 3])
    assert both.anyone == pytest.approx(2 / 3)


def test_a_free_slot_beside_a_queue_is_counted() -> None:
    """12 and 4 on 8 slots each: four wait while four slots are free."""
    assert free_slot_share(grid([12.0, 8.0], [4.0, 8.0], slots=8)) == 0.5
    assert free_slot_share(grid([12.0, 8.0], [4.0, 8.0])) is None


def test_the_lead_changes_when_another_takes_it() -> None:
    """A backend leads with half as much again as its share, and goes on leading until another does."""
    loads = [16.0] * 4 + [40.0] * 4 + [33.0] * 4 + [10.0] * 4 + [50.0] * 4 + [5.0] * 4
    lead = follow_lead(grid(loads, [64 - load for load in loads]), range(len(loads)), 0.5)
    assert lead.changes == 2
    assert lead.swap_s == pytest.approx(1.0)
    assert lead.per_min == pytest.approx(2 / (6.0 / 60))


def test_two_that_overtake_at_once_change_nothing() -> None:
    """Of three, two with the same load leave the lead where it was: no order of names decides."""
    lead = follow_lead(grid([30.0, 0.0, 0.0], [0.0, 30.0, 10.0], [0.0, 30.0, 40.0]), range(3), 0.5)
    assert lead.changes == 1


def test_the_margin_of_the_lead_follows_chance() -> None:
    """3 deviations of random routing, but at least half and at most nine tenths of a share."""
    assert lead_margin(64, 2, 1.0) == 0.5
    assert lead_margin(64, 2, 3.0) == pytest.approx(3 * math.sqrt(3 / 64))
    assert lead_margin(16, 2, 1.5) == 0.9


def test_the_skew_is_the_share_beyond_the_share() -> None:
    """23 and 9 are 7 above 16: 0.44, steady without limit when it never moves."""
    found = skew(grid([9.0] * 8, [23.0] * 8), range(8))
    assert found is not None
    assert (found.backend, found.mean, found.steadiness) == (1, 7 / 16, math.inf)


@pytest.mark.parametrize("period_s", [3.0, 5.0, 7.0, 9.5, 14.0])
def test_a_pure_swing_s_period_is_found(period_s: float) -> None:
    """A sine between two backends: its period within 4 %, nearly all variance there, opposite half way."""
    wave = [16 + 12 * math.sin(1 + 2 * math.pi * index / 4 / period_s) for index in range(240)]
    swing = find_swing(grid(wave, [32 - load for load in wave]), range(240), None)
    assert swing is not None
    assert swing.period_s == pytest.approx(period_s, rel=0.04)
    assert (swing.variance_share or 0.0) > 0.9
    assert (swing.opposite or 0.0) < -0.8
    assert (swing.rebound or 0.0) > 0.8
    assert (swing.chance or 1.0) < 0.05


def test_a_skew_that_stands_still_is_no_movement() -> None:
    """30 beside 10 with a ripple of one: nearly nothing of that spread moves, and the score says so."""
    ripple = [30.0 + index % 2 for index in range(240)]
    still = find_swing(grid(ripple, [10.0] * 240), range(240), None)
    wave = [20 + 10 * math.sin(2 * math.pi * index / 24) for index in range(240)]
    moving = find_swing(grid(wave, [40 - load for load in wave]), range(240), None)
    assert still is not None
    assert moving is not None
    assert still.moving_share < 0.01
    assert moving.moving_share > 0.99
    same = replace(moving, moving_share=still.moving_share)
    assert (swing_score(4.0, 2, same) or 0.0) < (swing_score(4.0, 2, moving) or 0.0) - 5


def test_more_cycles_and_a_wider_spread_are_more_evidence() -> None:
    """The same return counts for more in more cycles, up to a limit the same spread over more backends."""
    seen = Swing("a", relative_rms=0.5, moving_share=1.0, cycles=4.0, rebound=0.4, opposite=-0.4)
    base = swing_score(2.0, 2, seen) or 0.0
    assert (swing_score(2.0, 2, replace(seen, cycles=10.0)) or 0.0) > base
    assert (swing_score(3.0, 2, seen) or 0.0) > base
    assert (swing_score(2.0, 4, seen) or 0.0) > base
    assert swing_score(4.0, 2, seen) == swing_score(40.0, 2, seen)
    assert swing_score(2.0, 2, replace(seen, rebound=None)) is None


def test_gaps_stay_gaps() -> None:
    """Lost samples are missing from the grid, and a late one is not a gap."""
    times = [index / 4 for index in range(40)]
    late = [time + (0.1 if index == 20 else 0.0) for index, time in enumerate(times)]
    kept = [time for index, time in enumerate(late) if index not in {10, 11}]
    tracks = [LoadTrack("a", kept, [5.0] * 38), LoadTrack("b", times, [5.0] * 40)]
    found = lay_out(tracks, 10.0, 60.0)
    assert found is not None
    assert [index for index, load in enumerate(found.loads[0]) if math.isnan(load)] == [10, 11]
    assert found.present == (0.95, 1.0)
    assert found.span_s == pytest.approx(10.0)


def test_a_track_comes_from_a_backend_s_history() -> None:
    """The store's series become a track; what was never told is None, not 0."""
    table = HistoryTable(("running", "waiting", "tps"))
    for second in range(6):
        table.append(float(second), {"running": float(second), "tps": None if second == 3 else 10.0})
    series = table.series()
    track = load_track("a", series["running"], series["waiting"], series["tps"], since_s=2.0, slots=8)
    assert list(track.times_s) == [2.0, 3.0, 4.0, 5.0]
    assert track.waiting is None
    assert [math.isnan(value) for value in track.generation_tps or []] == [False, True, False, False]
    assert all(later - earlier == 1.0 for earlier, later in pairwise(track.running))


def test_a_change_of_pace_leaves_no_gaps() -> None:
    """Looks once a second, then four times: until the quick ones fill the window, slots last a second."""
    times = [float(second) for second in range(16)] + [16 + quarter / 4 for quarter in range(160)]
    for end, step_s in ((40.0, 1.0), (55.75, 0.25)):
        known = [at for at in times if at <= end]
        tracks = [LoadTrack(name, known, [8.0] * len(known)) for name in ("a", "b")]
        grid = lay_out(tracks, end, 40.0 if step_s < 1 else 60.0)
        assert grid is not None
        assert grid.step_s == pytest.approx(step_s)
        assert min(grid.present) > 0.95
    slowed = [at / 4 for at in range(160)] + [40.0 + second for second in range(20)]
    grid = lay_out([LoadTrack(name, slowed, [8.0] * len(slowed)) for name in ("a", "b")], 59.0, 60.0)
    assert grid is not None
    assert (grid.step_s, min(grid.present)) == (1.0, 1.0)
