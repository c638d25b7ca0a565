"""Capacity searches on simulated servers, from the plan to the answer, with the real load generator."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from msgspec.structs import replace

from sparktop.model.load import LoadKind
from sparktop.model.targets import SweepSpec
from sparktop.sweep.formats.written import capacity_text
from sparktop.sweep.plan.capacity import make_capacity_plan, parse_conditions
from sparktop.sweep.plan.conversations import ConversationPreset, Draw
from sparktop.sweep.plan.plan import Capacity, SweepTarget
from sparktop.sweep.result.results import CapacityAnswer, SweepResult
from sparktop.sweep.run.progress import LevelMeasured, SweepEvent
from tests.sweep.watched_servers import PATIENT, QUICK, Watched, engine, watched

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

TWO_SLOTS = replace(QUICK, max_num_seqs=2, cost=replace(QUICK.cost, weights_one_s=0.08, weights_all_s=0.08))
"""Two requests at once, of 80 ms a token; a third one waits for the end of another."""
SMALL = ConversationPreset(
    "small", new_tokens=Draw(20), output_tokens=Draw(10), human_requests=Draw(2), max_context_tokens=2000
)


async def _search(
    servers: Watched, kind: LoadKind, slo: str, *, most: float = 16.0, duration_s: float = 2.0
) -> tuple[SweepResult, CapacityAnswer]:
    capacity = Capacity(kind, parse_conditions(slo, kind), most=most, fixed_s=True)
    spec = SweepSpec(duration_s=duration_s, seed=1)
    if kind is LoadKind.AGENTS:
        spec = replace(spec, workload="coder-quick")
    else:
        spec = replace(spec, prompt_lengths=(16,), tg=10)
    plan = replace(make_capacity_plan(capacity, servers.plan().targets, spec), timeouts=PATIENT)
    if kind is LoadKind.AGENTS:
        plan = replace(plan, conversations=SMALL)
    result = await servers.runner(plan).run()
    assert result.capacity is not None
    return result, result.capacity.answers["spark-a"]


@pytest.mark.parametrize("kind", [LoadKind.CONCURRENCY, LoadKind.AGENTS])
async def test_the_answer_is_the_number_of_slots(kind: LoadKind) -> None:
    """With two slots and a limit on TTFT it is two: a third request waits for the end of another."""
    async with watched(profile=TWO_SLOTS) as servers:
        result, answer = await _search(servers, kind, "ttft_p90_ms=600", duration_s=4.0)
    assert (answer.holds, answer.fails, answer.complete) == (2, 3, True)
    text = capacity_text(result)
    assert text.startswith(("spark-a: 2 ", "spark-a: best estimate 2 "))
    assert "; 3 fail: p90 TTFT" in text or "; 3 probably fail (" in text
    assert "ran out first" in text or "limited by" in text
    assert SweepResult.model_validate(result.to_json()).capacity == result.capacity


async def test_a_rate_within_ten_percent() -> None:
    """Two slots of 40 ms: 50 requests/s at most; each level has enough arrivals for its share."""
    fast = replace(TWO_SLOTS, cost=replace(QUICK.cost, weights_one_s=0.004, weights_all_s=0.004))
    async with watched(profile=fast) as servers:
        _, answer = await _search(servers, LoadKind.RATE, "ttft_p90_ms=400", most=200.0, duration_s=1.0)
    assert answer.holds
    assert answer.fails
    assert answer.holds < 60.0
    assert answer.fails <= 1.11 * answer.holds
    assert all(one.requests >= 90 for one in answer.probes)


async def test_conditions_that_nothing_meets_and_that_everything_meets() -> None:
    """The answer is none with the reason, or at least the largest number that was allowed."""
    async with watched() as servers:
        none, first = await _search(servers, LoadKind.CONCURRENCY, "stream_tps=1000000", duration_s=1.0)
        _, second = await _search(servers, LoadKind.CONCURRENCY, "ttft_p90_ms=9000", most=4.0, duration_s=1.0)
    assert (first.holds, first.fails) == (0, 1)
    assert capacity_text(none).startswith("spark-a: none hold: 1 request at once fails: p10 stream")
    assert (second.holds, second.fails, second.at_least) == (4, None, True)


async def test_a_stopped_search_keeps_what_is_known() -> None:
    """Stopped after the second level: the answer so far, marked as not completed."""
    async with watched() as servers:
        capacity = Capacity(
            LoadKind.CONCURRENCY, parse_conditions("ttft_p90_ms=9000", LoadKind.CONCURRENCY), fixed_s=True
        )
        spec = SweepSpec(duration_s=1.0, prompt_lengths=(16,), tg=4, warmup=False)
        plan = make_capacity_plan(capacity, servers.plan().targets, spec)
        runner = servers.runner(replace(plan, timeouts=PATIENT))
        seen: list[SweepEvent] = []

        def stop(event: SweepEvent) -> None:
            seen.append(event)
            if sum(isinstance(one, LevelMeasured) for one in seen) == 2:
                asyncio.get_running_loop().call_soon(runner.cancel)

        runner.listen(stop)
        result = await runner.run()
    assert result.status == "cancelled"
    assert result.capacity is not None
    answer = result.capacity.answers["spark-a"]
    assert answer.holds in {1, 2}
    assert not answer.complete
    assert "not completed" in capacity_text(result)


async def test_a_server_that_ends_half_way_ends_the_search_with_what_was_found() -> None:
    """If it ends after the second level, there is one reason, and only the levels before are kept."""
    async with AsyncExitStack() as stack, watched() as servers:
        url = await stack.enter_async_context(engine())
        target = SweepTarget("gone", url, known=True)
        capacity = Capacity(
            LoadKind.CONCURRENCY, parse_conditions("ttft_p90_ms=9000", LoadKind.CONCURRENCY), fixed_s=True
        )
        spec = SweepSpec(duration_s=1.0, prompt_lengths=(16,), tg=4, warmup=False)
        runner = servers.runner(replace(make_capacity_plan(capacity, [target], spec), timeouts=PATIENT))
        levels: list[LevelMeasured] = []
        ending: list[asyncio.Task[None]] = []

        def end_the_server(event: SweepEvent) -> None:
            if isinstance(event, LevelMeasured):
                levels.append(event)
                if len(levels) == 2:
                    ending.append(asyncio.get_running_loop().create_task(stack.aclose()))

        runner.listen(end_the_server)
        result = await runner.run()
        await asyncio.gather(*ending)
    assert result.capacity is not None
    answer = result.capacity.answers["gone"]
    assert answer.holds in {2, 4}
    assert not answer.complete
    text = capacity_text(result)
    assert "so far" in text
    assert "the search was not completed" in text
    (target_result,) = result.targets
    assert (target_result.error or result.stop_reason or "") != ""
    assert (target_result.error or result.stop_reason or "") in text
    assert len(result.targets[0].levels) <= 4
