"""This machine, read in a thread of its own so that a slow driver never holds the screen up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from sparktop.hardware.machine import Machine
from sparktop.hardware.nvml import NvmlModule
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeIdentity, NodeSample

_CLOSING_S = 1.0
"""How long closing waits for the thread; one that hangs in a driver is left behind."""
_NEVER_CLOSED = "a source that is closed cannot be polled"

_Job = tuple[Callable[[], NodeSample | None], "Future[NodeSample | None]"]


class LocalSource:
    """Samples of this machine: one thread reads, and a poll waits for it as long as its deadline says."""

    def __init__(
        self,
        name: str,
        *,
        root: Path = Path("/"),
        nvml: NvmlModule | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read /proc and /sys below `root`, and GPUs through `nvml` (nvidia-ml-py when None)."""
        self.name = name
        self.show_processes = False
        """Whether samples hold the process table, which costs more than the rest: somebody looks at it."""
        self._clock = clock
        self._machine = Machine(root, nvml=nvml, clock=clock)
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._running: Future[NodeSample | None] | None = None
        self._running_since = 0.0
        self._closed = False

    @property
    def identity(self) -> NodeIdentity | None:
        """Who the machine is; None before the first sample."""
        return self._machine.identity

    async def poll(self, deadline_s: float) -> NodeSample | Failure:
        """Take one sample; a `Failure` when it is not there in time or the one before still hangs."""
        if self._closed:
            raise RuntimeError(_NEVER_CLOSED)
        if self._running is not None and not self._running.done():
            since_s = self._clock() - self._running_since
            return self._late(f"reading this machine has hung for {since_s:.0f} s")
        self._running_since = self._clock()
        job = self._running = self._submit(partial(self._machine.read, processes=self.show_processes))
        answer = asyncio.wrap_future(job)
        try:
            await asyncio.wait({answer}, timeout=deadline_s)
            sample = answer.result() if answer.done() else None
        finally:
            answer.cancel()  # the thread goes on; nobody waits for this sample any more
        return sample or self._late(f"reading this machine took longer than {deadline_s:g} s")

    async def close(self) -> None:
        """Give the driver's library back and end the thread, unless it hangs."""
        if self._closed:
            return
        self._closed = True
        if self._thread is None:
            return
        ended = asyncio.wrap_future(self._submit(self._machine.close))
        self._jobs.put(None)
        try:
            await asyncio.wait({ended}, timeout=_CLOSING_S)
        finally:
            ended.cancel()

    def _late(self, message: str) -> Failure:
        """What a poll without a sample gives."""
        return Failure(FailureKind.TIMEOUT, message, self._clock())

    def _submit(self, call: Callable[[], NodeSample | None]) -> Future[NodeSample | None]:
        """Have the thread make `call`; the thread is started by the first one."""
        if self._thread is None:
            # A daemon: a thread that hangs in a driver call must not keep the program from ending, as a
            # pool's thread would.
            self._thread = threading.Thread(
                target=_work, args=(self._jobs,), name=f"sparktop-{self.name}", daemon=True
            )
            self._thread.start()
        future: Future[NodeSample | None] = Future()
        future.set_running_or_notify_cancel()
        self._jobs.put((call, future))
        return future


def _work(jobs: SimpleQueue[_Job | None]) -> None:
    """Do one job after another until None comes."""
    while (job := jobs.get()) is not None:
        call, future = job
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - it belongs to the one who waits, whatever it is
            future.set_exception(error)
        else:
            future.set_result(result)
        del job, call, future  # nothing is held while waiting
