"""Measure the cost of watching two simulated servers and two machines with sparktop, beside other monitors.

Each program runs in a 200x50 pseudo-terminal with one update per second. Measured are the CPU time and the
memory of its whole process tree and the bytes that it sends to the terminal, over a window after a warm-up.
The simulated servers are separate processes and do not count. All programs are measured several times in
turns; the table has the medians. The time until sparktop's first complete paint stands beside that of an
empty Textual app, started in turns with it. Both start as after an installation.

usage: watching.py [--runs 3] [--seconds 60] [--starts 5] [--beside SPARKTOP] [--write]
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tables
from msgspec.structs import replace
from ptybench import EndedError, PtyProgram, Window

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
    found: dict[str, list[Window]] = {program.name: [] for program in programs}
    for program in list(programs) * turns:
        try:
            with PtyProgram(program.command, env=program.env) as terminal:
                terminal.idle(WARM_UP_S)
                found[program.name].append(terminal.measure(seconds))
        except EndedError as error:
            print(" ".join(str(error).split())[:120], file=sys.stderr)
    heads = (
        "program",
        "watches",
        "CPU, % of a core",
        "kB/s to the terminal",
        "writes/s",
        "MiB, start",
        "end",
    )
    rows = []
    for program in programs:
        if several := found[program.name]:
            figures = (
                statistics.median(getattr(one, name) for one in several)
                for name in ("cpu_percent", "bytes_per_s", "writes_per_s", "rss_start_mib", "rss_end_mib")
            )
            cpu, sent, writes, start, end = figures
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
