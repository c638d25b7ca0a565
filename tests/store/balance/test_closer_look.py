"""Groups and servers that are polled faster for a while: verdicts, rates and gaps."""

from __future__ import annotations

import random

import pytest

from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.engine import EngineSample, Histogram
from sparktop.model.router import Scrape
from sparktop.model.targets import BackendTarget, Watch
from sparktop.store import SourceKey
from tests.store.conftest import START, World
from tests.store.fed_traces import lane

EVERY_S, LOOK_S, POLL_S = 15.0, 75.0, 0.25
BEGAN = 120.0
ENDED = BEGAN + LOOK_S
NAMES = ("a", "b")
SLOW = "sampled every 15 s: too slow to see a swing"


def watched(until_s: float, *, stops_s: float = 1e9) -> list[tuple[float, Balance]]:
    """Return each second's verdict on two servers with scrapes at different offsets and one closer look.

    From `stops_s` on there are no more samples.
    """
    scrape = Scrape("main", EVERY_S)
    targets = tuple(BackendTarget(name, f"http://{name}", scrape=scrape, group="g") for name in NAMES)
    world = World(Watch(backends=targets, source="test"), at=0.0)
    chance = random.Random(1)  # noqa: S311 - no secret
    found: list[tuple[float, Balance]] = []
    for tick in range(round(until_s / POLL_S)):
        world.at = now = tick * POLL_S
        for index, name in enumerate(NAMES):
            is_scraped = (now + 7 * index) % EVERY_S == 0
            if (BEGAN <= now < ENDED or is_scraped) and now < stops_s:
                here = lane("0", 16.0 + chance.choice((-1, 0, 1)), 0.0, 500 * now, life_s=2.0)
                world.store.accept(SourceKey.backend(name), EngineSample(now, "vllm", lanes=(here,)), 1.0)
        if now % 1 == 0:
            world.store.judge()
            found.append((now, world.snapshot().balance[0]))
    return found


def test_a_look_ends_with_samples_that_are_too_slow() -> None:
    """From the next samples on it is judged as before the closer look."""
    found = watched(ENDED + 120)
    assert found[100][1].reasons == (SLOW,)
    assert {one.word for at, one in found if ENDED - 10 < at < ENDED} == {BalanceWord.BALANCED}
    after = [one for at, one in found if at > ENDED]
    assert {one.word_now for one in after} <= {BalanceWord.BALANCED, BalanceWord.UNKNOWN}
    assert {one.reasons for one in after if one.word_now is BalanceWord.UNKNOWN} == {(SLOW,)}
    assert after[-1].word is BalanceWord.UNKNOWN
    assert after[-1].sample_hz == 1 / EVERY_S


def test_a_prometheus_that_stops_is_the_reason_why_nothing_is_known() -> None:
    """It is the reason once the newest samples are old; until then the verdict is that they are too slow."""
    found = watched(160.0, stops_s=106.0)
    assert found[130][1].reasons == (SLOW,)
    last = found[-1][1]
    assert (last.word, last.reasons) == (BalanceWord.UNKNOWN, ("no new samples through main",))


# A backend that is polled four times an interval: rates, windows and graphs stay the same.


def times(hz: float, begin: float, end: float) -> list[float]:
    return [begin + index / hz for index in range(round((end - begin) * hz))]


def test_rates_are_the_same_at_any_pace() -> None:
    """From 1 Hz to 4 Hz, to 2 Hz and back: after two intervals no rate is ever lost or wrong."""
    world = World()
    paces = [*times(1, 0, 15), *times(4, 15, 40), *times(2, 40, 55), *times(1, 55, 80)]
    for at in paces:
        steps = float(round(20 * at))
        view = world.lane(
            START + at,
            running=2.0,
            waiting=0.0,
            generation_tokens=100.0 * at,
            finished={"stop": 2.0 * at},
            step_tokens=Histogram((8.0, float("inf")), (steps, steps), 5.0 * steps),
        )
        if at >= 2:
            assert view.generation_tps_1s == pytest.approx(100.0)
            assert view.generation_tps == pytest.approx(100.0)
            assert view.requests_per_s == pytest.approx(2.0)
            assert view.tokens_per_step == pytest.approx(5.0)
        if at >= 6:
            assert view.step_ms == pytest.approx(50.0)
