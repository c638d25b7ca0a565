"""Convoys: how evenly requests are split with all of them present, compared with half of them present."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.analysis.balance import rules
from sparktop.analysis.balance.judge import judge, look, measure
from sparktop.analysis.balance.load_grid import GroupLoad, LoadGrid, LoadTrack, lay_out
from sparktop.analysis.balance.swings import chi_squared_tail, f_tail, find_convoys
from sparktop.model.balance import BalanceWord as Is
from sparktop.model.balance import Convoys

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


def convoys_of(columns: Sequence[Sequence[float]]) -> Convoys | None:
    grid = grid_of(columns)
    return find_convoys(grid, range(len(grid.totals)))


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


def test_spreads_are_those_of_the_times() -> None:
    """The spread relative to chance is 8 with all of 8 requests at one backend, and 0 with 8 at each."""
    one = [8.0, 8.0, 0.0, 8.0, 8.0, 8.0, 0.0, 8.0]
    other = [8.0, 0.0, 8.0, 8.0, 0.0, 8.0, 8.0, 8.0]
    found = convoys_of([one, other])
    assert found is not None
    assert (found.full_times, found.part_times, found.least_leads) == (4, 4, 2)
    assert (found.full_spread, found.part_spread, found.part_share) == (0.0, 8.0, 0.5)
    assert found.chance is not None
    assert found.chance < 1e-6


def test_a_time_counts_once_until_the_total_falls_or_another_leads() -> None:
    """Successive samples of one time count once, so that faster polling is not more evidence."""
    base = [[8.0, 8.0, 0.0, 8.0], [8.0, 0.0, 8.0, 8.0]]
    often = [[load for load in column for _ in range(4)] for column in base]
    few, many = convoys_of([column * 4 for column in base]), convoys_of([column * 4 for column in often])
    assert few is not None
    assert many is not None
    assert (few.full_times, few.part_times) == (many.full_times, many.part_times) == (5, 8)


@pytest.mark.parametrize("total", [16.0, 0.0])
def test_a_total_that_does_not_come_and_go_tells_nothing(total: float) -> None:
    """If the total never falls to about half, or is always 0, there is nothing to compare."""
    one = [float(at % 5) * total / 8 for at in range(SECONDS)]
    assert convoys_of([one, [total - load for load in one]]) is None


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


def test_one_that_is_always_slower_is_no_convoy() -> None:
    """If the same backend always keeps its half of each burst for longer, there is no convoy."""
    burst = ([8.0] * 3, [8.0] * 5)
    columns = [(one + [0.0] * (7 - len(one))) * 9 for one in burst]
    found = convoys_of(columns)
    assert found is not None
    assert found.least_leads == 0
    grid = grid_of(columns)
    assert not rules.holds(rules.convoys, measure(look(GroupLoad("g", grid.tracks, LIFE_S), grid, 45.0)))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.booleans(), st.integers(2, 6))
def test_names_and_scale_do_not_matter(seed: int, swing: bool, scale: int) -> None:  # noqa: FBT001 - drawn
    """Swapped backends give equal figures; a multiple of the requests gives a multiple of the spread."""
    columns = by_turns(seed=seed) if swing else by_chance(seed)
    found, swapped = convoys_of(columns), convoys_of(columns[::-1])
    assert found == swapped
    larger = convoys_of([[load * scale for load in column] for column in columns])
    assert (found is None) == (larger is None)
    if found is not None and larger is not None and found.part_spread is not None:
        assert (found.full_times, found.part_times) == (larger.full_times, larger.part_times)
        assert larger.part_spread == pytest.approx(scale * found.part_spread)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.floats(0, 50) | st.just(0.0), min_size=3, max_size=3), min_size=46, max_size=80))
def test_whatever_the_loads_nothing_raises(rows: list[list[float]]) -> None:
    """For any loads of three backends, probabilities and shares are between 0 and 1."""
    found = convoys_of([list(column) for column in zip(*rows, strict=True)])
    if found is not None:
        assert found.full_times >= 1
        assert 0 <= found.part_share <= 1
        assert (found.part_times == 0) == (found.chance is None) == (found.part_spread is None)
        assert 0 <= (found.chance or 0.0) <= 1
        assert 0 <= (found.part_chance or 0.0) <= 1


def test_a_faint_rhythm_does_not_speak_for_convoys() -> None:
    """The sentence is about convoys, with their period, unless the rhythm is clear."""
    said = set()
    for seed in range(12):
        found = judge(GroupLoad("g", tracks_of(by_turns(seed=seed)), LIFE_S), SECONDS - 1.0)
        swing, convoys = found.swing, found.convoys
        assert swing is not None
        assert convoys is not None
        clear = (swing.score or 0.0) >= rules.COMING_SCORE
        said.add(clear)
        assert found.reasons[0].startswith("convoys come and go in turns: ") is not clear
        assert clear or found.period_s == convoys.period_s
    assert said == {True, False}
