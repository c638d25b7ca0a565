"""Measure the CPU time of one sample of a machine, beside psutil's for the same figures.

Starts sleeping processes until the machine has as many as requested, then measures in turns: sparktop's
sample without the process table, the table alone, and psutil's calls for either. All figures are medians of
the reading thread's CPU time. The clock advances by a second per sample, so readings that are due every 5 or
60 seconds are made as often as at one sample per second. A further sample reads a tree of files like a DGX
Spark's (20 cores, 12 temperatures, 4 RDMA ports), which this machine may not be; psutil cannot read such a
tree. A sample includes the calls of the NVIDIA driver if there is one; the last line shows whether there is.

usage: collecting.py [--processes 250] [--rounds 120]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from sparktop.hardware.machine import Machine
from sparktop.hardware.processes import ProcessTableReader

GOAL_SAMPLE_MS = 2.0
TABLE_EVERY_S = 5.0


class TurnedClock:
    """A clock that advances only when `now` is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


@contextmanager
def sleeping_processes(total: int) -> Iterator[int]:
    """Start processes until the machine has `total`; yield how many it has; end the started ones."""
    missing = max(0, total - len(psutil.pids()))
    started = [subprocess.Popen(["sleep", "600"]) for _ in range(missing)]
    try:
        yield len(psutil.pids())
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


def psutil_sample() -> None:
    """Read the figures of a sample with psutil."""
    psutil.virtual_memory()
    psutil.swap_memory()
    psutil.cpu_percent()
    psutil.cpu_percent(percpu=True)
    psutil.getloadavg()
    psutil.net_io_counters(pernic=True)
    psutil.net_if_stats()
    psutil.sensors_temperatures()


def psutil_table(fields: tuple[str, ...]) -> None:
    """Read these fields of every process with psutil."""
    for _ in psutil.process_iter(fields):
        pass


def build_spark_tree(folder: Path) -> Path:
    """Write a tree of system files like a DGX Spark's; return its root."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.hardware.gb10_root import build

    return build(folder)


def measure(rounds: int, ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Call all `ways` in each of the rounds; return the median CPU milliseconds of each."""
    costs: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, call in ways.items():
            before = time.thread_time()
            call()
            costs[name].append(1000 * (time.thread_time() - before))
    return {name: statistics.median(values) for name, values in costs.items()}


def make_ways(spark: Path) -> tuple[dict[str, Callable[[], object]], Machine]:
    """Return (the functions to compare by name, this machine).

    Each function has been called once, so that first readings are not measured.
    """
    clocks = TurnedClock(), TurnedClock(), TurnedClock()
    here, there = Machine(clock=clocks[0]), Machine(spark, clock=clocks[1])
    table = ProcessTableReader()

    def sample(machine: Machine, clock: TurnedClock) -> Callable[[], object]:
        def read() -> object:
            clock.now += 1.0
            return machine.read()

        return read

    def read_table() -> object:
        clocks[2].now += TABLE_EVERY_S
        return table.read(clocks[2].now)

    ways: dict[str, Callable[[], object]] = {
        "sample": sample(here, clocks[0]),
        "sample, psutil": psutil_sample,
        "table": read_table,
        "table, psutil": lambda: psutil_table(("name", "memory_info", "cpu_times", "create_time")),
        "memory only, psutil": lambda: psutil_table(("memory_info",)),
        "spark sample": sample(there, clocks[1]),
    }
    for call in ways.values():
        call()
    return ways, here


def main() -> int:
    """Print the table; return 1 if the goal is missed, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--processes", type=int, default=250)
    parser.add_argument("--rounds", type=int, default=120)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sleeping_processes(options.processes) as count:
        ways, machine = make_ways(build_spark_tree(Path(folder)))
        cost = measure(options.rounds, ways)
        note = machine.read().gpu_note
        machine.close()
    rows = (
        ("a sample without the process table", "sample", "sample, psutil"),
        ("the process table: name, memory, CPU", "table", "table, psutil"),
        ("the same against psutil's memory only", "table", "memory only, psutil"),
        ("a sample of a DGX Spark's tree", "spark sample", None),
    )
    print(f"{count} processes; CPU ms, median of {options.rounds}; psutil {psutil.__version__}\n")
    print("| reading | sparktop | psutil | ratio |")
    print("|---|---|---|---|")
    for title, ours, theirs in rows:
        peer = f"{cost[theirs]:.2f} | {cost[theirs] / cost[ours]:.1f}" if theirs else "– | –"
        print(f"| {title} | {cost[ours]:.2f} | {peer} |")
    missed = max(cost["sample"], cost["spark sample"]) > GOAL_SAMPLE_MS
    verdict = "missed" if missed else "met"
    print(f"\ngoal: a sample at most {GOAL_SAMPLE_MS:g} ms: {verdict}; GPU: {note or 'read'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
