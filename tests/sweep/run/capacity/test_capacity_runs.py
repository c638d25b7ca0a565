"""Capacity searches on simulated servers, from the plan to the answer.

How many agents: what they do is chosen to fit the context of the servers, and is said.

A server that changes while a search measures it is said to, and nothing is called certain then.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.demo.scenario import DEFAULT_SCENARIO, SCENARIOS
from sparktop.model.load import LoadKind
from sparktop.model.snapshot import BackendView, Snapshot
from sparktop.model.targets import SweepSpec
from sparktop.sweep.formats.written import capacity_text
from sparktop.sweep.plan.capacity import (
    default_capacity,
    make_capacity_plan,
    parse_conditions,
    with_fitting_conversations,
)
from sparktop.sweep.plan.conversations import ConversationPreset, Draw
from sparktop.sweep.plan.plan import Capacity, Plan, SweepTarget
from sparktop.sweep.plan.presets import find_preset, make_plan
from sparktop.sweep.plan.traces import TraceChoice, read_replay
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.run.capacity import JudgedRun, capacity_answer, drift_of
from sparktop.sweep.run.forecast import forecast, pieces, plan_line
from sparktop.sweep.run.judgement import LoadVerdict, judge
from sparktop.sweep.run.preparation import beyond_context, beyond_contexts
from sparktop.sweep.run.progress import Notice, ResultChanged, SweepEvent
from sparktop.sweep.run.result_builder import capacity_result
from sparktop.sweep.run.search import CapacitySearch
from sparktop.sweep.view.capacity import answer_words
from stage.sweep import RehearsedSweep
from tests.known import known
from tests.sweep.run.capacity.test_capacity_judgement import request
from tests.sweep.watched_servers import PATIENT, QUICK, engine, watched

SMALL = ConversationPreset(
    "small", new_tokens=Draw(20), output_tokens=Draw(10), human_requests=Draw(2), max_context_tokens=2000
)


@pytest.mark.parametrize("kind", [LoadKind.CONCURRENCY, LoadKind.AGENTS])
async def test_the_answer_is_the_number_of_slots(kind: LoadKind) -> None:
    """With two slots and a limit on TTFT it is two: a third request waits for the end of another."""
    cost = replace(QUICK.cost, weights_one_s=0.02, weights_all_s=0.02)
    scenario = replace(SCENARIOS[DEFAULT_SCENARIO], profile=replace(QUICK, max_num_seqs=2, cost=cost))
    sweep = RehearsedSweep(scenario=scenario, backends=1)
    capacity = Capacity(kind, parse_conditions("ttft_p90_ms=150", kind), most=16.0, fixed_s=True)
    spec = SweepSpec(duration_s=5.0, seed=1)
    if kind is LoadKind.AGENTS:
        spec = replace(spec, workload="coder-quick")
    else:
        spec = replace(spec, prompt_lengths=(16,), tg=10)
    plan = make_capacity_plan(capacity, [sweep.targets["spark-a"]], spec)
    if kind is LoadKind.AGENTS:
        plan = replace(plan, conversations=SMALL)
    await sweep.play(plan)
    result = known(sweep.result)
    answer = known(result.capacity).answers["spark-a"]
    assert (answer.holds, answer.fails, answer.complete) == (2, 3, True)
    text = capacity_text(result)
    assert text.startswith(("spark-a: 2 ", "spark-a: best estimate 2 "))
    assert "; 3 fail: p90 TTFT" in text or "; 3 probably fail (" in text
    assert "ran out first" in text or "limited by" in text
    assert SweepResult.model_validate(result.to_json()).capacity == known(result.capacity)


@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize("server_ends", [False, True], ids=["stopped", "server ends"])
async def test_a_search_that_ends_early_keeps_what_was_found(*, server_ends: bool) -> None:
    """Stopped, or without its server, after the second level: the answer so far, and why it ended."""
    async with AsyncExitStack() as stack, watched() as servers:
        target = SweepTarget("gone", await stack.enter_async_context(engine()), known=True)
        conditions = parse_conditions("ttft_p90_ms=9000", LoadKind.CONCURRENCY)
        capacity = Capacity(LoadKind.CONCURRENCY, conditions, fixed_s=True)
        spec = SweepSpec(duration_s=0.5, prompt_lengths=(16,), tg=4, warmup=False)
        runner = servers.runner(replace(make_capacity_plan(capacity, [target], spec), timeouts=PATIENT))
        levels: list[ResultChanged] = []
        ending: list[asyncio.Task[None]] = []

        def end(event: SweepEvent) -> None:
            if not isinstance(event, ResultChanged) or event.level is None:
                return
            levels.append(event)
            if len(levels) != 2:
                return
            if server_ends:
                ending.append(asyncio.get_running_loop().create_task(stack.aclose()))
            else:
                asyncio.get_running_loop().call_soon(runner.cancel)

        runner.listen(end)
        result = await runner.run()
        await asyncio.gather(*ending)
    answer = known(result.capacity).answers["gone"]
    assert answer.holds in ({2, 4} if server_ends else {1, 2})
    assert not answer.complete
    text = capacity_text(result)
    assert "not completed" in text
    assert len(result.targets[0].levels) <= 4
    if server_ends:
        assert "so far" in text
        reason = result.targets[0].error or result.stop_reason
        assert reason
        assert reason in text
    else:
        assert result.status == "cancelled"


RIVALS = SweepTarget("spark-a", "http://127.0.0.1:1"), SweepTarget("spark-b", "http://127.0.0.1:2")
TARGETS = RIVALS[:1]


def limited(*tokens: int) -> Snapshot:
    """Return a snapshot in which the servers take at most so many tokens a request."""
    each = zip(RIVALS, tokens, strict=False)
    views = tuple(BackendView(one.name, one.url, "g", max_model_len=most) for one, most in each)
    return Snapshot(datetime.now(UTC), 1.0, 1.0, 2.0, backends=views)


@pytest.mark.parametrize(
    ("settings", "refused", "is_all"),
    [
        ({"prompt_lengths": (9000,)}, "{}pp 9,000 and tg 64 need 9,064", True),
        (
            {"prompt_lengths": (9000, 64)},
            "1 of 2 lengths will be left out: {}pp 9,000 and tg 64 need 9,064",
            False,
        ),
        ({"prompt_lengths": (9000,), "longest": True}, "", False),
        ({"prompt_lengths": (128,)}, "", False),
        (
            {"pp": 2048, "tg": 128, "depths": (0, 4096, 8192)},
            "2 of 3 lengths will be left out: {}depth 4,096, pp 2,048 and tg 128 need 6,272",
            False,
        ),
        ({"prompt_lengths": (4000,), "depths": (0, 3000), "whole": True}, "", False),
    ],
)
def test_what_no_server_takes_is_known_before(
    settings: dict[str, Any], refused: str, *, is_all: bool
) -> None:
    """By what the servers reported; not where the longest length that fits is searched for.

    The line of a plan and the editor say the same.
    """
    plan, snapshot = Plan(TARGETS, **settings), limited(4_096)
    words = refused.format("spark-a takes at most 4,096 tokens a request; ")
    assert beyond_contexts(plan, snapshot) == (words, is_all)
    line, texts = plan_line(plan, (), snapshot), pieces(forecast(plan, (), snapshot))
    assert texts[3:] == ((f"nothing can be measured: {words}" if is_all else words,) if words else ())
    assert line.endswith("; ".join(texts))


def test_conversations_and_traces_beyond_a_context_are_known_before(tmp_path: Path) -> None:
    """Their forecasts say so, too: what no server takes, and how many requests it will refuse."""
    view = BackendView("spark-a", "http://127.0.0.1:1", "g", max_model_len=4_096)
    snapshot = Snapshot(datetime.now(UTC), 1.0, 1.0, 2.0, backends=(view,))
    agents = make_plan(find_preset("quick") | SweepSpec(agents=(1,), workload="rag"), TARGETS)
    path = tmp_path / "day.jsonl"
    lengths = (100, 5_000, 100)
    rows = [
        {"timestamp": 20 * index, "input_length": length, "output_length": 4, "hash_ids": []}
        for index, length in enumerate(lengths)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    replayed = read_replay(TraceChoice(str(path)))
    trace = make_plan(find_preset("quick") | SweepSpec(trace=str(path)), TARGETS, replay=replayed)
    for plan, words in (
        (
            agents,
            "nothing can be measured: spark-a takes at most 4,096 tokens a request; ",
        ),
        (trace, "spark-a: 1 of 3 requests of day.jsonl are longer than its context of 4,096 tokens"),
    ):
        assert pieces(forecast(plan, (), snapshot))[3].startswith(words)
        assert len(pieces(forecast(plan, (), replace(snapshot, backends=())))) == 3


def test_a_forecast_leaves_out_what_no_server_takes() -> None:
    """Its figures are those of what is sent; a context that one of two targets takes stays."""
    plan, snapshot = Plan(TARGETS, pp=2048, tg=128, depths=(0, 4096, 8192)), limited(4_096, 16_384)
    assert forecast(plan, (), snapshot).levels == forecast(replace(plan, depths=(0,)), ()).levels
    assert forecast(replace(plan, targets=RIVALS), (), snapshot).levels == 6 * len(plan.concurrency)


def test_what_the_user_chose_stays() -> None:
    """A workload that was named is not replaced, also where it does not fit; the message has what fits."""
    spec = SweepSpec(workload="coder-quick")
    plan = make_capacity_plan(default_capacity(), TARGETS, spec)
    assert with_fitting_conversations(plan, {"spark-a": 4_096}) == (plan, "")
    why = known(beyond_context(replace(plan, tg=1), 1, limited(4_096).backends))
    assert "workloads that fit: chat)" in why
    assert "--" not in why, "the words are read on the screen too, which has no options"


@pytest.mark.process
@pytest.mark.timeout(120)
async def test_a_context_that_is_known_late_still_counts() -> None:
    """Servers that report their context after the key was pressed are sent what fits them."""
    async with watched(profile=replace(QUICK, max_model_len=4_096)) as servers:
        plan = make_capacity_plan(default_capacity(), servers.targets, SweepSpec())
        runner = servers.runner(plan)
        runner.listen(lambda event: runner.cancel() if isinstance(event, Plan) else None)
        result = await runner.run()
    assert result.plan.workload == "chat"
    (words,) = [event.message for event in servers.events if isinstance(event, Notice)]
    assert words.startswith("workload chat instead of coder-quick")


CAPACITY = Capacity(LoadKind.CONCURRENCY, parse_conditions("stream_tps=12", LoadKind.CONCURRENCY), most=64)
BEGAN = datetime(2026, 11, 28, 7, 6, tzinfo=UTC)


def judged(*rates: float) -> LoadVerdict:
    """Return the judgement of requests that generate at these rates."""
    traces = []
    for index, rate in enumerate(rates):
        made = request(index, 0.1)
        made.arrivals = [(index + 0.1, 1), (index + 0.1 + 10 / rate, 10)]
        traces.append(made)
    return judge(CAPACITY, traces, max_error_share=0.01)


def runs(first: float, last: float, count: int = 30) -> list[JudgedRun]:
    """Return two runs of a level, three minutes apart, whose requests have these rates."""
    return [
        (judged(*[first] * count), BEGAN),
        (judged(*[last] * count), BEGAN + timedelta(minutes=3)),
    ]


def test_a_server_that_got_slower_is_named_with_its_figures() -> None:
    """7 requests at once had 17.7 tok/s each at 07:06 and 8.2 at 07:09."""
    search = CapacitySearch(CAPACITY)
    search.add(7.0, judged(*[17.7] * 30, *[8.2] * 30))
    drift = known(drift_of({7.0: runs(17.7, 8.2)}))
    answer = capacity_answer(search, {}, complete=True, drift=drift)
    found = capacity_result(CAPACITY, {"a": answer})
    words = "; ".join(answer_words(found, answer))
    assert "the server got slower while it was measured: with 7 " in words
    assert ", p10 speed 17.7 tok/s at" in words
    assert ", 8.2 tok/s at" in words
    assert "95 % sure" not in words
    assert not any(one.certain for one in answer.probes)
    assert answer.interval == (None, None)


@pytest.mark.parametrize(("first", "last"), [(17.7, 17.0), (8.0, 8.2), (17.7, 12.1)])
def test_a_steady_server_has_no_drift(first: float, last: float) -> None:
    """What meets the condition both times, or misses it both times, changes no answer."""
    assert drift_of({7.0: runs(first, last)}) is None
    assert drift_of({7.0: runs(17.7, 8.2, count=3)}) is None
    assert drift_of({7.0: runs(17.7, 8.2)[:1]}) is None


def test_a_level_that_misses_its_share_is_not_certain_to_hold() -> None:
    """88 % of the requests met it where 90 % must: its neighbours may say that it holds, not for certain."""
    search = CapacitySearch(CAPACITY)
    for value, met in ((1.0, 100), (2.0, 100), (4.0, 88), (5.0, 100), (6.0, 100), (8.0, 0)):
        search.add(value, judged(*[14.0] * met, *[11.5] * (100 - met)))
    answer = capacity_answer(search, {}, complete=True)
    probes = {one.value: one for one in answer.probes}
    assert probes[1.0].certain
    assert not (probes[4.0].holds and probes[4.0].certain)
