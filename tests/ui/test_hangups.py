"""A terminal that goes away or stops reading ends the program in time, with everything that it started."""

from __future__ import annotations

import asyncio
import os
import signal
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparktop.demo.command import _first_signal
from tests.ui.pseudo_terminal import WAITS, Terminal

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]
VIEWER = "http://127.0.0.1:9/"
"""A port on which nothing listens: the viewer shows why."""
DRAWN = b"refused"
ENTERED = b"\x1b[?1049h"
"""Begins the alternate screen."""
LEFT = b"\x1b[?1049l"
"""Ends it."""


@asynccontextmanager
async def viewing(terminal: Terminal, *leader: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the viewer until the block ends, from its first picture on."""
    async with terminal.running(VIEWER, leader=leader) as process:
        await terminal.until(DRAWN)
        yield process


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_stopped(pid: int) -> bool:
    """Return True for a process that a signal has stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@asynccontextmanager
async def outlived_by(*pids: int) -> AsyncIterator[None]:
    """Wait at the end of the block until these processes have ended."""
    assert pids
    descriptors, loop = [os.pidfd_open(pid) for pid in pids], asyncio.get_running_loop()
    yield
    for descriptor in descriptors:
        end = asyncio.Event()
        loop.add_reader(descriptor, end.set)
        await end.wait()
        loop.remove_reader(descriptor)
        os.close(descriptor)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
async def test_a_terminal_that_nobody_reads_does_not_hold_the_program(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """Where every write blocks, a signal still ends the viewer, with the signal's exit code."""
    terminal = Terminal(tmp_path)
    async with viewing(terminal) as process:
        terminal.fill()
        process.send_signal(number)
        assert await process.wait() == code


async def test_the_demo_ends_with_a_terminal_that_nobody_reads(tmp_path: Path) -> None:
    """Its servers end, too."""
    terminal = Terminal(tmp_path)
    async with terminal.running("demo", "--load", "0") as process:
        await terminal.until(b"spark-b")
        async with outlived_by(*children(process.pid)):
            terminal.fill()
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 143


@pytest.mark.parametrize("numbers", [(signal.SIGHUP, signal.SIGCONT), (signal.SIGCONT, signal.SIGHUP)])
async def test_the_kernels_two_signals_end_it_once(
    tmp_path: Path, numbers: tuple[signal.Signals, ...]
) -> None:
    """SIGHUP and SIGCONT, which the kernel sends together: the exit code is that of SIGHUP."""
    terminal = Terminal(tmp_path)
    async with viewing(terminal) as process:
        for number in numbers:
            process.send_signal(number)
        assert await process.wait() == 129


async def test_a_suspended_viewer_ends_with_its_terminal(tmp_path: Path) -> None:
    """One that was put to sleep wakes up with its terminal gone, takes it no more, and ends."""
    terminal = Terminal(tmp_path)
    async with viewing(terminal) as process:
        process.send_signal(signal.SIGTSTP)
        await terminal.until(LEFT)
        while not is_stopped(process.pid):
            pass
        terminal.close()
        process.send_signal(signal.SIGCONT)  # as a shell does for its jobs; the kernel for some of them
        assert await process.wait() == 129


async def test_ctrl_z_gives_the_terminal_back_until_fg(tmp_path: Path) -> None:
    """The shell has the terminal as it was; fg draws everything again, several times; q then ends it."""
    terminal = Terminal(tmp_path)
    script = 'set -m; "$0" "$@"; for n in 1 2 3; do echo given back $n; read -r line; fg; done; exit $?'
    async with viewing(terminal, "bash", "-c", script) as process:
        (viewer,) = children(process.pid)
        for number in range(1, 4):
            before = len(terminal.seen)
            terminal.type(b"\x1a")
            await terminal.until(b"given back %d" % number, after=before)
            assert LEFT in terminal.seen[before:]
            assert terminal.seen.rindex(LEFT) < terminal.seen.rindex(b"given back")
            assert is_stopped(viewer)
            assert termios.tcgetattr(terminal.master)[3] & termios.ECHO
            before = len(terminal.seen)
            terminal.type(b"go on\n")
            await terminal.until(ENTERED, after=before)
            await terminal.until(DRAWN, after=before)
        terminal.type(b"q")
        assert await process.wait() == 0


async def test_errors_in_a_file_leave_the_screen_to_the_terminal(tmp_path: Path) -> None:
    """`sparktop 2>file` opens the screen and leaves it again; the file has no escape sequence."""
    terminal = Terminal(tmp_path)
    async with viewing(terminal, "sh", "-c", '"$0" "$@" 2>errors; exit $?') as process:
        assert ENTERED in terminal.seen
        terminal.type(b"q")
        assert await process.wait() == 0
        assert LEFT in terminal.seen
    assert b"\x1b" not in (tmp_path / "errors").read_bytes()


async def test_ctrl_z_without_a_shell_stops_nothing(tmp_path: Path) -> None:
    """Where nobody could resume it, as in a window of its own, it says so and lives on."""
    terminal = Terminal(tmp_path)
    async with viewing(terminal) as process:
        terminal.type(b"\x1a")
        await terminal.until(b"no shell is behind this terminal")
        assert not is_stopped(process.pid)
        terminal.type(b"q")
        assert await process.wait() == 0


@pytest.mark.parametrize("leader", [(), WAITS])
async def test_serving_ends_with_its_terminal(tmp_path: Path, leader: tuple[str, ...]) -> None:
    """`demo --serve` whose terminal goes away ends, even where the session's leader keeps the hang-up."""
    terminal = Terminal(tmp_path)
    async with terminal.running("demo", "--serve", "--load", "0", leader=leader) as process:
        await terminal.until(b"Ctrl+C ends")
        async with outlived_by(*children(children(process.pid)[0] if leader else process.pid)):
            terminal.close()
            assert await process.wait() == 129


def test_a_terminal_that_went_away_before_the_wait_ends_it() -> None:
    """A terminal that was closed before the wait for its end counts as closed."""
    master, slave = os.openpty()
    os.close(master)
    try:
        assert _first_signal([signal.SIGUSR1], slave) == signal.SIGHUP
    finally:
        os.close(slave)
