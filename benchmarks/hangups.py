"""Hang up on sparktop hundreds of times, at random moments and in many ways, and count surviving processes.

The viewer and the demo start in pseudo-terminals. Each is ended in one of the ways of `WAYS`: its terminal is
closed or a signal is sent, in some ways after the terminal has been left unread. A process that still runs
after `--seconds` has survived; it is printed and killed. PYTHONPATH can select another version of sparktop.

usage: hangups.py [--count 200] [--seconds 20] [--program viewer|demo|both] [--way NAME]...
"""

from __future__ import annotations

import argparse
import fcntl
import os
import random
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARK = "SPARKTOP_HANGUP"
"""Environment variable that marks the processes of one hang-up, so that orphans are found too."""
VIEWER = ("-m", "sparktop", "http://127.0.0.1:9/")
DEMO = ("-m", "sparktop", "demo")
SHELL_WAITS = ("sh", "-c", 'trap : HUP; "$0" "$@"; exit $?')
"""A session leader that does not pass the hang-up on and waits, as make does."""
SHELL_PASSES = ("bash", "--norc", "-i", "-c", '"$0" "$@"; exit $?')
FULL_S = 6.0
"""Seconds that a terminal is left unread, after which a program's writes block."""
CONTINUED = 5
"""Number of SIGCONTs sent to a program that was never stopped."""
_LONGEST_START_S = 30.0
_POLL_S = 0.05


class Terminal:
    """A program that leads the session of a pseudo-terminal, which this class reads or leaves unread."""

    def __init__(self, command: tuple[str, ...], leader: tuple[str, ...], home: str) -> None:
        """Start the program, under `leader` if there is one, with this as its controlling terminal."""
        self.mark = uuid.uuid4().hex
        self._master, slave = os.openpty()
        os.set_blocking(self._master, False)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        env = {"PATH": os.environ["PATH"], "HOME": home, "TERM": "xterm-256color", MARK: self.mark}
        if "PYTHONPATH" in os.environ:  # another version of sparktop, to compare
            env["PYTHONPATH"] = os.environ["PYTHONPATH"]
        # setsid --ctty makes the terminal the controlling one, then replaces itself by the program.
        words = ["setsid", "--ctty", *leader, sys.executable, *command]
        self.process = subprocess.Popen(
            words, stdin=slave, stdout=slave, stderr=slave, env=env, close_fds=True
        )
        os.close(slave)
        self.seen = 0

    def read_for(self, seconds: float, *, until_bytes: int | None = None) -> None:
        """Read the program's output for `seconds`, or until `until_bytes` were read in total."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and self._master >= 0:
            if until_bytes is not None and self.seen >= until_bytes:
                return
            if self.process.poll() is not None:
                return
            if select.select([self._master], [], [], min(left, _POLL_S))[0]:
                try:
                    self.seen += len(os.read(self._master, 1 << 16))
                except OSError:
                    time.sleep(min(left, _POLL_S))

    def close(self) -> None:
        """Close the terminal."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def alive(self) -> dict[int, str]:
        """Return the processes of this hang-up that still run, with their command lines."""
        self.process.poll()
        wanted, found = f"{MARK}={self.mark}".encode(), {}
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                state = (place / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and wanted in (place / "environ").read_bytes().split(b"\0"):
                    words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(place.name)] = words.strip()
        return found

    def program(self) -> int | None:
        """Return the id of the process that runs sparktop itself; None if there is none."""
        started = f"{sys.executable} -m sparktop"
        own = [pid for pid, words in self.alive().items() if words.startswith(started)]
        return min(own, default=None)

    def signal(self, *numbers: int) -> None:
        """Send signals to the program."""
        pid = self.program()
        if pid is None:
            return
        for number in numbers:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill_all(self) -> None:
        """Kill all processes that are left, and close the terminal."""
        for pid in self.alive():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.close()


@dataclass(frozen=True, slots=True)
class Way:
    """One way to end a program."""

    name: str
    end: Callable[[Terminal], None]
    leader: tuple[str, ...] = ()


def _unread_then(*numbers: int) -> Callable[[Terminal], None]:
    """Leave the terminal unread until writes block, then send the signals."""

    def end(terminal: Terminal) -> None:
        time.sleep(FULL_S)
        terminal.signal(*numbers)

    return end


def _signal_and_read(*numbers: int) -> Callable[[Terminal], None]:
    def end(terminal: Terminal) -> None:
        terminal.signal(*numbers)
        terminal.read_for(0.5)

    return end


