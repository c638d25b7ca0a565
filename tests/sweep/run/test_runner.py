"""Sweeps of simulated servers, from the plan to the result, with the real load generator."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from msgspec.structs import replace

from sparktop.model.load import LoadMode
from sparktop.simulation.calibration import MODEL
from sparktop.sweep.plan.plan import Order
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.run.progress import (
    LoadTold,
    Phase,
    PhaseChanged,
    SweepEvent,
)
from tests.sweep.watched_servers import QUICK, watched

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]


async def test_our_counts_are_the_servers_own() -> None:
    """Tokens and prompts equal the growth of the server's counters; each level is saved once it is done."""
    async with watched() as servers:
        result = await servers.runner(servers.plan()).run()
    assert (result.status, result.stop_reason, result.simulated) == ("done", None, True)
    assert [len(one.targets[0].levels) for one in servers.saved] == [1, 2, 2]
    assert [one.status for one in servers.saved] == [None, None, "done"]
    assert SweepResult.model_validate(result.to_json()).to_json() == result.to_json()
    (target,) = result.targets
    assert (target.engine, target.model, target.error) == ("vllm", MODEL, None)
    assert [level.concurrency for level in target.levels] == [1, 4]
    for level in target.levels:
        requests = 2 * level.concurrency
        assert level.requests.ok == requests
        assert (level.tokens.prompt, level.tokens.generated) == (64 * requests, 16 * requests)
        assert level.server is not None
        assert (level.server.prompt_tokens, level.server.generation_tokens) == (64 * requests, 16 * requests)
        assert level.server.prefix_cache_hit_percent == 0
        codes = {one.code for one in level.validity}
        assert codes >= {"too_short", "few_runs"}
        assert not codes & {"count_mismatch", "foreign_traffic", "cache_hits", "short_output", "restarted"}
    assert [(one.target, one.concurrency, one.run) for one in result.ran] == [
        ("spark-a", 1, 0),
        ("spark-a", 1, 1),
        ("spark-a", 4, 0),
        ("spark-a", 4, 1),
    ]


async def test_a_router_is_measured_with_who_served() -> None:
    """Its answers name backends; those add up to the requests and to the servers' own counts."""
    async with watched(2, strategy="simple-shuffle") as servers:
        plan = servers.plan(concurrency=(1, 8), order=Order.ABBA)
        result = await servers.runner(plan).run()
    proxy = result.target("proxy")
    assert proxy is not None
    assert proxy.engine == "litellm"
    assert proxy.router_version is not None
    assert "simulated" in proxy.router_version
    assert (proxy.engines, proxy.strategy) == (("vllm",), "simple-shuffle")
    assert proxy.version
    assert proxy.context_tokens == 4096
    for level in proxy.levels:
        assert sum(level.served_by.values()) == 2 * level.concurrency
        assert set(level.served_by) <= {"spark-a", "spark-b"}
        assert level.server is not None
        assert level.server.generation_tokens == level.tokens.generated
        assert level.server.prompt_tokens == level.tokens.prompt
        assert level.balance is not None
        test = level.balance["runs_test"]
        assert isinstance(test, dict)
        assert test["requests"] == 2 * level.concurrency
    assert {one.router_overhead_from for one in proxy.levels} == {"router"}
    for level in proxy.levels:
        # The proxy's own count, not the difference of TTFTs, which holds what waiting for a slot takes.
        assert level.ttft_ms is not None
        assert level.own_overhead_ms is not None
        assert 0 <= level.own_overhead_ms < level.ttft_ms.mean
    order = [one.target for one in result.ran if one.concurrency == 8]
    assert order == ["spark-a", "spark-b", "proxy", "proxy", "spark-b", "spark-a"]


async def test_servers_counters_split_the_runs_of_a_router_that_names_nobody() -> None:
    """Between runs the servers come to rest: each run's requests are those that its servers finished."""
    async with watched(2, strategy="round-robin", router_names_servers=False) as servers:
        (proxy,) = (one for one in servers.targets if one.name == "proxy")
        result = await servers.runner(servers.plan([proxy], concurrency=(6,), runs=2)).run()
    (level,) = result.targets[0].levels
    assert level.each is not None
    assert level.each.backends == ()
    assert level.runs_split == ({"spark-a": 3, "spark-b": 3},) * 2
    assert level.served_by == {"spark-a": 6, "spark-b": 6}


async def test_a_steady_level_keeps_its_concurrency() -> None:
    """A closed loop over a time: more requests than slots, never more than c in flight, counts exact."""
    async with watched() as servers:
        plan = servers.plan(concurrency=(4,), mode=LoadMode.STEADY, duration_s=1.5, runs=1)
        result = await servers.runner(plan).run()
    (level,) = result.targets[0].levels
    assert level.requests.ok > 8
    assert level.sustained_tps is not None
    assert level.decode_tps is None
    assert level.server is not None
    assert level.server.generation_tokens == level.tokens.generated
    told = [one for one in servers.events if isinstance(one, LoadTold)]
    assert max(one.in_flight for one in told) == 4


async def test_a_level_bounded_by_seconds_fills_them() -> None:
    """Bursts follow one another until the time is over; the last one ends in peace."""
    async with watched() as servers:
        plan = servers.plan(concurrency=(4,), duration_s=2.0, warmup=False)
        result = await servers.runner(plan).run()
    (level,) = result.targets[0].levels
    assert level.runs > 1
    assert level.requests.ok == 4 * level.runs
    assert level.requests.cancelled == 0


async def test_more_requests_than_slots_are_a_queue() -> None:
    """The level says so if the server's samples have waiting requests."""
    slow = replace(QUICK, max_num_seqs=2, cost=replace(QUICK.cost, weights_one_s=0.005, weights_all_s=0.01))
    async with watched(profile=slow) as servers:
        plan = servers.plan(concurrency=(6,), tg=30, warmup=False)
        result = await servers.runner(plan).run()
    (level,) = result.targets[0].levels
    assert level.server is not None
    assert level.server.running_max == 2
    # Five where a sample falls between the first two to be let in.
    assert level.server.waiting_max in {4, 5}
    assert "queue_limited" in {one.code for one in level.validity}


async def test_somebody_elses_requests_are_noticed() -> None:
    """Tokens that we did not ask for mark the level; our own counts stay exact."""
    async with watched() as servers, aiohttp.ClientSession() as session:
        runner = servers.runner(servers.plan(concurrency=(4,), runs=2))
        others: list[asyncio.Task[None]] = []

        async def ask() -> None:
            body = {"model": MODEL, "prompt": "what is it " * 20, "max_tokens": 400, "ignore_eos": True}
            url = f"{servers.targets[0].url}/v1/completions"
            async with session.post(url, json=body) as answer:
                assert answer.status == 200
                await answer.read()

        def hear(event: SweepEvent) -> None:
            if isinstance(event, PhaseChanged) and event.phase is Phase.RUNNING and not others:
                others.append(asyncio.create_task(ask()))

        runner.listen(hear)
        result = await runner.run()
        await asyncio.gather(*others)
    (level,) = result.targets[0].levels
    assert level.tokens.generated == 2 * 4 * 16
    assert "foreign_traffic" in {one.code for one in level.validity}
    assert any(isinstance(one, LoadTold) for one in servers.events)
