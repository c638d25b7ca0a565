"""Measure the cost of watching two simulated servers and two machines with sparktop, beside other monitors.

Each program runs in a 200x50 pseudo-terminal with one update per second. Measured are the CPU time and the
memory of its whole process tree and the bytes that it sends to the terminal, over a window after a warm-up.
The simulated servers are separate processes and do not count. The time until sparktop's first complete paint
is reported as a ratio to that of an empty Textual app, started in turns with it, since seconds depend on the
machine. Both start as after an installation: their modules are compiled, and an earlier start has checked the
configuration; the time of a start that has to check it is reported as well. `--also` measures another
installation of sparktop, such as an earlier version; with `--turns`, all programs are measured several times
in turns and the table has the medians, which a busy machine affects alike.

usage: watching.py [--seconds 60] [--turns 1] [--starts 5] [--peers FOLDER] [--also PROGRAM] [--only NAME…]
                   [--check]
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from msgspec.structs import replace
from ptybench import EndedError, PtyProgram, Window

from sparktop.demo.command import DemoCluster, as_toml, make_watch

COLUMNS, ROWS = 200, 50
WARM_UP_S = 10.0
START_S = 30.0
GOAL_CPU_PERCENT = 1.0
GOAL_RSS_MIB = 55.0
GOAL_BYTES_PER_S = 25_000
GOAL_PAINT_RATIO = 1.3
GOAL_LOW_BYTES_PER_S = 2_000
LOW_BANDWIDTH_SIZE = (120, 36)
PRESSES = 10

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


def empty_app() -> Program:
    """Return the smallest Textual app: the least that any Textual app costs."""
    return Program("empty Textual app", "nothing", (sys.executable, "-c", EMPTY_APP), ("nothing to see",))


def sparktop(program: str, config: Path, names: Sequence[str]) -> Program:
    """Return sparktop, installed as `program`, watching what the configuration names."""
    what = f"{len(names)} servers, {len(names)} machines"
    return Program("sparktop", what, (program, "--config", str(config)), names)


def without_flight(ours: Program, folder: Path) -> Program:
    """Return sparktop without its flight recorder, on the same servers."""
    config = folder / "without-flight.toml"
    config.write_text(Path(ours.command[-1]).read_text() + "\n[recorder]\nflight = false\n")
    return dataclasses.replace(
        ours, name="sparktop, no flight recorder", command=(ours.command[0], "--config", str(config))
    )


def recorded_mb_per_hour(folder: Path, seconds: float) -> float:
    """Return the MB per hour that the flight recorder wrote over the `seconds` that it ran."""
    written = sum(path.stat().st_size for path in folder.rglob("*.rec.zst"))
    return written / 1e6 / seconds * 3600


def peers(urls: Sequence[str], folder: Path, find: Callable[[str], str | None]) -> list[Program]:
    """Return the other monitors that are installed, each with one update per second."""
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
        if (path := find(name))
    ]


def first_paint(program: Program) -> float | None:
    """Start a program; return the seconds until its first complete paint, None if that is not in time."""
    with PtyProgram(program.command, columns=COLUMNS, rows=ROWS, env=program.env) as running:
        return running.wait_for(program.painted, START_S)


def cost(program: Program, seconds: float) -> Window:
    """Start a program, wait for the warm-up and measure it."""
    with PtyProgram(program.command, columns=COLUMNS, rows=ROWS, env=program.env) as running:
        running.idle(WARM_UP_S)
        return running.measure(seconds)


def low_bandwidth_bytes_per_s(program: Program, seconds: float) -> float:
    """Return the bytes per second that --low-bandwidth sends to a terminal of usual size."""
    columns, rows = LOW_BANDWIDTH_SIZE
    command = (*program.command, "--low-bandwidth")
    with PtyProgram(command, columns=columns, rows=rows, env=program.env) as running:
        running.idle(WARM_UP_S)
        return running.measure(seconds).bytes_per_s


def key_latency_ms(program: Program) -> float | None:
    """Return the median milliseconds from a key that moves the selection to the first byte drawn."""
    with PtyProgram(program.command, columns=COLUMNS, rows=ROWS, env=program.env) as running:
        running.wait_for(program.painted, START_S)
        took: list[float] = []
        for key in "jk" * PRESSES:
            # Not a multiple of the second at which everything is drawn anyway.
            running.idle(0.31)
            seconds = running.press(key)
            if seconds is not None:
                took.append(seconds)
    return statistics.median(took) * 1e3 if took else None


def row(program: Program, window: Window) -> str:
    """Return a row of the table."""
    return (
        f"| {program.name} | {program.what} | {window.cpu_percent:.2f} | {window.bytes_per_s / 1e3:.1f} "
        f"| {window.writes_per_s:.1f} | {window.rss_start_mib:.1f} | {window.rss_end_mib:.1f} |"
    )


def compare_costs(programs: Sequence[Program], seconds: float, turns: int) -> dict[str, Window]:
    """Measure the programs in turns and print the table; return the medians by name."""
    times = f", medians of {turns} turns" if turns > 1 else ""
    print(f"{COLUMNS}x{ROWS} terminal, {seconds:.0f} s each after {WARM_UP_S:.0f} s of warm-up{times}\n")
    print("| program | watches | CPU, % of a core | kB/s to the terminal | writes/s | RSS MiB, start | end |")
    print("|---|---|---|---|---|---|---|", flush=True)
    found: dict[str, list[Window]] = {}
    failed: dict[str, str] = {}
    for program in list(programs) * turns:
        try:
            found.setdefault(program.name, []).append(cost(program, seconds))
        except EndedError as error:
            failed[program.name] = " ".join(str(error).split())[:120]
    windows = {name: middle(several) for name, several in found.items() if several}
    for program in programs:
        window = windows.get(program.name)
        if window is not None:
            print(row(program, window), flush=True)
        else:
            print(f"| {program.name} | {program.what} | {failed[program.name]} | | | | |", flush=True)
    return windows


def middle(windows: Sequence[Window]) -> Window:
    """Return the median of each figure."""
    return Window(
        *(statistics.median(getattr(one, figure.name) for one in windows) for figure in fields(Window))
    )


def in_place(program: Program, folder: Path) -> Program:
    """Return the program, set to keep compiled modules and checked configurations in `folder`.

    Where the environment has turned bytecode off, every start would compile the whole package again.
    """
    places = {"PYTHONPYCACHEPREFIX": str(folder / "compiled"), "XDG_CACHE_HOME": str(folder / "cache")}
    return dataclasses.replace(program, env={**program.env, **places, "PYTHONDONTWRITEBYTECODE": ""})


def compare_starts(ours: Program, floor: Program, starts: int, folder: Path) -> float | None:
    """Start both in turns and print the medians; return their ratio, None if a start failed."""
    floor, program = in_place(floor, folder), in_place(ours, folder)
    nowhere = {**program.env, "XDG_CACHE_HOME": "/dev/null"}
    unchecked = dataclasses.replace(program, name=f"{ours.name} with a new configuration", env=nowhere)
    programs = (floor, program, unchecked)
    times: dict[str, list[float]] = {one.name: [] for one in programs}
    for turn in range(starts + 1):
        for one in programs:
            try:
                painted = first_paint(one)
            except EndedError as error:
                print(f"\n{error}")
                return None
            if painted is None:
                print(f"\n{one.name}: no complete paint within {START_S:.0f} s")
                return None
            if turn:  # the first turn compiles and checks
                times[one.name].append(painted)
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratio = medians[program.name] / medians[floor.name]
    print(f"\nFirst complete paint, median of {starts} starts in turns: ", end="")
    print(", ".join(f"{name} {median:.2f} s" for name, median in medians.items()), end="")
    print(f"; ratio {ratio:.2f}")
    return ratio


def goals_missed(window: Window | None, ratio: float | None, low_bytes_per_s: float) -> list[str]:
    """Return a message for each goal that sparktop misses."""
    if window is None:
        return ["sparktop was not measured"]
    missed = []
    if window.cpu_percent > GOAL_CPU_PERCENT:
        missed.append(f"CPU {window.cpu_percent:.2f} % of a core, not within {GOAL_CPU_PERCENT} %")
    if window.rss_end_mib > GOAL_RSS_MIB:
        missed.append(f"{window.rss_end_mib:.1f} MiB, not within {GOAL_RSS_MIB:.0f}")
    if window.bytes_per_s >= GOAL_BYTES_PER_S:
        missed.append(f"{window.bytes_per_s:.0f} bytes/s, not under {GOAL_BYTES_PER_S}")
    if low_bytes_per_s > GOAL_LOW_BYTES_PER_S:
        missed.append(f"low bandwidth {low_bytes_per_s:.0f} bytes/s, not within {GOAL_LOW_BYTES_PER_S}")
    if ratio is None or ratio > GOAL_PAINT_RATIO:
        missed.append(f"first paint {ratio or 0:.2f} x an empty app's, not within {GOAL_PAINT_RATIO}")
    return missed


def main() -> int:
    """Measure and print everything; return 1 with --check if a goal is missed, else 0."""
    parser = argparse.ArgumentParser(prog="watching.py", description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="the window of each program")
    parser.add_argument("--turns", type=int, default=1, help="measurements of each program, in turns")
    parser.add_argument("--starts", type=int, default=5, help="starts of sparktop and of the empty app")
    parser.add_argument("--peers", type=Path, help="a folder with other monitors, beside those on PATH")
    parser.add_argument("--also", metavar="PROGRAM", help="another installation of sparktop")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="measure these programs alone")
    parser.add_argument("--check", action="store_true", help="exit 1 when sparktop misses a goal")
    options = parser.parse_args()

    def find(name: str) -> str | None:
        return shutil.which(name, path=options.peers) if options.peers else None

    with tempfile.TemporaryDirectory() as name, DemoCluster(backends=2, seed=0) as cluster:
        folder = Path(name)
        config = folder / "sparktop.toml"
        watch = make_watch(cluster)
        backends = tuple(replace(one, capture_sizes=None) for one in watch.backends)  # unknown before 0.3
        config.write_text(as_toml(replace(watch, backends=backends, sweeps=(), sweep_routers=())))
        names = [target.name for target in cluster.targets]
        ours = sparktop(str(Path(sys.executable).with_name("sparktop")), config, names)
        ours.env["XDG_STATE_HOME"] = str(folder / "state")
        urls = [target.url for target in cluster.targets]
        others = peers(urls, folder, lambda peer: find(peer) or shutil.which(peer))
        programs = [ours, without_flight(ours, folder), empty_app(), *others]
        if options.also:
            also = sparktop(options.also, config, names)
            env = {"XDG_STATE_HOME": str(folder / "other-state")}
            programs[1:1] = [dataclasses.replace(also, name="sparktop, the other", env=env)]
        if options.only:
            programs = [program for program in programs if program.name in options.only]
        windows = compare_costs(programs, options.seconds, options.turns)
        rate = recorded_mb_per_hour(folder / "state", options.turns * (options.seconds + WARM_UP_S))
        print(f"The flight recorder wrote {rate:.1f} MB/h.")
        if ours not in programs:
            return 0
        ratio = compare_starts(ours, empty_app(), options.starts, folder)
        latency_ms = None if ratio is None else key_latency_ms(ours)
        print("From a key press to the first byte drawn: ", end="")
        print("nothing was drawn" if latency_ms is None else f"{latency_ms:.0f} ms (median)")
        low = low_bandwidth_bytes_per_s(ours, options.seconds)
        print(f"With --low-bandwidth at {'x'.join(map(str, LOW_BANDWIDTH_SIZE))}: {low / 1e3:.1f} kB/s")
        missed = goals_missed(windows.get(ours.name), ratio, low)
        print("\nGoals: " + ("all met" if not missed else "; ".join(missed)))
        return int(options.check and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
