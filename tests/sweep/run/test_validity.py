"""Every reason not to believe a level: when it holds, and when it does not.

What held a server back during a level, from the samples of its runs.

How a level's load lay on its servers: sums of one moment, busy batches, and who queued.

When a running sweep stops itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.load import LoadMode
from sparktop.model.node import GpuReading, MemoryReading, NodeSample
from sparktop.model.snapshot import NodeView
from sparktop.model.targets import GuardLimits
from sparktop.store import SourceKey
from sparktop.sweep.generator.wire import ClientHealth, WorkerTarget
from sparktop.sweep.plan.plan import Plan, SweepTarget, TargetKind
from sparktop.sweep.result.results import (
    AgentsResult,
    Latency,
    LevelResult,
    NodeSide,
    Rate,
    RequestColumns,
    Requests,
    TargetResult,
    TokenCounts,
)
from sparktop.sweep.run.guard import SILENT_S, GuardWatch, guard_words
from sparktop.sweep.run.level import limit_side
from sparktop.sweep.run.preparation import PreparedTarget, unmeasured
from sparktop.sweep.run.server_side import (
    Counters,
    ServerLog,
    ServerPoint,
    queue_reason,
)
from sparktop.sweep.run.validity import LevelFacts, judge, notes_on, with_clock_shifts
from tests.known import known

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
OPEN = {"generated_tokens": 900, "open_tokens": 100, "open_requests": 2}
GROWTH = Counters(1024.0, 2048.0, 0.0, 0.0, 2048.0, 16.0)
FACTS = LevelFacts(
    generated_tokens=1024,
    prompt_tokens=2048,
    most_tokens=1024,
    growth=GROWTH,
    measured=GROWTH,
    run_s=[10.0, 10.0, 10.0],
)


def health(cpu: float = 10.0, mean: float = 0.1, p99: float = 1.0) -> ClientHealth:
    lag = {"mean": mean, "p50": mean, "p90": 0.0, "p99": p99, "max": p99}
    return ClientHealth("uvloop", cpu, lag, 0.5)


def grown(**changes: float) -> dict[str, object]:
    return {"growth": replace(GROWTH, **changes)}


def prompts(counted: float, **changes: object) -> dict[str, object]:
    return {"asked_prompt_tokens": 1000.0, "counted_prompt_tokens": counted, **changes}


def answers(*tokens: int) -> dict[str, object]:
    return {"each": RequestColumns(generated_tokens=tokens)}


def first_read(tokens: float, tpot_ms: float | None) -> dict[str, object]:
    latency = None if tpot_ms is None else Latency(mean=tpot_ms, p50=tpot_ms)
    counts = GOOD.tokens.model_copy(update={"first_read": tokens})
    return {"tokens": counts, "tpot_ms": latency, "ttft_ms": Latency(mean=3000.0)}


def cached(tokens: int) -> dict[str, object]:
    return {"tokens": GOOD.tokens.model_copy(update={"cached": tokens})}


def rates(*values: float) -> dict[str, object]:
    return {"decode_tps": Rate.of_runs(values)}


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
        pytest.param({}, {"queues": {"a": "2 waited"}}, PLAN, ["queue_limited"], id="waiting"),
        pytest.param({}, {"queues": {"a": None}}, PLAN, [], id="no queue"),
        pytest.param({}, {"measured": replace(GROWTH, cache_hits=21.0)}, PLAN, ["cache_hits"], id="hits"),
        pytest.param({}, {"measured": replace(GROWTH, cache_hits=20.0)}, PLAN, [], id="1 % of hits"),
        pytest.param(
            {}, grown(generation_tokens=1200.0), PLAN, ["foreign_traffic", "count_mismatch"], id="more tokens"
        ),
        pytest.param({}, grown(prompt_tokens=2100.0), PLAN, ["foreign_traffic"], id="more prompts"),
        pytest.param({}, grown(generation_tokens=900.0), PLAN, ["count_mismatch"], id="lost tokens"),
        pytest.param({}, {"generated_tokens": 1014}, PLAN, [], id="1 % off"),
        pytest.param({}, {**OPEN, **grown(generation_tokens=960.0)}, PLAN, [], id="cancelled"),
        pytest.param(
            {},
            {**OPEN, **grown(generation_tokens=1020.0)},
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
        pytest.param(answers(64, 67, 67), {}, PLAN, [], id="answers 5 % long"),
        pytest.param(answers(68, 68, 68), {}, PLAN, ["long_output"], id="long answers"),
        pytest.param(first_read(16.0, tpot_ms=20.0), {}, PLAN, [], id="a tenth of the TTFT"),
        pytest.param(first_read(17.0, tpot_ms=20.0), {}, PLAN, ["bursts"], id="a proxy's buffer"),
        pytest.param(first_read(64.0, tpot_ms=None), {}, PLAN, ["bursts"], id="whole answers"),
        pytest.param(first_read(3001.0, tpot_ms=None), {}, PLAN, [], id="whole answers of a fast server"),
        pytest.param(cached(16 * 12 + 16), {"measured": None}, PLAN, ["cache_hits"], id="hits by answers"),
        pytest.param(cached(16 * 12 + 15), {"measured": None}, PLAN, [], id="a template's hits"),
        pytest.param(rates(50.0, 45.0, 40.5), {}, PLAN, [], id="a fifth slower"),
        pytest.param(rates(50.0, 45.0, 39.0), {}, PLAN, ["speed_changed"], id="slower from run to run"),
        pytest.param(rates(55.0, 56.0, 22.0, 23.0), {}, PLAN, ["speed_changed"], id="slower at once"),
        pytest.param(rates(22.0, 40.0, 41.0), {}, PLAN, ["speed_changed"], id="faster after the first run"),
        pytest.param(rates(55.0, 22.0, 54.0), {}, PLAN, [], id="one slow run"),
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
    ("p90", "wait_ms", "ttft_ms", "noted"),
    [
        (1.1, 0.2, 300.0, "note"),
        (0.9, 0.2, 300.0, ""),
        (0.0, 2.1, 300.0, "note"),
        (0.4, None, 100.0, "note"),
        (8.1, None, 300.0, "warning"),
        (0.0, 9.0, 300.0, "warning"),
    ],
)
def test_a_lag_that_may_lengthen_a_ttft_is_told(
    p90: float | None, wait_ms: float | None, ttft_ms: float, noted: str
) -> None:
    """From 2 ms on, or 1 % of the TTFT if that is less, of what timers or the run queue show; 3 % warn."""
    lag = {} if p90 is None else {"mean": 0.01, "p50": 0.0, "p90": p90, "p99": 3.0, "max": 3.0}
    seen = ClientHealth("uvloop", 10.0, lag, 0.5, wait_ms)
    level = GOOD.model_copy(update={"ttft_ms": Latency(mean=ttft_ms, count=8)})
    facts = replace(FACTS, health=[seen])
    warnings, notes = judge(PLAN, level, facts), notes_on(level, facts)
    assert ["TTFT" in one.message for one in warnings] == [True] * (noted == "warning")
    assert ["TTFT" in one.message for one in notes] == [True] * (noted == "note")
    if noted and (wait_ms or 0.0) < 1.0:
        (mark,) = (*warnings, *notes)
        words = f"up to {(p90 or 0.0) + 1:.1f} ms of a TTFT is the load generator's own delay"
        assert mark.message == f"{words} in 9 of 10 requests"
        assert mark.ttft_percent == pytest.approx(100 * ((p90 or 0.0) + 1) / ttft_ms)
    late = replace(seen, loop_lag_ms={"mean": 1.1, "p50": 1.0, "p90": 8.1, "p99": 37.7, "max": 40.0})
    (mark,) = judge(PLAN, level, replace(FACTS, health=[late]))
    assert mark.ttft_percent == pytest.approx(100 * 37.7 / ttft_ms)
    assert mark.itl


@pytest.mark.parametrize(("seconds", "words"), [(9.97, "9.9 s in all runs"), (9.5, "9.5 s in all runs")])
def test_what_is_too_short_is_not_written_as_long_enough(seconds: float, words: str) -> None:
    """A figure never meets, by rounding, the need that it misses."""
    (doubt,) = judge(PLAN, GOOD.model_copy(update={"duration_s": seconds}), FACTS)
    assert doubt.message == f"{words}; a result needs 10 s"


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
    shown: dict[str, object] = dict.fromkeys(("ttft_ms", "itl_ms"), Latency(mean=20.0))
    shown |= dict.fromkeys(("decode_tps", "pure_decode_tps"), Rate(mean=1.0))
    some = TokenCounts(prompt=12 * 128, generated=12 * 64, hidden=2, hidden_requests=1)
    for requests, codes in ((12, ["hidden_tokens"]), (100, [])):
        few = {"tokens": some, "requests": Requests(ok=requests), **shown}
        marks = judge(PLAN, GOOD.model_copy(update=few), FACTS)
        assert [mark.code for mark in marks if mark.code == "hidden_tokens"] == codes


def logged(*servers: tuple[str, float, float]) -> ServerLog:
    """Return a log of two runs of 15 s with a pause of 20 s, for servers with (running, waiting) requests."""
    log = ServerLog()
    for second in range(60):
        for name, running, waiting in servers:
            busy = second < 15 or 35 <= second < 50
            lane = LaneSample(
                "0",
                running=running if busy else 0.0,
                waiting=waiting if busy else 0.0,
                kv_cache_percent=40.0,
                generation_tokens=100.0 * second,
                prompt_tokens=20.0 * second,
            )
            log.accept(SourceKey.backend(name), EngineSample(float(second), "vllm", (lane,)))
    return log


RUNS = [(0.0, 14.5), (35.0, 49.5)]


@pytest.mark.parametrize(
    ("at_once", "reason"),
    [
        (1, "one request at a time cannot keep 2 servers busy"),
        (2, "no request in 49 s"),
    ],
)
def test_fewer_requests_than_servers_are_no_fault_of_the_router(at_once: int, reason: str) -> None:
    """At c = 1 one of two servers is always idle: the load is the limit, and no router is suspected."""
    target = SweepTarget("proxy", "http://proxy", TargetKind.ROUTER)
    prepared = PreparedTarget(target, WorkerTarget("http://proxy"), unmeasured(target), backends=("a", "b"))
    found = known(limit_side(prepared, logged(("a", 0.0, 0.0), ("b", 0.0, 0.0)), RUNS, {}, at_once))
    assert found.reason == reason
    assert found.kind == ("client" if at_once == 1 else "client or router")


NOTHING = Counters()


def look(
    at: float, running: float | None, waiting: float | None = 0.0, kv: float | None = None
) -> ServerPoint:
    return ServerPoint(at, running, waiting, kv, NOTHING, None)


@pytest.mark.parametrize(
    ("points", "slots", "at_once", "reason"),
    [
        pytest.param([(4.0, 0.0)], 48, None, None, id="nobody waits"),
        pytest.param([(4.0, 2.0)], None, None, None, id="a burst waits for its prompts, then all run"),
        pytest.param([(3.0, 2.0)], None, None, "up to 2 requests waited (1 of 1 polls)", id="unknown slots"),
        pytest.param(
            [(48.0, 16.0), (16.0, 0.0)],
            48,
            64,
            "48 slots for up to 64 requests at once: up to 16 requests waited (1 of 2 polls)",
            id="64 at 48 slots",
        ),
        pytest.param(
            [(12.0, 39.0), (48.0, 3.0)],
            48,
            51,
            "48 slots for up to 51 requests at once: up to 39 requests waited (2 of 2 polls), not only for "
            "slots",
            id="51 at 48 slots, which wait for their prompts, too",
        ),
        pytest.param(
            [(48.0, 3.0)],
            48,
            None,
            "up to 3 requests waited (1 of 1 polls) while all of its 48 slots were taken",
            id="nobody names who served",
        ),
    ],
)
def test_requests_that_wait_for_slots_are_a_queue(
    points: list[tuple[float, float]], slots: int | None, at_once: int | None, reason: str | None
) -> None:
    """Samples are (running, waiting); requests wait for each other's prompts on any server."""
    samples = [look(1.0, running, waiting) for running, waiting in points]
    assert queue_reason(samples, slots, at_once, 4 if samples[0].running in {3.0, 4.0} else 64) == reason


