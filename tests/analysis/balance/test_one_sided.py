"""Load that comes and goes at one backend alone is not a swing: in a swing, loads move against each other."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.analysis.balance.judge import judge
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack, lay_out
from sparktop.analysis.balance.rules import MUTUAL
from sparktop.analysis.balance.swings import find_swing
from sparktop.model.balance import Balance
from sparktop.model.balance import BalanceWord as Is
from tests.analysis.balance.balance_traces import LIFE_S, trace

pytestmark = pytest.mark.long

HZ = 4.0
SECONDS = 120.0
STEPS = range(int(SECONDS * HZ))


def tracks_of(columns: Sequence[Sequence[float]]) -> list[LoadTrack]:
    return [
        LoadTrack(f"s{index}", [at / HZ for at in range(len(column))], list(column), [0.0] * len(column))
        for index, column in enumerate(columns)
    ]


def bursts(every_s: float, lasts_s: float, height: float, first_s: float = 0.0) -> list[float]:
    """Return repeated bursts of `height` requests for `lasts_s` seconds; the last ones end one by one."""
    found = []
    for step in STEPS:
        since = (step / HZ - first_s) % every_s
        left = min(1.0, max(0.0, (1.25 * lasts_s - since) / (0.25 * lasts_s)))
        found.append(float(round(height * left)) if step / HZ >= first_s else 0.0)
    return found


def judged(columns: Sequence[Sequence[float]], life_s: float | None) -> Balance:
    return judge(GroupLoad("proxy", tracks_of(columns), life_s), SECONDS)


def mutual(columns: Sequence[Sequence[float]]) -> float | None:
    tracks = tracks_of(columns)
    grid = lay_out(tracks, tracks[0].times_s[-1], SECONDS)
    assert grid is not None
    swing = find_swing(grid, [slot for slot, total in enumerate(grid.totals) if total >= 0], None)
    return None if swing is None else swing.mutual


@pytest.mark.parametrize("life_s", [None, 5.0, 10.0])
@pytest.mark.parametrize("height", [12.0, 32.0, 80.0])
@pytest.mark.parametrize(("every_s", "lasts_s"), [(8.0, 4.0), (15.0, 5.0), (20.0, 14.0), (30.0, 10.0)])
def test_regular_bursts_to_one_are_no_swing(
    every_s: float, lasts_s: float, height: float, life_s: float | None
) -> None:
    """A periodic job that always goes to the same backend, with the other one idle, is not a swing."""
    found = judged([bursts(every_s, lasts_s, height), [0.0] * len(STEPS)], life_s)
    assert found.word is not Is.OSCILLATING
    assert found.swing is not None
    assert found.swing.mutual in {None, 0.0}


@pytest.mark.parametrize("first_s", [0.0, 7.5])
def test_bursts_that_go_to_each_in_turn_are_a_swing(first_s: float) -> None:
    """Bursts that go to both backends in turn are a swing, with pauses between them or not."""
    one, other = bursts(15.0, 6.0, 32.0), bursts(15.0, 6.0, 32.0, 7.5)
    found = judged([one, other], 7.0)
    assert found.word is Is.OSCILLATING
    assert found.swing is not None
    assert (found.swing.mutual or 0.0) > 2 * MUTUAL
    pauses = judged([bursts(24.0, 6.0, 32.0, first_s), bursts(24.0, 6.0, 32.0, first_s + 12.0)], 10.0)
    assert pauses.word is Is.OSCILLATING


@given(
    every_s=st.floats(5.0, 40.0),
    share=st.floats(0.1, 0.7),
    height=st.integers(12, 100),
    backends=st.integers(2, 6),
    drizzle=st.floats(0.0, 0.1),
    life=st.none() | st.floats(0.1, 0.8),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=120, deadline=None)
def test_whatever_else_goes_on_bursts_to_one_are_no_swing(
    every_s: float, share: float, height: int, backends: int, drizzle: float, life: float | None, seed: int
) -> None:
    """Any bursts to one of up to six backends, with some random load on the others, are not a swing."""
    dice = random.Random(seed)  # noqa: S311 - repeatable chance, not secrets
    columns = [bursts(every_s, share * every_s, height)]
    for _ in range(backends - 1):
        ends: list[float] = []
        column = []
        for step in STEPS:
            ends = [end for end in ends if end > step / HZ]
            if dice.random() < drizzle * height / 5.0 / HZ:
                ends.append(step / HZ + dice.expovariate(1 / 5.0))
            column.append(float(len(ends)))
        columns.append(column)
    found = judged(columns, None if life is None else life * every_s)
    assert found.word is not Is.OSCILLATING, found.swing


@given(
    rows=st.lists(st.lists(st.integers(0, 60), min_size=2, max_size=2), min_size=40, max_size=120),
    factor=st.sampled_from([2.0, 8.0]),
)
@settings(max_examples=60, deadline=None)
def test_neither_order_nor_scale_changes_how_mutual_it_is(rows: list[list[int]], factor: float) -> None:
    """`mutual` does not depend on the order of backends or on the scale, and is at most 1."""
    columns = [[float(row[index]) for row in rows] for index in range(2)]
    straight = mutual(columns)
    if straight is None:
        return
    assert straight <= 1.0 + 1e-9
    assert mutual([[factor * load for load in one] for one in columns]) == pytest.approx(straight)
    assert mutual(columns[::-1]) == pytest.approx(straight)


@given(
    rows=st.lists(st.lists(st.integers(0, 30), min_size=3, max_size=3), min_size=40, max_size=120),
    backends=st.integers(2, 4),
    total=st.integers(130, 200),
)
@settings(max_examples=40, deadline=None)
def test_where_the_total_stays_a_swing_is_mutual(rows: list[list[int]], backends: int, total: int) -> None:
    """With a constant total, `mutual` is 1: what one backend loses, others gain."""
    columns = [[float(row[index]) for row in rows] for index in range(backends - 1)]
    columns.append([total - sum(row) for row in zip(*columns, strict=True)])
    part = mutual(columns)
    assert part is None or math.isclose(part, 1.0, rel_tol=1e-6)


def test_a_load_that_rises_and_falls_everywhere_is_below_zero() -> None:
    """If the other backend rises and falls together with the bursts of one, `mutual` is negative."""
    burst = bursts(15.0, 6.0, 30.0)
    part = mutual([burst, [load / 3 for load in burst]])
    assert part is not None
    assert part < 0


def test_real_see_saws_are_mutual() -> None:
    """The recorded swings are mutual, though their total changes as well: 8 | 0, 8 | 8, 0 | 8."""
    for name in ("leastbusy-c16", "leastbusy-c16-b", "cooldown-c64"):
        tracks = trace(name)
        found = judge(GroupLoad("proxy", tracks, LIFE_S[name]), tracks[0].times_s[-1])
        assert found.swing is not None
        assert (found.swing.mutual or 0.0) > 1.4 * MUTUAL, name
