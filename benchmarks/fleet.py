"""Measure one viewer's cost of watching a fleet of 2 to 500 servers that are polled directly.

The servers answer once a second with the page of a real vLLM 0.32 under load, with 700 lines. All counters
and buckets of a server grow in proportion, so that quantiles stay those of the page while rates change;
gauges follow a slow wave, different for each server; eight servers share a model. A fifth as many simulated
GB10 machines, at least two, run in the same process behind the agent's own server. A row is measured on
sparktop in a pseudo-terminal of 200x50, right after the start and after a wait: CPU time of the whole
program, pages per second, bytes to the terminal, memory, the time until figures of servers are on the
screen, and the time from a key to the first byte of its response. On a busy machine polls are late and CPU
time is missing: pages/s shows this, and CPU time per page stays comparable.

usage: fleet.py [--servers 2 100 500] [--seconds 20] [--wait 60] [--presses 30] [--write]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import tables
import uvloop
from ptybench import PtyProgram

from sparktop.agent.gate import Limits
from sparktop.agent.reader import Sampler
from sparktop.agent.server import AgentServer
from sparktop.demo.machine import MachineReader
from sparktop.demo.scenario import DEFAULT_SCENARIO, SCENARIOS
from sparktop.hardware.ras import RasReader

_MANY = Limits(requests_per_s=10_000.0, request_burst=10_000.0)
"""Rate limits high enough for all requests, which come from one address."""
COLUMNS, ROWS = 200, 50
WARM_UP_S = 10.0
FIRST_WITHIN_S = 60.0
SERVERS_OF_A_MACHINE = 5
BOARD = 32
"""Most servers with which the screen starts with the board; with more, it starts with the wall of groups."""
HEADS = (
    "servers",
    "machines",
    "when",
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
    config: Path
    first: str
    """Text that is on the screen once figures are: a state on the board, a model on the wall of groups."""

    def pages_sent(self) -> int:
        """Return the number of pages that the servers have sent so far."""
        url = re.findall(r'url = "(.*)"', self.config.read_text(encoding="utf-8"))[0]
        with urllib.request.urlopen(f"{url}{POLLS}") as answer:  # noqa: S310 - a server of this benchmark
            return int(answer.read())


@contextmanager
def served(count: int) -> Iterator[Fleet]:
    """Serve `count` servers, and machines beside them, in another process; yield them as a fleet."""
    machines = max(2, count // SERVERS_OF_A_MACHINE)
    command = [sys.executable, __file__, "--serve", str(count), str(machines)]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            ports = json.loads(process.stdout.readline() if process.stdout is not None else "")
            config = Path(folder) / "sparktop.toml"
            texts = [
                f'[[backends]]\nname = "s{number:03d}"\nurl = "http://127.0.0.1:{port}"\n'
                f'engine = "vllm"\nnodes = ["n{number * machines // count:03d}"]\n'
                for number, port in enumerate(ports[:count])
            ] + [
                f'[[nodes]]\nname = "n{number:03d}"\nvia = "agent"\nurl = "http://127.0.0.1:{port}"\n'
                for number, port in enumerate(ports[count:])
            ]
            config.write_text("\n".join(texts), encoding="utf-8")
            yield Fleet(count, machines, config, "model-000" if count > BOARD else "busy")
        finally:
            process.terminate()


PAGE = Path(__file__).resolve().parent.parent / "tests" / "data" / "vllm-0.32" / "t010.prom"
_SAMPLE = re.compile(rb"^([A-Za-z_:][\w:]*)(\{.*\})? (\S+)$")
_GROWS = re.compile(rb"_(?:total|bucket|sum|count)$")
_GROWTH_PER_S = 0.02
"""Mean growth of every counter per second, as a fraction of its first value."""
_RUNNING, _WAITING, _KV = (
    b"vllm:num_requests_running",
    b"vllm:num_requests_waiting",
    b"vllm:kv_cache_usage_perc",
)
_MOST_RUNNING = 16.0
GROUP = 8
"""Servers of one model."""
_MODEL = re.compile(rb'model_name="[^"]*"')
_WAVE_S = (20.0, 90.0)
"""Shortest and longest period of a server's load."""
POLLS = "/polls"
"""Route of every server that returns the number of pages that all of them have sent."""
_HEADERS = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n\r\n"
_MISSING = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"

Values = Callable[[float, float], float]
"""Function from (growth factor, load from 0 to 1.2) to the value of a sample."""


def _value(name: bytes, first: float) -> Values | None:
    """Return the function for the value of a sample; None if it is constant."""
    if name == _RUNNING:
        return lambda _, load: float(round(_MOST_RUNNING * min(1.0, load)))
    if name == _WAITING:
        return lambda _, load: float(round(_MOST_RUNNING * max(0.0, load - 1.0)))
    if name == _KV:
        return lambda _, load: min(1.0, 0.6 * load)
    if not _GROWS.search(name) or not first:
        return None
    if name.endswith(b"_sum"):
        return lambda growth, _: first * growth
    return lambda growth, _: float(math.floor(first * growth))


