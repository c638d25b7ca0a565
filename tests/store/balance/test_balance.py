"""The balance of groups as they run: verdicts, words, events and alerts, with and without a router."""

from __future__ import annotations

import json
import random
import re

import pytest
from msgspec.structs import replace

from sparktop.analysis.summary import verdict
from sparktop.demo.scenario import SCENARIOS
from sparktop.model.balance import BalanceWord as Is
from sparktop.model.engine import LaneSample
from sparktop.model.event import Phase, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import LITELLM, Deployment, RouterSample
from sparktop.model.snapshot import LimitKind, Snapshot
from sparktop.model.targets import RouterTarget
from sparktop.panels.group.panel import balance_band, evidence_screen
from sparktop.panels.parts.graph import TimeWindow
from sparktop.panels.parts.text import row_text
from sparktop.report import text_snapshot
from sparktop.report.json_snapshot import to_json
from sparktop.report.text_snapshot import render
from sparktop.store import SourceKey
from stage.rehearsal import Rehearsal
from tests.known import known
from tests.store.conftest import START
from tests.store.fed_traces import NAMES, Look, Pair, lane, lives, looks

pytestmark = pytest.mark.long

PROXY = SourceKey.router("proxy")


def last(pair: Pair, name: str = "leastbusy-c16", *, life_s: float = 3.6) -> Snapshot:
    """Play a recorded load at 1 Hz, which swings unless another one is named; return the last snapshot."""
    return [*pair.play(looks(name, every=4), life_s=life_s)][-1]


def flat(seconds: float, load: float = 8.0, hz: float = 4.0, tokens: float = 1e6) -> list[Look]:
    steps = range(round(seconds * hz))
    return [
        Look(step / hz, (load, load), (0.0, 0.0), (tokens + 50.0 * step, tokens + 50.0 * step))
        for step in steps
    ]


def test_a_swing_is_named_told_once_and_held() -> None:
    """At 1 Hz there are a verdict with period, one event with reason and hint, and one alert."""
    seen = last(Pair())
    (found,) = seen.balance
    assert (found.word, found.group, found.backends) == (Is.OSCILLATING, "proxy", ("spark-a", "spark-b"))
    assert 5.0 <= (found.period_s or 0) <= 6.5
    assert found.e2e_s == pytest.approx(3.6)
    assert found.length_variation == pytest.approx(0.0, abs=1e-9)
    assert found.strategy == "least-busy"
    (event,) = seen.events
    assert (event.severity, event.subject) == (Severity.WARNING, "proxy")
    assert event.message.startswith("oscillating begins: spark-a and spark-b swing against each other every")
    assert "compare with simple-shuffle in a sweep: what it gains is not known" in event.message
    (alert,) = seen.alerts
    assert (alert.id, alert.severity) == ("balance:proxy:oscillating", Severity.WARNING)
    assert alert.since == event.at == found.since
    assert known(found.hint) in alert.message


def test_a_swing_ends() -> None:
    """Even loads end it: an event says so, and the alert ends with the verdict."""
    pair = Pair()
    last(pair)
    pair.at += 0.25
    seen = [*pair.play(flat(90, hz=1.0))]
    assert seen[-1].alerts == ()
    begins, ends = seen[-1].events
    assert ends.severity is Severity.INFO
    assert ends.message.startswith("oscillating ends, now ")
    assert ends.at > begins.at
    held = [one for one in seen if one.balance[0].word is Is.OSCILLATING]
    assert all(len(one.alerts) == 1 for one in held)
    doubtful = [one for one in held if one.balance[0].doubt]
    assert doubtful
    for one in doubtful:
        assert one.alerts[0].message.startswith(f"oscillating{one.balance[0].doubt}: ")
        assert verdict(one).words.endswith(one.balance[0].doubt)
    assert held[-1].at < seen[-1].at - 20


def test_good_loads_are_no_news() -> None:
    """Without a swing there is a verdict, but neither an event nor an alert."""
    seen = last(Pair(), "shuffle-c64", life_s=13.0)
    assert (seen.balance[0].word, seen.events, seen.alerts) == (Is.BALANCED, (), ())


def told_by_router(pair: Pair, **facts: object) -> None:
    deployments = tuple(Deployment(f"d-{name}", f"http://{name}:8000/v1", "m") for name in pair.backends)
    sample = RouterSample(pair.at, LITELLM, alive=True, deployments=deployments)
    pair.store.accept(PROXY, replace(sample, **facts))  # type: ignore[arg-type]  # fields by name


