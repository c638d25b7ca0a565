"""Every reason not to believe a level: when it holds, and when it does not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from sparktop.model.load import LoadMode
from sparktop.sweep.generator.wire import ClientHealth, LagFigures
from sparktop.sweep.plan.plan import Plan, SweepTarget
from sparktop.sweep.result.results import (
    AgentsResult,
    EachRequest,
    Latency,
    LevelResult,
    NodeSide,
    Rate,
    Requests,
    TargetResult,
    TokenCounts,
)
from sparktop.sweep.run.server_side import BackendQueue, Counters
from sparktop.sweep.run.validity import Asked, LevelFacts, judge, with_clock_shifts

PLAN = Plan((SweepTarget("solo", "http://127.0.0.1:8000"),), tg=64)
STEADY = replace(PLAN, mode=LoadMode.STEADY)
GOOD = LevelResult(
    concurrency=4,
    pp=128,
    tg=64,
    runs=3,
    duration_s=30.0,
    requests=Requests(ok=12),
    tokens=TokenCounts(prompt=12 * 128, generated=12 * 64),
    tpot_ms=Latency(mean=20.0, p50=20.0),
    e2e_ms=Latency(mean=2000.0, p50=2000.0),
)
ASKED = Asked(generated=1024, prompt=2048, most=1024)
OPEN = Asked(generated=900, prompt=2048, most=1024, open=100, open_requests=2)
GROWTH = Counters(1024.0, 2048.0, 0.0, 0.0, 2048.0, 16.0)
FACTS = LevelFacts(asked=ASKED, growth=GROWTH, measured=GROWTH, run_s=(10.0, 10.0, 10.0))
WAITING = BackendQueue("a", looks=10, looks_waiting=4, waiting_max=2.0)


def health(cpu: float = 10.0, mean: float = 0.1, p99: float = 1.0) -> ClientHealth:
    return ClientHealth("uvloop", cpu, LagFigures(mean, mean, p99, p99, 100), 0.5, 4, 4)


def grown(**changes: float) -> dict[str, object]:
    return {"growth": replace(GROWTH, **changes)}


def queued(**changes: object) -> dict[str, object]:
    return {"queues": (replace(WAITING, **changes),)}  # type: ignore[arg-type]  # fields, by name


def prompts(counted: float, **changes: object) -> dict[str, object]:
    return {"asked_prompt_tokens": 1000.0, "counted_prompt_tokens": counted, **changes}


def answers(*tokens: int) -> dict[str, object]:
    return {"each": EachRequest(generated_tokens=tokens)}


LONG_E2E = {"e2e_ms": Latency(mean=4e3, p50=4e3)}


@pytest.mark.parametrize(
    ("level", "facts", "plan", "codes"),
    [
        pytest.param({}, {"health": (health(),)}, PLAN, [], id="nothing to doubt"),
        pytest.param({}, {"health": (health(), health(p99=10.1))}, PLAN, ["client_lag"], id="late timers"),
        pytest.param({}, {"health": (health(), health(mean=1.01))}, PLAN, ["client_lag"], id="5 % of TPOT"),
        pytest.param({}, {"health": (health(), health(cpu=80.5))}, PLAN, ["client_lag"], id="a busy core"),
        pytest.param(prompts(981.0), {}, PLAN, [], id="2 % shorter prompts"),
        pytest.param(prompts(1021.0), {}, PLAN, ["short_prompt"], id="longer prompts"),
        pytest.param(prompts(979.0), {}, PLAN, ["short_prompt"], id="shorter prompts"),
        pytest.param(prompts(910.0, agents=AgentsResult()), {}, PLAN, ["few_calls"], id="estimated prompts"),
        pytest.param({}, queued(), PLAN, ["queue_limited"], id="waiting"),
        pytest.param(
            {}, queued(slots=8, kv_fullest_percent=99.0), PLAN, ["queue_limited"], id="waiting for the cache"
        ),
        pytest.param({}, queued(running_max=4.0), PLAN, [], id="a burst waits for its prompts"),
        pytest.param({}, queued(slots=4, kv_fullest_percent=50.0), PLAN, [], id="slots suffice"),
        pytest.param({}, {"measured": replace(GROWTH, cache_hits=21.0)}, PLAN, ["cache_hits"], id="hits"),
        pytest.param({}, {"measured": replace(GROWTH, cache_hits=20.0)}, PLAN, [], id="1 % of hits"),
        pytest.param(
            {}, grown(generation_tokens=1200.0), PLAN, ["foreign_traffic", "count_mismatch"], id="more tokens"
        ),
        pytest.param({}, grown(prompt_tokens=2100.0), PLAN, ["foreign_traffic"], id="more prompts"),
        pytest.param({}, grown(generation_tokens=900.0), PLAN, ["count_mismatch"], id="lost tokens"),
        pytest.param({}, {"asked": replace(ASKED, generated=1014)}, PLAN, [], id="1 % off"),
        pytest.param({}, {"asked": OPEN, **grown(generation_tokens=960.0)}, PLAN, [], id="cancelled"),
        pytest.param(
            {},
            {"asked": OPEN, **grown(generation_tokens=1020.0)},
            PLAN,
            ["count_mismatch"],
            id="more than cancelled requests may have made",
        ),
        pytest.param({}, {"growth": None}, PLAN, [], id="no counters"),
        pytest.param({}, {"growth": Counters()}, PLAN, [], id="unknown counters"),
        pytest.param(
            {}, {"fell": True, **grown(generation_tokens=-5.0)}, PLAN, ["restarted"], id="restart alone"
        ),
        pytest.param({}, {"unsettled": "still ran 3"}, PLAN, ["foreign_traffic"], id="no rest"),
        pytest.param(answers(64, 56, 60), {}, PLAN, ["short_output"], id="short answers"),
        pytest.param(answers(64, 60, 61), {}, PLAN, [], id="answers 5 % short"),
        pytest.param({"duration_s": 9.9}, {}, PLAN, ["too_short"], id="9.9 s"),
        pytest.param({}, {}, STEADY, [], id="steady"),
        pytest.param(LONG_E2E, {}, STEADY, ["too_short"], id="below three lifetimes"),
        pytest.param({}, {"run_s": (9.0,) * 3}, STEADY, ["too_short"], id="steady of 9 s"),
        pytest.param({"runs": 2}, {}, PLAN, ["few_runs"], id="two runs"),
    ],
)
def test_a_level_has_these_reasons_and_no_other(
    level: Mapping[str, object], facts: Mapping[str, object], plan: Plan, codes: list[str]
) -> None:
    """Each just beyond its limit, and none just within it."""
    made = replace(FACTS, **facts)  # type: ignore[arg-type]  # fields, by name
    assert [one.code for one in judge(plan, GOOD.model_copy(update=dict(level)), made)] == codes


@pytest.mark.parametrize(
    ("p90", "wait_ms", "ttft_ms", "is_marked"),
    [
        (1.1, 0.2, 300.0, True),
        (0.9, 0.2, 300.0, False),
        (0.0, 2.1, 300.0, True),
        (0.4, None, 100.0, True),
        (0.4, None, 150.0, False),
        (None, None, 300.0, False),
    ],
)
def test_a_lag_that_may_lengthen_a_ttft_is_told(
    p90: float | None, wait_ms: float | None, ttft_ms: float, *, is_marked: bool
) -> None:
    """From 2 ms on, or 1 % of the TTFT if that is less, of what timers or the kernel's run queue show."""
    seen = ClientHealth("uvloop", 10.0, LagFigures(0.01, 0.0, 3.0, 3.0, 100, p90), 0.5, 4, 4, wait_ms)
    level = GOOD.model_copy(update={"ttft_ms": Latency(mean=ttft_ms, count=8)})
    messages = [one.message for one in judge(PLAN, level, replace(FACTS, health=(seen,)))]
    assert any("TTFT" in one for one in messages) is is_marked