def test_a_full_cache_is_a_queue_though_slots_are_free() -> None:
    """Usage from 98 % on."""
    full = replace(look(1.0, 3.0, 2.0), kv_fullest_percent=99.0)
    words = "up to 2 requests waited (1 of 1 polls): its KV cache is full"
    assert queue_reason([full], 8, None, 4) == words


GIB = 2**30
LIMITS = GuardLimits(min_headroom_gib=8.0, max_gpu_c=92.0)
WATCH = GuardWatch(LIMITS)


def seen(headroom_gib: float = 40.0, gpu_c: float = 60.0, *, unified: bool = False) -> NodeSample:
    memory = MemoryReading(unified=unified, headroom_bytes=int(headroom_gib * GIB))
    return NodeSample(1.0, memory=memory, gpus=(GpuReading(0, temperature_c=gpu_c),))


@pytest.mark.parametrize(
    ("guard", "sample", "words"),
    [
        (LIMITS, seen(7.9), "7.9 GiB of memory left, the limit is 8 GiB"),
        (LIMITS, seen(gpu_c=93.0), "93 °C, the limit is 92 °C"),
        (LIMITS, seen(8.0, 92.0), None),
        (LIMITS, NodeSample(1.0), None),
        (GuardLimits(), seen(7.9, unified=True), "7.9 GiB of memory left, the limit is 8 GiB"),
        (GuardLimits(min_headroom_gib=2.0), seen(7.9, unified=True), None),
        (GuardLimits(0.0, 0.0), seen(0.1, 120.0, unified=True), None),
    ],
)
def test_memory_and_heat_have_limits(guard: GuardLimits, sample: NodeSample, words: str | None) -> None:
    """Beyond its limit each gives machine, figure and limit; unified memory has limits without any setting.

    A limit may be reached, and a figure that no driver reports is not a reason to stop; 0 switches one off.
    """
    reason = GuardWatch(guard).check_node("spark-a", sample)
    assert (reason is None) == (words is None)
    assert words is None or (words in (reason or "") and "spark-a" in (reason or ""))