def test_the_router_counts_failures_that_backends_do_not() -> None:
    """Failures on the router's own page are evidence."""
    pair = Pair()
    for seen in pair.play(looks("cooldown-c64", every=4), life_s=19.0):
        late = seen.at - START > 100
        failures, cooldowns, refusals = (10.0, 4.0, 2.0) if late else (3.0, 1.0, 0.0)
        told_by_router(pair, failures={"d-spark-a": failures}, cooldowns=cooldowns, refusals=refusals)
    found = seen.balance[0]
    assert (
        found.cause
        == "cooldowns: spark-a had errors; a router takes such a server out, and it comes back empty"
    )
    assert found.errors["spark-a"] == 7


def test_a_backend_that_dies_ends_the_swing() -> None:
    """Half a group cannot be judged: the verdict is unknown after three polls, and the alert ends."""
    pair = Pair()
    last(pair)
    for step in range(40):
        pair.at += 1.0
        pair.tell("spark-a", lane("0", 16.0, 4.0, 1e6 + 900.0 * step))
        pair.give("spark-b", Failure(FailureKind.REFUSED, "nothing listens there", pair.at))
        seen = pair.look()
        alone = ("only spark-a reports its load now; a balance needs two",)
        assert step < 10 or seen.balance[0].reasons == alone
    assert (seen.balance[0].word, seen.balance[0].reasons) == (Is.UNKNOWN, alone)
    assert [one.id for one in seen.alerts] == ["backend:spark-b:unreachable"]
    assert any("oscillating ends, now unknown" in event.message for event in seen.events)
    back = [*pair.play(flat(20))][-1].balance[0]
    assert back.reasons[1].startswith("watched anew since spark-b came back ")


def test_requests_that_a_sleeping_server_holds_are_no_balance() -> None:
    """An even split of requests that one of two servers does not serve is not called balanced."""
    pair = Pair()
    assert [*pair.play(flat(90, 4.0))][-1].balance[0].word is Is.BALANCED
    for step in range(40):
        pair.at += 1.0
        pair.tell("spark-a", replace(lane("0", 0.0, 4.0, 2e6), asleep=True))
        pair.tell("spark-b", lane("0", 4.0, 0.0, 2e6 + 200.0 * step))
        seen = pair.look()
    assert (seen.balance[0].word, seen.balance[0].word_now) == (Is.UNKNOWN, Is.UNKNOWN)
    reason = "spark-a (asleep) does not serve its requests"
    assert (seen.balance[0].reasons[0], seen.balance[0].lost_unknown) == (reason, reason)


@pytest.mark.parametrize(("scenario", "after_s"), [("cpu-step", 110), ("huge-step", 80)])
def test_a_long_step_is_no_loss_by_the_router(scenario: str, after_s: float) -> None:
    """While one of two servers computes a step without a token, that is the one reason of the unknown."""
    found = Rehearsal(scenario=SCENARIOS[scenario]).play(after_s).snapshot().balance[0]
    assert (found.title, found.lost_percent) == ("unknown", None)
    reason = "spark-a (long step) does not serve its requests"
    assert (found.reasons[0], found.lost_unknown) == (reason, reason)


def test_lanes_that_swing_within_an_even_group_are_named() -> None:
    """The group stays balanced; the verdict on the lanes is worse, so it is the snapshot's verdict."""
    pair = Pair()
    tokens = 0.0
    for look in looks("leastbusy-c16", every=4):
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
    assert [one.id for one in seen.alerts] == ["balance:spark-a DP ranks:oscillating"]
    assert verdict(seen).words.startswith("spark-a DP ranks are oscillating, ")
    assert any(event.subject == "spark-a DP ranks" for event in seen.events)
    assert pair.store.judged_together() == (("spark-a", "spark-b"),), "cores are polled with their server"
    pair.at += 60.0
    assert pair.store.judged_together() == (), "no longer judged"


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
    assert found.reasons[0].startswith("spark-a got 94 % of the requests of ")
    assert seen.alerts[0].id == "balance:proxy:uneven"


# Prefill and decode workers, a sweep of this program's own, and failures that are not counted.

WORKERS = ("p1", "p2", "d1", "d2")
WORKER_LIFE_S, PROMPT, ANSWER = 4.0, 2048.0, 200.0


