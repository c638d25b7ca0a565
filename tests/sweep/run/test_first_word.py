"""What a sweep waits for before its first request: a reading of each watched server, made for this sweep."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.targets import BackendTarget, RouterTarget, Watch
from sparktop.store import SourceKey, Store
from sparktop.sweep.generator.wire import (
    Calibrate,
    Calibrated,
    Command,
    WorkerMessage,
)
from sparktop.sweep.plan.plan import Plan, SweepTarget, TargetKind
from sparktop.sweep.run import runner as module
from sparktop.sweep.run.progress import PhaseChanged, SweepEvent, SweepPhase
from sparktop.sweep.run.runner import SweepRunner
from sparktop.sweep.run.worker_process import SweepWorker

PROXY = SweepTarget("proxy", "http://10.0.0.9:4000", TargetKind.ROUTER, known=True)
TURNS = 50
"""Of the event loop: far more than a sweep takes from its beginning to its first request."""


class Noting(SweepWorker):
    """A load generator that stores its commands, and says that all is well."""

    def __init__(self) -> None:
        """Begin without a process."""
        self.ready = None
        self.asked: list[Calibrate] = []

    async def send(self, command: Command) -> None:
        """Store the command."""
        if isinstance(command, Calibrate):
            self.asked.append(command)

    async def messages(self) -> AsyncIterator[WorkerMessage]:
        """Answer the newest command."""
        yield calibrated(self.asked[-1])

    async def cancel(self) -> None:
        """Do nothing: there is nothing to cancel."""

    async def close(self) -> None:
        """Do nothing: there is nothing to end."""


def calibrated(command: Calibrate) -> Calibrated:
    """Return the answer of a server without problems."""
    return Calibrated(
        id=command.id,
        model="tiny",
        models=("tiny",),
        dropped_fields={},
        prompt_tokens=command.prompt_tokens,
        is_exact=True,
    )


def sample(at: float) -> EngineSample:
    """Return a sample of a server."""
    return EngineSample(at, "vllm", (LaneSample("0", running=0.0, waiting=0.0, generation_tokens=1.0),))


class Stage:
    """Two servers behind a router, each with a reading from before the sweep."""

    def __init__(self) -> None:
        """Accept a reading of each server, and a failure of the router."""
        self.now = 100.0
        names = ("spark-a", "spark-b")
        watch = Watch(
            backends=tuple(
                BackendTarget(name, f"http://10.0.0.{number}:8000") for number, name in enumerate(names, 1)
            ),
            routers=(RouterTarget("proxy", PROXY.url, backends=names),),
        )
        self.store = Store(watch, clock=lambda: self.now)
        for name in names:
            self.tell(name)
        self.store.accept(SourceKey.router("proxy"), Failure(FailureKind.REFUSED, "no", self.now))
        self.worker = Noting()

    def tell(self, name: str) -> None:
        """Accept a sample of a server, a second later."""
        self.now += 1.0
        self.store.accept(SourceKey.backend(name), sample(self.now))

    def runner(self, *targets: SweepTarget) -> SweepRunner:
        """Return a sweep of targets that is cancelled before its first level."""
        start: Callable[[], Awaitable[SweepWorker]] = self._start
        made = SweepRunner(Plan(targets), self.store, start_worker=start)

        def hear(event: SweepEvent) -> None:
            if isinstance(event, PhaseChanged) and event.phase is SweepPhase.SETTLING:
                made.cancel()

        made.listen(hear)
        return made

    async def _start(self) -> SweepWorker:
        return self.worker


async def turns() -> None:
    """Run the event loop many times, so that all tasks advance."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def test_a_word_from_before_the_sweep_is_none() -> None:
    """Readings from before the sweep do not count: the first request waits for a new one of each server."""
    stage = Stage()
    running = asyncio.create_task(stage.runner(PROXY).run())
    await turns()
    assert not stage.worker.asked
    stage.tell("spark-a")
    await turns()
    assert not stage.worker.asked
    stage.tell("spark-b")
    await running
    assert len(stage.worker.asked) == 1


async def test_the_wait_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers without any reading do not hold up a sweep for ever."""
    monkeypatch.setattr(module, "FIRST_SAMPLE_S", 0.0)
    stage = Stage()
    await stage.runner(PROXY).run()
    assert len(stage.worker.asked) == 1