class Page:
    """A metrics page as constant text with changing values in between."""

    def __init__(self, text: bytes) -> None:
        self.fixed: list[bytes] = []
        self.values: list[Values] = []
        standing = b""
        for line in text.splitlines():
            found = _SAMPLE.match(line)
            value = None if found is None else _value(found[1], float(found[3]))
            if value is None or found is None:
                standing += line + b"\n"
                continue
            self.fixed.append(standing + line[: found.start(3)])
            self.values.append(value)
            standing = b"\n"
        self.end = standing

    def at(self, growth: float, load: float) -> bytes:
        """Return the page at a growth factor and a load from 0 to 1.2."""
        parts = [
            b"%s%.10g" % (fixed, value(growth, load))
            for fixed, value in zip(self.fixed, self.values, strict=True)
        ]
        return b"".join(parts) + self.end


def pages_of(count: int) -> list[Page]:
    """Return the pages of `count` servers; those of a group are the same one."""
    text = PAGE.read_bytes()
    groups = range(0, count, GROUP)
    pages = [Page(_MODEL.sub(b'model_name="model-%03d"' % (first // GROUP), text)) for first in groups]
    return [pages[number // GROUP] for number in range(count)]


class Server(asyncio.Protocol):
    """A connection to one of the servers, which may carry several requests in turn."""

    pages_sent = 0
    """Number of pages that all servers together have sent."""

    def __init__(self, page: Page, number: int, began: float) -> None:
        self.page, self.began = page, began
        shortest, longest = _WAVE_S
        self.period_s = shortest + (number * 7919 % 1000) / 1000 * (longest - shortest)
        self.phase = number * 2.399963
        self.pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport, to which answers are written."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer each complete request."""
        self.pending += data
        while b"\r\n\r\n" in self.pending:
            request, _, self.pending = self.pending.partition(b"\r\n\r\n")
            self.transport.write(self.answer(request))

    def answer(self, request: bytes) -> bytes:
        """Return the answer to a request, headers included."""
        if request.startswith(b"GET " + POLLS.encode()):
            body = b"%d" % Server.pages_sent
            return _HEADERS % len(body) + body
        if not request.startswith(b"GET /metrics"):
            return _MISSING
        Server.pages_sent += 1
        age_s = time.monotonic() - self.began
        load = 0.6 + 0.6 * math.sin(2 * math.pi * age_s / self.period_s + self.phase)
        body = self.page.at(1.0 + _GROWTH_PER_S * age_s, max(0.0, load))
        return _HEADERS % len(body) + body


async def serve(count: int, machines: int) -> None:
    """Print the ports of `count` servers and of the agents of machines; serve until standard input ends."""
    loop, began = asyncio.get_running_loop(), time.monotonic()
    ports, agents = list[int](), list[AgentServer]()
    for number, page in enumerate(pages_of(count)):
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        ports.append(int(listener.getsockname()[1]))
        await loop.create_server(partial(Server, page, number, began), sock=listener)
    scenario = SCENARIOS[DEFAULT_SCENARIO]
    for place in range(machines):
        heat, machine = scenario.thermal_of(place, start_s=began), scenario.machine_of(place, start_s=began)
        reader = MachineReader(heat, machine, name=f"n{place:03d}")
        ranks = RasReader(root=Path(os.devnull), addresses=[])
        agent = AgentServer(Sampler(reader), simulated=True, limits=_MANY, ranks=ranks)
        listener = socket.create_server(("127.0.0.1", 0))
        agent.start([listener])
        agents.append(agent)
        ports.append(int(listener.getsockname()[1]))
    print(json.dumps(ports), flush=True)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin, ended.set)
    await ended.wait()
    for agent in agents:
        await agent.close()


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


def on_screen(fleet: Fleet, options: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    """Yield a row for the seconds after the start, and one for those after the wait."""
    command = (sys.executable, "-m", "sparktop", "--config", str(fleet.config))
    home = fleet.config.parent
    env = {"XDG_STATE_HOME": str(home / "state"), "XDG_DATA_HOME": str(home / "data")}
    with PtyProgram(command, columns=COLUMNS, rows=ROWS, env=env) as program:
        first_s = program.wait_for(["tok/s", fleet.first], FIRST_WITHIN_S)
        program.idle(WARM_UP_S)
        for wait_s in (0.0, options.wait):
            program.idle(wait_s)
            before = fleet.pages_sent()
            window = program.measure(options.seconds)
            pages = fleet.pages_sent() - before
            yield (
                f"{fleet.servers}",
                f"{fleet.machines}",
                f"{wait_s:.0f} s later" if wait_s else "at once",
                f"{window.cpu_percent:.1f}",
                f"{pages / window.seconds:.0f}",
                f"{10_000 * window.cpu_percent * window.seconds / max(1, pages):.0f}",
                f"{window.bytes_per_s / 1000:.1f}",
                f"{window.rss_start_mib:.0f} → {window.rss_end_mib:.0f}",
                "–" if first_s is None or wait_s else f"{first_s:.1f}",
                pressed(program, options.presses),
            )


def main() -> int:
    """Print the table."""
    parser = tables.options(__doc__, runs=1)
    parser.add_argument("--servers", type=int, nargs="+", default=[2, 100, 500])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--wait", type=float, default=60.0, help="seconds before the second row")
    parser.add_argument("--presses", type=int, default=30)
    parser.add_argument("--serve", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve(*options.serve))
        return 0
    rows: list[tuple[str, ...]] = []
    for count in options.servers:
        with served(count) as fleet:
            rows += on_screen(fleet, options)
    tables.publish("fleet.py", tables.table(HEADS, rows), write=options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
