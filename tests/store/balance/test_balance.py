"""The balance of a group as it runs: recorded swings through the store, words, events and alerts."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import pairwise

import pytest
from msgspec.structs import replace

from sparktop.analysis.state import verdict
from sparktop.model.balance import Balance
from sparktop.model.balance import BalanceWord as Is
from sparktop.model.event import Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import LITELLM, Deployment, RouterSample
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import BackendTarget, RouterTarget, Watch
from sparktop.store import SourceKey, Store
from sparktop.store.balance import LOOKED_AT_S, MOST_AT_ONCE
from tests.store.fed_traces import EPOCH, START, Look, Pair, lane, looks

pytestmark = pytest.mark.long

PROXY = SourceKey.router("proxy")


def last(pair: Pair, name: str, *, every: int = 1, life_s: float | None = None) -> Snapshot:
    return [*pair.play(looks(name, every=every), life_s=life_s)][-1]


def flat(seconds: float, load: float = 8.0, hz: float = 4.0, tokens: float = 1e6) -> list[Look]:
    steps = range(round(seconds * hz))
    return [
        Look(step / hz, (load, load), (0.0, 0.0), (tokens + 50.0 * step, tokens + 50.0 * step))
        for step in steps
    ]


@pytest.mark.parametrize("every", [1, 4])
def test_a_swing_is_named_told_once_and_held(every: int) -> None:
    """At 4 Hz and at 1 Hz there are a verdict with period, one event with reason and hint, and one alert."""
    seen = last(Pair(), "leastbusy-c16", every=every, life_s=3.6)
    (found,) = seen.balance
    assert (found.word, found.group, found.backends) == (Is.OSCILLATING, "proxy", ("spark-a", "spark-b"))
    assert 5.0 <= (found.period_s or 0) <= 6.5
    assert found.e2e_s == pytest.approx(3.6)
    assert found.length_variation == pytest.approx(0.0, abs=1e-9)
    assert found.strategy == "least-busy"
    (event,) = seen.events
    assert (event.severity, event.subject) == (Severity.WARNING, "proxy")
    assert event.message.startswith("oscillating begins: spark-a and spark-b swing against each other every")
    assert "try simple-shuffle or round-robin" in event.message
    (alert,) = seen.alerts
    assert (alert.id, alert.severity) == ("balance:proxy:oscillating", Severity.WARNING)
    assert alert.since == event.at == found.since
    assert found.hint is not None
    assert found.hint in alert.message


def test_a_swing_ends() -> None:
    """Even loads end it: an event says so, and the alert ends with the verdict."""
    pair = Pair()
    last(pair, "leastbusy-c16", life_s=3.6)
    pair.at += 0.25
    seen = [*pair.play(flat(90))]
    assert seen[-1].alerts == ()
    begins, ends = seen[-1].events
    assert ends.severity is Severity.INFO
    assert ends.message.startswith("oscillating ends, now ")
    assert ends.at > begins.at
    held = [one for one in seen if one.balance[0].word is Is.OSCILLATING]
    assert all(len(one.alerts) == 1 for one in held)
    assert held[-1].at < seen[-1].at - 20


@pytest.mark.parametrize(
    ("trace", "life_s", "word"),
    [
        ("shuffle-c16", 3.6, Is.UNKNOWN),
        ("leastbusy-c2", 1.5, Is.UNKNOWN),
        ("shuffle-c64", 13.0, Is.BALANCED),
        ("leastbusy-warm-c64", 13.0, Is.BALANCED),
    ],
)
def test_good_loads_are_no_news(trace: str, life_s: float, word: Is) -> None:
    """Without a swing there is a verdict, but neither an event nor an alert."""
    seen = last(Pair(), trace, life_s=life_s)
    assert (seen.balance[0].word, seen.events, seen.alerts) == (word, (), ())


def cooled(pair: Pair) -> Balance:
    """Play the swing of cooldowns; spark-b fails now and then."""
    played = pair.play(looks("cooldown-c64"), life_s=19.0, failed=lambda at: {"spark-b": at // 20})
    return [*played][-1].balance[0]


def test_errors_beside_a_swing_are_cooldowns() -> None:
    """Failed requests in the backends' own counters reach the judgement: the cause names who failed."""
    found = cooled(Pair())
    assert (found.word, found.cause) == (
        Is.OSCILLATING,
        "cooldowns: spark-b had errors; a router takes such a server out, and it comes back empty",
    )
    assert found.errors["spark-a"] == 0
    assert found.errors["spark-b"] >= 5


