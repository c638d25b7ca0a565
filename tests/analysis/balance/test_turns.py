"""Backends that go from full to empty and back: a swing without lead changes or a single rhythm."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from sparktop.analysis.balance import rules
from sparktop.analysis.balance.judge import judge, look, measure
from sparktop.analysis.balance.load_grid import GroupLoad, LoadGrid, LoadTrack, lay_out
from sparktop.analysis.balance.spread import follow_lead, follow_turns
from sparktop.model.balance import Arrivals, Convoys
from sparktop.model.balance import BalanceWord as Is
from tests.analysis.balance.routed_load import Scene, simulate

LIFE_S = 6.0


def tracks_of(*columns: Sequence[float], hz: float = 2.0) -> list[LoadTrack]:
    """Build tracks from loads sampled at the same times."""
    return [
        LoadTrack(f"s{index}", [at / hz for at in range(len(column))], list(column), [0.0] * len(column))
        for index, column in enumerate(columns)
    ]


def grid(*columns: Sequence[float]) -> LoadGrid:
    tracks = tracks_of(*columns)
    found = lay_out(tracks, tracks[0].times_s[-1], 600.0)
    assert found is not None
    return found


def convoys(dice: random.Random, samples: int = 160) -> list[list[float]]:
    """Return two convoys of 24 requests on four backends; each moves to an empty one after 9 to 15 s."""
    at, until = [0, 1], [20, 27]
    rows: list[list[float]] = []
    for index in range(samples):
        for convoy in (0, 1):
            if index >= until[convoy]:
                at[convoy] = dice.choice([one for one in range(4) if one not in at])
                until[convoy] = index + dice.randint(18, 30)
        rows.append([24.0 if one in at else 0.0 for one in range(4)])
    return [list(column) for column in zip(*rows, strict=True)]


def test_a_burst_that_decays_empties_each_backend_once_at_most() -> None:
    """A load that decays from one backend to an even split has no period and is not a swing."""
    first = [max(16.0, 64.0 - index) for index in range(160)]
    rest = [(64 - load) / 3 for load in first]
    tracks = tracks_of(first, rest, rest, rest)
    assert follow_turns(grid(first, rest, rest, rest), range(160)).most <= 1
    assert Is.OSCILLATING not in {judge(GroupLoad("g", tracks, LIFE_S), at).word for at in (60.0, 79.5)}


def test_convoys_that_tie_swing_without_a_lead_or_a_rhythm() -> None:
    """Two equal convoys on four backends are oscillating, without any lead change or rhythm."""
    columns = convoys(random.Random(5))  # noqa: S311 - repeatable chance
    load, seen = GroupLoad("g", tracks_of(*columns), LIFE_S), grid(*columns)
    found = measure(look(load, seen, 48.0))
    assert follow_lead(seen, range(160), 0.5).changes == 0
    assert (rules.holds(rules.rhythm, found), rules.holds(rules.turns, found)) == (False, True)
    found = judge(load, 79.5)
    assert found.word is Is.OSCILLATING
    assert found.period_s is not None
    assert found.reasons[0].startswith("loads go from half above their share to half below it, or back, ")
    assert f"there and back in {found.period_s:.0f} s" in found.reasons[0]


@pytest.mark.parametrize(("requests", "beyond"), [(2.4, False), (24.0, True)])
def test_turns_count_only_beyond_chance(requests: float, *, beyond: bool) -> None:
    """Turns of convoys of 2.4 requests are within chance, those of 24 requests are not."""
    dice = random.Random(5)  # noqa: S311 - repeatable chance
    columns = [[load * requests / 24 for load in one] for one in convoys(dice)]
    figures = look(GroupLoad("g", tracks_of(*columns), LIFE_S), grid(*columns), 48.0)
    assert figures.turns.turns > 20
    assert rules.holds(rules.turns, measure(figures)) is beyond


def test_where_requests_come_and_go_turns_must_be_wider() -> None:
    """If the total comes and goes, turns need more spread, unless convoys are significant."""
    bursts = Convoys(5, 5, full_spread=1.0, full_total=16.0, part_share=0.2, least_leads=2, chance=0.5)
    steady = rules.least_turning_spread(None, failing=False)
    coming = rules.least_turning_spread(bursts, failing=False)
    assert all(less < more for less, more in zip(steady, coming, strict=True))
    counted = replace(bursts, full_spread=0.1, chance=1e-4)
    assert rules.least_turning_spread(counted, failing=False) == steady
    assert rules.least_turning_spread(replace(bursts, full_times=2), failing=False) == steady
    failing = rules.least_turning_spread(bursts, failing=True)
    assert failing[0] == steady[0]
    assert failing[1] < steady[1]


def test_where_requests_come_and_go_a_rhythm_must_be_clearer() -> None:
    """If the total comes and goes, a rhythm needs a higher score."""
    bursts = Convoys(5, 0, full_spread=1.0, full_total=40.0, part_share=0.0, least_leads=0)
    for total in (12.0, 40.0):
        for known in (True, False):
            steady = rules.least_score(total, 2, None, None, life_known=known)
            assert steady < rules.least_score(total, 2, bursts, None, life_known=known) == rules.COMING_SCORE


def test_where_requests_are_dealt_by_chance_a_rhythm_must_be_clearer() -> None:
    """If request counts show no herds, a rhythm needs a higher score: it is more likely chance."""
    dealt = Arrivals(200, 20, 4.0, spread=1.1, herds=1, least_herds=0, chance=0.3)
    herded = replace(dealt, spread=4.0, herds=12, least_herds=5, chance=1e-20)
    usual = rules.least_score(40.0, 2, None, None, life_known=True)
    assert rules.least_score(40.0, 2, None, herded, life_known=True) == usual
    assert rules.least_score(40.0, 2, None, dealt, life_known=True) > usual + 3


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_requests_a_backend_can_swing(seed: int) -> None:
    """8 clients that move together over four backends are oscillating; under random routing they are not."""
    herd = simulate(Scene("lag", 8, 4, "fixed", LIFE_S, 2.0, 80.0, seed, 2.0))
    load = GroupLoad("g", herd.tracks, herd.e2e_s)
    window = lay_out(herd.tracks, 80.0, 60.0)
    assert window is not None
    assert rules.holds(rules.rhythm, measure(look(load, window, 48.0)))
    assert judge(load, 80.0).word is Is.OSCILLATING
    calm = simulate(Scene("shuffle", 8, 4, "fixed", LIFE_S, 2.0, 80.0, seed))
    assert judge(GroupLoad("g", calm.tracks, calm.e2e_s), 80.0).word in {Is.UNKNOWN, Is.BALANCED}
