"""The optimised computation of figures gives the results of their definitions, written out plainly."""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.analysis.balance.load_grid import LoadGrid, LoadTrack, lay_out
from sparktop.analysis.balance.spread import (
    dispersion,
    follow_lead,
    follow_turns,
    free_slot_share,
    skew,
    starved_shares,
)
from sparktop.analysis.balance.swings import find_swing

_ROW = st.lists(st.integers(0, 12), min_size=4, max_size=4)
ROWS = st.lists(_ROW, min_size=4, max_size=40)
WEIGHTS = st.sampled_from([(1.0, 1.0, 1.0, 1.0), (1.0, 2.0, 1.0, 1.0), (3.0, 1.0, 0.5, 1.0)])
PICKED = st.sets(st.integers(0, 39))


def grid_of(rows: Sequence[Sequence[int]], weights: Sequence[float]) -> LoadGrid:
    """Build a grid of running requests, with a queue for those beyond 6."""
    times = [float(second) for second in range(len(rows))]
    tracks = [
        LoadTrack(
            f"s{index}",
            times,
            [float(min(6, row[index])) for row in rows],
            [float(max(0, row[index] - 6)) for row in rows],
            slots=6,
            weight=weight,
        )
        for index, weight in enumerate(weights)
    ]
    found = lay_out(tracks, times[-1], 1000.0)
    assert found is not None
    return found


def slots_of(grid: LoadGrid, picked: set[int]) -> list[int]:
    """Return the slots of `picked` that have load; if there are none, all slots with load."""
    loaded = [slot for slot, total in enumerate(grid.totals) if total > 0]
    return [slot for slot in loaded if slot in picked] or loaded


@given(rows=ROWS, weights=WEIGHTS, picked=PICKED, margin=st.sampled_from([0.3, 0.5, 0.9]))
@settings(max_examples=80, deadline=None)
def test_leads_and_turns_are_counted_slot_by_slot(
    rows: list[list[int]], weights: tuple[float, ...], picked: set[int], margin: float
) -> None:
    """Lead changes and turns are those of a plain loop over the slots."""
    grid = grid_of(rows, weights)
    slots = slots_of(grid, picked)
    leader, changes = None, 0
    for slot in slots:
        parts = [column[slot] / share for column, share in zip(grid.loads, grid.shares, strict=True)]
        least = (1 + margin) * grid.totals[slot]
        top = max(parts)
        if top >= least and (leader is None or parts[leader] < least) and parts.count(top) == 1:
            changes += leader is not None
            leader = parts.index(top)
    assert follow_lead(grid, slots, margin).changes == changes
    counts = []
    for column, share in zip(grid.loads, grid.shares, strict=True):
        states = [
            column[slot] >= 1.5 * share * grid.totals[slot]
            for slot in slots
            if column[slot] >= 1.5 * share * grid.totals[slot]
            or column[slot] <= 0.5 * share * grid.totals[slot]
        ]
        counts.append(sum(now is not before for before, now in pairwise(states)))
    turns = follow_turns(grid, slots)
    assert (turns.turns, turns.most) == (sum(counts), max(counts))


@given(rows=ROWS, weights=WEIGHTS, picked=PICKED)
@settings(max_examples=80, deadline=None)
def test_spread_skew_and_hunger_are_those_of_their_definitions(
    rows: list[list[int]], weights: tuple[float, ...], picked: set[int]
) -> None:
    """Dispersion, skew and starved shares are those of plain sums over slots and backends."""
    grid = grid_of(rows, weights)
    slots = slots_of(grid, picked)
    if not slots:
        assert (dispersion(grid, slots), skew(grid, slots)) == (None, None)
        return
    each = list(zip(grid.loads, grid.shares, strict=True))
    spread = [
        sum(
            (column[slot] - share * grid.totals[slot]) ** 2 / (share * grid.totals[slot])
            for column, share in each
        )
        / (len(each) - 1)
        for slot in slots
    ]
    assert dispersion(grid, slots) == pytest.approx(sum(spread) / len(spread))
    beyond = [
        sum(column[slot] / (share * grid.totals[slot]) - 1 for slot in slots) / len(slots)
        for column, share in each
    ]
    found = skew(grid, slots)
    assert found is not None
    assert found.mean == pytest.approx(max(beyond), abs=1e-9)
    hungry = [set[int]() for _ in each]
    for slot in slots:
        total = grid.totals[slot]
        full = any(column[slot] > 1.5 * share * total for column, share in each)
        if full or any(queue is not None and queue[slot] > 0 for queue in grid.waiting):
            for index, (column, share) in enumerate(each):
                if column[slot] <= max(1.0, 0.1 * share * total):
                    hungry[index].add(slot)
    starved = starved_shares(grid, slots)
    assert list(starved.shares) == pytest.approx([len(one) / len(slots) for one in hungry])
    assert starved.anyone == pytest.approx(len(set[int]().union(*hungry)) / len(slots))


@given(rows=ROWS)
@settings(max_examples=60, deadline=None)
def test_free_slots_beside_a_queue_are_counted_row_by_row(rows: list[list[int]]) -> None:
    """The share of free slots beside a queue is that of a plain count over the rows with load."""
    grid = grid_of(rows, (1.0, 1.0, 1.0, 1.0))
    loaded = [row for row in rows if sum(row)]
    free = [row for row in loaded if max(row) > 6 and min(row) < 6]
    assert free_slot_share(grid) == (len(free) / len(loaded) if loaded else None)


@given(loads=st.lists(st.integers(0, 40), min_size=30, max_size=256))
@settings(max_examples=25, deadline=None)
def test_the_spectrum_is_fourier_s(loads: list[int]) -> None:
    """The spectrum is that of a discrete Fourier transform written out as a sum."""
    rows = [[load, 40 - load, 0, 0] for load in loads]
    times = [float(second) for second in range(len(rows))]
    pair = [LoadTrack(name, times, [float(row[at]) for row in rows]) for at, name in enumerate("ab")]
    grid = lay_out(pair, times[-1], 1000.0)
    assert grid is not None
    swing = find_swing(grid, range(len(rows)), None)
    assert swing is not None
    if not swing.spectrum.values:
        assert swing.relative_rms < 1e-5
        return
    apart = [(load - (40 - load)) / 40 for load in loads]
    middle = sorted(apart)[len(apart) // 2]
    if len(apart) % 2 == 0:
        middle = (middle + sorted(apart)[len(apart) // 2 - 1]) / 2
    held = [max(middle - 0.5, min(middle + 0.5, value)) for value in apart]
    mean = sum(held) / len(held)
    size = len(held)
    tapered = [
        (value - mean) * (0.5 - 0.5 * math.cos(2 * math.pi * (at + 0.5) / size))
        for at, value in enumerate(held)
    ]
    power = [
        abs(sum(value * cmath.exp(-2j * math.pi * k * at / 512) for at, value in enumerate(tapered))) ** 2
        for k in range(256)
    ]
    whole = sum(power[1:])
    for period, part in zip(swing.spectrum.axis, swing.spectrum.values, strict=True):
        assert part == pytest.approx(power[round(512 / period)] / whole, abs=1e-9)