def _hup_cont_close(terminal: Terminal) -> None:
    terminal.signal(signal.SIGHUP, signal.SIGCONT)
    terminal.close()


def _suspended_close(terminal: Terminal) -> None:
    terminal.signal(signal.SIGTSTP)
    terminal.read_for(0.5)
    terminal.close()
    time.sleep(0.2)
    terminal.signal(signal.SIGHUP, signal.SIGCONT)  # as the kernel does for an orphaned group


def _unread_close(terminal: Terminal) -> None:
    time.sleep(FULL_S)
    terminal.close()


def _cont_twice_close(terminal: Terminal) -> None:
    for _ in range(CONTINUED):
        terminal.signal(signal.SIGCONT)
        terminal.read_for(0.1)
    terminal.close()


WAYS = (
    Way("close", Terminal.close),
    Way("close under make", Terminal.close, SHELL_WAITS),
    Way("close under bash", Terminal.close, SHELL_PASSES),
    Way("HUP", _signal_and_read(signal.SIGHUP)),
    Way("HUP CONT", _signal_and_read(signal.SIGHUP, signal.SIGCONT)),
    Way("HUP CONT close", _hup_cont_close),
    Way("CONT CONT close", _cont_twice_close),
    Way("TERM", _signal_and_read(signal.SIGTERM)),
    Way("suspended, close", _suspended_close),
    Way("unread, TERM", _unread_then(signal.SIGTERM)),
    Way("unread, HUP", _unread_then(signal.SIGHUP)),
    Way("unread, close", _unread_close),
)


def hang_up(command: tuple[str, ...], way: Way, chance: random.Random, seconds: float) -> list[str]:
    """Start the program, end it at a random moment; return the processes that still run after `seconds`."""
    with tempfile.TemporaryDirectory(prefix="hangup", ignore_cleanup_errors=True) as home:
        terminal = Terminal(command, way.leader, home)
        try:
            if chance.random() < 0.2:
                terminal.read_for(chance.uniform(0.05, 3.0))
            else:
                terminal.read_for(_LONGEST_START_S, until_bytes=chance.choice((1, 100, 2000, 6000)))
                terminal.read_for(chance.uniform(0.0, 2.5))
            way.end(terminal)
            end = time.monotonic() + seconds
            while (left := terminal.alive()) and time.monotonic() < end:
                terminal.read_for(0.2) if way.name in {"HUP", "HUP CONT", "TERM"} else time.sleep(0.2)
            return [f"{pid} {words}" for pid, words in left.items()]
        finally:
            terminal.kill_all()


def parsed() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="hang up on sparktop, and count what outlives it")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0, help="until a process has survived")
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", choices=("viewer", "demo", "both"), default="both")
    parser.add_argument("--way", choices=[one.name for one in WAYS], action="append")
    return parser.parse_args()


def main() -> int:
    """Hang up `--count` times and print a table of the survivors; return 1 if there are any, else 0."""
    asked = parsed()
    programs = {"viewer": [VIEWER], "demo": [DEMO], "both": [VIEWER, DEMO]}[asked.program]
    ways = [one for one in WAYS if asked.way is None or one.name in asked.way]
    hung_up, survived = Counter[tuple[str, str]](), Counter[tuple[str, str]]()

    def do(at: int) -> tuple[tuple[str, str], list[str]]:
        command, way = programs[at % len(programs)], ways[at // len(programs) % len(ways)]
        chance = random.Random(f"{asked.seed}/{at}")  # noqa: S311 - random moments, no secrets
        left = hang_up(command, way, chance, asked.seconds)
        return ("demo" if command is DEMO else "viewer", way.name), left

    with ThreadPoolExecutor(asked.at_once) as pool:
        for key, left in pool.map(do, range(asked.count)):
            hung_up[key] += 1
            survived[key] += bool(left)
            for one in left:
                print(f"left after {asked.seconds:g} s: {' '.join(key)}: {one}", file=sys.stderr, flush=True)
    print("| program | way | hang-ups | with survivors |\n|---|---|---:|---:|")
    for key in sorted(hung_up):
        print(f"| {key[0]} | {key[1]} | {hung_up[key]} | {survived[key]} |")
    print(f"| all | | {hung_up.total()} | {survived.total()} |")
    return 1 if survived.total() else 0


if __name__ == "__main__":
    sys.exit(main())
