"""Every reason not to believe a level: when it holds, and when it does not."""

from __future__ import annotations

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
GROWTH = Counters(1024.0, 2048.0, 0.0, 0.0, 2048.0, 16.0)
FACTS = LevelFacts(asked=ASKED, growth=GROWTH, measured=GROWTH, run_s=(10.0, 10.0, 10.0))


def codes(level: LevelResult = GOOD, facts: LevelFacts = FACTS, plan: Plan = PLAN) -> list[str]:
    return [one.code for one in judge(plan, level, facts)]


def health(cpu: float = 10.0, mean: float = 0.1, p99: float = 1.0) -> ClientHealth:
    return ClientHealth("uvloop", cpu, LagFigures(mean, mean, p99, p99, 100), 0.5, 4, 4)


def test_a_good_level_has_no_reason() -> None:
    """Enough runs, enough time, counts that agree and a generator at rest: nothing to doubt."""
    assert codes(facts=replace(FACTS, health=(health(),))) == []


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (health(p99=10.1), "p99"),
        (health(mean=1.01), "5 % of the median TPOT"),
        (health(cpu=80.5), "of a core"),
    ],
)
def test_a_slow_generator_is_told(seen: ClientHealth, words: str) -> None:
    """Late timers, lag beside the time between tokens, or a busy core; one bad run is enough."""
    found = judge(PLAN, GOOD, replace(FACTS, health=(health(), seen)))
    assert [one.code for one in found] == ["client_lag"]
    assert words in found[0].message


@pytest.mark.parametrize(
    ("p90", "wait_ms", "ttft_ms", "marked"),
    [
        (0.9, 0.2, 300.0, False),
        (1.1, 0.2, 300.0, True),
        (0.0, 1.9, 300.0, False),
        (0.0, 2.1, 300.0, True),
        (0.4, None, 100.0, True),
        (0.4, None, 150.0, False),
        (0.1, 0.01, 50.0, False),
        (None, None, 300.0, False),
    ],
)
def test_a_lag_that_may_lengthen_a_ttft_is_told(
    p90: float | None,
    wait_ms: float | None,
    ttft_ms: float,
    marked: bool,  # noqa: FBT001 - one column of the table
) -> None:
    """From 2 ms on, or 1 % of the TTFT if that is less, of what timers or the kernel's run queue show."""
    seen = ClientHealth("uvloop", 10.0, LagFigures(0.01, 0.0, 3.0, 3.0, 100, p90), 0.5, 4, 4, wait_ms)
    level = GOOD.model_copy(update={"ttft_ms": Latency(mean=ttft_ms, count=8)})
    found = judge(PLAN, level, replace(FACTS, health=(seen,)))
    assert ["client_lag" for one in found if "TTFT" in one.message] == ["client_lag"] * marked


def test_other_prompts_than_were_asked_for_are_told() -> None:
    """From 2 % on, shorter or longer; of conversations, whose lengths are estimates, from 10 % on."""

    def found(counted: float, **changes: object) -> list[str]:
        lengths = {"asked_prompt_tokens": 1000.0, "counted_prompt_tokens": counted}
        return codes(GOOD.model_copy(update={**lengths, **changes}))

    assert found(981.0) == found(1019.0) == []
    assert found(979.0) == found(1021.0) == ["short_prompt"]
    assert "short_prompt" not in found(910.0, agents=AgentsResult())
    assert "short_prompt" in found(890.0, agents=AgentsResult())


def queued(*queues: BackendQueue) -> LevelFacts:
    return replace(FACTS, queues=queues)


WAITING = BackendQueue("a", looks=10, looks_waiting=4, waiting_max=2.0)


def test_requests_that_wait_are_told() -> None:
    """Waiting counts with more requests than slots, or if the slots are unknown and never run all."""
    assert codes(facts=queued(WAITING)) == ["queue_limited"]
    taken = replace(WAITING, slots=2, running_max=2.0, saturated=True)
    assert codes(facts=queued(taken)) == ["queue_limited"]
    assert codes(facts=queued(replace(WAITING, slots=8, kv_fullest_percent=99.0))) == ["queue_limited"]


