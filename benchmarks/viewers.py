"""Measure the cost of viewers to `sparktop serve`: CPU time and memory of its process, with and without.

The process watches two simulated servers and two simulated machines behind a router. Viewers in this process
read the live page like a browser, compressed; the simulation is a third process.

usage: viewers.py [--seconds 20] [--runs 50] [--write]        --runs: how many viewers
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import tables

from sparktop.demo.command import DemoCluster, as_toml, make_watch
from sparktop.demo.scenario import DemoPlan

GOAL_PERCENT = 10.0
"""Percent of a CPU core below which all viewers together must stay."""
WARM_UP_S = 4.0
PAGES = ("/", "/balance", "/node/spark-a", "/backend/spark-a")
WIDTHS = (60, 154, 240)
Look = tuple[str, int]
"""The path of a page and the width in cells at which it is viewed."""


async def view(port: int, look: Look, received: list[int]) -> None:
    """View a page until cancelled; add the size of each read to `received`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"GET /live{look[0]}?columns={look[1]} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n"
    )
    try:
        writer.write(head.encode())
        if b" 200 " not in (first := await reader.readline()):
            raise RuntimeError(f"{look}: {first!r}")
        while data := await reader.read(65_536):
            received.append(len(data))
        raise RuntimeError("the server has closed the connection")
    finally:
        writer.transport.abort()


async def measured(
    server: psutil.Process, port: int, looks: Sequence[Look], seconds: float
) -> tuple[float, float, float]:
    """Return (percent of a core, MB of memory, compressed kB/s to each viewer) while viewers read `looks`."""
    received: list[int] = []
    tasks = [asyncio.create_task(view(port, look, received)) for look in looks]
    try:
        await asyncio.sleep(WARM_UP_S)
        received.clear()
        began, before = time.monotonic(), server.cpu_times()
        await asyncio.sleep(seconds)
        took, after = time.monotonic() - began, server.cpu_times()
        for task in tasks:
            if task.done():
                task.result()
        cpu_s = after.user + after.system - before.user - before.system
        each = sum(received) / took / 1000 / max(1, len(looks))
        return 100 * cpu_s / took, server.memory_info().rss / 1e6, each
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def main() -> int:
    """Measure and print the table; return 1 if viewers cost more than the goal, else 0."""
    parser = tables.options(__doc__, runs=50)
    parser.add_argument("--seconds", type=float, default=20.0, help="the window")
    options = parser.parse_args()
    several = [(page, width) for page in PAGES for width in WIDTHS]
    sets: dict[str, list[Look]] = {
        "no viewer": [],
        "1 viewer": [("/", 154)],
        f"{options.runs} viewers of the board": [("/", 154)] * options.runs,
        f"{options.runs} viewers, 3 widths": [("/", WIDTHS[at % len(WIDTHS)]) for at in range(options.runs)],
        f"{options.runs} viewers, 4 pages × 3 widths": [several[at % 12] for at in range(options.runs)],
    }
    with tempfile.TemporaryDirectory() as home, DemoCluster(DemoPlan(backends=2, seed=0)) as cluster:
        env = {**os.environ, "HOME": home, "XDG_DATA_HOME": home, "XDG_STATE_HOME": home}
        config = Path(home) / "sparktop.toml"
        config.write_text(as_toml(make_watch(cluster)))
        command = [sys.executable, "-m", "sparktop", "serve", "--listen", "127.0.0.1:0"]
        command += ["--config", str(config)]
        with psutil.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as server:
            line = next(line for line in server.stderr if "serve on " in line)
            port = int(line.partition("http://127.0.0.1:")[2].partition(":")[0])
            found = [asyncio.run(measured(server, port, looks, options.seconds)) for looks in sets.values()]
            server.terminate()
    alone = found[0][0]
    rows = [
        (name, f"{cpu:.1f}", f"{cpu - alone:+.1f}", f"{memory:.0f}", f"{each:.1f}")
        for name, (cpu, memory, each) in zip(sets, found, strict=True)
    ]
    heads = ("viewers", "CPU, % of a core", "more than without viewers", "memory, MB", "kB/s each")
    cost = found[2][0] - alone
    said = (
        f"{options.runs} viewers of the board cost {cost:.1f} % of a core (goal: under {GOAL_PERCENT:g} %)."
    )
    tables.publish("viewers.py", [*tables.table(heads, rows), "", said], write=options.write)
    return int(cost >= GOAL_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
