"""Capacity searches on simulated servers, from the plan to the answer."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from msgspec.structs import replace

from sparktop.demo.scenario import DEFAULT_SCENARIO, SCENARIOS
from sparktop.model.load import LoadKind
from sparktop.model.targets import SweepSpec
from sparktop.sweep.formats.written import capacity_text
from sparktop.sweep.plan.capacity import make_capacity_plan, parse_conditions
from sparktop.sweep.plan.conversations import ConversationPreset, Draw
from sparktop.sweep.plan.plan import Capacity, SweepTarget
from sparktop.sweep.result.results import CapacityAnswer, SweepResult
from sparktop.sweep.run.progress import LevelMeasured, SweepEvent
from stage.sweep import RehearsedSweep
from tests.sweep.watched_servers import PATIENT, QUICK, engine, watched

SMALL = ConversationPreset(
    "small", new_tokens=Draw(20), output_tokens=Draw(10), human_requests=Draw(2), max_context_tokens=2000
)


async def searched(
    kind: LoadKind, slo: str, *, most: float = 16.0, duration_s: float = 5.0
) -> tuple[SweepResult, CapacityAnswer]:
    """Return the result of a search in virtual time, on a server of two slots and 20 ms a token."""
    cost = replace(QUICK.cost, weights_one_s=0.02, weights_all_s=0.02)
    scenario = replace(SCENARIOS[DEFAULT_SCENARIO], profile=replace(QUICK, max_num_seqs=2, cost=cost))
    sweep = RehearsedSweep(scenario=scenario, backends=1)
    capacity = Capacity(kind, parse_conditions(slo, kind), most=most, fixed_s=True)
    spec = SweepSpec(duration_s=duration_s, seed=1)
    if kind is LoadKind.AGENTS:
        spec = replace(spec, workload="coder-quick")
    else:
        spec = replace(spec, prompt_lengths=(16,), tg=10)
    plan = make_capacity_plan(capacity, [sweep.targets["spark-a"]], spec)
    if kind is LoadKind.AGENTS:
        plan = replace(plan, conversations=SMALL)
    await sweep.play(plan)
    result = sweep.result
    assert result is not None
    assert result.capacity is not None
    return result, result.capacity.answers["spark-a"]


@pytest.mark.parametrize("kind", [LoadKind.CONCURRENCY, LoadKind.AGENTS])
async def test_the_answer_is_the_number_of_slots(kind: LoadKind) -> None:
    """With two slots and a limit on TTFT it is two: a third request waits for the end of another."""
    result, answer = await searched(kind, "ttft_p90_ms=150")
    assert (answer.holds, answer.fails, answer.complete) == (2, 3, True)
    text = capacity_text(result)
    assert text.startswith(("spark-a: 2 ", "spark-a: best estimate 2 "))
    assert "; 3 fail: p90 TTFT" in text or "; 3 probably fail (" in text
    assert "ran out first" in text or "limited by" in text
    assert SweepResult.model_validate(result.to_json()).capacity == result.capacity


async def test_conditions_that_nothing_meets_and_that_everything_meets() -> None:
    """The answer is none with the reason, or at least the largest number that was allowed."""
    none, first = await searched(LoadKind.CONCURRENCY, "stream_tps=1000000")
    _, second = await searched(LoadKind.CONCURRENCY, "ttft_p90_ms=9000", most=4.0)
    assert (first.holds, first.fails) == (0, 1)
    assert capacity_text(none).startswith("spark-a: none hold: 1 request at once fails: p10 stream")
    assert (second.holds, second.fails, second.at_least) == (4, None, True)


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
        levels: list[LevelMeasured] = []
        ending: list[asyncio.Task[None]] = []

        def end(event: SweepEvent) -> None:
            if not isinstance(event, LevelMeasured):
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
    assert result.capacity is not None
    answer = result.capacity.answers["gone"]
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
