"""Sweeps that go wrong: what is done is kept, what is in flight ends, and the reason is told."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

import pytest

from sparktop.errors import OutputError, UsageError
from sparktop.model.engine import EngineIdentity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.load import FirstToken
from sparktop.model.node import GpuReading, MemoryReading, NodeSample
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.store import SourceKey, Store
from sparktop.sweep.guard import SILENT_S
from sparktop.sweep.plan import Guard, Plan, SweepTarget
from sparktop.sweep.progress import GuardSet, LevelMeasured, LoadTold, Notice, Phase, PhaseChanged, SweepEvent
from sparktop.sweep.results import SweepResult
from sparktop.sweep.runner import SweepRunner
from sparktop.sweep.worker_process import SweepWorker
from tests.sweep.stream_server import Asked, StreamServer
from tests.sweep.watched_servers import PATIENT

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]
GIB = 2**30


@dataclass
class Clock:
    """Monotonic seconds that only the test moves."""

    now: float = 1000.0

    def __call__(self) -> float:
        """Give the time."""
        return self.now


@dataclass
class Bench:
    """A server that behaves as told, and a sweep of it."""

    server: StreamServer
    target: SweepTarget
    store: Store
    clock: Clock = field(default_factory=Clock)
    events: list[SweepEvent] = field(default_factory=list)
    saved: list[SweepResult] = field(default_factory=list)
    workers: list[SweepWorker] = field(default_factory=list)

    def runner(self, plan: Plan | None = None, **changes: object) -> SweepRunner:
        """Give a sweep of one small level, or of `plan`."""
        small = plan or Plan((self.target,), (4,), pp=40, tg=8, runs=2, warmup=False, timeouts=PATIENT)
        chosen = replace(small, **changes)  # type: ignore[arg-type]  # fields of Plan, by name
        made = SweepRunner(
            chosen, self.store, save=self.saved.append, start_worker=self._start, clock=self.clock
        )
        made.listen(self.events.append)
        return made

    async def _start(self) -> SweepWorker:
        worker = await SweepWorker.start()
        self.workers.append(worker)
        return worker

    def node(self, headroom_gib: float = 60.0, gpu_c: float = 50.0, *, unified: bool | None = None) -> None:
        """Have the machine tell something."""
        sample = NodeSample(
            self.clock(),
            memory=MemoryReading(unified=unified, headroom_bytes=int(headroom_gib * GIB)),
            gpus=(GpuReading(0, temperature_c=gpu_c),),
        )
        self.store.accept(SourceKey.node("spark-a"), sample)

    def fail(self) -> None:
        """Have the server's page not come."""
        failure = Failure(FailureKind.TIMEOUT, "no answer within 1 s", self.clock())
        self.store.accept(SourceKey.backend("solo"), failure)

    def hang_in_runs(self) -> None:
        """From the first run on, let every request hang; the calibration was answered."""

        async def answer(asked: Asked) -> None:
            if not self.running:
                await asked.stream()
                return
            asked.start()
            asked.event(asked.token())
            await asked.writer.drain()
            if self.server.in_flight == 4:
                await self.server.hang()
            else:
                await self.server.held.wait()
            for _ in range(asked.tokens - 1):
                asked.event(asked.token())
            asked.event(asked.usage())
            asked.end()

        self.server.behave = answer

    async def let_go(self) -> None:
        """Let the server's handlers notice who is gone, and wait until no connection is open."""
        self.server.held.set()
        await self.server.all_gone.wait()

    @property
    def running(self) -> bool:
        """True once load was put on the server."""
        return any(isinstance(one, PhaseChanged) and one.phase is Phase.RUNNING for one in self.events)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """Give a server on a machine that are both watched; what they tell is the test's to say."""
    server = StreamServer()
    await server.start()
    watch = Watch(
        nodes=(NodeTarget("spark-a"),),
        backends=(BackendTarget("solo", server.url, nodes=("spark-a",)),),
        interval_s=0.25,
    )
    made = Bench(server, SweepTarget("solo", server.url, nodes=("spark-a",), known=True), Store(watch))
    made.node()
    made.fail()
    yield made
    await server.stop()


