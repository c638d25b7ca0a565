"""The program in a terminal of its own, which may go away or be left unread."""

from __future__ import annotations

import asyncio
import os
import select
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

SETTLED_S = 0.1
"""After so long without room a terminal is full."""
WAITS = ("sh", "-c", 'trap : HUP; "$0" "$@"; exit $?')
"""A leader that keeps the hang-up to itself and waits, as make does."""


class Terminal:
    """The program in a terminal of its own, which can go away."""

    def __init__(self, home: Path, size: tuple[int, int] | None = None) -> None:
        """Make a terminal of so many columns and rows; None: it does not say how large it is."""
        self.home = home
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "TERM": "xterm-256color",
        }
        self.master, self.slave = os.openpty()
        if size is not None:
            termios.tcsetwinsize(self.slave, size[::-1])
        self.path = os.ttyname(self.slave)
        self.seen = b""
        self.told = asyncio.Event()

    @asynccontextmanager
    async def running(
        self, *words: str, leader: tuple[str, ...] = ()
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run the viewer, below a leader of its session if one is given; it is ended where it did not end."""
        process = await asyncio.create_subprocess_exec(
            *leader,
            sys.executable,
            "-m",
            "sparktop",
            *words,
            env=self.env,
            cwd=self.home,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            preexec_fn=self._own_terminal,
        )
        os.close(self.slave)
        asyncio.get_running_loop().add_reader(self.master, self._read)
        try:
            yield process
        finally:
            self.close()
            if process.returncode is None:
                process.kill()
            await process.wait()

    def _own_terminal(self) -> None:
        os.setsid()
        os.close(
            os.open(os.ttyname(self.slave), os.O_RDWR)
        )  # the first one opened becomes the controlling one

    def _read(self) -> None:
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:  # the other end is closed
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self.master)
        self.seen += data
        self.told.set()

    async def more(self) -> None:
        """Wait until the program has written something."""
        self.told.clear()
        await self.told.wait()

    async def until(self, words: bytes, *, after: int = 0) -> None:
        """Wait until the program has written these words after the first `after` bytes."""
        while words not in self.seen[after:]:
            await self.more()

    def type(self, keys: bytes) -> None:
        """Type keys."""
        os.write(self.master, keys)

    def fill(self) -> None:
        """Read no more, and leave no room in the terminal: from now on writing to it blocks."""
        asyncio.get_running_loop().remove_reader(self.master)
        slave = os.open(self.path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        # The kernel makes room once more when it moves what is written over to the reader's side.
        while select.select([], [slave], [], SETTLED_S)[1]:
            with suppress(BlockingIOError):
                os.write(slave, bytes(1024))
        os.close(slave)

    def logs(self) -> str:
        """Return what the program wrote into its logs."""
        return "".join(path.read_text(encoding="utf-8") for path in self.home.rglob("*.log"))

    def close(self) -> None:
        """Close the terminal: the kernel sends SIGHUP."""
        if self.master >= 0:
            asyncio.get_running_loop().remove_reader(self.master)
            os.close(self.master)
            self.master = -1