def test_one_full_server_of_two_is_a_queue() -> None:
    """Sixty-four requests on one server of 48 slots: that the other had 48 free ones helps none of them."""
    full = BackendQueue("spark-a", 30, 12, 16.0, 48.0, 20.0, 48, saturated=True, at_once=64)
    idle = BackendQueue("spark-b", 30, 0, 0.0, 0.0, 0.0, 48, at_once=0)
    level = GOOD.model_copy(update={"concurrency": 64})
    (found,) = judge(PLAN, level, replace(FACTS, queues=(full, idle)))
    assert found.message == (
        "spark-a: up to 16 requests waited (12 of 30 polls): 64 of our requests at once exceed its 48 slots; "
        "latencies include queueing"
    )


def test_machines_failures_and_names_are_told_in_words() -> None:
    """A throttled machine by its name, failures with their kinds, a name that is looked up by multicast."""
    hot = {"spark-a": NodeSide(throttled_percent=12.0), "spark-b": NodeSide(throttled_percent=0.5)}
    broken = GOOD.model_copy(update={"requests": Requests(ok=11, failed=1, errors={"http:500": 1})})
    facts = replace(FACTS, mdns=True, cut_short="cancelled", hardware=hot)
    found = {one.code: one.message for one in judge(PLAN, broken, facts)}
    assert set(found) == {"errors", "cut_short", "mdns_target", "throttled"}
    assert "http:500 1" in found["errors"]
    assert "spark-a" in found["throttled"]
    assert "spark-b" not in found["throttled"]


