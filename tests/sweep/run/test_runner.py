"""Sweeps of simulated servers, from the plan to the result, with the real load generator.

A server that dies half way through rates, agents or depths: all so far is kept.

Sweeps that replay recorded traffic on simulated servers, from the plan to the result.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from sparktop.model.targets import SweepSpec
from sparktop.simulation.calibration import MODEL
from sparktop.sweep.formats.written import SweepPrivacy, repeat_command, sweep_report
from sparktop.sweep.generator.wire import Batch
from sparktop.sweep.plan.plan import Order
from sparktop.sweep.plan.presets import find_preset, make_plan
from sparktop.sweep.plan.traces import TraceChoice, read_replay
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.run.forecast import plan_line
from sparktop.sweep.run.progress import PhaseChanged, SweepEvent, SweepPhase
from tests.known import known
from tests.sweep.watched_servers import watched

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
        server = known(level.server)
        assert (server.prompt_tokens, server.generation_tokens) == (64 * requests, 16 * requests)
        assert server.prefix_cache_hit_percent == 0
        codes = {one.code for one in level.validity}
        assert codes >= {"too_short", "few_runs"}
        assert not codes & {"count_mismatch", "foreign_traffic", "cache_hits", "short_output", "restarted"}
    ran = [(one.target, one.concurrency, one.run) for one in result.ran]
    assert ran == [("spark-a", concurrency, run) for concurrency in (1, 4) for run in (0, 1)]


async def test_a_router_is_measured_with_who_served() -> None:
    """Its answers name backends; those add up to the requests and to the servers' own counts."""
    async with watched(2, strategy="simple-shuffle") as servers:
        plan = servers.plan(concurrency=(1, 8), order=Order.ABBA)
        result = await servers.runner(plan).run()
    proxy = known(result.target("proxy"))
    assert proxy.engine == "litellm"
    assert "simulated" in known(proxy.router_version)
    assert (proxy.engines, proxy.strategy) == (("vllm",), "simple-shuffle")
    assert proxy.version
    assert proxy.context_tokens == 4096
    versions = {name: facts["version"] for name, facts in proxy.setups.items()}
    assert versions == dict.fromkeys(("spark-a", "spark-b"), proxy.version)
    for level in proxy.levels:
        assert sum(level.served_by.values()) == 2 * level.concurrency
        assert set(level.served_by) <= {"spark-a", "spark-b"}
        assert known(level.server).generation_tokens == level.tokens.generated
        assert known(level.server).prompt_tokens == level.tokens.prompt
        test = known(level.balance)["runs_test"]
        assert isinstance(test, dict)
        assert test["requests"] == 2 * level.concurrency
    assert {one.router_overhead_from for one in proxy.levels} == {"router"}
    for level in proxy.levels:
        # The proxy's own count, not the difference of TTFTs, which holds what waiting for a slot takes.
        assert 0 <= known(level.own_overhead_ms) < known(level.ttft_ms).mean
    order = [one.target for one in result.ran if one.concurrency == 8]
    assert order == ["spark-a", "spark-b", "proxy", "proxy", "spark-b", "spark-a"]
    phases = [one for one in servers.events if isinstance(one, PhaseChanged)]
    assert {one.runs for one in phases if one.phase is SweepPhase.RUNNING} == {2}
    assert {one.runs for one in phases if one.phase is SweepPhase.WARMING_UP} == {None}  # not known yet


