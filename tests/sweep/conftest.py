"""A server that can be made to behave badly, and a client that loads it in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import pytest
from msgspec.structs import replace

from sparktop.model.load import Level, LoadEvent, RequestEnded, concurrency_point
from sparktop.sweep.generator.calibration import Calibration
from sparktop.sweep.generator.client import LoadClient
from sparktop.sweep.generator.connection import ConnectionPool, resolve
from sparktop.sweep.generator.exchange import RunLog
from sparktop.sweep.generator.wire import Calibrate, Calibrated, RunLoad, TokenBin, WorkerTarget
from sparktop.sweep.generator.worker import new_client
from sparktop.sweep.plan.plan import Timeouts
from sparktop.sweep.result.level import level_result
from sparktop.sweep.run.worker_process import RunRecord
from tests.sweep.stream_server import Behave, StreamServer
from tests.sweep.test_sweep_command import Command
from tests.sweep.trouble_bench import Bench, bench_on

QUICK = Timeouts(connect_s=5.0, first_token_s=20.0, between_tokens_s=20.0, whole_s=30.0)


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """`sparktop sweep` in a home of its own."""
    return Command(tmp_path)


@pytest.fixture
async def server() -> AsyncIterator[StreamServer]:
    """Yield a server that behaves well until it is set to misbehave."""
    found = StreamServer()
    await found.start()
    yield found
    await found.stop()


@dataclass(slots=True)
class Loaded:
    """The results of a run in this process."""

    record: RunRecord
    bins: tuple[TokenBin, ...]
    client: LoadClient

    @property
    def events(self) -> list[LoadEvent]:
        """All events; of tokens only the first ones of each request."""
        return self.record.events

    @property
    def ends(self) -> list[RequestEnded]:
        """How its requests ended."""
        return [event for event in self.events if isinstance(event, RequestEnded)]


class InProcess:
    """The client without its process: calibrates at a well-behaved server, then makes runs."""

    def __init__(self, server: StreamServer) -> None:
        self.server = server
        self.target = WorkerTarget(server.url, "tiny")
        self.calibrated: Calibrated | None = None
        self.client: LoadClient | None = None
        self.trials = 0
        """Requests of the newest calibration."""
        self.waits: list[str] = []
        """What calibrations said before each wait for a busy server."""

    async def load(
        self, behave: Behave | None = None, load: RunLoad | None = None, **changes: object
    ) -> Loaded:
        """Make a run of `load`, or of 4 requests with 8 tokens; `behave` answers it."""
        command = load or RunLoad("run", self.target, 4, 40, 8, timeouts=QUICK)
        command = replace(command, **changes)  # type: ignore[arg-type]  # fields of RunLoad, by name
        endpoint = await resolve(command.target, perf_counter())
        pool = ConnectionPool(endpoint, command.timeouts.connect_s)
        calibrate = Calibrate("calibration", command.target, command.prompt_tokens, command.output_tokens)
        self.calibrated, recipe = await Calibration(calibrate, pool, self.waits.append).find()
        assert recipe is not None, self.calibrated.failure
        self.trials = self.server.asked
        self.server.asked, self.server.bodies, self.server.most_in_flight = 0, [], 0
        if behave is not None:
            self.server.behave = behave
        log = RunLog(command.id, command.run)
        self.client = new_client(command, pool, recipe, log)
        await self.client.prepare()
        await self.client.run()
        record = RunRecord()
        if (batch := log.flush(perf_counter())) is not None:
            record.add(batch)
        for times in log.token_times():
            record.add(times)
        return Loaded(record, () if batch is None else batch.bins, self.client)


@pytest.fixture
async def in_process(server: StreamServer) -> AsyncIterator[InProcess]:
    """Yield the client in this process; check that no connection or task of its own is left afterwards."""
    before = asyncio.all_tasks()
    yield InProcess(server)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not {task for task in left if "StreamServer" not in repr(task)}


GOOD = {"ok": 4, "tokens": 32}


def figures(loaded: Loaded) -> dict[str, object]:
    """Return the counts of a level of four requests with 8 tokens each."""
    found = level_result(Level("server", concurrency_point(4), 40, 8), loaded.record.traces())
    return {"ok": found.requests.ok, "tokens": found.tokens.generated}


@pytest.fixture
def bench(server: StreamServer) -> Bench:
    """Return a server on a machine, both watched, whose samples the test provides."""
    return bench_on(server)