def worked(seconds: float) -> Snapshot:
    """Feed four workers behind one router: 2 and 0 requests at the prefill ones, 14 and 14 at the others."""
    pair = Pair(router=RouterTarget("pd", "http://p:4000", "round-robin", WORKERS), backends=WORKERS)
    for step in range(int(seconds)):
        pair.at = START + step
        ended = 3.0 * step
        done = LaneSample("0", waiting=0.0, finished={"length": ended}, e2e=lives(int(ended), WORKER_LIFE_S))
        for name, load in zip(WORKERS, (2.0, 0.0, 14.0, 14.0), strict=True):
            prompts, answers = (PROMPT * ended, ended) if name.startswith("p") else (0.0, ANSWER * ended)
            pair.tell(name, replace(done, running=load, prompt_tokens=prompts, generation_tokens=answers))
        pair.store.judge()
    return pair.store.snapshot()


def test_workers_are_judged_within_their_role() -> None:
    """Idle prefill workers do not count as starved beside decode workers: each kind is a group of its own."""
    seen = worked(120)
    assert [(one.group, one.backends, one.router) for one in seen.balance] == [
        ("pd prefill", ("p1", "p2"), "pd"),
        ("pd decode", ("d1", "d2"), "pd"),
    ]
    assert {one.word for one in seen.balance} <= {Is.BALANCED, Is.IDLE, Is.UNKNOWN}
    assert seen.alerts == ()
    told = json.loads(json.dumps(to_json(seen)))["backends"]
    assert [one["role"] for one in told] == ["prefill", "prefill", "decode", "decode"]


def test_a_sweep_raises_no_alarm_about_its_own_load() -> None:
    """While this program loads the router the swing is shown, and no alert or event comes of it."""
    pair = Pair()
    with pair.store.loaded_from_here(frozenset({"proxy"})):
        seen = last(pair)
        assert (seen.balance[0].word, seen.alerts, seen.events) == (Is.OSCILLATING, (), ())
    after = [*pair.play(looks("leastbusy-c16", every=4), life_s=3.6)]
    assert {one.balance[0].sweep_words for one in after[1:]} == {""}
    judged = next(one for one in after[1:] if one.balance[0].word is not Is.UNKNOWN)
    assert 45 <= judged.at - after[0].at <= 56
    waiting = [one for one in after[12:] if one.at < judged.at]
    assert verdict(waiting[0]).words.endswith("; proxy: verdict on balance in 39 s")
    expected_at = {round(one.at + (one.balance[0].known_in_s or 0.0), 3) for one in waiting}
    assert len(expected_at) == 1
    assert 0 <= judged.at - expected_at.pop() <= 1.1
    assert [one.id for one in judged.alerts] == ["balance:proxy:oscillating"]


@pytest.mark.parametrize(
    ("loads", "asleep", "reason"),
    [
        ((0.0, 0.0), "", "waits for load: on average less than one request for each backend"),
        ((8.0, 8.0), "spark-b", "spark-b (asleep) does not serve its requests"),
        ((8.0,), "", "only spark-a reports its load now; a balance needs two"),
    ],
)
def test_no_verdict_is_due_where_time_alone_brings_none(
    loads: tuple[float, ...], asleep: str, reason: str
) -> None:
    """Without load, while requests are held, with one server: it says what it waits for, in one voice."""
    pair = Pair()
    for second in range(30):
        pair.at = START + second
        for name, load in zip(NAMES, loads, strict=False):
            told = lane("0", load, 0.0, 64.0 * second)
            pair.tell(name, replace(told, asleep=name == asleep))
        seen = pair.look()
    (found,) = seen.balance
    assert (found.word, found.known_in_s, found.reasons[0]) == (Is.UNKNOWN, None, reason)
    drawn = "\n".join(row_text(row) for row in evidence_screen(found, seen, 160, 60))
    assert reason in drawn
    assert "verdict " not in drawn.partition("can it be judged?")[0]
    assert "interruption 0 s" not in drawn
    assert "to-and-fro score 0.00" not in drawn


@pytest.mark.parametrize("through", ["", "other"])
def test_no_router_is_judged_on_the_load_of_a_sweep_that_does_not_pass_it(through: str) -> None:
    """A sweep of one server, or of both through another router: the split of the requests is its own."""
    pair = Pair()
    names = {"spark-a"} if not through else {through, *NAMES}
    with pair.store.loaded_from_here(frozenset(names)):
        for seen in pair.play(flat(90, hz=1.0)):
            found = seen.balance[0]
            assert (found.word, found.word_now, found.title) == (Is.UNKNOWN, Is.UNKNOWN, "unknown")
        assert found.reasons == ("loaded by a sweep, not through proxy",)
        assert "- proxy, loaded by a sweep, not through proxy\n" in render(seen, 200)
        page = [row_text(row) for row in evidence_screen(found, seen, 100, 40)]
        assert any("loaded by a sweep, not through proxy" in row for row in page)
        assert not any("drained" in row for row in page)