async def in_mid_level(bench: Bench, do: Callable[[SweepRunner], None], **changes: object) -> SweepResult:
    """Run a sweep and do something while all requests of its first level hang."""
    bench.hang_in_runs()
    runner = bench.runner(None, **changes)
    first_tokens: list[FirstToken] = []
    all_hang = asyncio.Event()

    def hear(event: SweepEvent) -> None:
        if isinstance(event, LoadTold):
            first_tokens.extend(one for one in event.events if isinstance(one, FirstToken))
            if len(first_tokens) == 4:
                all_hang.set()

    runner.listen(hear)
    running = asyncio.create_task(runner.run())
    await all_hang.wait()
    do(runner)
    return await running


async def test_a_cancelled_sweep_ends_at_once_and_keeps_what_it_has(bench: Bench) -> None:
    """Requests in flight are called off, connections closed, and the level in flight is marked."""
    result = await in_mid_level(bench, lambda runner: runner.cancel("enough"))
    assert (result.status, result.stop_reason) == ("cancelled", "enough")
    (level,) = result.targets[0].levels
    assert (level.requests.cancelled, level.requests.ok, level.requests.failed) == (4, 0, 0)
    assert "cut_short" in {one.code for one in level.validity}
    await bench.let_go()
    assert bench.saved[-1] == result


async def test_a_sweep_cancelled_before_it_begins_sends_nothing(bench: Bench) -> None:
    """Not even the request that would have been tried."""
    runner = bench.runner()
    runner.cancel("changed my mind")
    result = await runner.run()
    assert (result.status, bench.server.asked) == ("cancelled", 0)
    assert result.targets[0].levels == ()


@pytest.mark.parametrize(
    ("readings", "words"),
    [((7.0, 50.0), "7.0 GiB"), ((60.0, 95.0), "95 °C")],
    ids=["memory", "heat"],
)
async def test_a_machine_beyond_its_limit_stops_the_sweep(
    bench: Bench, readings: tuple[float, float], words: str
) -> None:
    """In mid-level, with the machine and the figure as the reason, and nothing left in flight."""
    guard = Guard(min_headroom_gib=8.0, max_gpu_c=92.0)
    result = await in_mid_level(bench, lambda _: bench.node(*readings), guard=guard)
    assert result.status == "stopped_by_guard"
    assert "spark-a" in (result.stop_reason or "")
    assert words in (result.stop_reason or "")
    assert result.targets[0].levels[0].requests.cancelled == 4
    await bench.let_go()


async def test_unified_memory_stops_the_sweep_without_any_setting(bench: Bench) -> None:
    """A plan that names no limit, on a machine of unified memory; the header said so before."""
    bench.clock.now += 1.0
    bench.node(unified=True)
    result = await in_mid_level(bench, lambda _: bench.node(5.5, unified=True))
    assert (result.status, result.stop_reason) == (
        "stopped_by_guard",
        "spark-a has 5.5 GiB of memory left, the limit is 8 GiB",
    )
    words = "guard: stops below 8 GiB of headroom or above 92 °C on spark-a"
    assert result.guard == words
    assert [one.words for one in bench.events if isinstance(one, GuardSet)] == [words]
    await bench.let_go()


async def test_a_sweep_that_failed_on_simulated_servers_says_that_they_are(bench: Bench) -> None:
    """What is watched says so in its version, even where no request was answered."""

    async def answer(asked: Asked) -> None:
        asked.refuse(500, "broken")

    bench.server.behave = answer
    bench.store.identify(SourceKey.backend("solo"), EngineIdentity(version="0.32.0+simulated"))
    result = await bench.runner().run()
    assert (result.status, result.simulated) == ("failed", True)


async def test_a_machine_within_its_limits_lets_the_sweep_go_on(bench: Bench) -> None:
    """Readings at the limits stop nothing: the sweep waits until its server goes on."""
    guard = Guard(min_headroom_gib=8.0, max_gpu_c=92.0)

    def look(_: SweepRunner) -> None:
        bench.node(8.0, 92.0)
        bench.server.held.set()

    result = await in_mid_level(bench, look, guard=guard, runs=1)
    assert result.status == "done"


async def test_a_server_that_fell_silent_stops_the_sweep(bench: Bench) -> None:
    """Neither a page nor a token for long: what is in flight is called off."""

    def fall_silent(_: SweepRunner) -> None:
        bench.fail()
        bench.clock.now += SILENT_S + 1
        bench.fail()

    result = await in_mid_level(bench, fall_silent)
    assert result.status == "stopped_by_guard"
    assert "has not answered" in (result.stop_reason or "")