def at_clock(mhz: float | None, concurrency: int = 4) -> LevelResult:
    side = {} if mhz is None else {"spark": NodeSide(sm_clock_mhz_mean=mhz)}
    return GOOD.model_copy(update={"concurrency": concurrency, "hardware": side})


def test_compared_levels_run_at_one_clock() -> None:
    """More than 3 % between targets under one load marks both; other loads are not compared."""
    one = TargetResult(name="a", url="http://a", levels=(at_clock(2400.0), at_clock(2000.0, 16)))
    other = TargetResult(name="b", url="http://b", levels=(at_clock(2300.0), at_clock(None, 16)))
    marked = with_clock_shifts([one, other])
    assert [[bool(level.validity) for level in each.levels] for each in marked] == [[True, False]] * 2
    cool = other.model_copy(update={"levels": (at_clock(2390.0),)})
    assert all(not level.validity for each in with_clock_shifts([marked[0], cool]) for level in each.levels)


def test_tokens_that_no_chunk_shows_are_told_with_what_they_cost() -> None:
    """The mark names the figures that are withheld; one request of a hundred is no reason."""
    hidden = TokenCounts(prompt=12 * 128, generated=12 * 64, hidden=480, hidden_requests=12)
    (found,) = judge(PLAN, GOOD.model_copy(update={"tokens": hidden, "tpot_ms": None}), FACTS)
    assert found.message == (
        "no chunk shows 480 of 768 tokens (12 of 12 requests): "
        "TTFT, ITL, TPOT, decode, pure decode cannot be measured"
    )
    some = TokenCounts(prompt=12 * 128, generated=12 * 64, hidden=2, hidden_requests=1)
    shown: dict[str, object] = dict.fromkeys(("ttft_ms", "itl_ms"), Latency(mean=20.0))
    shown |= dict.fromkeys(("decode_tps", "pure_decode_tps"), Rate(mean=1.0))
    few = GOOD.model_copy(update={"tokens": some, **shown})
    (mark,) = (one for one in judge(PLAN, few, FACTS) if one.code == "hidden_tokens")
    assert mark.message.endswith("(1 of 12 requests): latencies leave those requests out")
    many = few.model_copy(update={"requests": Requests(ok=100)})
    assert "hidden_tokens" not in [one.code for one in judge(PLAN, many, FACTS)]