def told_by_router(pair: Pair, **facts: object) -> None:
    deployments = tuple(Deployment(f"d-{name}", f"http://{name}:8000/v1", "m") for name in pair.backends)
    sample = RouterSample(pair.at, LITELLM, alive=True, deployments=deployments)
    pair.store.accept(PROXY, replace(sample, **facts))  # type: ignore[arg-type]  # fields by name


def test_where_cooldowns_are_off_errors_are_not_blamed() -> None:
    """A router that says it never takes a backend out cannot have done so."""
    pair = Pair()
    told_by_router(pair, cooldowns_disabled=True)
    found = cooled(pair)
    assert found.word is Is.OSCILLATING
    assert "cooldowns" not in (found.cause or "")
    assert found.errors["spark-b"] >= 5


def test_the_router_counts_failures_that_backends_do_not() -> None:
    """Failures and cooldowns on the router's own page are evidence, and are listed among the reasons."""
    pair = Pair()
    for seen in pair.play(looks("cooldown-c64"), life_s=19.0):
        late = seen.at - START > 100
        failures, cooldowns, refusals = (10.0, 4.0, 2.0) if late else (3.0, 1.0, 0.0)
        told_by_router(pair, failures={"d-spark-a": failures}, cooldowns=cooldowns, refusals=refusals)
    found = seen.balance[0]
    assert (
        found.cause
        == "cooldowns: spark-a had errors; a router takes such a server out, and it comes back empty"
    )
    assert found.errors["spark-a"] == 7
    assert found.reasons[-1] == (
        "the router counts 7 failed answers and 3 cooldowns and 2 requests that it refused itself"
    )


def test_a_backend_that_dies_ends_the_swing() -> None:
    """Half a group cannot be judged: the verdict is unknown after three polls, and the alert ends."""
    pair = Pair()
    last(pair, "leastbusy-c16", life_s=3.6)
    for step in range(40):
        pair.at += 1.0
        pair.tell("spark-a", lane("0", 16.0, 4.0, 1e6 + 900.0 * step))
        pair.give("spark-b", Failure(FailureKind.REFUSED, "nothing listens there", pair.at))
        seen = pair.look()
    assert (seen.balance[0].word, seen.balance[0].reasons) == (
        Is.UNKNOWN,
        ("only spark-a reports its load now; a balance needs two",),
    )
    assert [one.id for one in seen.alerts] == ["backend:spark-b:unreachable"]
    assert any("oscillating ends, now unknown" in event.message for event in seen.events)


def test_lanes_of_one_server_are_a_group() -> None:
    """Two data-parallel ranks that swing are named as two backends would be; each has its history."""
    pair = Pair(router=None, backends=("spark",))
    for look in looks("leastbusy-c16"):
        pair.at = START + look.at
        parts = zip("01", look.running, look.waiting, look.tokens, strict=True)
        pair.tell("spark", *(lane(*part, life_s=3.6) for part in parts))
        seen = pair.look()
    (found,) = seen.balance
    assert (found.group, found.lanes_of, found.backends) == ("spark lanes", "spark", ("spark/0", "spark/1"))
    assert found.word is Is.OSCILLATING
    assert found.step_time is not None
    lanes = seen.backends[0].lanes
    assert all(
        one.history is not None and len(one.history.running) == len(looks("leastbusy-c16")) for one in lanes
    )
    assert seen.alerts[0].id == "balance:spark lanes:oscillating"


def test_lanes_of_servers_in_a_group_are_judged_after_the_group() -> None:
    """Two servers of two lanes each, one model: the group comes first, and their polls follow the group."""
    pair = Pair(router=None)
    for name in pair.backends:
        pair.tell(name, lane("0", 1.0, 0.0, 1.0), lane("1", 1.0, 0.0, 1.0))
    seen = pair.look()
    assert [(one.group, one.lanes_of, one.within) for one in seen.balance] == [
        ("m", None, None),
        ("spark-a lanes", "spark-a", "m"),
        ("spark-b lanes", "spark-b", "m"),
    ]
    assert [view.lanes_balance for view in seen.backends] == list(seen.balance[1:])
    assert pair.store.judged_together() == (("spark-a", "spark-b"),)