def test_a_burst_that_waits_for_its_own_prompts_is_no_queue() -> None:
    """Where all ran at once, or slots and cache suffice, requests waited for each other's prefill only."""
    assert codes(facts=queued(replace(WAITING, running_max=4.0))) == []
    assert codes(facts=queued(replace(WAITING, slots=4, kv_fullest_percent=50.0))) == []


def test_one_full_server_of_two_is_a_queue() -> None:
    """Sixty-four requests on one server of 48 slots: that the other had 48 free ones helps none of them."""
    full = BackendQueue("spark-a", 30, 12, 16.0, 48.0, 20.0, 48, saturated=True, at_once=64)
    idle = BackendQueue("spark-b", 30, 0, 0.0, 0.0, 0.0, 48, at_once=0)
    (found,) = judge(PLAN, GOOD.model_copy(update={"concurrency": 64}), queued(full, idle))
    assert found.code == "queue_limited"
    assert found.message == (
        "spark-a: up to 16 requests waited (12 of 30 polls): 64 of our requests at once exceed its 48 slots; "
        "latencies include queueing"
    )


def test_cache_hits_have_a_share() -> None:
    """More than 1 % of the tokens looked up; exactly that is fine."""
    assert codes(facts=replace(FACTS, measured=replace(GROWTH, cache_hits=21.0))) == ["cache_hits"]
    assert codes(facts=replace(FACTS, measured=replace(GROWTH, cache_hits=20.0))) == []


def test_more_tokens_than_asked_for_are_somebody_elses() -> None:
    """One token more than all our requests may have made cannot be ours."""
    grown = replace(GROWTH, generation_tokens=1200.0)
    assert codes(facts=replace(FACTS, growth=grown)) == ["foreign_traffic", "count_mismatch"]
    prompts = replace(GROWTH, prompt_tokens=2100.0)
    assert codes(facts=replace(FACTS, growth=prompts)) == ["foreign_traffic"]


def test_counts_that_differ_are_told() -> None:
    """Beyond 1 % in either direction; within it nothing is said."""
    short = replace(ASKED, generated=1000)
    assert codes(facts=replace(FACTS, asked=short)) == ["count_mismatch"]
    assert codes(facts=replace(FACTS, asked=replace(ASKED, generated=1014))) == []
    lost = replace(GROWTH, generation_tokens=900.0)
    assert codes(facts=replace(FACTS, growth=lost)) == ["count_mismatch"]


def test_requests_that_were_called_off_count_apart() -> None:
    """Tokens that they may have made beyond those received are not a mismatch; more than that are."""
    asked = Asked(generated=900, prompt=2048, most=1024, open=100, open_requests=2)
    assert codes(facts=replace(FACTS, asked=asked, growth=replace(GROWTH, generation_tokens=960.0))) == []
    beyond = replace(GROWTH, generation_tokens=1020.0)
    assert codes(facts=replace(FACTS, asked=asked, growth=beyond)) == ["count_mismatch"]


def test_servers_that_do_not_count_are_not_held_against() -> None:
    """Unknown counters are not a mismatch."""
    assert codes(facts=replace(FACTS, growth=None)) == []
    assert codes(facts=replace(FACTS, growth=Counters())) == []


def test_a_restart_makes_counts_worthless() -> None:
    """It is the only reason stated: no count is compared across it."""
    grown = replace(GROWTH, generation_tokens=-500.0, cache_hits=500.0)
    assert codes(facts=replace(FACTS, growth=grown, fell=True)) == ["restarted"]


def test_servers_that_do_not_come_to_rest_have_other_traffic() -> None:
    """Our own requests had all ended by then."""
    found = judge(PLAN, GOOD, replace(FACTS, unsettled="still ran 3 requests"))
    assert [(one.code, one.message) for one in found] == [("foreign_traffic", "still ran 3 requests")]


def test_short_answers_are_told() -> None:
    """More than 5 % fewer tokens than asked for."""
    short = GOOD.model_copy(update={"each": EachRequest(generated_tokens=(64, 56, 60))})
    assert codes(short) == ["short_output"]
    assert codes(GOOD.model_copy(update={"each": EachRequest(generated_tokens=(64, 60, 61))})) == []


