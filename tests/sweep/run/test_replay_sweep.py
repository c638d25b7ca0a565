"""Sweeps that replay recorded traffic on simulated servers, from the plan to the result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparktop.commands.sweep.run import plan_line
from sparktop.model.targets import SweepSpec
from sparktop.sweep.formats.written import SweepPrivacy, repeat_command, sweep_report
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.plan.presets import find_preset, make_plan
from sparktop.sweep.plan.traces import Replay, TraceChoice, summarise
from sparktop.sweep.result.results import SweepResult
from tests.sweep.watched_servers import Watched, watched

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]
DATA = Path(__file__).parents[2] / "data" / "traffic"


def replay_plan(servers: Watched, choice: TraceChoice) -> Plan:
    """Return a plan that replays a trace on all servers."""
    spec = find_preset("quick") | SweepSpec(trace=choice.path, seed=5)
    return make_plan(spec, servers.targets, replay=Replay(choice, summarise(choice)))


def many(path: Path, count: int = 120) -> Path:
    """Write a trace of `count` requests, 50 a second, of four kinds that share a start of 512 tokens."""
    rows = (
        {
            "timestamp": 20 * one,
            "input_length": 1100,
            "output_length": 4 + one % 3,
            "hash_ids": [0, one % 4, 9],
        }
        for one in range(count)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


async def test_cached_tokens_equal_the_servers_counters(tmp_path: Path) -> None:
    """Each request has its own lengths, and the hits that answers report are those that the server counts."""
    async with watched() as servers:
        plan = replay_plan(servers, TraceChoice(str(many(tmp_path / "day.jsonl"))))
        result = await servers.runner(plan).run()
    assert result.status == "done"
    (level,) = result.targets[0].levels
    assert level.point.label == "50 /s of day.jsonl"
    assert (level.requests.ok, level.requests.failed) == (120, 0)
    assert (level.tokens.prompt, level.tokens.generated) == (120 * 1100, 120 * 5)
    found = level.replay
    assert found is not None
    assert found.prompt_tokens == found.server_queried_tokens == 120 * 1100
    assert found.cached_tokens == found.server_cached_tokens
    assert 80 < (found.cached_percent or 0) <= (found.repeated_percent or 0)
    assert [one.requests for one in found.phases] == [12] * 10
    assert "cache_hits" not in {one.code for one in level.validity}
    assert "count_mismatch" not in {one.code for one in level.validity}
    assert SweepResult.model_validate(result.to_json()).to_json() == result.to_json()


async def test_every_report_names_the_trace(tmp_path: Path) -> None:
    """Text, tables, CSV, JSON and the command that repeats the sweep; an anonymous report has no path."""
    path = many(tmp_path / "day.jsonl")
    async with watched() as servers:
        plan = replay_plan(servers, TraceChoice(str(path), speed=2.0, from_s=0.2, to_s=2.2))
        result = await servers.runner(plan).run()
    lines = plan_line(plan).splitlines()
    assert lines[0] == "day.jsonl (mooncake) at 2×: 100 requests, 1 s (100 /s on average)"
    assert "of the prompt tokens repeat earlier requests" in lines[1]
    markdown = sweep_report(result, "md")
    assert "day.jsonl, 0.2..2.2 s at 2×, 100 requests" in markdown
    assert "### Recorded traffic" in markdown
    assert "### The replay in parts" in markdown
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


async def test_turns_wait_for_their_answers_and_the_level_lasts_longer() -> None:
    """A conversation's rate is at most that of its pauses; all of its requests are answered."""
    async with watched() as servers:
        plan = replay_plan(servers, TraceChoice(str(DATA / "aiperf-sessions.jsonl"), speed=200.0))
        result = await servers.runner(plan).run()
    (level,) = result.targets[0].levels
    assert result.plan.trace is not None
    assert result.plan.trace.waits
    assert level.requests.ok == result.plan.trace.requests
    assert level.replay is not None
    assert level.replay.not_due == 0