def test_lanes_that_swing_within_an_even_group_are_named() -> None:
    """The group stays balanced; the verdict on the lanes is worse, so it is the snapshot's verdict."""
    pair = Pair()
    tokens = 0.0
    for look in looks("leastbusy-c16"):
        pair.at = START + look.at
        parts = zip("01", look.running, look.waiting, look.tokens, strict=True)
        pair.tell("spark-a", *(lane(*part, life_s=3.6) for part in parts))
        half, tokens = sum(look.running) / 2, sum(look.tokens) / 2
        pair.tell("spark-b", *(lane(rank, half, 0.0, tokens, life_s=3.6) for rank in "01"))
        seen = pair.look()
    group, swinging, even = seen.balance
    assert not group.word.bad
    assert not even.word.bad
    assert (swinging.word, swinging.router) == (Is.OSCILLATING, "spark-a")
    assert [one.id for one in seen.alerts] == ["balance:spark-a lanes:oscillating"]
    assert verdict(seen).words.startswith("spark-a lanes are oscillating, ")
    assert any(event.subject == "spark-a lanes" for event in seen.events)


def test_backends_of_one_model_are_a_group_and_strangers_are_not() -> None:
    """Without a router the model joins; before any answer, and alone, there is nothing to judge."""
    pair = Pair(router=None, backends=("a", "b", "c"))
    assert pair.look().balance == ()
    pair.at += 10
    for name in "ab":
        pair.tell(name, lane("0", 1.0, 0.0, 1.0))
    (found,) = pair.look().balance
    assert (found.group, found.backends) == ("m", ("a", "b"))
    assert found.strategy is None


def test_a_group_is_judged_every_five_seconds_whoever_looks() -> None:
    """Between two evaluations the same judgement is shown; without evaluations no poll is hastened."""
    pair = Pair()
    shown = [one.balance[0] for one in pair.play(flat(30, hz=1.0))]
    changes = sum(one is not other for one, other in pairwise(shown))
    assert changes == 6  # one of them right after the first loads
    assert pair.store.judged_together() == (("spark-a", "spark-b"),)
    pair.at += LOOKED_AT_S + 1
    assert pair.store.judged_together() == ()


def test_snapshots_change_nothing_of_the_judgement() -> None:
    """With many snapshots a second or none, verdicts, events and alerts are the same at the same times."""
    often, never = Pair(), Pair()
    for pair in (often, never):
        begin = pair.at
        for look in looks("leastbusy-c16"):
            pair.at = begin + look.at
            for index, name in enumerate(pair.backends):
                pair.tell(name, lane("0", look.running[index], look.waiting[index], look.tokens[index]))
            if pair is often:
                pair.store.snapshot()
            if look.at % 1.0 < 0.25:
                pair.store.judge()
    one, other = (pair.store.snapshot() for pair in (often, never))
    assert one.balance[0].word is Is.OSCILLATING
    assert (one.balance, one.events, one.alerts) == (other.balance, other.events, other.alerts)


def test_many_groups_take_turns() -> None:
    """Forty pairs are judged within seconds, but not in a single step, which would stall the screen."""
    names = [f"{group}-{side}" for group in range(40) for side in "ab"]
    watch = Watch(
        backends=tuple(BackendTarget(name, f"http://{name}:8000") for name in names),
        routers=tuple(
            RouterTarget(f"r{group}", f"http://r{group}:4000", backends=(f"{group}-a", f"{group}-b"))
            for group in range(40)
        ),
    )
    at = START
    store = Store(watch, clock=lambda: at, now=lambda: EPOCH + timedelta(seconds=at - START))
    counts = []
    for _ in range(6):
        store.judge()
        counts.append(len(store.snapshot().balance))
        at += 1.0
    assert counts[0] == MOST_AT_ONCE // 2
    assert counts == sorted(counts)
    assert counts[-1] == 40


def test_a_router_that_sends_nearly_all_to_one_is_named() -> None:
    """In bursts with pauses the load never settles: the backends' counters show who got the requests."""
    pair, dice, burst = Pair(), random.Random(3), 0  # noqa: S311 - not a secret
    for step in range(240):
        pair.at = START + step / 2
        burst = dice.randrange(15) if dice.random() < 0.3 else burst
        pair.tell("spark-a", lane("0", float(burst), 0.0, 64.0 * 15 * (step + 1)))
        pair.tell("spark-b", lane("0", float(burst > 8), 0.0, 64.0 * (step + 1)))
        seen = pair.look()
    found = seen.balance[0]
    assert found.word is Is.UNEVEN
    assert found.requests_share["spark-a"] > 0.9
    assert found.requests is not None
    assert found.reasons[0].startswith("spark-a got 94 % of the requests (")
    assert seen.alerts[0].id == "balance:proxy:uneven"
