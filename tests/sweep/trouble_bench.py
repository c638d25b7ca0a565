"""A server that misbehaves in the middle of a sweep, on a clock that only the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.load import AnswerRead
from sparktop.model.node import GpuReading, MemoryReading, NodeSample
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.store import SourceKey, Store
from sparktop.sweep.generator.wire import Batch
from sparktop.sweep.plan.plan import Plan, SweepTarget
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.run.progress import PhaseChanged, SweepEvent, SweepPhase
from sparktop.sweep.run.runner import SweepRunner
from sparktop.sweep.run.worker_process import SweepWorker
from tests.sweep.played_sweeps import Clock
from tests.sweep.stream_server import Asked, StreamServer
from tests.sweep.watched_servers import PATIENT

GIB = 2**30


@dataclass
class Bench:
    """A server that behaves as the test says, and a sweep of it."""

    server: StreamServer
    target: SweepTarget
    store: Store
    clock: Clock = field(default_factory=Clock)
    events: list[SweepEvent] = field(default_factory=list)
    saved: list[SweepResult] = field(default_factory=list)
    workers: list[SweepWorker] = field(default_factory=list)

    def runner(self, plan: Plan | None = None, **changes: object) -> SweepRunner:
        """Return a sweep of one small level, or of `plan`."""
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
        """Accept a sample of the machine."""
        sample = NodeSample(
            self.clock(),
            memory=MemoryReading(unified=unified, headroom_bytes=int(headroom_gib * GIB)),
            gpus=(GpuReading(0, temperature_c=gpu_c),),
        )
        self.store.accept(SourceKey.node("spark-a"), sample)

    def fail(self) -> None:
        """Accept a failure of the server's page."""
        failure = Failure(FailureKind.TIMEOUT, "no answer within 1 s", self.clock())
        self.store.accept(SourceKey.backend("solo"), failure)

    def hang_in_runs(self) -> None:
        """Make every request hang from the first run on; the calibration is answered."""

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
        """Release hanging answers, so that they notice closed connections; wait until none is open."""
        self.server.held.set()
        await self.server.all_gone.wait()

    @property
    def running(self) -> bool:
        """True once load was put on the server."""
        return any(isinstance(one, PhaseChanged) and one.phase is SweepPhase.RUNNING for one in self.events)


def bench_on(server: StreamServer) -> Bench:
    """Return a bench around a server, on a machine with one sample."""
    watch = Watch(
        nodes=(NodeTarget("spark-a"),),
        backends=(BackendTarget("solo", server.url, nodes=("spark-a",)),),
        interval_s=0.25,
    )
    made = Bench(server, SweepTarget("solo", server.url, nodes=("spark-a",), known=True), Store(watch))
    made.node()
    made.fail()
    return made


async def in_mid_level(bench: Bench, do: Callable[[SweepRunner], None], **changes: object) -> SweepResult:
    """Run a sweep and do something while all requests of its first level hang."""
    bench.hang_in_runs()
    runner = bench.runner(None, **changes)
    first_tokens: list[AnswerRead] = []
    all_hang = asyncio.Event()

    def hear(event: SweepEvent) -> None:
        if isinstance(event, Batch):
            first_tokens.extend(one for one in event.events if isinstance(one, AnswerRead) and one.count)
            if len(first_tokens) == 4:
                all_hang.set()

    runner.listen(hear)
    running = asyncio.create_task(runner.run())
    await all_hang.wait()
    do(runner)
    return await running
