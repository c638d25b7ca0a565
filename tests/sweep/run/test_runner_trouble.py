"""Sweeps that go wrong: what is done is kept, what is in flight ends, and the reason is stated."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparktop.errors import OutputError, UsageError
from sparktop.model.load import LoadPoint
from sparktop.model.targets import GuardLimits, SweepSpec
from sparktop.sweep.plan.plan import Plan, SweepTarget
from sparktop.sweep.plan.presets import make_plan
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.run.guard import SILENT_S
from sparktop.sweep.run.progress import Notice, PhaseChanged, ResultChanged, SweepEvent, SweepPhase
from sparktop.sweep.run.runner import SweepRunner
from tests.sweep.stream_server import Asked, StreamServer
from tests.sweep.trouble_bench import Bench, in_mid_level
from tests.sweep.watched_servers import PATIENT

pytestmark = pytest.mark.process


async def test_a_sweep_cancelled_before_it_begins_sends_nothing(bench: Bench) -> None:
    """Not even a first trial request is sent."""
    runner = bench.runner()
    runner.cancel("changed my mind")
    result = await runner.run()
    assert (result.status, bench.server.asked) == ("cancelled", 0)
    assert result.targets[0].levels == ()


async def test_a_machine_beyond_its_limit_stops_the_sweep(bench: Bench) -> None:
    """It stops in mid-level with machine and figure as the reason, and nothing is left in flight."""
    guard = GuardLimits(min_headroom_gib=8.0)
    result = await in_mid_level(bench, lambda _: bench.node(7.0), guard=guard)
    assert result.status == "stopped_by_guard"
    assert "spark-a" in (result.stop_reason or "")
    assert "7.0 GiB" in (result.stop_reason or "")
    (level,) = result.targets[0].levels
    assert (level.requests.cancelled, level.requests.ok, level.requests.failed) == (4, 0, 0)
    assert "cut_short" in {one.code for one in level.validity}
    await bench.let_go()
    assert bench.saved[-1] == result


async def test_a_server_that_fell_silent_stops_the_sweep(bench: Bench) -> None:
    """Neither a page nor a token for long: what is in flight is cancelled."""

    def fall_silent(_: SweepRunner) -> None:
        bench.fail()
        bench.clock.now += SILENT_S + 1
        bench.fail()

    result = await in_mid_level(bench, fall_silent)
    assert result.status == "failed"
    assert "has not answered" in (result.stop_reason or "")


async def test_a_killed_generator_fails_the_sweep_and_keeps_the_levels_before(bench: Bench) -> None:
    """SIGKILL in the second level: the first is there and whole, the status says what happened."""
    bench.hang_in_runs()
    first = bench.runner(concurrency=(1, 4), runs=1)
    kept = asyncio.Event()
    first.listen(lambda event: kept.set() if isinstance(event, ResultChanged) and event.level else None)
    running = asyncio.create_task(first.run())
    # The first level has one request, so there is no wait for four; it is let go at once.
    bench.server.held.set()
    await kept.wait()
    bench.server.held.clear()
    await bench.server.someone_waits.wait()
    os.kill(bench.workers[0].pid, signal.SIGKILL)
    result = await running
    assert result.status == "failed"
    assert "SIGKILL" in (result.stop_reason or "")
    first_level = result.targets[0].levels[0]
    assert (first_level.concurrency, first_level.requests.ok) == (1, 1)


async def test_a_target_that_is_not_there_is_left_out(bench: Bench) -> None:
    """The others are measured; its place in the result holds the reason."""
    nobody = StreamServer()
    await nobody.start()
    await nobody.stop()
    gone = SweepTarget("gone", nobody.url, known=True)
    result = await bench.runner(targets=(gone, bench.target)).run()
    assert result.status == "done"
    assert [len(one.levels) for one in result.targets] == [0, 1]
    assert "refused" in (result.targets[0].error or "")
    assert any(isinstance(one, Notice) and "left out" in one.message for one in bench.events)


async def test_a_disk_that_is_full_costs_no_figure(bench: Bench) -> None:
    """The sweep goes on and says that it cannot be saved."""

    def refuse(_: SweepResult) -> None:
        raise OutputError("there: cannot be written: No space left on device")

    plan = Plan((bench.target,), (1, 2), pp=40, tg=8, runs=1, timeouts=PATIENT)
    runner = SweepRunner(plan, bench.store, save=refuse)
    runner.listen(bench.events.append)
    result = await runner.run()
    assert (result.status, len(result.targets[0].levels)) == ("done", 2)
    assert sum(isinstance(one, Notice) and "No space" in one.message for one in bench.events) == 3


async def test_no_prompt_and_no_salt_is_sent_twice(bench: Bench) -> None:
    """To a server that may not know salts, in warm-ups, runs and a second sweep of the same seed."""
    for _ in range(2):
        result = await bench.runner(concurrency=(1, 4), warmup=True, seed=3).run()
        assert result.targets[0].fresh_by == "nonce"
    bodies = bench.server.bodies
    assert len(bodies) > 2 * 3 * 5
    prompts = [body["messages"][0]["content"] for body in bodies]
    assert len(set(prompts)) == len(bodies)
    assert len({prompt[:40] for prompt in prompts}) == len(bodies)
    assert len({body["cache_salt"] for body in bodies}) == len(bodies)


async def test_more_connections_than_allowed_are_refused_before_the_first(bench: Bench) -> None:
    """The last level would fail, so nothing begins, and the message names the limit to raise."""
    with pytest.raises(UsageError, match="ulimit"):
        await bench.runner(concurrency=(1, 50_000_000)).run()
    assert bench.server.asked == 0


# A server that dies half way through rates, agents or depths: all so far is kept.

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


async def died(bench: Bench, plan: Plan, levels: int, phase: SweepPhase, requests: int) -> SweepResult:
    """Run a plan whose server dies in `phase` of level number `levels`, after `requests` of its requests."""
    begun: list[LoadPoint | int] = []
    counted = 0
    stopping: list[asyncio.Task[None]] = []

    def on_event(event: SweepEvent) -> None:
        if isinstance(event, PhaseChanged) and event.phase is phase and event.level is not None:
            key = event.level.depth if plan.depths else event.level.point
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
    runner.listen(on_event)
    result = await runner.run()
    await asyncio.gather(*stopping)
    return result


@pytest.mark.parametrize(
    ("make", "levels", "phase", "requests"),
    [
        (rates, 2, SweepPhase.RUNNING, 20),
        (agents, 2, SweepPhase.RUNNING, 12),
        (depths, 1, SweepPhase.CONTEXT, 1),
    ],
    ids=["rate", "agents", "depth-context"],
)
async def test_a_target_that_dies_ends_the_sweep_and_costs_no_level_before(
    bench: Bench, make: Callable[..., Plan], levels: int, phase: SweepPhase, requests: int, tmp_path: Path
) -> None:
    """The level in which it died says so and has its requests so far; the level before is whole."""
    result = await died(bench, make(bench.target, tmp_path), levels, phase, requests)
    assert result.status == "failed"
    reason = result.stop_reason or ""
    assert "requests to solo failed" in reason or "solo stopped answering" in reason
    *before, last = result.targets[0].levels
    assert len(before) == levels - 1 if phase is SweepPhase.RUNNING else (len(before), last.depth) == (0, 0)
    for level in before:
        assert level.requests.ok > 0
        assert level.requests.failed == level.requests.cancelled == 0
        assert "cut_short" not in {mark.code for mark in level.validity}
    if phase is SweepPhase.RUNNING:
        (cut,) = (mark.message for mark in last.validity if mark.code == "cut_short")
        assert reason in cut
    assert bench.saved[-1] == result
