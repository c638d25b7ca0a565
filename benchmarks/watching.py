"""Measure the cost of watching two simulated servers and two machines with sparktop, beside other monitors.

Each program runs in a 200x50 pseudo-terminal with one update per second. Measured are the CPU time and the
memory of its whole process tree and the bytes that it sends to the terminal, over a window after a warm-up.
The simulated servers are separate processes and do not count. All programs are measured several times in
turns; the table has the medians. The time until sparktop's first complete paint stands beside that of an
empty Textual app, started in turns with it. Both start as after an installation.

usage: watching.py [--runs 3] [--seconds 60] [--starts 5] [--beside SPARKTOP] [--write]
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import tables
from msgspec.structs import replace

from sparktop.demo.command import DemoCluster, as_toml, make_watch
from sparktop.demo.scenario import Plan

WARM_UP_S = 10.0
START_S = 30.0
EMPTY_APP = """
from textual.app import App
from textual.widgets import Static
class Empty(App):
    def compose(self):
        yield Static("nothing to see")
Empty().run()
"""

_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-9;:?<=>]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>78DEHMNOZc])"
)
_ANSWERS = {
    b"\x1b[c": b"\x1b[?62;c",  # device attributes
    b"\x1b[6n": b"\x1b[1;1R",  # cursor position
    b"\x1b[?2026$p": b"\x1b[?2026;2$y",  # synchronised output: known, off
}
"""Answers to queries, by query: a real terminal answers these, and some programs wait for it."""
_READ_BYTES = 1 << 16
_SEEN_BYTES = 1 << 20
_END_S = 3.0


@dataclass(frozen=True, slots=True)
class Window:
    """The cost of a program over a time window."""

    cpu_percent: float
    """User and system time of its whole process tree, in percent of one core."""
    bytes_per_s: float
    """Output to the terminal."""
    writes_per_s: float
    rss_start_mib: float
    """Resident memory, summed over the tree, at the start."""
    rss_end_mib: float


class EndedError(Exception):
    """The program ended before it was measured; the message has its last output."""


class PtyProgram:
    """A program in its own pseudo-terminal, for as long as the context lasts."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        columns: int = 200,
        rows: int = 50,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare the program; entering the context starts it."""
        self._command = list(command)
        self._size = struct.pack("HHHH", rows, columns, 0, 0)
        self._env = {
            **os.environ,
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LC_ALL": "C.UTF-8",
            **(env or {}),
        }
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            self._env.pop(name, None)
        self._pid = 0
        self._fd = -1
        self._started_s = 0.0
        self._seen = b""
        self._bytes = 0
        self._writes = 0

    def __enter__(self) -> Self:
        """Start the program."""
        self._started_s = time.monotonic()
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            # The size is set before the program can ask for it.
            with suppress(OSError):
                fcntl.ioctl(0, termios.TIOCSWINSZ, self._size)
                os.execvpe(self._command[0], self._command, self._env)  # noqa: S606 - no shell is wanted
            os._exit(127)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the program and its children, with SIGTERM and then with SIGKILL."""
        tree = self._tree()
        for signum in (signal.SIGTERM, signal.SIGKILL):
            for process in tree:
                with suppress(psutil.Error):
                    process.send_signal(signum)
            _, tree = psutil.wait_procs(tree, timeout=_END_S)
        os.close(self._fd)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, os.WNOHANG)

    def wait_for(self, texts: Sequence[str], timeout_s: float) -> float | None:
        """Read until all texts have been output; return the seconds since the start, None after the timeout.

        Raises:
            EndedError: the program ended first.
        """
        wanted = {text.encode() for text in texts}
        while (left_s := self._started_s + timeout_s - time.monotonic()) > 0:
            if self._read(left_s):
                plain = _ESCAPES.sub(b"", self._seen)
                wanted = {text for text in wanted if text not in plain}
                if not wanted:
                    return time.monotonic() - self._started_s
        return None

    def idle(self, seconds: float) -> None:
        """Read the program's output for `seconds`."""
        end = time.monotonic() + seconds
        while (left_s := end - time.monotonic()) > 0:
            self._read(left_s)

    def measure(self, seconds: float) -> Window:
        """Measure the program's cost over the next `seconds`."""
        began = time.monotonic()
        bytes_before, writes_before = self._bytes, self._writes
        cpu_before, rss_start = self._cpu_s(), self._rss_mib()
        self.idle(seconds)
        took = time.monotonic() - began
        return Window(
            cpu_percent=100 * (self._cpu_s() - cpu_before) / took,
            bytes_per_s=(self._bytes - bytes_before) / took,
            writes_per_s=(self._writes - writes_before) / took,
            rss_start_mib=rss_start,
            rss_end_mib=self._rss_mib(),
        )

    def _read(self, timeout_s: float) -> bool:
        """Read what the program writes; return False if it writes nothing in time."""
        ready, _, _ = select.select([self._fd], [], [], timeout_s)
        if not ready:
            return False
        try:
            data = os.read(self._fd, _READ_BYTES)
        except OSError:
            data = b""  # on Linux, the other side is closed
        if not data:
            last = _ESCAPES.sub(b"", self._seen)[-500:].decode(errors="replace").strip()
            raise EndedError(f"{self._command[0]} ended: {last}")
        for question, answer in _ANSWERS.items():
            if question in data:
                os.write(self._fd, answer)
        self._bytes += len(data)
        self._writes += 1
        self._seen = (self._seen + data)[-_SEEN_BYTES:]
        return True

    def _tree(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._pid)
            return [root, *root.children(recursive=True)]
        except psutil.Error:
            return []

    def _cpu_s(self) -> float:
        """Return the CPU seconds of the process tree, including children that were waited for."""
        total = 0.0
        for process in self._tree():
            with suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

    def _rss_mib(self) -> float:
        total = 0
        for process in self._tree():
            with suppress(psutil.Error):
                total += process.memory_info().rss
        return total / 2**20


