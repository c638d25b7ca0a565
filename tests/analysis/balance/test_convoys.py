"""Convoys: how evenly requests are split with all of them present, compared with half of them present."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from sparktop.analysis.balance import rules
from sparktop.analysis.balance.judge import judge, look, measure
from sparktop.analysis.balance.load_grid import GroupLoad, LoadGrid, LoadTrack, lay_out
from sparktop.analysis.balance.swings import chi_squared_tail, f_tail
from sparktop.model.balance import BalanceWord as Is

pytestmark = pytest.mark.long

LIFE_S = 4.0
SECONDS = 60


def tracks_of(columns: Sequence[Sequence[float]]) -> list[LoadTrack]:
    """Build tracks from loads sampled at the same times, at 1 Hz."""
    return [
        LoadTrack(f"s{index}", [float(at) for at in range(len(column))], list(column), [0.0] * len(column))
        for index, column in enumerate(columns)
    ]


def grid_of(columns: Sequence[Sequence[float]]) -> LoadGrid:
    found = lay_out(tracks_of(columns), float(len(columns[0]) - 1), 600.0)
    assert found is not None
    return found


def by_turns(size: int = 8, seed: int = 1) -> list[list[float]]:
    """Return two convoys, each present for 3 to 5 s and absent for 1 or 2 s, without a constant period."""
    dice = random.Random(seed)  # noqa: S311 - repeatable chance
    columns: list[list[float]] = []
    for _ in range(2):
        column = [0.0] * dice.randint(0, 4)
        while len(column) < SECONDS:
            column += [float(size)] * dice.randint(3, 5) + [float(dice.randint(0, 1))] * dice.randint(1, 2)
        columns.append(column[:SECONDS])
    return columns


def by_chance(seed: int, clients: int = 16) -> list[list[float]]:
    """Return loads of requests that come and go alike, each sent to a random backend."""
    dice = random.Random(seed)  # noqa: S311 - repeatable chance
    rows: list[tuple[float, float]] = []
    there = [-1] * clients
    left = [dice.randint(0, 5) for _ in there]
    for _ in range(SECONDS):
        for client in range(clients):
            left[client] -= 1
            if left[client] <= 0:
                away = there[client] >= 0
                there[client] = -1 if away else dice.randrange(2)
                left[client] = dice.randint(1, 2) if away else dice.randint(3, 5)
        rows.append((float(there.count(0)), float(there.count(1))))
    return [list(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize(
    ("ratio", "above", "below", "tail"),
    [
        (3.3258, 5, 10, 0.05),
        (6.0289, 8, 8, 0.01),
        (161.4476, 1, 1, 0.05),
        (8.8439, 10, 4, 0.025),
        (1.0, 7, 7, 0.5),
        (0.0, 3, 3, 1.0),
    ],
)
def test_the_tail_of_f_is_that_of_the_tables(ratio: float, above: int, below: int, tail: float) -> None:
    """Upper tails of the F distribution equal those of published tables."""
    assert f_tail(ratio, above, below) == pytest.approx(tail, rel=1e-3)


@pytest.mark.parametrize(
    ("value", "freedom", "tail"), [(11.0705, 5, 0.05), (20.0902, 8, 0.01), (27.877, 9, 0.001)]
)
def test_the_tail_of_chi_squared_is_near_the_tables(value: float, freedom: int, tail: float) -> None:
    """The approximation of the χ² tail is within 10 % of published tables."""
    assert chi_squared_tail(value, freedom) == pytest.approx(tail, rel=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_convoys_by_turns_are_called_oscillating(seed: int) -> None:
    """Two convoys without a constant period are called oscillating, by the rule on convoys."""
    columns = by_turns(seed=seed)
    found = judge(GroupLoad("g", tracks_of(columns), LIFE_S), SECONDS - 1.0)
    assert found.word is Is.OSCILLATING
    assert (found.confidence or 0.0) > 0.5
    assert found.convoys is not None
    grid = grid_of(columns)
    assert rules.holds(rules.convoys, measure(look(GroupLoad("g", grid.tracks, LIFE_S), grid, 45.0)))


def test_the_sentence_names_both_kinds_of_times() -> None:
    """The sentence counts the times with one-sided load and those with an even split."""
    balances = [
        judge(GroupLoad("g", tracks_of(by_turns(seed=seed)), LIFE_S), SECONDS - 1.0) for seed in range(12)
    ]
    said = [one for one in balances if one.reasons[0].startswith("convoys come and go in turns: ")]
    assert said
    for one in said:
        assert one.convoys is not None
        assert (
            f"{one.convoys.part_times} times in 60 s one backend held far more than its share"
            in one.reasons[0]
        )
        assert f"{one.convoys.full_times} times full load was even" in one.reasons[0]
        assert one.period_s is None or 3.0 <= one.period_s <= 10.0


def test_the_same_coming_and_going_by_chance_is_no_swing() -> None:
    """In none of 200 windows does random routing meet the rule, though its total also falls to half."""
    compared = 0
    for seed in range(200):
        grid = grid_of(by_chance(seed))
        figures = look(GroupLoad("g", grid.tracks, LIFE_S), grid, 45.0)
        compared += figures.convoys is not None
        assert not rules.holds(rules.convoys, measure(figures))
    assert compared > 100