async def test_failures_beyond_their_share_stop_the_sweep(bench: Bench) -> None:
    """A server that answers 500 to nearly all is not asked for the rest of the plan."""

    async def answer(asked: Asked) -> None:
        if bench.running and asked.number % 10:
            asked.refuse(500, "out of order")
        else:
            await asked.stream()

    bench.server.behave = answer
    result = await bench.runner(concurrency=(16, 32), runs=3).run()
    assert result.status == "stopped_by_guard"
    assert "out of order" in (result.stop_reason or "")
    (level,) = result.targets[0].levels
    assert level.concurrency == 16
    assert level.requests.errors["http:500"] >= 10


async def test_a_few_failures_are_counted_and_the_sweep_goes_on(bench: Bench) -> None:
    """Every fifth request fails: figures are of the others, failures are counted by kind."""

    async def answer(asked: Asked) -> None:
        if bench.running and asked.number % 5 == 0:
            asked.refuse(500, "out of order")
        else:
            await asked.stream()

    bench.server.behave = answer
    result = await bench.runner(concurrency=(20,), runs=2).run()
    assert result.status == "done"
    (level,) = result.targets[0].levels
    assert (level.requests.ok, level.requests.failed) == (32, 8)
    assert level.requests.errors == {"http:500": 8}
    assert level.tokens.generated == 32 * 8
    assert "errors" in {one.code for one in level.validity}


async def test_a_server_that_dies_stops_the_sweep(bench: Bench) -> None:
    """All connections cut and nothing listens any more: the level in flight is the last."""
    stopping: list[asyncio.Task[None]] = []

    def die(_: SweepRunner) -> None:
        stopping.append(asyncio.create_task(bench.server.stop()))

    result = await in_mid_level(bench, die, concurrency=(4, 8))
    await stopping[0]
    assert result.status == "stopped_by_guard"
    assert "stopped answering" in (result.stop_reason or "")
    (level,) = result.targets[0].levels
    assert level.requests.failed == 4


async def test_a_killed_generator_fails_the_sweep_and_keeps_the_levels_before(bench: Bench) -> None:
    """SIGKILL in the second level: the first is there and whole, the status says what happened."""
    bench.hang_in_runs()
    first = bench.runner(concurrency=(1, 4), runs=1)
    kept = asyncio.Event()
    first.listen(lambda event: kept.set() if isinstance(event, LevelMeasured) else None)
    running = asyncio.create_task(first.run())
    # The first level has one request, so nobody waits for four; it is let go at once.
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


async def test_without_any_target_the_sweep_failed(bench: Bench) -> None:
    """A model that the server does not have: nothing is measured, and its words are the reason."""

    async def answer(asked: Asked) -> None:
        asked.refuse(404, "The model `x` does not exist.")

    bench.server.behave = answer
    result = await bench.runner(targets=(replace(bench.target, model="x"),)).run()
    assert result.status == "failed"
    assert "does not have that model" in (result.stop_reason or "")


async def test_a_disk_that_is_full_costs_no_figure(bench: Bench) -> None:
    """The sweep goes on and says that it cannot be kept."""

    def refuse(_: SweepResult) -> None:
        raise OutputError("there: cannot be written: No space left on device")

    plan = Plan((bench.target,), (1, 2), pp=40, tg=8, runs=1, timeouts=PATIENT)
    runner = SweepRunner(plan, bench.store, save=refuse)
    runner.listen(bench.events.append)
    result = await runner.run()
    assert (result.status, len(result.targets[0].levels)) == ("done", 2)
    assert sum(isinstance(one, Notice) and "No space" in one.message for one in bench.events) == 3


async def test_events_can_be_read_one_after_the_other(bench: Bench) -> None:
    """An iterator gives what listeners hear, and ends with the sweep."""
    runner = bench.runner()
    seen: list[SweepEvent] = []

    async def read() -> None:
        seen.extend([event async for event in runner.events()])

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    await runner.run()
    await reading
    assert seen == bench.events


async def test_a_targets_token_counts_are_told_by_chunks_where_nobody_counts(bench: Bench) -> None:
    """Without ids and usage each chunk is a token, and a line says so before the first level."""
    bench.server.behave = lambda asked: asked.stream(ids=False, usage=False)
    result = await bench.runner().run()
    assert result.plan.tokens_from == "chunks"
    assert any(isinstance(one, Notice) and "chunk" in one.message for one in bench.events)


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