USUAL = "below 8 GiB of memory left or with a GPU above 92 °C"


def node(name: str, *, unified: bool | None = True) -> NodeView:
    return NodeView(name, "agent", NodeSample(1.0, memory=MemoryReading(unified=unified)))


@pytest.mark.parametrize(
    ("guard", "nodes", "words"),
    [
        (GuardLimits(), [node("a"), node("b")], f"guard: the sweep stops itself {USUAL} on a, b"),
        (
            GuardLimits(max_gpu_c=85.0),
            [node("a"), node("b", unified=False)],
            f"guard: the sweep stops itself {USUAL} on a; with a GPU above 85 °C on b".replace("92", "85"),
        ),
    ],
)
def test_the_header_states_what_stops_the_sweep_and_where(
    guard: GuardLimits, nodes: list[NodeView], words: str
) -> None:
    """The limits by machine."""
    assert guard_words(guard, {"proxy": ["a", "b"]}, nodes) == words


def test_the_header_names_what_nothing_guards() -> None:
    """Every machine and target, with the reason."""
    targets = {"proxy": ["a", "b"], "solo": []}
    assert guard_words(GuardLimits(), targets, [node("b", unified=None)]) == (
        "no guard of memory and temperature: b (no memory shared with a GPU, "
        "no temperature limit set), solo (none of its machines is watched)"
    )


