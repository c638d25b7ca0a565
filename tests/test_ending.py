"""The time limit for ending: a program that was asked to end is gone in time, whatever blocks it.

Time limits in a task that ends: as Python 3.11.3 has them, on every Python.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress

import pytest

from sparktop import stopping
from sparktop.ending import Ending

BLOCKED = """
import asyncio, os, signal, sys
from sparktop import ending, stopping
ending.PATIENCE_S = 5.0 if sys.argv[1] == "loop" else 0.05  # a loop is given time to hear of it
ending.ENDING.enabled = True
async def main():
    stopping.on_signals({signal.SIGTERM: 7, signal.SIGHUP: 8}, lambda _: print("heard", flush=True))
    print("ready", flush=True)
    if sys.argv[1] == "write":
        _, full = os.pipe()
        while True:
            os.write(full, bytes(4096))
    if sys.argv[1] == "lock":
        import threading
        threading.Lock().acquire() and threading.Semaphore(0).acquire()
    await asyncio.Event().wait()
asyncio.run(main())
"""
STUCK_THREADS = """
import os, sys
from sparktop import cli, ending
ending.PATIENCE_S = cli.CLOSING_S = 0.05
cli.main = lambda: threads() or 5
def threads():
    import threading
    threading.Thread(target=threading.Event().wait).start()
cli.program()
"""
FINALIZING = """
import atexit, os, sys
from sparktop import cli, ending
cli.CLOSING_S, ending._ALARM_AFTER_S = 0.05, 0.05
cli.main = lambda: 0
ending.ENDING._leave = lambda code: None
_, full = os.pipe()
os.set_blocking(full, False)
try:
    while True:
        os.write(full, bytes(4096))
except BlockingIOError:
    os.set_blocking(full, True)
atexit.register(os.write, full, bytes(4096))
cli.program()
"""


def started(script: str, *words: str) -> subprocess.Popen[str]:
    words = (sys.executable, "-c", script, *words)
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)  # noqa: S603 - scripts of this file


class Left:
    """Records the exit codes and alarms of an `Ending` instead of ending the process."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.alarms: list[float] = []
        self.done = threading.Event()
        self.ending = Ending(self._leave, self.alarms.append)

    def _leave(self, code: int) -> None:
        self.codes.append(code)
        self.done.set()


def test_the_first_clock_counts() -> None:
    """A forced end restores the terminal first and uses the exit code of the first request to end."""
    left, restored = Left(), list[str]()
    left.ending.restore = lambda: restored.append("terminal")
    left.ending.begin(143, 0.0)
    left.ending.begin(0, 0.0)
    assert left.done.wait(10)
    assert (left.codes, restored) == ([143], ["terminal"])


def test_no_later_step_of_an_end_prolongs_it() -> None:
    """The first request bounds the whole end: a later one may only shorten what is left."""
    left = Left()
    left.ending.begin(143, 1000.0)
    left.ending.begin(0, 2000.0)
    assert left.alarms == [1010.0]
    left.ending.begin(3, 0.0)
    assert left.done.wait(10)
    assert left.codes == [3]
    assert left.alarms == [1010.0, 10.0]


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("held_by", ["write", "lock", "loop"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 7), (signal.SIGHUP, 8)])
def test_a_signal_ends_a_program_whatever_holds_it(held_by: str, number: signal.Signals, code: int) -> None:
    """A signal ends a program that blocks in a write, in a lock, or in an event loop that does not end."""
    with started(BLOCKED, held_by) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait() == code
    assert rest == ("heard\n" if held_by == "loop" else "")


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("program", "code"), [(STUCK_THREADS, 5), (FINALIZING, -signal.SIGALRM)])
def test_a_thread_or_a_last_write_does_not_hold_the_interpreter(program: str, code: int) -> None:
    """A thread that never ends holds nothing up; where our forced end fails too, SIGALRM ends the process."""
    with started(program) as process:
        assert process.wait() == code


Make = Callable[[float], AbstractAsyncContextManager[object]]


@pytest.fixture(params=[stopping.timeout, stopping._Timeout], ids=["in use", "stand-in"])
def limit(request: pytest.FixtureRequest) -> Make:
    made: Make = request.param
    return made


async def test_each_step_of_a_clean_up_has_its_limit(limit: Make) -> None:
    """A task that was cancelled goes on after a time limit, so that it can end what it started."""
    steps: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for step in ("ask", "terminate", "kill"):
                with suppress(TimeoutError):
                    async with limit(0.01):
                        await asyncio.Event().wait()
                steps.append(step)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["ask", "terminate", "kill"]


async def test_what_ends_in_time_is_left_alone(limit: Make) -> None:
    """Neither a result nor an error of the content changes, nor a cancellation from outside."""
    async with limit(5.0):
        await asyncio.sleep(0)
    with pytest.raises(KeyError):
        async with limit(5.0):
            raise KeyError

    async def wait() -> None:
        async with limit(5.0):
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
