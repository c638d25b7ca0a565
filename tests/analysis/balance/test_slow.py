"""Verdicts on loads that are scraped slowly: what they need, and that none states a swing or a period."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from sparktop.analysis.balance.judge import judge
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack
from sparktop.analysis.balance.slow import EVEN_S, judge_slowly, slow_step_s
from sparktop.model.balance import Balance, BalanceWord

Load = Callable[[int, float], float]
"""The load of a backend by its index and the time in seconds."""
STEP_S = 15.0


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
        (swinging, 900, BalanceWord.MAY_SWING),
        (swinging, 200, BalanceWord.TOO_SLOW),
        (by_chance, 900, BalanceWord.TOO_SLOW),
        (by_chance, EVEN_S + 120, BalanceWord.EVEN_WITHIN_CHANCE),
        (lambda _index, _at: 0.0, 900, BalanceWord.TOO_SLOW),
        (lambda _index, at: float(at % 2 < 1) / 2, 900, BalanceWord.IDLE),
        (lambda index, _at: 3.0 * index, 900, BalanceWord.TOO_SLOW),
    ],
)
def test_the_word_follows_spread_and_time(load: Load, seconds: float, word: BalanceWord) -> None:
    """The verdict depends on the spread and on the time watched; it has a reason but never a period."""
    found = said(load, seconds)
    assert found.word_now is word
    assert found.period_s is None
    assert any("every 15 s" in reason for reason in found.reasons)


@pytest.mark.parametrize(("seconds", "word"), [(285, BalanceWord.TOO_SLOW), (330, BalanceWord.MAY_SWING)])
def test_a_spread_is_wide_only_after_five_minutes_of_samples(seconds: float, word: BalanceWord) -> None:
    """The verdict is dated at its announcement: before, less than that was seen."""
    found = said(swinging, seconds)
    assert found.word_now is word
    assert seconds - STEP_S <= found.window_s <= seconds


@pytest.mark.parametrize(
    ("hole_s", "word"),
    [(0.0, BalanceWord.MAY_SWING), (45.0, BalanceWord.MAY_SWING), (90.0, BalanceWord.TOO_SLOW)],
)
def test_a_hole_in_the_samples_was_not_seen(hole_s: float, word: BalanceWord) -> None:
    """Of the six minutes that are needed, the time without samples is missing until it is past."""
    loads = tracks(swinging, 900)
    held = [without(track, 700.0, 700.0 + hole_s) for track in loads]
    found = judge_slowly("group", held, 900.0, STEP_S, "router")
    assert found.word_now is word
    assert found.needed_s == 360.0
    missing = hole_s and hole_s + STEP_S
    assert found.window_s == pytest.approx(360.0 - missing, abs=STEP_S)
    later = judge_slowly("group", [without(track, 300.0, 345.0) for track in loads], 900.0, STEP_S, "router")
    assert later.window_s == pytest.approx(360.0)


def test_backends_that_are_scraped_more_seldom_are_seen_as_well() -> None:
    """One is scraped every 15 s, the other every 30 s: no step of either is a hole."""
    first, second = tracks(swinging, 900)
    seldom = replace(
        second,
        times_s=second.times_s[::2],
        running=second.running[::2],
        waiting=[0.0 for _ in second.times_s[::2]],
        arrived=(second.arrived or [])[::2],
    )
    assert judge_slowly("group", [first, seldom], 900.0, STEP_S, "router").window_s == pytest.approx(360.0)


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


def test_requests_that_are_unevenly_shared_need_no_condition() -> None:
    """Uneven request counts suffice for a bad verdict, whatever the loads; even counts do not."""
    found = said(by_chance, 900, per_s=(2.0, 1.0))
    assert found.word_now is BalanceWord.UNEVEN_REQUESTS
    assert found.word_now.bad
    assert found.reasons[0].startswith("spark-0 got 67 % of the requests")
    assert said(by_chance, 900).word_now is not BalanceWord.UNEVEN_REQUESTS


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
    assert found.word_now is not BalanceWord.UNEVEN_REQUESTS
    assert set(found.requests_share) == (set() if joined_s == 30 else {"spark-0", "spark-1", "spark-2"})


def test_a_backend_that_died_is_not_one_that_gets_few_requests() -> None:
    """A backend that died has no share; the others are compared with each other."""
    evenly = tracks(by_chance, 900, count=3, per_s=(1.0,))
    died = tracks(by_chance, 500, count=3, per_s=(1.0,))[2]
    found = judge_slowly("group", [*evenly[:2], died], 900, STEP_S, "router")
    assert found.word_now is not BalanceWord.UNEVEN_REQUESTS
    assert set(found.requests_share) == {"spark-0", "spark-1"}


@pytest.mark.parametrize("seconds", [120, 200, 900])
def test_a_joined_backend_that_gets_too_much_is_found(seconds: int) -> None:
    """A backend that joined late and gets too many requests is found a minute after all answer."""
    older = tracks(by_chance, seconds, count=2, per_s=(2.0,))
    late = tracks(by_chance, seconds, count=2, per_s=(6.0,))[1]
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
    assert found.word_now is BalanceWord.UNEVEN_REQUESTS
    assert found.reasons[0].startswith("new got 60 % of the requests")


def test_the_judge_of_swings_says_nothing_below_half_a_hertz() -> None:
    """The judge for fast samples says nothing about a swing that is sampled every 15 s."""
    found = judge(GroupLoad("group", tracks(swinging, 900), 10.0), 900.0)
    assert found.word_now is BalanceWord.UNKNOWN
    assert found.reasons == ("samples every 15 s are too slow to see a swing",)


def test_slowness_is_measured_at_the_samples() -> None:
    """Polls each second are not slow; without samples the interval is unknown."""
    assert slow_step_s(tracks(swinging, 900)) == STEP_S
    quick = [LoadTrack("a", [float(at) for at in range(9)], [1.0] * 9)]
    assert slow_step_s(quick) is None
    assert slow_step_s([LoadTrack("a", [], [])]) is None
