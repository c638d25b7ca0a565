"""Load that comes and goes at one backend alone is not a swing: in a swing, loads move against each other."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

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


def test_real_see_saws_are_mutual() -> None:
    """The recorded swings are mutual, though their total changes as well: 8 | 0, 8 | 8, 0 | 8."""
    for name in ("leastbusy-c16", "leastbusy-c16-b", "cooldown-c64"):
        tracks = trace(name)
        found = judge(GroupLoad("proxy", tracks, LIFE_S[name]), tracks[0].times_s[-1])
        assert found.swing is not None
        assert (found.swing.mutual or 0.0) > 1.4 * MUTUAL, name