@pytest.mark.parametrize("stopped", [False, True])
async def test_somebody_elses_requests_are_noticed(*, stopped: bool) -> None:
    """Tokens that we did not ask for mark the level, also one that is stopped; our own counts stay exact."""
    async with watched() as servers, aiohttp.ClientSession() as session:
        runner = servers.runner(servers.plan(concurrency=(4,), runs=100 if stopped else 2))
        others: list[asyncio.Task[None]] = []

        async def ask() -> None:
            body = {"model": MODEL, "prompt": "what is it " * 20, "max_tokens": 1500, "ignore_eos": True}
            url = f"{servers.targets[0].url}/v1/completions"
            async with session.post(url, json=body) as answer:
                assert answer.status == 200
                await answer.read()

        def hear(event: SweepEvent) -> None:
            if not isinstance(event, PhaseChanged) or event.phase is not SweepPhase.RUNNING:
                return
            if not others:
                others.extend(asyncio.create_task(ask()) for _ in range(4))
            elif stopped and all(other.done() for other in others):
                runner.cancel()

        runner.listen(hear)
        result = await runner.run()
        await asyncio.gather(*others)
    (level,) = result.targets[0].levels
    codes = {one.code for one in level.validity}
    noticed = {"foreign_traffic", "cut_short" if stopped else "count_mismatch"}
    assert codes & {"foreign_traffic", "cut_short", "count_mismatch"} == noticed
    assert stopped or level.tokens.generated == 2 * 4 * 16
    assert any(isinstance(one, Batch) for one in servers.events)


def many(path: Path, count: int = 120) -> Path:
    """Write a trace of `count` requests, 50 a second, of four kinds that share a start of 512 tokens."""
    row = '{"timestamp": %d, "input_length": 1100, "output_length": %d, "hash_ids": [0, %d, 9]}\n'
    path.write_text("".join(row % (20 * one, 4 + one % 3, one % 4) for one in range(count)))
    return path


async def test_every_report_of_a_replay_names_the_trace_and_its_hits(tmp_path: Path) -> None:
    """Text, tables, CSV, JSON and the command that repeats the sweep; an anonymous report has no path.

    Each request has its own lengths, and the hits that answers report are those that the server counts.
    """
    path = many(tmp_path / "day.jsonl")
    async with watched() as servers:
        choice = TraceChoice(str(path), speed=2.0, from_s=0.2, to_s=2.2)
        spec = find_preset("quick") | SweepSpec(trace=choice.path, seed=5)
        plan = make_plan(spec, servers.targets, replay=read_replay(choice))
        result = await servers.runner(plan).run()
    (level,) = result.targets[0].levels
    assert (level.requests.ok, level.requests.failed) == (100, 0)
    assert level.tokens.prompt == 100 * 1100
    found = known(level.replay)
    assert found.prompt_tokens == found.server_queried_tokens == 100 * 1100
    assert found.cached_tokens == found.server_cached_tokens
    assert 80 < (found.cached_percent or 0) <= (found.repeated_percent or 0)
    assert [one.requests for one in found.phases] == [10] * 10
    assert not {"cache_hits", "count_mismatch"} & {one.code for one in level.validity}
    assert SweepResult.model_validate(result.to_json()).to_json() == result.to_json()
    assert plan_line(plan).startswith("day.jsonl (mooncake) at 2×: 100 requests, 1 s; 110,000 prompt and ")
    markdown = sweep_report(result, "md")
    assert "day.jsonl, 0.2..2.2 s at 2×, 100 requests" in markdown
    assert "### Recorded traffic" in markdown
    heads, row = (line.split(",") for line in sweep_report(result, "csv").splitlines())
    cells = dict(zip(heads, row, strict=True))
    assert (cells["trace"], cells["value"], cells["not_due"]) == ("day.jsonl", "100", "0")
    assert float(cells["cached_percent"]) > 80
    anonymous = sweep_report(result, "json", SweepPrivacy(anonymous=True))
    assert str(tmp_path) not in anonymous
    assert str(tmp_path) not in sweep_report(result, "html", SweepPrivacy(anonymous=True))
    assert json.loads(sweep_report(result, "json"))["plan"]["trace"]["path"] == str(path)
    assert sweep_report(result, "html").count("day.jsonl") > 1
    command = repeat_command(result)
    assert f"--trace {path},format=mooncake,speed=2,range=0.2..2.2" in command
    assert not {"--rate", "--pp", "--tg", "--duration", "--arrivals", "-c"} & set(command.split())
