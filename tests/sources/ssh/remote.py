"""What tests of nodes over ssh share: the installed program, a reading, and the process at the other end."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from pathlib import Path

from sparktop.model.failure import Failure
from sparktop.model.node import NodeSample
from sparktop.sources.ssh import SshSource

SPARKTOP = str(Path(sys.executable).with_name("sparktop"))
DEADLINE_S = 20.0


class RemoteProcess:
    """The process at the other end, held so that its id cannot become another's."""

    def __init__(self, folder: Path) -> None:
        self.pid = int((folder / "pid").read_text(encoding="utf-8"))
        self._fd = os.pidfd_open(self.pid)

    def kill(self) -> None:
        """Kill it as the kernel does when memory runs out."""
        signal.pidfd_send_signal(self._fd, signal.SIGKILL)

    async def ended(self) -> None:
        """Wait until it has gone; the test's timeout ends it otherwise."""
        gone = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._fd, gone.set)
        await gone.wait()
        loop.remove_reader(self._fd)
        os.close(self._fd)


def has_ended(pid: int) -> bool:
    """Return whether a process ends within a deadline, even if no parent reads its exit status."""
    try:
        held = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    ended, _, _ = select.select([held], [], [], DEADLINE_S)
    os.close(held)
    return bool(ended)


async def sample_of(source: SshSource) -> NodeSample:
    reading = await source.poll(DEADLINE_S)
    assert isinstance(reading, NodeSample), reading
    return reading


async def failure_of(source: SshSource, deadline_s: float = DEADLINE_S) -> Failure:
    reading = await source.poll(deadline_s)
    assert isinstance(reading, Failure), reading
    assert reading.message.isprintable()
    return reading