def test_an_alert_that_a_sweep_ends_says_so_and_says_when_it_is_back() -> None:
    """Each of the two, so that the times in the list of events fit those of the alert."""
    pair = Pair()
    assert last(pair).alerts
    with pair.store.loaded_from_here(frozenset({"proxy"})):
        during = last(pair)
        assert (during.balance[0].word, during.alerts) == (Is.OSCILLATING, ())
        assert during.events[-1].message.endswith(": oscillating, as a sweep began")
    after = last(pair)
    (alert,) = (one for one in after.alerts if one.id.startswith("balance"))
    begins = [one for one in after.events if one.about == alert.id][-1]
    assert (begins.phase, begins.at) == (Phase.BEGIN, alert.since)
    assert begins.message.startswith("oscillating begins: spark-a and spark-b swing ")


# Servers of one model that no known router joins: their loads are described, and nothing warns.

TURN_S, LOAD, OWNER_LIFE_S = 30.0, 8.0, 12.0


def owners(seconds: int) -> list[Look]:
    """Return two owners' loads: each has 8 requests on its own server for 30 s, then the other one has."""
    tokens = [0.0, 0.0]
    made: list[Look] = []
    for second in range(seconds):
        busy = int(second / TURN_S) % 2
        tokens[busy] += LOAD * 64.0 / OWNER_LIFE_S
        loads = (LOAD * (busy == 0), LOAD * (busy == 1))
        made.append(Look(float(second), loads, (0.0, 0.0), (tokens[0], tokens[1])))
    return made


@pytest.fixture(scope="module")
def taking_turns() -> list[Snapshot]:
    """Play five minutes of the two owners to a store that knows no router."""
    return [*Pair(router=None).play(owners(300), life_s=OWNER_LIFE_S, snapshot_every_s=5.0)]


def test_owners_that_take_turns_raise_no_alarm(taking_turns: list[Snapshot]) -> None:
    """Five minutes of opposite loads without a router give a description, no bad verdict, alert or event."""
    words = {one.word for seen in taking_turns for one in seen.balance}
    assert words == {Is.UNKNOWN, Is.UNEVEN}
    assert {seen.alerts for seen in taking_turns} == {()}
    assert taking_turns[-1].events == ()


def test_every_form_says_that_no_router_is_known(taking_turns: list[Snapshot]) -> None:
    """JSON, text, Markdown, the band and the evidence agree: a description without a warning."""
    seen = taking_turns[-1]
    (found,) = json.loads(json.dumps(to_json(seen)))["balance"]
    assert (found["verdict"], found["router"], found["hint"]) == ("uneven", None, None)
    assert re.search(r"^m +unknown +uneven ", render(seen, 100), re.MULTILINE)
    row = next(line for line in text_snapshot.markdown(seen).splitlines() if "uneven" in line)
    assert [cell.strip() for cell in row.split("|")[1:4]] == ["`m`", "`unknown`", "uneven"]
    band = [row_text(row) for row in balance_band(seen.balance[0], seen, 80, 4, TimeWindow(seen.at, 60.0))]
    assert "│ uneven since " in band[1]
    assert "its router is not known" in band[1] + band[2]
    evidence = [row_text(row) for row in evidence_screen(seen.balance[0], seen, 80, 22)]
    turns = next(row for row in evidence if "Do they fill and empty in turns?" in row)
    assert turns.startswith("│ ✓ ")


# Weights that are meant, and routers that the requests do not pass, judged by the store.

LIFE_S = 5.0


def played(
    pair: Pair,
    seconds: int,
    parts: tuple[float, float],
    requests: float,
    sample: RouterSample | None = None,
    step_s: int = 1,
) -> list[Snapshot]:
    """Return a snapshot each 5 s of two servers with `requests` at once, by chance at the ratio `parts`."""
    dice = random.Random(repr(parts))  # noqa: S311 - repeatable chance, no secret
    ends: list[list[float]] = [[], []]
    done = [0, 0]
    shown: list[Snapshot] = []
    for second in range(0, seconds, step_s):
        pair.at = START + second
        for index in (0, 1):
            over = [end for end in ends[index] if end <= pair.at]
            done[index] += len(over)
            ends[index] = [end for end in ends[index] if end > pair.at]
        while sum(map(len, ends)) < requests:
            (index,) = dice.choices((0, 1), parts)
            ends[index].append(pair.at + LIFE_S * dice.uniform(0.5, 1.5))
        for index, name in enumerate(NAMES):
            held = float(len(ends[index]))
            pair.tell(name, lane("0", held, 0.0, 64.0 * done[index], life_s=LIFE_S))
        if sample is not None:
            pair.store.accept(PROXY, replace(sample, at=pair.at), 2.0)
        if second % 5 == 0:
            shown.append(pair.look())
    return shown


