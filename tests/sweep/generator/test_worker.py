"""The generator as a process: its commands, its messages, and how it ends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sparktop.sweep.generator.wire import (
    Calibrate,
    Calibrated,
    Refused,
    RunLoad,
    WorkerEnded,
    WorkerMessage,
    WorkerTarget,
)
from sparktop.sweep.plan.plan import Timeouts
from sparktop.sweep.run.worker_process import SweepWorker
from tests.sweep.stream_server import StreamServer, hang_after_three

ROOT = Path(__file__).resolve().parents[3]
LIMITS = Timeouts(connect_s=20.0, first_token_s=40.0, between_tokens_s=40.0, whole_s=50.0)
pytestmark = pytest.mark.process


@pytest.fixture
async def worker(server: StreamServer) -> AsyncIterator[SweepWorker]:
    """Yield a calibrated process; it has exited and its pipes are closed afterwards."""
    async with await SweepWorker.start() as found:
        await calibrate(found, server)
        yield found
    assert found._process.returncode is not None


def load(server: StreamServer, concurrency: int, run_id: str = "run", tokens: int = 8) -> RunLoad:
    return RunLoad(run_id, WorkerTarget(server.url, "tiny"), concurrency, 40, tokens, timeouts=LIMITS)


async def calibrate(worker: SweepWorker, server: StreamServer) -> None:
    """Calibrate for the runs of `load`."""
    await worker.send(Calibrate("calibration", WorkerTarget(server.url, "tiny"), 40, 8, timeouts=LIMITS))
    async for message in worker.messages():
        if isinstance(message, Calibrated):
            return


async def test_the_process_loads_what_it_needs_and_no_more() -> None:
    """Neither another HTTP client nor the models of result files: importing them costs more than a load."""
    names = "aiohttp", "httpx", "pydantic", "textual", "psutil"
    code = (
        f"import sys, sparktop.sweep.generator.worker; print([one for one in {names} if one in sys.modules])"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    out, _ = await process.communicate()
    assert (process.returncode, out) == (0, b"[]\n")


async def test_a_limit_that_is_too_low_is_named(server: StreamServer) -> None:
    """Where the hard limit of open files is too low, the run is refused with what to raise."""
    script = (
        "import resource, runpy; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64));"
        "runpy.run_module('sparktop.sweep.generator.worker', run_name='__main__')"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with SweepWorker(process) as limited:
        assert (await anext(limited.messages())).__class__.__name__ == "Ready"
        last: WorkerMessage | None = None
        async for message in limited.run(load(server, 100)):
            last = message
    assert isinstance(last, Refused)
    assert last.failure.word == "descriptors"
    assert "ulimit -Hn" in last.failure.message


async def test_it_ends_with_its_input(server: StreamServer) -> None:
    """Closing ends the process with exit code 0, also in mid-run, and is not a failure."""
    worker = await SweepWorker.start()
    await calibrate(worker, server)
    server.behave = hang_after_three
    await worker.send(load(server, 8))
    await server.someone_waits.wait()
    await worker.close()
    last: WorkerMessage | None = None
    async for message in worker.messages():
        last = message
    assert last == WorkerEnded(0, None)
