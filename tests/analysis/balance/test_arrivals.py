"""Herds: how unevenly the requests of each moment are split, compared with random routing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from sparktop.analysis.balance.judge import judge
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack
from sparktop.analysis.balance.swings import find_herds
from sparktop.model.balance import Arrivals, Balance
from sparktop.model.balance import BalanceWord as Is
from tests.analysis.balance.routed_load import Scene, simulate

pytestmark = pytest.mark.long

LIFE_S = 8.0
SECONDS = 120
Choose = Callable[[float], int]
"""Gives the backend of a request from the time at which it comes."""


def tracks_of(
    choose: Choose, *, backends: int = 2, rate: float = 4.0, every_s: float = 1.0
) -> list[LoadTrack]:
    """Build tracks for `rate` requests a second that last `LIFE_S`, of backends that count requests."""
    born = [(number / rate, choose(number / rate)) for number in range(int(SECONDS * rate))]
    times = [every_s * look for look in range(int(SECONDS / every_s) + 1)]
    return [
        LoadTrack(
            f"s{index}",
            times,
            [float(sum(here == index and at - LIFE_S < since <= at for since, here in born)) for at in times],
            [0.0] * len(times),
            arrived=[float(sum(here == index and since <= at for since, here in born)) for at in times],
        )
        for index in range(backends)
    ]


def coins(seed: int, backends: int = 2) -> Choose:
    dice = random.Random(seed)  # noqa: S311 - repeatable chance

    def choose(at: float) -> int:
        assert at >= 0
        return dice.randrange(backends)

    return choose


def old_counts(at: float) -> int:
    """Return the same one of two backends for all requests of a lifetime, then the other one."""
    return int(at / LIFE_S) % 2


def found(tracks: Sequence[LoadTrack], life_s: float | None = LIFE_S) -> Arrivals | None:
    return find_herds(tracks, float(SECONDS), float(SECONDS), 1.0, life_s)


def told(tracks: Sequence[LoadTrack]) -> Arrivals:
    arrivals = found(tracks)
    assert arrivals is not None
    return arrivals


def test_coin_tosses_have_a_spread_of_1() -> None:
    """Under random routing the mean spread of 50 runs is 1, and no run is significant."""
    seen = [told(tracks_of(coins(seed))) for seed in range(50)]
    assert sum(one.spread for one in seen) / len(seen) == pytest.approx(1.0, abs=0.1)
    assert min(one.chance for one in seen) > 1e-3
    assert seen[0].piece_s == LIFE_S / 2


def test_herds_are_far_beyond_chance() -> None:
    """Lifetimes that go to each backend in turn are herds of both, and the verdict is "oscillating"."""
    tracks = tracks_of(old_counts)
    arrivals = told(tracks)
    assert arrivals.spread > 5
    assert arrivals.chance < 1e-20
    assert arrivals.least_herds >= 5
    assert judge(GroupLoad("g", tracks, LIFE_S), float(SECONDS)).word is Is.OSCILLATING


def herding(strategy: str | None, errors: int | None = 0) -> Balance:
    """Judge least-busy on counts 2 s old with varied lengths: no rule but that on herds detects the swing."""
    seen = simulate(Scene("lag", 32, 5, "log-normal", 8.0, 2.0, 76.0, 0, 2.0))
    tracks = [replace(track, errors=errors) for track in seen.tracks]
    return judge(GroupLoad("g", tracks, seen.e2e_s, length_variation=0.8, strategy=strategy), 75.0)


def test_the_sentence_and_the_advice_rest_on_the_counts() -> None:
    """The sentence has the counts; the cause needs counted failures and a router that reads loads."""
    balance = herding("least-busy")
    arrivals = balance.arrivals
    assert arrivals is not None
    assert balance.word is Is.OSCILLATING
    said = balance.reasons[0]
    assert said.startswith("requests that arrive together go to one backend: in ")
    assert (
        f"in {arrivals.herds} of {arrivals.pieces} intervals of 3.3 s one got far more than its share; "
        in said
    )
    assert said.endswith(f"({arrivals.requests} requests)") or f"({arrivals.requests} requests); " in said
    assert (balance.cause or "").startswith("herding: ")
    assert "simple-shuffle" in (balance.hint or "")
    assert herding("simple-shuffle").cause is None
    assert herding("least-busy", errors=None).cause is None


def test_one_cold_burst_is_no_swing() -> None:
    """A burst to one backend followed by random routing is spread widely, but not significantly."""
    after = coins(5)
    tracks = tracks_of(lambda at: 0 if at < LIFE_S else after(at), rate=8.0)
    arrivals = told(tracks)
    assert arrivals.spread > 2
    assert arrivals.chance > 1e-3
    assert judge(GroupLoad("g", tracks, LIFE_S), float(SECONDS)).word is not Is.OSCILLATING


def test_a_server_that_begins_anew_makes_no_herd() -> None:
    """A restarted server, whose counts begin at 0 again, causes no herd."""
    tracks = tracks_of(coins(8))
    arrived = list(tracks[0].arrived or [])
    fallen = [count if index < 60 else count - arrived[60] for index, count in enumerate(arrived)]
    anew = LoadTrack("s0", tracks[0].times_s, tracks[0].running, tracks[0].waiting, arrived=fallen)
    assert told([anew, tracks[1]]).spread < 2.0
