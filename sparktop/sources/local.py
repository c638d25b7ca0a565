"""Source of this machine's samples, read in a thread so that a slow driver never blocks the screen."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from sparktop.hardware.gpu import NvmlModule
from sparktop.hardware.machine import Machine
from sparktop.hardware.ras import RasReader
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.ranks import RanksReply
from sparktop.stopping import timeout

_CLOSING_S = 1.0
"""Seconds that closing waits for the thread; a thread that hangs in a driver is abandoned."""
_CLOSED_MESSAGE = "a source that is closed cannot be polled"

_Job = tuple[Callable[[], NodeSample | None], "Future[NodeSample | None]"]
"""(what the thread is to do, the future that gets its result)."""


class LocalSource:
    """Polls this machine.

    A background thread reads each sample, and a poll waits for the thread at most until the poll's deadline.
    """

    def __init__(
        self,
        name: str,
        *,
        root: Path = Path("/"),
        nvml: NvmlModule | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read /proc and /sys below `root`, and GPUs through `nvml` (the installed module when None)."""
        self.name = name
        self.show_processes = False
        """Whether samples include the process table, which costs more than the rest; set while it is on
        screen."""
        self._clock = clock
        self._machine = Machine(root, nvml=nvml, clock=clock, journal=root == Path("/"))
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._running: Future[NodeSample | None] | None = None
        self._running_since = 0.0
        self._closed = False
        self._ras = RasReader(root=root, clock=clock)

    @property
    def identity(self) -> NodeIdentity | None:
        """Identity of the machine; None before the first sample."""
        return self._machine.identity

    async def poll(self, deadline_s: float) -> NodeSample | Failure:
        """Return one sample.

        Return a `Failure` if reading takes longer than `deadline_s` seconds or the previous read still hangs.
        """
        if self._closed:
            raise RuntimeError(_CLOSED_MESSAGE)
        if self._running is not None and not self._running.done():
            since_s = self._clock() - self._running_since
            return self._timeout_failure(f"reading this machine has hung for {since_s:.0f} s")
        self._running_since = self._clock()
        job = self._running = self._submit(partial(self._machine.read, processes=self.show_processes))
        answer = asyncio.wrap_future(job)
        try:
            await asyncio.wait({answer}, timeout=deadline_s)
            sample = answer.result() if answer.done() else None
        finally:
            answer.cancel()  # the thread finishes its read, but the sample is dropped
        return sample or self._timeout_failure(f"reading this machine took longer than {deadline_s:g} s")

    async def ask_ranks(self, deadline_s: float) -> RanksReply | Failure:
        """Return what NCCL on this machine answers about the ranks of a job, within `deadline_s` seconds.

        A query may harm a job: it is made only on request, see `RasReader`.
        """
        try:
            async with timeout(deadline_s):
                return await self._ras.ask()
        except TimeoutError:
            return self._timeout_failure(f"NCCL on this machine gave no answer within {deadline_s:g} s")

    async def close(self) -> None:
        """Unload the NVIDIA driver's library and end the thread.

        A thread that has not ended after `_CLOSING_S` seconds is left behind.
        """
        if self._closed:
            return
        self._closed = True
        await self._ras.close()
        if self._thread is None:
            return
        close_future = asyncio.wrap_future(self._submit(self._machine.close))
        self._jobs.put(None)
        try:
            await asyncio.wait({close_future}, timeout=_CLOSING_S)
        finally:
            close_future.cancel()

    def _timeout_failure(self, message: str) -> Failure:
        """Return a `Failure` of kind TIMEOUT with `message`, dated now."""
        return Failure(FailureKind.TIMEOUT, message, self._clock())

    def _submit(self, call: Callable[[], NodeSample | None]) -> Future[NodeSample | None]:
        """Queue `call` for the thread and return its future; start the thread at first use."""
        if self._thread is None:
            # A daemon thread: unlike a pool's thread, it cannot keep the program from exiting when a driver
            # call hangs.
            self._thread = threading.Thread(
                target=_run_jobs, args=(self._jobs,), name=f"sparktop-{self.name}", daemon=True
            )
            self._thread.start()
        future: Future[NodeSample | None] = Future()
        future.set_running_or_notify_cancel()
        self._jobs.put((call, future))
        return future


def _run_jobs(jobs: SimpleQueue[_Job | None]) -> None:
    """Run the jobs of the queue until None is taken from it.

    Put each result or exception into the job's future.
    """
    while (job := jobs.get()) is not None:
        call, future = job
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - any exception belongs to the waiting caller
            future.set_exception(error)
        else:
            future.set_result(result)
        del job, call, future  # hold no references while waiting