@dataclass(frozen=True, slots=True)
class Program:
    """A monitor, the command that starts it, and the texts of its first complete paint."""

    name: str
    what: str
    command: Sequence[str]
    painted: Sequence[str]
    env: dict[str, str] = field(default_factory=dict)


def peers(urls: Sequence[str], folder: Path) -> list[Program]:
    """Return the other monitors that are on PATH, each with one update per second."""
    (folder / "btop").mkdir()
    (folder / "btop" / "btop.conf").write_text("update_ms = 1000\n")
    known: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...], dict[str, str]], ...] = (
        ("btop", "this machine", ("--utf-force",), ("cpu", "mem"), {"XDG_CONFIG_HOME": str(folder)}),
        ("glances", "this machine", ("-t", "1", "--disable-check-update"), ("CPU",), {}),
        ("vllmstat", "1 server", ("-u", urls[0], "-i", "1"), ("vllm",), {}),
        ("vllm-htop", f"{len(urls)} servers", ("--url", *urls, "--interval", "1"), ("vllm",), {}),
    )
    return [
        Program(name, what, (path, *arguments), painted, env)
        for name, what, arguments, painted, env in known
        if (path := shutil.which(name))
    ]


def compare_costs(programs: Sequence[Program], seconds: float, turns: int) -> list[str]:
    """Measure the programs in turns; return the table of the medians."""
    windows: dict[str, list[Window]] = {program.name: [] for program in programs}
    for program in list(programs) * turns:
        try:
            with PtyProgram(program.command, env=program.env) as terminal:
                terminal.idle(WARM_UP_S)
                windows[program.name].append(terminal.measure(seconds))
        except EndedError as error:
            print(" ".join(str(error).split())[:120], file=sys.stderr)
    heads = ("program", "watches", "CPU % of a core", "kB/s sent", "writes/s", "MiB at first", "at last")
    rows = []
    for program in programs:
        if several := windows[program.name]:
            cpu, sent, writes, start, end = map(statistics.median, zip(*map(astuple, several), strict=True))
            cells = (f"{cpu:.2f}", f"{sent / 1e3:.1f}", f"{writes:.1f}", f"{start:.1f}", f"{end:.1f}")
            rows.append((program.name, program.what, *cells))
    return tables.table(heads, rows)


def compare_starts(ours: Program, floor: Program, starts: int, folder: Path) -> str:
    """Start both in turns; return a sentence with the medians until the first complete paint."""
    # Where the environment has turned bytecode off, every start would compile the whole package again.
    places = {"PYTHONPYCACHEPREFIX": str(folder / "compiled"), "XDG_CACHE_HOME": str(folder / "cache")}
    times: dict[str, list[float]] = {one.name: [] for one in (ours, floor)}
    for turn in range(starts + 1):
        for one in (ours, floor):
            env = {**one.env, **places, "PYTHONDONTWRITEBYTECODE": ""}
            with PtyProgram(one.command, env=env) as terminal:
                painted = terminal.wait_for(one.painted, START_S)
            if turn and painted is not None:  # the first turn compiles, and checks the configuration
                times[one.name].append(painted)
    said = ", ".join(f"{name} {statistics.median(values):.2f} s" for name, values in times.items() if values)
    return f"First complete paint, median of {starts} starts in turns: {said}."


def main() -> int:
    """Measure and print everything."""
    parser = tables.options(__doc__, runs=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="the window of each program")
    parser.add_argument("--starts", type=int, default=5, help="starts of sparktop and of the empty app")
    parser.add_argument("--beside", action="append", default=[], help="the sparktop of another version")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as name, DemoCluster(Plan(backends=2, seed=0)) as cluster:
        folder = Path(name)
        config = folder / "sparktop.toml"
        watch = replace(make_watch(cluster), sweeps=(), sweep_routers=())
        config.write_text(as_toml(watch))
        names = [target.name for target in cluster.targets]
        program = str(Path(sys.executable).with_name("sparktop"))
        env = {"XDG_STATE_HOME": str(folder / "state")}
        what = f"{len(names)} servers, {len(names)} machines"
        ours = Program("sparktop", what, (program, "--config", str(config)), names, env)
        empty = Program("empty Textual app", "nothing", (sys.executable, "-c", EMPTY_APP), ["nothing to see"])
        others = peers([target.url for target in cluster.targets], folder)
        for number, path in enumerate(options.beside, 1):
            state = {"XDG_STATE_HOME": str(folder / f"state-{number}")}
            others.insert(0, Program(path, what, (path, "--config", str(config)), names, state))
        lines = compare_costs([ours, empty, *others], options.seconds, options.runs)
        starts = compare_starts(ours, empty, options.starts, folder)
        tables.publish("watching.py", [*lines, "", starts], write=options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
