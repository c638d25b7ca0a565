"""Measure the CPU time and memory of the node agent's process at one poll per second.

In the same window and polled in the same way, an aiohttp server that reads nothing answers with a body of the
same size: the least that any agent on aiohttp costs. An agent that is never polled is measured too.

usage: agent_cost.py [--seconds 30] [--hz 1] [--check]
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

GOAL_CPU_PERCENT = 0.5
GOAL_RSS_MB = 60.0
WARM_UP_S = 3.0
START_S = 20.0

EMPTY_SERVER = """
import sys
from aiohttp import web
BODY = b"x" * int(sys.argv[1])
async def answer(request):
    return web.Response(body=BODY, content_type="application/json")
async def serve():
    import asyncio
    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"on http://127.0.0.1:{runner.addresses[0][1]}:", file=sys.stderr, flush=True)
    await asyncio.Event().wait()
import asyncio
asyncio.run(serve())
"""


@dataclass(slots=True)
class Server:
    """A server process and how it is polled."""

    name: str
    process: subprocess.Popen[str]
    port: int
    path: str | None
    """Path of the requests; None if the server is never polled."""
    follows: bool = False
    """Whether each request names the newest sample of the previous answer."""
    client: http.client.HTTPConnection = field(init=False)
    since: float | None = None
    body_bytes: int = 0
    cpu_at_start_s: float = 0.0

    def __post_init__(self) -> None:
        """Create the client, with one keep-alive connection."""
        self.client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)

    def ask(self) -> None:
        """Poll the server once, if it has a path."""
        if self.path is None:
            return
        since = f"&since={self.since}" if self.since is not None else ""
        self.client.request("GET", self.path + since)
        response = self.client.getresponse()
        body = response.read()
        if response.status != http.client.OK:
            raise RuntimeError(f"{self.name}: {response.status} {body[:200]!r}")
        self.body_bytes = len(body)
        if self.follows:
            samples = json.loads(body)["samples"]
            self.since = samples[-1]["at"] if samples else self.since

    def cpu_s(self) -> float:
        """Return the CPU seconds of all threads of the process so far, with nanosecond resolution."""
        clock = ctypes.c_int()
        if ctypes.CDLL(None).clock_getcpuclockid(self.process.pid, ctypes.byref(clock)):
            raise RuntimeError(f"{self.name} has ended")
        return time.clock_gettime(clock.value)

    def rss_mb(self) -> float:
        """Return the resident memory in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        line = next(one for one in status.splitlines() if one.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024 / 1e6


@contextlib.contextmanager
def started(name: str, command: list[str], path: str | None, *, follows: bool = False) -> Iterator[Server]:
    """Start a server that prints its port on standard error; terminate it at the end of the block."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None  # noqa: S101 - for mypy: it is a pipe
        line = process.stderr.readline()
        if "http://127.0.0.1:" not in line:
            raise RuntimeError(f"{name} did not start: {line}")
        port = int(line.partition("http://127.0.0.1:")[2].partition(":")[0])
        yield Server(name, process, port, path, follows)
    finally:
        process.terminate()
        process.communicate(timeout=START_S)


def measure(servers: list[Server], seconds: float, hz: float) -> dict[str, tuple[float, float]]:
    """Poll all servers in turns; return (percent of a CPU core, resident MB) of each by name."""
    polls_until(servers, time.monotonic() + WARM_UP_S, hz)
    for one in servers:
        one.cpu_at_start_s = one.cpu_s()
    began = time.monotonic()
    polls_until(servers, began + seconds, hz)
    took = time.monotonic() - began
    return {one.name: ((one.cpu_s() - one.cpu_at_start_s) / took * 100, one.rss_mb()) for one in servers}


def polls_until(servers: list[Server], end: float, hz: float) -> None:
    """Poll every server `hz` times per second until the monotonic time `end`."""
    due = time.monotonic()
    while due < end:
        time.sleep(max(0.0, due - time.monotonic()))
        for one in servers:
            one.ask()
        due += 1 / hz
    time.sleep(max(0.0, end - time.monotonic()))


def main() -> int:
    """Measure and print the table; return 1 with --check if the goal is missed, else 0."""
    parser = argparse.ArgumentParser(prog="agent_cost.py", description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="the window")
    parser.add_argument("--hz", type=float, default=1.0, help="polls a second")
    parser.add_argument("--check", action="store_true", help="exit 1 when the goal is missed")
    options = parser.parse_args()
    agent = [sys.executable, "-m", "sparktop", "agent", "--listen", "127.0.0.1:0"]
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(started("agent", agent, "/v1/sample?interval_s=1", follows=True))
        table = stack.enter_context(
            started("agent, process table", agent, "/v1/sample?interval_s=1&processes=1", follows=True)
        )
        scraped = stack.enter_context(started("agent, /metrics", agent, "/metrics?"))
        rest = stack.enter_context(started("agent, at rest", agent, None))
        ours.ask()
        empty = [sys.executable, "-c", EMPTY_SERVER, str(ours.body_bytes)]
        floor = stack.enter_context(started("empty aiohttp server", empty, "/v1/sample?interval_s=1"))
        servers = [floor, ours, table, scraped, rest]
        found = measure(servers, options.seconds, options.hz)
        print(f"{options.seconds:.0f} s at {options.hz:g} polls a second\n")
        print("| server | CPU, % of a core | ms CPU a poll | RSS MB | body kB |\n|---|---|---|---|---|")
        for one in servers:
            cpu, rss_mb = found[one.name]
            print(
                f"| {one.name} | {cpu:.3f} | {cpu * 10 / options.hz:.2f} | {rss_mb:.1f} "
                f"| {one.body_bytes / 1e3:.1f} |"
            )
        cpu, rss_mb = found[ours.name]
    missed = cpu > GOAL_CPU_PERCENT or rss_mb > GOAL_RSS_MB
    goal = f"{GOAL_CPU_PERCENT} % and {GOAL_RSS_MB:.0f} MB"
    print(f"\nGoal {goal}: {'missed' if missed else 'met'}")
    return int(options.check and missed)


if __name__ == "__main__":
    sys.exit(main())
