"""Measure one viewer's cost of watching a fleet: 2 servers polled directly to 10,000 through a Prometheus.

Servers polled directly answer once a second with the full page of a real vLLM (`fleet_servers.py`); a fifth
as many machines, at least two, run beside them (`fleet_machines.py`). The Prometheus is a simulated one that
scrapes each server and its machine every 15 s (`prometheus_cost.py`). A row is measured on sparktop in a
pseudo-terminal of 200x50, right after the start or after a wait: CPU time of the whole program, pages per
second, bytes to the terminal, memory, the time until figures of servers are on the screen, and the time from
a key to the first byte of its response. On a busy machine polls are late and CPU time is missing: pages/s
shows this, and CPU time per page stays comparable.

usage: fleet.py [--servers 2,20,100,500] [--prometheus 500,2000,10000] [--machines N] [--seconds 20]
                [--wait 60] [--presses 30] [--dead N] [--mute N] [--record]
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from fleet_servers import POLLS
from ptybench import PtyProgram

COLUMNS, ROWS = 200, 50
WARM_UP_S = 10.0
FIRST_WITHIN_S = 60.0
HERE = Path(__file__).parent
SERVERS_OF_A_MACHINE = 5
BOARD = 32
"""Most servers with which the screen starts with the board; with more, it starts with the wall of groups."""
HEADS = (
    "servers",
    "machines",
    "read",
    "CPU, % of a core",
    "pages/s",
    "CPU a page, µs",
    "kB/s",
    "memory, MiB",
    "first figures, s",
    "key, median and p95, ms",
)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Servers, their machines and the configuration file that names them."""

    servers: int
    machines: int
    way: str
    """How they are read: directly or through a Prometheus."""
    config: Path
    first: str
    """Text that is on the screen once figures are: a state on the board, a model on the wall of groups."""

    def pages_sent(self) -> int | None:
        """Return the number of pages that the servers have sent so far; None if no server is polled."""
        if self.way != "directly":
            return None
        url = re.findall(r'url = "(.*)"', self.config.read_text(encoding="utf-8"))[0]
        with urllib.request.urlopen(f"{url}{POLLS}") as answer:  # noqa: S310 - a server of this benchmark
            return int(answer.read())

    def row(self, *cells: str) -> str:
        """Return a row of the table, which starts with the numbers of servers and machines."""
        return f"| {' | '.join((f'{self.servers:,}', f'{self.machines:,}', *cells))} |"


