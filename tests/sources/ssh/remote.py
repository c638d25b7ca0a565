"""What tests of nodes over ssh share: the installed program, and the process at the other end."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from pathlib import Path

from tests.sources.conftest import AMPLE_S

SPARKTOP = str(Path(sys.executable).with_name("sparktop"))


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
    ended, _, _ = select.select([held], [], [], AMPLE_S)
    os.close(held)
    return bool(ended)