def test_weights_of_the_configuration_are_no_fault() -> None:
    """Loads at the ratio of the weights are balanced, and the ratio is among the reasons."""
    weights = {NAMES[0]: 3.0, NAMES[1]: 1.0}
    router = RouterTarget("proxy", "http://p:4000", "simple-shuffle", NAMES, weights=weights)
    shown = played(Pair(router), 150, (3.0, 1.0), 40)
    assert {one.balance[0].word for one in shown} <= {Is.UNKNOWN, Is.BALANCED}
    assert not any(one.alerts for one in shown)
    assert "judged by the router's weights, 3 : 1" in shown[-1].balance[0].reasons


def test_a_steady_ratio_becomes_information() -> None:
    """First it is uneven, and never starved; after ten minutes the question is whether it is meant."""
    shown = played(Pair(), 641, (9.0, 1.0), 40, step_s=2)
    words = {one.balance[0].word for one in shown}
    assert Is.STARVED not in words
    assert Is.OSCILLATING not in words
    found = shown[-1].balance[0]
    assert found.word is Is.BALANCED
    assert any(": 1 for 10 min, perhaps on purpose" in reason for reason in found.reasons)
    assert not shown[-1].alerts


def test_a_router_that_the_requests_do_not_pass_is_not_blamed() -> None:
    """Its own counts stand still: neither an alert, nor a hint on its strategy, nor a limit names it."""
    counts = RouterSample(0.0, LITELLM, alive=True, answered={"spark-a": 5.0, "spark-b": 5.0})
    shown = played(Pair(), 150, (9.0, 1.0), 40, counts)
    seen = shown[-1]
    (found,) = seen.balance
    assert not any(one.alerts for one in shown)
    assert (found.router, found.hint) == (None, None)
    assert "by proxy's own counts their requests do not pass it" in found.reasons
    assert " not proxy " in render(seen, 200)
    early = [one.balance[0] for one in shown if one.at < shown[0].at + 30]
    assert {one.router for one in early} == {"proxy"}
    assert LimitKind.ROUTER not in {view.limited_by.kind for view in seen.backends if view.limited_by}


def test_few_requests_have_a_lasting_word_that_hides_nothing() -> None:
    """With five requests on two servers the balance says who has how many, and the top line stays calm."""
    seen = played(Pair(), 120, (1.0, 1.0), 5)[-1]
    (found,) = seen.balance
    assert found.word is Is.UNKNOWN
    assert found.title == "unknown, too few requests"
    assert found.reasons[1].startswith("on average spark-a ")
    assert verdict(seen).words.endswith("proxy: balance unknown, too few requests")


# The top line, the panels and the alerts say the same of a group that swings.


@pytest.mark.parametrize("counts", [True, False])
def test_no_client_is_blamed_under_a_verdict_on_the_router(*, counts: bool) -> None:
    """While the balance oscillates, no panel says client; the router is named where it counts requests."""
    pair, swinging = Pair(), 0
    trace = looks("leastbusy-c16", every=4)
    for shown in pair.play(trace, life_s=3.5):
        look = next(one for one in reversed(trace) if one.at <= pair.at - 1000.0)
        answers = {server: tokens / 64 for server, tokens in zip(NAMES, look.tokens, strict=True)}
        sample = RouterSample(pair.at, LITELLM, alive=True, answered=answers if counts else None)
        pair.store.accept(PROXY, sample, 2.0)
        (found,) = shown.balance or (None,)
        if found is None or found.word is not Is.OSCILLATING:
            continue
        swinging += 1
        assert "oscillating" in verdict(shown).words
        kinds = {view.limited_by.kind for view in shown.backends if view.limited_by is not None}
        assert not kinds & {LimitKind.CLIENT, LimitKind.CLIENT_OR_ROUTER}
        assert counts or LimitKind.ROUTER not in kinds
    assert swinging >= 5