@contextmanager
def serving(script: str, *words: object) -> Iterator[str]:
    """Run a script of this folder until the end of the block; yield the line with its ports."""
    command = [sys.executable, str(HERE / script), *map(str, words)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline() if process.stdout is not None else ""
        finally:
            process.terminate()


@contextmanager
def directly(count: int, machines: int, dead: int = 0, mute: int = 0) -> Iterator[Fleet]:
    """Serve `count` servers and `machines` machines; yield them as a fleet."""
    with (
        tempfile.TemporaryDirectory() as folder,
        serving("fleet_servers.py", count, dead, mute) as ports,
        serving("fleet_machines.py", machines) as agents,
    ):
        config = Path(folder) / "sparktop.toml"
        tables = [
            f'[[backends]]\nname = "s{number:03d}"\nurl = "http://127.0.0.1:{port}"\nengine = "vllm"\n'
            + (f'nodes = ["n{number * machines // count:03d}"]\n' if machines else "")
            for number, port in enumerate(json.loads(ports))
        ] + [
            f'[[nodes]]\nname = "n{number:03d}"\nvia = "agent"\nurl = "http://127.0.0.1:{port}"\n'
            for number, port in enumerate(json.loads(agents))
        ]
        config.write_text("\n".join(tables), encoding="utf-8")
        yield Fleet(count, machines, "directly", config, "model-000" if count > BOARD else "busy")


def cost(percent: float, pages: int | None, seconds: float) -> tuple[str, str, str]:
    """Return the cells for CPU time, pages per second and CPU time per page."""
    if not pages:
        return f"{percent:.1f}", "–", "–"
    return f"{percent:.1f}", f"{pages / seconds:.0f}", f"{10_000 * percent * seconds / pages:.0f}"


def pressed(program: PtyProgram, presses: int) -> str:
    """Press arrow keys at random moments; return the cell with the median and p95 response times."""
    answers = []
    for _ in range(presses):
        program.idle(random.uniform(0.02, 0.25))  # noqa: S311 - random moments, no secret
        took = program.press(random.choice(("\x1b[A", "\x1b[B")))  # noqa: S311 - not a secret
        if took is not None:
            answers.append(1000 * took)
    if len(answers) < 2:
        return "–"
    return f"{statistics.median(answers):.0f}, {statistics.quantiles(answers, n=20)[-1]:.0f}"


def on_screen(fleet: Fleet, options: argparse.Namespace) -> Iterator[str]:
    """Yield a row for the seconds after the start, and one for those after the wait."""
    command = (sys.executable, "-m", "sparktop", "--config", str(fleet.config))
    home = fleet.config.parent
    env = {"XDG_STATE_HOME": str(home / "state"), "XDG_DATA_HOME": str(home / "data")}
    with PtyProgram(command, columns=COLUMNS, rows=ROWS, env=env) as program:
        first_s = program.wait_for(["tok/s", fleet.first], FIRST_WITHIN_S)
        program.idle(WARM_UP_S)
        for wait_s in (0.0, options.wait)[: 2 if options.wait else 1]:
            program.idle(wait_s)
            before = fleet.pages_sent()
            window = program.measure(options.seconds)
            pages = None if before is None else (fleet.pages_sent() or 0) - before
            yield fleet.row(
                f"{wait_s:.0f} s later" if wait_s else fleet.way,
                *cost(window.cpu_percent, pages, window.seconds),
                f"{window.bytes_per_s / 1000:.1f}",
                f"{window.rss_start_mib:.0f} → {window.rss_end_mib:.0f}",
                "–" if first_s is None or wait_s else f"{first_s:.1f}",
                pressed(program, options.presses),
            )


def recorded(fleet: Fleet, seconds: float) -> str:
    """Return the row of `sparktop record`."""
    words = [sys.executable, "-m", "sparktop", "record", "--config", str(fleet.config)]
    words += ["-o", str(fleet.config.parent / "fleet.sparktop")]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        one = psutil.Process(process.pid)
        time.sleep(WARM_UP_S)
        before, began, rss = one.cpu_times(), time.monotonic(), one.memory_info().rss
        sent = fleet.pages_sent()
        time.sleep(seconds)
        after, took = one.cpu_times(), time.monotonic() - began
        pages = None if sent is None else (fleet.pages_sent() or 0) - sent
        memory = f"{rss / 2**20:.0f} → {one.memory_info().rss / 2**20:.0f}"
        process.terminate()
    percent = 100 * (after.user + after.system - before.user - before.system) / took
    return fleet.row("record", *cost(percent, pages, took), "–", memory, "–", "–")


def fleets(options: argparse.Namespace) -> Iterator[Fleet]:
    """Yield each fleet while it is served."""
    for count in numbers(options.servers):
        machines = max(2, count // SERVERS_OF_A_MACHINE) if options.machines is None else options.machines
        with directly(count, machines, options.dead, options.mute) as fleet:
            yield fleet


def numbers(words: str) -> Sequence[int]:
    """Parse a comma-separated list of integers, which may be empty."""
    return [int(word) for word in words.split(",") if word]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--servers", default="2,20,100,500")
    parser.add_argument("--machines", type=int, help="machines beside the servers (a fifth of them)")
    parser.add_argument("--dead", type=int, default=0, help="number of servers that do not listen")
    parser.add_argument("--mute", type=int, default=0, help="number of servers that accept and never answer")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument(
        "--wait", type=float, default=60.0, help="seconds before the second row; 0: no such row"
    )
    parser.add_argument("--presses", type=int, default=30)
    parser.add_argument("--record", action="store_true", help="a row of `sparktop record` as well")
    options = parser.parse_args()
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for fleet in fleets(options):
        for row in on_screen(fleet, options):
            print(row, flush=True)
        if options.record:
            print(recorded(fleet, options.seconds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