@pytest.mark.parametrize(
    ("ended", "failed", "stops"), [(9, 9, False), (10, 5, False), (10, 6, True), (1000, 400, False)]
)
def test_failures_have_a_share(ended: int, failed: int, *, stops: bool) -> None:
    """More than half of ten and more stop the sweep; a few at the start do not."""
    reason = WATCH.check_requests("solo", ended, failed, "HTTP 500")
    assert (reason is not None) == stops
    if reason:
        assert f"{failed} of {ended}" in reason
        assert "HTTP 500" in reason


GONE = Failure(FailureKind.REFUSED, "nothing listens there", 100.0)


@pytest.mark.parametrize(
    ("ok", "words", "stops"),
    [
        (0, ["refused"], True),
        (0, ["refused", "truncated", "timeout:connect"], True),
        (1, ["refused"], False),
        (0, ["refused", "http:500"], False),
        (0, [], False),
    ],
)
def test_a_run_without_a_server_is_the_last(ok: int, words: list[str], *, stops: bool) -> None:
    """Only where nothing was answered, and nothing but a missing server explains it."""
    assert (WATCH.check_run("solo", ok, words, "refused") is not None) == stops


def test_silence_needs_both_page_and_stream() -> None:
    """A page that does not come stops the sweep only when no token comes either, for long enough."""
    silence = (100.0, GONE)
    late = 100.0 + SILENT_S
    assert WATCH.check_silence("solo", silence, newest_data_at=90.0, now=late - 1) is None
    assert WATCH.check_silence("solo", silence, newest_data_at=late - 2, now=late) is None
    reason = known(WATCH.check_silence("solo", silence, newest_data_at=90.0, now=late))
    assert "nothing listens there" in reason
