"""A group through a Prometheus that is polled directly for a while: its verdicts before, then and after."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.engine import EngineSample
from sparktop.model.router import Scrape
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import BackendTarget, Watch
from sparktop.panels.group.graphs import balance_axis, group_lines, group_slots, newest
from sparktop.store import SourceKey, Store
from tests.store.fed_traces import lane

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
EVERY_S, LOOK_S, POLL_S = 15.0, 75.0, 0.25
BEGAN = 120.0
ENDED = BEGAN + LOOK_S
NAMES = ("a", "b")
SLOW = "sampled every 15 s: too slow to see a swing"


def verdicts(shown: list[Snapshot]) -> list[tuple[float, Balance]]:
    """Return the time and the verdict of each snapshot."""
    return [(one.at, one.balance[0]) for one in shown]


def watched(until_s: float, *, stops_s: float = 1e9) -> list[Snapshot]:
    """Return each second's snapshot of two servers with scrapes at different offsets and one closer look.

    From `stops_s` on there are no more samples.
    """
    now = 0.0
    scrape = Scrape("main", EVERY_S)
    targets = tuple(BackendTarget(name, f"http://{name}", scrape=scrape, group="g") for name in NAMES)
    store = Store(
        Watch(backends=targets, source="test"),
        clock=lambda: now,
        now=lambda: EPOCH + timedelta(seconds=now),
    )
    chance = random.Random(1)  # noqa: S311 - no secret
    found: list[Snapshot] = []
    for tick in range(round(until_s / POLL_S)):
        now = tick * POLL_S
        for index, name in enumerate(NAMES):
            is_scraped = (now + 7 * index) % EVERY_S == 0
            if (BEGAN <= now < ENDED or is_scraped) and now < stops_s:
                here = lane("0", 16.0 + chance.choice((-1, 0, 1)), 0.0, 500 * now, life_s=2.0)
                store.accept(SourceKey.backend(name), EngineSample(now, "vllm", lanes=(here,)), 1.0)
        if now % 1 == 0:
            store.judge()
            found.append(store.snapshot())
    return found


def test_a_look_ends_with_samples_that_are_too_slow() -> None:
    """From the next samples on it is judged as before the closer look."""
    found = verdicts(watched(ENDED + 120))
    assert found[100][1].reasons == (SLOW,)
    assert {one.word for at, one in found if ENDED - 10 < at < ENDED} == {BalanceWord.BALANCED}
    after = [one for at, one in found if at > ENDED]
    assert {one.word_now for one in after} <= {BalanceWord.BALANCED, BalanceWord.UNKNOWN}
    assert {one.reasons for one in after if one.word_now is BalanceWord.UNKNOWN} == {(SLOW,)}
    assert after[-1].word is BalanceWord.UNKNOWN
    assert after[-1].sample_hz == 1 / EVERY_S


def test_a_prometheus_that_stops_is_the_reason_why_nothing_is_known() -> None:
    """It is the reason once the newest samples are old; until then the verdict is that they are too slow."""
    found = verdicts(watched(160.0, stops_s=106.0))
    assert found[130][1].reasons == (SLOW,)
    last = found[-1][1]
    assert (last.word, last.reasons) == (BalanceWord.UNKNOWN, ("no new samples through main",))


def test_the_sum_of_the_rates_has_all_servers_in_it_when_a_look_begins() -> None:
    """All rates are known although the samples of the closer look come between two scrapes."""
    rates = {one.at: one.totals.generation_tps.value for one in watched(ENDED + 60)}
    assert {round(rate or 0.0) for at, rate in rates.items() if at > 60} == {1000}


def test_the_page_of_a_group_shows_the_newest_sample_of_each_server() -> None:
    """Before, during and after a closer look, samples count for two and a half scrapes, and no longer."""
    for shown in watched(ENDED + 60)[60:]:
        assert None not in current_values(shown), shown.at
    assert set(current_values(watched(160.0, stops_s=106.0)[-1])) == {None}


def current_values(shown: Snapshot) -> list[float | None]:
    """Return the running requests of each server and the tokens/s of the group, as its page has them."""
    (balance,) = shown.balance
    lines = group_lines(balance, shown.backends)
    drawn = group_slots(balance, lines, balance_axis(balance, lines, shown, 60), 60)
    return [*map(newest, drawn.running), drawn.rate(drawn.group_tps)]
