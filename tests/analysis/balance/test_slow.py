"""What can be judged of loads that are scraped slowly, and of the numbers of requests."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from sparktop.analysis.balance.judge import judge_slowly
from sparktop.analysis.balance.load_grid import LoadTrack
from sparktop.analysis.balance.rules import request_shares, weigh_requests
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.balance import BalanceWord as Is
from tests.known import known

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


def test_requests_that_are_unevenly_shared_are_uneven() -> None:
    """Uneven counts with the loads to match are uneven; one that is done with them sooner is faster."""
    found = said(lambda index, _at: 30.0 - 22 * index, 900, per_s=(5.0, 1.0))
    assert found.word_now is BalanceWord.UNEVEN
    assert found.reasons[0].startswith("spark-0 got 83 % of the requests")
    assert found.reasons[1] == SLOW
    assert said(by_chance, 900, per_s=(5.0, 1.0)).word_now is BalanceWord.UNKNOWN
    assert said(by_chance, 900).word_now is BalanceWord.UNKNOWN


def test_a_backend_that_died_is_not_one_that_gets_few_requests() -> None:
    """A backend that died has no share; the others are compared with each other."""
    evenly = tracks(by_chance, 900, count=3, per_s=(1.0,))
    died = tracks(by_chance, 500, count=3, per_s=(1.0,))[2]
    found = judge_slowly("group", [*evenly[:2], died], 900, STEP_S, "router")
    assert found.word_now is not BalanceWord.UNEVEN
    assert set(found.requests_share) == {"spark-0", "spark-1"}


# The numbers of requests that backends got, compared with chance.


def test_what_is_chance_or_little_is_not_uneven() -> None:
    """Few requests, chance, and shares below three times the odds of an even one are not uneven.

    14 of 16 to one of two is the two-sided binomial test's 274 of 65,536 cases.
    """
    for first, second in ((230.0, 182.0), (30.0, 0.0), (700.0, 300.0)):
        assert not known(request_shares({"a": first, "b": second})).uneven
    assert known(request_shares({"a": 14.0, "b": 2.0})).chance == pytest.approx(274 / 65_536)


JUDGED = Balance(
    "proxy",
    ("a", "b"),
    Is.BALANCED,
    Is.BALANCED,
    confidence=0.9,
    window_s=60.0,
    needed_s=60.0,
    samples_percent=100.0,
    mean_total=10.0,
    mean_load={"a": 9.4, "b": 0.6},
    reasons=("even: mean load a 9.4 · b 0.6", "something else"),
    router="proxy",
)
FOUND = request_shares({"a": 387.0, "b": 25.0})


def test_the_quicker_backend_may_get_more() -> None:
    """With even loads one backend may get nearly all requests, because it finishes them sooner."""
    found = weigh_requests(replace(JUDGED, mean_load={"a": 5.2, "b": 4.8}), FOUND)
    assert found.word_now is Is.BALANCED
    assert found.reasons[-1].endswith("and is done with them sooner")


def test_without_a_known_router_nobody_sends_too_many() -> None:
    """Without a known router the counts are shown, but do not change the verdict."""
    found = weigh_requests(replace(JUDGED, router=None), FOUND)
    assert (found.word_now, found.reasons) == (Is.BALANCED, JUDGED.reasons)
    assert found.requests == 412


def test_too_little_load_to_tell_is_uneven_only_over_a_whole_window() -> None:
    """Counts overrule "unknown" for too little load, but not for too short a window."""
    unknown = replace(JUDGED, word=Is.UNKNOWN, word_now=Is.UNKNOWN, reasons=("too little load to judge",))
    words = [weigh_requests(replace(unknown, window_s=span_s), FOUND).word_now for span_s in (60.0, 40.0)]
    assert words == [Is.UNEVEN, Is.UNKNOWN]
