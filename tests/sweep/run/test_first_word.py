"""What a sweep waits for before its first request: a reading of each watched server, made for this sweep."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.load import TokenSource
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
from sparktop.sweep.run.progress import Notice, PhaseChanged, SweepEvent, SweepPhase
from sparktop.sweep.run.runner import SweepRunner
from sparktop.sweep.run.worker_process import SweepWorker

PROXY = SweepTarget("proxy", "http://10.0.0.9:4000", TargetKind.ROUTER, known=True)
BEHIND = {"spark-a": "http://10.0.0.1:8000", "spark-b": "http://10.0.0.2:8000"}
RIVAL = SweepTarget("rival", "http://10.0.0.9:4001", TargetKind.ROUTER, backends=BEHIND, known=True)
SPARK_A = SweepTarget("spark-a", "http://10.0.0.1:8000", known=True)
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
        token_source=TokenSource.TOKEN_IDS,
        prompt_tokens=command.prompt_tokens,
        is_exact=True,
    )


def sample(at: float, running: float = 0.0) -> EngineSample:
    """Return a sample of a server."""
    return EngineSample(at, "vllm", (LaneSample("0", running=running, waiting=0.0, generation_tokens=1.0),))


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
        self.notices: list[str] = []

    def tell(self, name: str, running: float = 0.0) -> None:
        """Accept a sample of a server, a second later."""
        self.now += 1.0
        self.store.accept(SourceKey.backend(name), sample(self.now, running))

    def runner(self, *targets: SweepTarget) -> SweepRunner:
        """Return a sweep of targets that is cancelled before its first level."""
        start: Callable[[], Awaitable[SweepWorker]] = self._start
        made = SweepRunner(Plan(targets), self.store, start_worker=start)

        def hear(event: SweepEvent) -> None:
            if isinstance(event, Notice):
                self.notices.append(event.message)
            elif isinstance(event, PhaseChanged) and event.phase is SweepPhase.SETTLING:
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


async def test_requests_of_others_are_waited_for_and_said_once() -> None:
    """Each server that is already busy is named once, for the first target that reaches it."""
    stage = Stage()

    running = asyncio.create_task(stage.runner(SPARK_A, PROXY, RIVAL).run())
    await turns()
    stage.tell("spark-a", running=3.0)
    stage.tell("spark-b", running=2.0)
    await running
    waits = [one for one in stage.notices if "other clients" in one]
    assert waits == [
        "spark-a: requests of other clients ran before the first level",
        "proxy: requests of other clients ran on spark-b before the first level",
    ]
