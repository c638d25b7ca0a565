"""A server that dies half way through rates, agents or depths: all so far is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparktop.model.load import LoadPoint
from sparktop.model.targets import SweepSpec
from sparktop.sweep.plan.plan import Plan, SweepTarget
from sparktop.sweep.plan.presets import make_plan
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.run.progress import Phase, PhaseChanged, SweepEvent
from sparktop.sweep.run.runner import SweepRunner
from tests.sweep.stream_server import Asked
from tests.sweep.trouble_bench import Bench
from tests.sweep.watched_servers import PATIENT

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

WORKLOAD = """
new_tokens = 40
output_tokens = 8
human_requests = 50
tool_steps = 2
max_context_tokens = 4000
tool_pause_s = 0.02
human_pause_s = 0.05
"""


def rates(target: SweepTarget, _: Path) -> Plan:
    preset = SweepSpec("r", rate="10,30", duration_s=2.0, prompt_lengths=(40,), tg=8)
    return make_plan(preset | SweepSpec(seed=1, warmup=False), [target])


def agents(target: SweepTarget, folder: Path) -> Plan:
    path = folder / "quick.toml"
    path.write_text(WORKLOAD, encoding="utf-8")
    preset = SweepSpec("a", agents=(1, 3), workload=str(path), duration_s=2.0)
    return make_plan(preset | SweepSpec(seed=1), [target])


def depths(target: SweepTarget, _: Path) -> Plan:
    preset = SweepSpec("d", concurrency=(2,), depths=(0, 64), prompt_lengths=(40,), tg=8, runs=3)
    return make_plan(preset | SweepSpec(seed=1, warmup=False), [target])


async def died(bench: Bench, plan: Plan, levels: int, phase: Phase, requests: int) -> SweepResult:
    """Run a plan whose server dies in `phase` of level number `levels`, after `requests` of its requests."""
    begun: list[LoadPoint | int] = []
    counted = 0
    stopping: list[asyncio.Task[None]] = []

    def hear(event: SweepEvent) -> None:
        if isinstance(event, PhaseChanged) and event.phase is phase and event.load is not None:
            key = event.load.depth if plan.depths else event.load.point
            if key not in begun:
                begun.append(key)

    async def answer(asked: Asked) -> None:
        nonlocal counted
        if len(begun) >= levels:
            counted += 1
            if counted == requests:
                stopping.append(asyncio.create_task(bench.server.stop()))
        await asked.stream()

    bench.server.behave = answer
    runner = SweepRunner(
        replace(plan, timeouts=PATIENT), bench.store, save=bench.saved.append, start_worker=bench._start
    )
    runner.listen(bench.events.append)
    runner.listen(hear)
    result = await runner.run()
    await asyncio.gather(*stopping)
    return result


async def test_a_depth_beyond_the_context_costs_its_levels_only(bench: Bench) -> None:
    """A server that refuses long prompts: levels without and with less context have their figures."""

    async def answer(asked: Asked) -> None:
        if asked.prompt_tokens > 300:
            asked.refuse(400, "This model's maximum context length is 300 tokens")
        else:
            await asked.stream()

    bench.server.behave = answer
    preset = SweepSpec("d", concurrency=(1, 4), depths=(0, 64, 2000), prompt_lengths=(40,), tg=8, runs=3)
    plan = replace(make_plan(preset | SweepSpec(seed=1), [bench.target]), timeouts=PATIENT)
    runner = SweepRunner(plan, bench.store, save=bench.saved.append, start_worker=bench._start)
    result = await runner.run()
    assert result.status == "done"
    refused = {(level.depth, level.concurrency): level.error for level in result.targets[0].levels}
    assert [key for key, error in refused.items() if error is None] == [(0, 1), (0, 4), (64, 1), (64, 4)]
    assert all("maximum context length" in (refused[2000, at] or "") for at in (1, 4))


@pytest.mark.parametrize(
    ("make", "levels", "phase", "requests"),
    [
        (rates, 2, Phase.RUNNING, 20),
        (agents, 2, Phase.RUNNING, 12),
        (depths, 1, Phase.CONTEXT, 1),
    ],
    ids=["rate", "agents", "depth-context"],
)
async def test_a_target_that_dies_ends_the_sweep_and_costs_no_level_before(
    bench: Bench, make: Callable[..., Plan], levels: int, phase: Phase, requests: int, tmp_path: Path
) -> None:
    """The level in which it died says so and has its requests so far; the level before is whole."""
    result = await died(bench, make(bench.target, tmp_path), levels, phase, requests)
    assert result.status == "stopped_by_guard"
    reason = result.stop_reason or ""
    assert "requests to solo failed" in reason or "solo stopped answering" in reason
    *before, last = result.targets[0].levels
    assert len(before) == levels - 1 if phase is Phase.RUNNING else (len(before), last.depth) == (0, 0)
    for level in before:
        assert level.requests.ok > 0
        assert level.requests.failed == level.requests.cancelled == 0
        assert "cut_short" not in {mark.code for mark in level.validity}
    if phase is Phase.RUNNING:
        (cut,) = (mark.message for mark in last.validity if mark.code == "cut_short")
        assert reason in cut
    assert bench.saved[-1] == result