def test_a_short_level_is_told() -> None:
    """All bursts together take ten seconds; a steady window also three lifetimes of a request."""
    assert codes(GOOD.model_copy(update={"duration_s": 9.9})) == ["too_short"]
    steady = replace(PLAN, mode=LoadMode.STEADY)
    assert codes(plan=steady) == []
    assert codes(GOOD.model_copy(update={"e2e_ms": Latency(mean=4e3, p50=4e3)}), plan=steady) == ["too_short"]
    assert codes(facts=replace(FACTS, run_s=(9.0,) * 3), plan=steady) == ["too_short"]


def test_few_runs_are_told() -> None:
    """Two have an interval that says nothing."""
    assert codes(GOOD.model_copy(update={"runs": 2})) == ["few_runs"]


def test_a_throttled_machine_is_told() -> None:
    """With its name and the share of the time."""
    hot = {"spark-a": NodeSide(throttled_percent=12.0), "spark-b": NodeSide(throttled_percent=0.5)}
    found = judge(PLAN, GOOD, replace(FACTS, hardware=hot))
    assert [one.code for one in found] == ["throttled"]
    assert "spark-a" in found[0].message


def test_failed_requests_and_multicast_names_are_told() -> None:
    """Failures with their kinds; a name that is looked up by multicast whatever else holds."""
    broken = GOOD.model_copy(update={"requests": Requests(ok=11, failed=1, errors={"http:500": 1})})
    found = judge(PLAN, broken, replace(FACTS, mdns=True, cut_short="cancelled"))
    assert [one.code for one in found] == ["errors", "cut_short", "mdns_target"]
    assert "http:500 1" in found[0].message


def at_clock(mhz: float | None, concurrency: int = 4) -> LevelResult:
    side = {} if mhz is None else {"spark": NodeSide(sm_clock_mhz_mean=mhz)}
    return GOOD.model_copy(update={"concurrency": concurrency, "hardware": side})


def test_compared_levels_run_at_one_clock() -> None:
    """More than 3 % between targets under one load marks both; other loads are not compared."""
    one = TargetResult(name="a", url="http://a", levels=(at_clock(2400.0), at_clock(2000.0, 16)))
    other = TargetResult(name="b", url="http://b", levels=(at_clock(2300.0), at_clock(None, 16)))
    marked = with_clock_shifts([one, other])
    assert [[bool(level.validity) for level in each.levels] for each in marked] == [[True, False]] * 2
    again = with_clock_shifts(marked)
    assert again == marked
    cool = other.model_copy(update={"levels": (at_clock(2390.0),)})
    assert all(not level.validity for each in with_clock_shifts([marked[0], cool]) for level in each.levels)


def test_tokens_that_no_chunk_shows_are_told_with_what_they_cost() -> None:
    """The mark names the figures that are withheld; where the other requests give them, it says so."""
    hidden = TokenCounts(prompt=12 * 128, generated=12 * 64, hidden=480, hidden_requests=12)
    found = judge(PLAN, GOOD.model_copy(update={"tokens": hidden, "tpot_ms": None}), FACTS)
    assert [one.code for one in found] == ["hidden_tokens"]
    assert found[0].message == (
        "no chunk shows 480 of 768 tokens (12 of 12 requests): "
        "TTFT, ITL, TPOT, decode, pure decode cannot be measured"
    )
    some = TokenCounts(prompt=12 * 128, generated=12 * 64, hidden=2, hidden_requests=1)
    latency = Latency(mean=20.0)
    told = GOOD.model_copy(
        update={"tokens": some}
        | dict.fromkeys(("ttft_ms", "itl_ms"), latency)
        | dict.fromkeys(("decode_tps", "pure_decode_tps"), Rate(mean=1.0))
    )
    (mark,) = judge(PLAN, told, FACTS)
    assert mark.message.endswith("(1 of 12 requests): latencies leave those requests out")
    assert "hidden_tokens" not in codes(told.model_copy(update={"requests": Requests(ok=100)}))
    assert codes(GOOD.model_copy(update={"tokens": TokenCounts(prompt=1, generated=768, hidden=0)})) == []
