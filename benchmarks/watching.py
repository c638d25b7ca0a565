"""Measure the cost of watching two simulated servers and two machines with sparktop, beside other monitors.

Each program runs in a 200x50 pseudo-terminal with one update per second. Measured are the CPU time and the
memory of its whole process tree and the bytes that it sends to the terminal, over a window after a warm-up.
The simulated servers are separate processes and do not count. All programs are measured several times in
turns; the table has the medians. The time until sparktop's first complete paint stands beside that of an
empty Textual app, started in turns with it. Both start as after an installation.

With --servers, sparktop alone watches so many servers: the page of a real vLLM server (65 kB) on as many
ports of another process. From poll to shown is from the last of their pages with another number of
running requests to the sum of these on the terminal.

usage: watching.py [--runs 3] [--seconds 60] [--starts 5] [--beside SPARKTOP] [--write]
       watching.py --servers 100,500 [--runs 3] [--seconds 60] [--write]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import re
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import MutableSequence, Sequence
from dataclasses import astuple, dataclass, field
from functools import partial
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from aiohttp import web
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tables

from sparktop.demo.command import DemoCluster, as_toml, make_watch
from sparktop.demo.scenario import DemoPlan
from stage.pseudo_terminal import EndedError, PtyProgram, Window

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
    heads = ("program", "watches", *_COSTS)
    rows = [(one.name, one.what, *_cells(windows[one.name])) for one in programs if windows[one.name]]
    return tables.table(heads, rows)


_COSTS = ("CPU % of a core", "kB/s sent", "writes/s", "MiB at first", "at last")


def _cells(windows: Sequence[Window]) -> tuple[str, ...]:
    """Return the medians of what watching cost as cells."""
    cpu, sent, writes, start, end = map(statistics.median, zip(*map(astuple, windows), strict=True))
    return f"{cpu:.2f}", f"{sent / 1e3:.1f}", f"{writes:.1f}", f"{start:.1f}", f"{end:.1f}"


def compare_starts(ours: Program, floor: Program, starts: int, folder: Path) -> str:
    """Start both in turns; return a sentence with the medians until the first complete paint."""
    # Where the environment has turned bytecode off, every start would compile the whole package again.
    places = {"PYTHONPYCACHEPREFIX": str(folder / "compiled"), "XDG_CACHE_HOME": str(folder / "cache")}
    times: dict[str, list[float]] = {one.name: [] for one in (ours, floor)}
    for turn in range(starts + 1):
        for one in (ours, floor):
            env = {**one.env, **places, "PYTHONDONTWRITEBYTECODE": ""}
            with PtyProgram(one.command, env=env) as terminal:
                painted = terminal.wait_until(partial(terminal.has, one.painted), START_S)
            if turn and painted is not None:  # the first turn compiles, and checks the configuration
                times[one.name].append(painted - terminal.started_s)
    said = ", ".join(f"{name} {statistics.median(values):.2f} s" for name, values in times.items() if values)
    return f"First complete paint, median of {starts} starts in turns: {said}."


PAGE = Path(__file__).resolve().parents[1] / "tests/data/vllm-0.32/t018.prom"
_VALUE = re.compile(
    rb"(?m)^(vllm:(?:num_requests_(?=running)|generation_(?=tokens))(running|tokens)(?:_total)?\{.*\}) .*$"
)
SUMS = (1111, 7777)
"""Running requests of all servers before and after a change."""
MODELS = 12
SHOWN_S = 60.0
CHANGES = 10
"""Changes whose way to the terminal is timed in each run."""


def serve(ports: MutableSequence[int], after: Synchronized[int], sent_s: MutableSequence[float]) -> None:
    """Serve a page of a real server on as many ports as `ports` holds, where they are written.

    Its running requests are a share of the first of `SUMS`, of the second while `after` is 1. `sent_s` has
    the monotonic time of each server's first page since the last change.
    """
    asyncio.run(_serve(ports, after, sent_s))


async def _serve(
    ports: MutableSequence[int], after: Synchronized[int], sent_s: MutableSequence[float]
) -> None:
    pages = [PAGE.read_bytes().replace(b"openai/gpt-oss-120b", b"model-%d" % one) for one in range(MODELS)]
    numbers: dict[int, int] = {}
    reported = [2] * len(ports)

    async def answer(request: web.BaseRequest) -> web.Response:
        number = numbers[request.get_extra_info("sockname")[1]]
        if request.path == "/version":
            return web.json_response({"version": "0.32.0"})
        if request.path != "/metrics":
            raise web.HTTPNotFound
        now, total = after.value, SUMS[after.value]
        share = total // len(ports)
        running = share if number else total - share * (len(ports) - 1)
        if reported[number] != now:
            reported[number], sent_s[number] = now, time.monotonic()
        values = {b"running": running, b"tokens": int(1000 * time.monotonic())}
        page = _VALUE.sub(lambda found: b"%b %d" % (found[1], values[found[2]]), pages[number % MODELS])
        return web.Response(body=page, content_type="text/plain")

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    for number in range(len(ports)):
        listener = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(runner, listener).start()
        numbers[port := listener.getsockname()[1]] = number
        ports[number] = port
    await asyncio.Event().wait()


def watch_many(count: int, folder: Path, options: argparse.Namespace) -> tuple[object, ...]:
    """Watch `count` servers; return a row of the table."""
    spawn = multiprocessing.get_context("spawn")
    ports, after, sent_s = spawn.Array("i", count), spawn.Value("b", 0), spawn.Array("d", count)
    server = spawn.Process(target=serve, args=(ports, after, sent_s), daemon=True)
    server.start()
    windows, delays_ms = list[Window](), list[float]()
    try:
        while not ports[-1]:
            time.sleep(0.1)
        config = folder / f"{count}.toml"
        tables_of = (
            f'[[backends]]\nname = "s{port}"\nurl = "http://127.0.0.1:{port}"\n' for port in ports[:]
        )
        config.write_text("".join(tables_of))
        command = (str(Path(sys.executable).with_name("sparktop")), "--config", str(config))
        for _ in range(options.runs):
            with PtyProgram(command, env={"XDG_STATE_HOME": str(folder)}) as terminal:
                for change in range(CHANGES + 1):
                    words = f"run {SUMS[after.value]:,}"
                    shown_s = terminal.wait_until(partial(terminal.line_with, words), SHOWN_S)
                    if not change:
                        terminal.idle(WARM_UP_S)
                        windows.append(terminal.measure(options.seconds))
                    if shown_s is None:  # more servers than are read in time
                        print(f"no {words}: {' '.join(terminal.line_with('run ').split())}", file=sys.stderr)
                        break
                    if change:
                        delays_ms.append(1e3 * (shown_s - max(sent_s[:])))
                    after.value ^= 1
    finally:
        server.kill()
    delays = f"{statistics.median(delays_ms):.0f} (at most {max(delays_ms):.0f})" if delays_ms else "–"
    return count, *_cells(windows), delays


def main() -> int:
    """Measure and print everything."""
    parser = tables.options(__doc__, runs=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="the window of each program")
    parser.add_argument("--starts", type=int, default=5, help="starts of sparktop and of the empty app")
    parser.add_argument("--servers", help="watch so many servers instead, such as 100,500")
    parser.add_argument("--beside", action="append", default=[], help="the sparktop of another version")
    options = parser.parse_args()

    if options.servers:
        heads = ("servers", *_COSTS, "poll to shown, ms")
        with tempfile.TemporaryDirectory() as name:
            rows = [watch_many(int(count), Path(name), options) for count in options.servers.split(",")]
        load = f"Load average of a minute at the end: {os.getloadavg()[0]:.1f}."
        tables.publish("watching.py --servers", [*tables.table(heads, rows), "", load], write=options.write)
        return 0
    with tempfile.TemporaryDirectory() as name, DemoCluster(DemoPlan(backends=2, seed=0)) as cluster:
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
