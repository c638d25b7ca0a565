"""Measure the cost of viewers to `sparktop serve`: CPU time and memory of its process, with and without.

The process watches two simulated servers and two simulated machines behind a router. Viewers in this process
read the live page like a browser, compressed; the simulation is a third process.

usage: viewers.py [--seconds 20] [--runs 50] [--write]        --runs: how many viewers
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import tables

GOAL_PERCENT = 10.0
"""Percent of a CPU core below which all viewers together must stay."""
WARM_UP_S = 4.0
START_S = 30.0
PAGES = ("/", "/balance", "/node/spark-a", "/backend/spark-a")
WIDTHS = (60, 154, 240)


@dataclass(slots=True)
class Viewing:
    """The cost of a set of viewers, and the data that they received."""

    name: str
    cpu_percent: float
    rss_mb: float
    kb_per_s: float
    """kB per second to each viewer, compressed."""


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process."""
    used = psutil.Process(pid).cpu_times()
    return used.user + used.system


class Viewer:
    """The connection of one browser, which reads everything that is sent."""

    def __init__(self, port: int, path: str, width: int) -> None:
        """Prepare to view `path` in a window of `width` cells."""
        self._port = port
        self._path = f"/live{path}?columns={width}"
        self.bytes = 0

    async def look(self) -> None:
        """Connect and read until cancelled."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n"
        try:
            writer.write(head.encode())
            first = await reader.readline()
            if b" 200 " not in first:
                raise RuntimeError(f"{self._path}: {first!r}")
            while data := await reader.read(65_536):
                self.bytes += len(data)
            raise RuntimeError("the server has closed the connection")
        finally:
            writer.transport.abort()


async def measured(
    name: str, pid: int, port: int, looks: Sequence[tuple[str, int]], seconds: float
) -> Viewing:
    """Measure the process `pid` while viewers read `looks`, the path and width of each."""
    viewers = [Viewer(port, path, width) for path, width in looks]
    tasks = [asyncio.create_task(viewer.look()) for viewer in viewers]
    try:
        await asyncio.sleep(WARM_UP_S)
        began, used, got = time.monotonic(), cpu_s(pid), sum(viewer.bytes for viewer in viewers)
        await asyncio.sleep(seconds)
        took = time.monotonic() - began
        broken = next((task for task in tasks if task.done()), None)
        if broken is not None:
            await broken
        got = sum(viewer.bytes for viewer in viewers) - got
        each = got / took / 1000 / max(1, len(viewers))
        return Viewing(
            name, (cpu_s(pid) - used) / took * 100, psutil.Process(pid).memory_info().rss / 1e6, each
        )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def serving() -> Iterator[tuple[int, int]]:
    """Start the simulation and `sparktop serve` on it; yield (its process id, its port)."""
    program = [sys.executable, "-m", "sparktop"]
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "HOME": home, "XDG_DATA_HOME": home, "XDG_STATE_HOME": home}
        config = Path(home) / "sparktop.toml"
        with config.open("wb") as out:
            demo = subprocess.Popen(
                [*program, "demo", "--serve"], stdout=out, stderr=subprocess.PIPE, text=True, env=env
            )
        serve = None
        try:
            assert demo.stderr is not None  # noqa: S101 - for mypy: it is a pipe
            demo.stderr.readline()
            command = [*program, "serve", "--config", str(config), "--listen", "127.0.0.1:0"]
            serve = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
            assert serve.stderr is not None  # noqa: S101 - as above
            line = next(line for line in serve.stderr if "serve on " in line)
            yield serve.pid, int(line.partition("http://127.0.0.1:")[2].partition(":")[0])
        finally:
            for process in (serve, demo):
                if process is not None:
                    process.terminate()
                    process.communicate(timeout=START_S)


async def run(pid: int, port: int, viewers: int, seconds: float) -> list[Viewing]:
    """Measure without viewers, with one, with many of one page, and with many of several pages."""
    await asyncio.sleep(WARM_UP_S)
    several = [(page, width) for page in PAGES for width in WIDTHS]
    sets = {
        "no viewer": [],
        "1 viewer": [("/", 154)],
        f"{viewers} viewers of the board": [("/", 154)] * viewers,
        f"{viewers} viewers, 3 widths": [("/", WIDTHS[at % len(WIDTHS)]) for at in range(viewers)],
        f"{viewers} viewers, 4 pages × 3 widths": [several[at % len(several)] for at in range(viewers)],
        "no viewer left": [],
    }
    return [await measured(name, pid, port, looks, seconds) for name, looks in sets.items()]


def main() -> int:
    """Measure and print the table; return 1 if viewers cost more than the goal, else 0."""
    parser = tables.options(__doc__, runs=50)
    parser.add_argument("--seconds", type=float, default=20.0, help="the window")
    options = parser.parse_args()
    with serving() as (pid, port):
        found = asyncio.run(run(pid, port, options.runs, options.seconds))
    rows = [
        (
            one.name,
            f"{one.cpu_percent:.1f}",
            f"{one.cpu_percent - found[0].cpu_percent:+.1f}",
            f"{one.rss_mb:.0f}",
            f"{one.kb_per_s:.1f}",
        )
        for one in found
    ]
    heads = ("viewers", "CPU, % of a core", "more than without viewers", "memory, MB", "kB/s each")
    cost = found[2].cpu_percent - found[0].cpu_percent
    said = f"{found[2].name} cost {cost:.1f} % of a core (goal: under {GOAL_PERCENT:g} %)."
    tables.publish("viewers.py", [*tables.table(heads, rows), "", said], write=options.write)
    return int(cost >= GOAL_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
