"""The generator as a process: its commands, its messages, and how it ends."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from sparktop.sweep.generator.wire import (
    Calibrate,
    Calibrated,
    Refused,
    RunLoad,
    WorkerMessage,
    WorkerTarget,
)
from sparktop.sweep.plan.plan import Timeouts
from sparktop.sweep.run.worker_process import SweepWorker, WorkerGoneError
from tests.known import known
from tests.sweep.stream_server import StreamServer, hang_after_three

ROOT = Path(__file__).resolve().parents[3]
LIMITS = Timeouts(connect_s=20.0, first_token_s=40.0, between_tokens_s=40.0, whole_s=50.0)
pytestmark = pytest.mark.process


def load(server: StreamServer, concurrency: int) -> RunLoad:
    return RunLoad("run", WorkerTarget(server.url, "tiny"), concurrency, 40, 8, timeouts=LIMITS)


async def started(code: str) -> asyncio.subprocess.Process:
    """Start Python code in a process, with pipes to it and from it."""
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe
    )


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
    process = await started(code)
    out, _ = await process.communicate()
    assert (process.returncode, out) == (0, b"[]\n")


async def test_a_limit_that_is_too_low_is_named(server: StreamServer) -> None:
    """Where the hard limit of open files is too low, the run is refused with what to raise."""
    script = (
        "import resource, runpy; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64));"
        "runpy.run_module('sparktop.sweep.generator.worker', run_name='__main__')"
    )
    async with SweepWorker(await started(script)) as limited:
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
    with pytest.raises(WorkerGoneError) as gone:
        async for _ in worker.messages():
            pass
    assert gone.value.failure is None


async def gone(pid: int) -> None:
    """Wait until a process that may not be ours has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, ended.set)
    try:
        async with asyncio.timeout(300):
            await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def test_the_parent_is_killed(server: StreamServer) -> None:
    """With its parent gone the process is gone too, even while others hold its standard input open."""
    server.behave = hang_after_three
    script = f"""
import asyncio
import os
from sparktop.sweep.run.worker_process import SweepWorker, WorkerGoneError
from sparktop.sweep.generator.wire import Calibrate, Calibrated, RunLoad, WorkerTarget
async def main():
    worker = await SweepWorker.start()
    target = WorkerTarget("{server.url}", "tiny")
    await worker.send(Calibrate("calibration", target, 40, 8))
    assert isinstance(await anext(worker.messages()), Calibrated)
    if os.fork() == 0:
        os.read(0, 1)
        os._exit(0)
    print(worker.pid, flush=True)
    async for _ in worker.run(RunLoad("run", target, 8, 40, 8)):
        pass
asyncio.run(main())
"""
    parent = await started(script)
    try:
        pid = int(await known(parent.stdout).readline())
        async with asyncio.timeout(300):
            await server.someone_waits.wait()
        parent.kill()
        await gone(pid)
    finally:
        with suppress(ProcessLookupError):
            parent.kill()
        known(parent.stdin).close()  # ends the one that holds on
        await known(known(parent.stdout)).read()
        await parent.wait()
    server.held.set()  # hanging answers find their connections closed
    async with asyncio.timeout(300):
        await server.all_gone.wait()
