"""Verdicts on loads that are scraped slowly: what they need, and that none states a swing or a period."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from sparktop.analysis.balance.judge import judge_slowly
from sparktop.analysis.balance.load_grid import LoadTrack
from sparktop.model.balance import Balance, BalanceWord

Load = Callable[[int, float], float]
"""The load of a backend by its index and the time in seconds."""
STEP_S = 15.0
SLOW = "sampled every 15 s: too slow to see a swing"


def tracks(
    load: Load, seconds: float, *, count: int = 2, per_s: tuple[float, ...] = (1.0, 1.0)
) -> list[LoadTrack]:
    """Return samples of backends that are scraped every 15 s, each at its own offset."""
    found = []
    for index in range(count):
        times = [index * STEP_S / count + STEP_S * scrape for scrape in range(int(seconds / STEP_S))]
        running = [load(index, at) for at in times]
        arrived = [float(round(per_s[index % len(per_s)] * at)) for at in times]
        found.append(LoadTrack(f"spark-{index}", times, running, [0.0] * len(times), arrived=arrived))
    return found


def said(load: Load, seconds: float, **more: object) -> Balance:
    """Return the verdict on these loads."""
    return judge_slowly("group", tracks(load, seconds, **more), seconds, STEP_S, "router")  # type: ignore[arg-type]  # by name


def swinging(index: int, at: float) -> float:
    """Return a load that swings between the backends every 47 s."""
    return round(20 + 18 * math.sin(2 * math.pi * at / 47 + index * math.pi))


def by_chance(index: int, at: float) -> float:
    """Return a load that varies like the random split of 40 requests."""
    return float(sum(random.Random(f"{index} {at} {one}").random() < 0.5 for one in range(40)))  # noqa: S311 - no secret


@pytest.mark.parametrize(
    ("load", "seconds", "word"),
    [
        (swinging, 900, BalanceWord.UNKNOWN),
        (by_chance, 900, BalanceWord.UNKNOWN),
        (lambda _index, at: float(at % 2 < 1) / 2, 900, BalanceWord.IDLE),
        (lambda index, _at: 3.0 * index, 900, BalanceWord.UNKNOWN),
    ],
)
def test_no_swing_and_no_period_is_stated(load: Load, seconds: float, word: BalanceWord) -> None:
    """Whatever the loads do, one sentence says that samples every 15 s are too slow to see a swing."""
    found = said(load, seconds)
    assert found.word_now is word
    assert found.is_slow
    assert found.period_s is None
    assert found.reasons == (SLOW,)


def test_a_wide_spread_is_known_after_five_minutes_of_samples() -> None:
    """It shows which group is worth a closer look: a swing lies far apart, chance does not."""
    assert said(swinging, 180).dispersion_z is None
    assert (said(swinging, 330).dispersion_z or 0.0) > 4
    assert 0.0 < (said(by_chance, 330).dispersion_z or 0.0) < 2


@pytest.mark.parametrize("hole_s", [0.0, 45.0, 90.0])
def test_a_hole_in_the_samples_was_not_seen(hole_s: float) -> None:
    """Of the five minutes that are needed, the time without samples is missing until it is past."""
    loads = tracks(swinging, 900)
    held = [without(track, 700.0, 700.0 + hole_s) for track in loads]
    found = judge_slowly("group", held, 900.0, STEP_S, "router")
    assert found.needed_s == 300.0
    missing = hole_s and hole_s + STEP_S
    assert found.window_s == pytest.approx(300.0 - missing, abs=STEP_S)
    later = judge_slowly("group", [without(track, 300.0, 345.0) for track in loads], 900.0, STEP_S, "router")
    assert later.window_s == pytest.approx(300.0)


def without(track: LoadTrack, begin_s: float, end_s: float) -> LoadTrack:
    """Return a track without its samples between two times."""
    kept = [index for index, at in enumerate(track.times_s) if not begin_s <= at < end_s]
    arrived = track.arrived or []
    return replace(
        track,
        times_s=[track.times_s[index] for index in kept],
        running=[track.running[index] for index in kept],
        waiting=[0.0 for _ in kept],
        arrived=[arrived[index] for index in kept],
    )


def test_requests_that_are_unevenly_shared_are_uneven() -> None:
    """Uneven counts with the loads to match are uneven; one that is done with them sooner is faster."""
    found = said(lambda index, _at: 30.0 - 22 * index, 900, per_s=(5.0, 1.0))
    assert found.word_now is BalanceWord.UNEVEN
    assert found.reasons[0].startswith("spark-0 got 83 % of the requests")
    assert found.reasons[1] == SLOW
    assert said(by_chance, 900, per_s=(5.0, 1.0)).word_now is BalanceWord.UNKNOWN
    assert said(by_chance, 900).word_now is BalanceWord.UNKNOWN


@pytest.mark.parametrize("joined_s", [30.0, 100.0, 300.0, 590.0])
@pytest.mark.parametrize("rejoins", [False, True])
def test_a_backend_that_joins_does_not_make_an_even_share_uneven(joined_s: float, rejoins: bool) -> None:  # noqa: FBT001 - drawn
    """Requests are compared over the time in which all backends answered, also after one was away."""
    evenly = tracks(by_chance, 900, count=3, per_s=(1.0,))
    late = evenly[2]
    kept = [
        index
        for index, at in enumerate(late.times_s)
        if at >= 900 - joined_s or (rejoins and at < 900 - joined_s - 200)
    ]
    counted = late.arrived or []
    missed = counted[kept[-1]] - 5 if rejoins else 0.0  # it counted nothing while it was away
    joins = replace(
        late,
        times_s=[late.times_s[index] for index in kept],
        running=[late.running[index] for index in kept],
        waiting=[0.0 for _ in kept],
        arrived=[
            counted[index] - (missed if late.times_s[index] >= 900 - joined_s else 0.0) for index in kept
        ],
    )
    found = judge_slowly("group", [*evenly[:2], joins], 900, STEP_S, "router")
    assert found.word_now is not BalanceWord.UNEVEN
    assert set(found.requests_share) == (set() if joined_s == 30 else {"spark-0", "spark-1", "spark-2"})


def test_a_backend_that_died_is_not_one_that_gets_few_requests() -> None:
    """A backend that died has no share; the others are compared with each other."""
    evenly = tracks(by_chance, 900, count=3, per_s=(1.0,))
    died = tracks(by_chance, 500, count=3, per_s=(1.0,))[2]
    found = judge_slowly("group", [*evenly[:2], died], 900, STEP_S, "router")
    assert found.word_now is not BalanceWord.UNEVEN
    assert set(found.requests_share) == {"spark-0", "spark-1"}


@pytest.mark.parametrize("seconds", [120, 200, 900])
def test_a_joined_backend_that_gets_too_much_is_found(seconds: int) -> None:
    """A backend that joined late and gets too many requests is found a minute after all answer."""
    older = tracks(by_chance, seconds, count=2, per_s=(2.0,))
    late = tracks(lambda _index, _at: 60.0, seconds, count=2, per_s=(9.0,))[1]
    first = len([at for at in late.times_s if at < seconds - 90])
    joins = replace(
        late,
        name="new",
        times_s=late.times_s[first:],
        running=late.running[first:],
        waiting=[0.0] * (len(late.times_s) - first),
        arrived=(late.arrived or [])[first:],
    )
    found = judge_slowly("group", [*older, joins], seconds, STEP_S, "router")
    assert found.word_now is BalanceWord.UNEVEN
    assert found.reasons[0].startswith("new got 69 % of the requests")
