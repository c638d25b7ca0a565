"""Herds, convoys and bursts: what counts as a swing, and what is chance or one-sided."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from sparktop.analysis.balance import rules
from sparktop.analysis.balance.herds import find_herds
from sparktop.analysis.balance.judge import judge, measure
from sparktop.analysis.balance.load_grid import GroupLoad, LoadGrid, LoadTrack, lay_out
from sparktop.analysis.balance.rules import MUTUAL
from sparktop.model.balance import Arrivals, Balance
from sparktop.model.balance import BalanceWord as Is
from tests.analysis.balance.routed_load import herd
from tests.known import known

pytestmark = pytest.mark.long

HERD_LIFE_S = 8.0
HERD_SECONDS = 120
Choose = Callable[[float], int]
"""Gives the backend of a request from the time at which it comes."""


def coins(seed: int) -> Choose:
    dice = random.Random(seed)  # noqa: S311 - repeatable chance

    def choose(at: float) -> int:
        assert at >= 0
        return dice.randrange(2)

    return choose


def herd_tracks(choose: Choose | None = None) -> tuple[LoadTrack, ...]:
    return herd(2, HERD_LIFE_S, choose, hz=1.0, seconds=HERD_SECONDS)


def told(tracks: Sequence[LoadTrack]) -> Arrivals:
    return known(find_herds(tracks, float(HERD_SECONDS), float(HERD_SECONDS), 1.0, HERD_LIFE_S))


def test_herds_are_far_beyond_chance() -> None:
    """Lifetimes that go to each backend in turn are herds of both, and the verdict is "oscillating"."""
    tracks = herd_tracks()
    arrivals = told(tracks)
    assert arrivals.spread > 5
    assert arrivals.chance < 1e-20
    assert arrivals.least_herds >= 5
    assert judge(GroupLoad("g", tracks, HERD_LIFE_S), float(HERD_SECONDS)).word is Is.OSCILLATING


def test_two_servers_drained_one_after_the_other_are_no_herds() -> None:
    """In a rolling restart each server gets all requests once, for three lifetimes: no swing."""
    tossed, out_s = coins(8), 3 * HERD_LIFE_S

    def drained(at: float) -> int:
        first = 5 * HERD_LIFE_S
        return 1 if first <= at < first + out_s else 0 if at >= HERD_SECONDS - out_s else tossed(at)

    tracks = herd_tracks(drained)
    assert told(tracks).least_herds == 0
    assert judge(GroupLoad("g", tracks, HERD_LIFE_S), float(HERD_SECONDS)).word_now is not Is.OSCILLATING


# Convoys: how evenly requests are split with all of them present, compared with half of them present.

CONVOY_LIFE_S = 4.0
CONVOY_SECONDS = 60


def tracks_of(columns: Sequence[Sequence[float]], hz: float = 4.0) -> list[LoadTrack]:
    """Build tracks from loads sampled at the same times."""
    return [
        LoadTrack(f"s{index}", [at / hz for at in range(len(column))], list(column), [0.0] * len(column))
        for index, column in enumerate(columns)
    ]


def grid_of(columns: Sequence[Sequence[float]]) -> LoadGrid:
    return known(lay_out(tracks_of(columns, 1.0), float(len(columns[0]) - 1), 600.0))


def test_the_backend_that_has_the_only_request_is_not_the_empty_one() -> None:
    """Two states that exclude one another share the time."""
    columns = [[1.0, 1.0, 0.0, 0.0] * 15, [0.0, 0.0, 1.0, 1.0] * 15]
    grid = grid_of(columns)
    found, _ = measure(GroupLoad("g", tracks_of(columns, 1.0)), grid, 45.0)
    assert found.starved_percent == pytest.approx({"s0": 50.0, "s1": 50.0}, abs=2.0)
    assert found.starved_any_percent == 100.0


def by_turns(seed: int) -> list[list[float]]:
    """Return two convoys, each present for 3 to 5 s and absent for 1 or 2 s, without a constant period."""
    dice = random.Random(seed)  # noqa: S311 - repeatable chance
    columns: list[list[float]] = []
    for _ in range(2):
        column = [0.0] * dice.randint(0, 4)
        while len(column) < CONVOY_SECONDS:
            column += [8.0] * dice.randint(3, 5) + [float(dice.randint(0, 1))] * dice.randint(1, 2)
        columns.append(column[:CONVOY_SECONDS])
    return columns


@pytest.mark.parametrize("seed", range(2))
def test_convoys_by_turns_are_called_oscillating(seed: int) -> None:
    """By the rule on convoys, without a constant period; a swing keeps the period that it had before."""
    columns = by_turns(seed)
    found = judge(GroupLoad("g", tracks_of(columns, 1.0), CONVOY_LIFE_S), CONVOY_SECONDS - 1.0)
    assert found.word is Is.OSCILLATING
    assert (found.confidence or 0.0) > 0.5
    assert found.convoys is not None
    before_s = 1.1 * (known(found.swing).period_s or 0.0)
    again = GroupLoad("g", tracks_of(columns, 1.0), CONVOY_LIFE_S, period_s=before_s)
    assert judge(again, CONVOY_SECONDS - 1.0).period_s == pytest.approx(before_s, rel=0.25)
    grid = grid_of(columns)
    assert rules.rule_holds(
        rules.convoys_checks, measure(GroupLoad("g", grid.tracks, CONVOY_LIFE_S), grid, 45.0)[0]
    )


# Load that comes and goes at one backend alone is not a swing: in a swing, loads move against each other.

HZ = 4.0
SECONDS = 120.0
STEPS = range(int(SECONDS * HZ))


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


@pytest.mark.parametrize(
    ("every_s", "lasts_s", "height", "life_s"),
    [(8.0, 4.0, 32.0, None), (15.0, 5.0, 12.0, 5.0), (20.0, 14.0, 80.0, 10.0)],
)
def test_regular_bursts_to_one_are_no_swing(
    every_s: float, lasts_s: float, height: float, life_s: float | None
) -> None:
    """A periodic job that always goes to the same backend, with the other one idle, is not a swing."""
    found = judged([bursts(every_s, lasts_s, height), [0.0] * len(STEPS)], life_s)
    assert found.word is not Is.OSCILLATING
    assert known(found.swing).mutual in {None, 0.0}


def test_bursts_that_go_to_each_in_turn_are_a_swing() -> None:
    """Bursts that go to both backends in turn are a swing, with pauses between them or not."""
    one, other = bursts(15.0, 6.0, 32.0), bursts(15.0, 6.0, 32.0, 7.5)
    found = judged([one, other], 7.0)
    assert found.word is Is.OSCILLATING
    assert (known(found.swing).mutual or 0.0) > 2 * MUTUAL
    pauses = judged([bursts(24.0, 6.0, 32.0, 7.5), bursts(24.0, 6.0, 32.0, 19.5)], 10.0)
    assert pauses.word is Is.OSCILLATING


@pytest.mark.parametrize("weights", [(9.0, 1.0), (19.0, 1.0)])
def test_a_canary_with_a_few_requests_more_or_less_is_no_swing(weights: tuple[float, float]) -> None:
    """A backend that should have a tenth of the requests and has 1 to 5 of 60, in a rhythm."""
    few = [3.0 + 2.0 * math.sin(2 * math.pi * step / HZ / 16) for step in STEPS]
    tracks = [
        replace(track, part=weight)
        for track, weight in zip(tracks_of([[60 - at for at in few], few]), weights, strict=True)
    ]
    balance = judge(GroupLoad("proxy", tracks, 12.0), SECONDS)
    assert balance.word is not Is.OSCILLATING
    assert known(balance.swing).relative_rms < rules.RHYTHM_RMS
