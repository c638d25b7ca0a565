"""Measure when and how much routers herd, and what helps, on simulated DGX Sparks in virtual time.

A closed loop of clients, with a fixed number per backend, loads copies of the calibrated solo engine.
Least-busy and power-of-two read counts that are polled at an interval (staleness; 0: always fresh); shuffle
and round-robin read none, and shortest-queue has perfect knowledge. Request lengths are all equal (fixed) or
drawn uniformly from half to one and a half of that (variable).

    tok/s       generated tokens per second and backend, after the start-up
    of perfect  the same, relative to shortest-queue under the same load
    p99 TTFT    of requests that got their first token after the start-up; ">": requests still wait longer
    imbalance   standard deviation among backends over their mean, averaged over time
    period      of the swing between backends; "-" if the load has no period

usage: routing.py [--backends N]... [--staleness S]... [--seconds S] [--load C] [--prompt T] [--output T]
                  [--seed N] [--write]

With --write, the tables are written to benchmarks/README.md and the picture to benchmarks/pictures/.
"""

from __future__ import annotations

import argparse
import gc
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from routing_picture import Curve, Panel, draw

from sparktop.model.load import FirstToken, Level, LoadMode, RequestStarted
from sparktop.simulation.calibration import SOLO
from sparktop.simulation.engine import Engine
from sparktop.simulation.routers import RouterSettings, make_router
from stage.clients import ClosedLoop, RoutedWay, VirtualTime
from stage.load_trace import LoadTrace, imbalance, period_s

BACKENDS = (2, 8, 64, 1000)
STALENESS_S = (0.0, 0.25, 1.0, 2.5, 5.0)
LENGTHS = ("fixed", "variable")
BLIND = ("simple-shuffle", "round-robin")
PERFECT = "shortest-queue"
READING = ("least-busy", "power-of-two")
START_UP_S = 30.0
STAGGER_S = 5.0
MANY = 64
"""Number of backends from which on a run is shorter and made only once."""
SWINGING = 0.2
"""Smallest imbalance with which a period is reported."""
KNOWN_TO = 1.1
"""A p99 counts as known if requests that still wait cannot raise it by more than this factor."""
HERE = Path(__file__).resolve().parent
PICTURE = HERE / "pictures" / "routing.svg"
MARKS = ("<!-- routing.py: begin -->", "<!-- routing.py: end -->")


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination to simulate."""

    backends: int
    lengths: str
    strategy: str
    staleness_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a cell."""

    tps: float
    """Tokens per second of a backend."""
    ttft_s: float
    beyond: bool
    """Whether the true p99 may be longer, because of requests that still wait."""
    imbalance: float | None
    period_s: float | None


def cells(backends: int, staleness_s: Sequence[float]) -> Iterator[Cell]:
    """Yield the combinations to simulate for a number of backends."""
    for lengths in LENGTHS:
        for strategy in (PERFECT, *BLIND):
            yield Cell(backends, lengths, strategy)
        for strategy in READING:
            for stale_s in staleness_s:
                yield Cell(backends, lengths, strategy, stale_s)


def p99(loop: ClosedLoop, end_s: float) -> tuple[float, bool]:
    """Return (the 99th percentile of TTFT in seconds, whether the true one may be higher).

    Requests that still wait count with their time so far.
    """
    started: dict[str, float] = {}
    known_s: list[float] = []
    for event in loop.events:
        if isinstance(event, RequestStarted):
            started[event.request_id] = event.at
        elif isinstance(event, FirstToken):
            begun_s = started.pop(event.request_id)
            if event.at >= START_UP_S:
                known_s.append(event.at - begun_s)
    known_s.sort()
    all_s = sorted([*known_s, *(end_s - begun_s for begun_s in started.values())])
    at = int(0.99 * len(all_s))
    # The p99 if the waiting requests waited for ever: the true one is between the two.
    highest_s = known_s[at] if at < len(known_s) else math.inf
    return all_s[at], highest_s > KNOWN_TO * all_s[at]


def simulate(cell: Cell, given: argparse.Namespace, seed: int) -> Outcome:
    """Simulate one run of a cell."""
    seconds = given.seconds or (120.0 if cell.backends >= MANY else 240.0)
    engines = [Engine(SOLO, seed=f"{seed}-{at}", token_events=False) for at in range(cell.backends)]
    virtual = VirtualTime(engines)
    settings = RouterSettings(poll_s=cell.staleness_s or None)
    router = make_router(cell.strategy, cell.backends, settings, seed=f"router-{seed}")
    way = RoutedWay(virtual, router, seed=f"way-{seed}")
    clients, prompt, output = given.load * cell.backends, given.prompt, given.output

    def lengths(source: random.Random) -> tuple[int, int]:
        return prompt, max(1, round(source.uniform(0.5, 1.5) * output))

    level = Level("routing", clients, prompt, output, mode=LoadMode.STEADY, duration_s=seconds + 1)
    drawn = lengths if cell.lengths == "variable" else None
    loop = ClosedLoop(virtual, way, level, seed=seed, lengths=drawn, stagger_s=STAGGER_S)
    loop.start()
    trace = LoadTrace(virtual, way, until_s=seconds)
    virtual.run(START_UP_S)
    before = sum(engine.tally.generation_tokens for engine in engines)
    virtual.run(seconds)
    made = sum(engine.tally.generation_tokens for engine in engines) - before
    rows = trace.since(START_UP_S)
    ttft_s, beyond = p99(loop, seconds)
    uneven = imbalance(rows)
    return Outcome(
        tps=made / (seconds - START_UP_S) / cell.backends,
        ttft_s=ttft_s,
        beyond=beyond,
        imbalance=uneven,
        period_s=period_s(rows, trace.every_s) if uneven is not None and uneven >= SWINGING else None,
    )


def average(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the mean of a cell's runs; a period only if most of them have one."""
    periods = [one.period_s for one in outcomes if one.period_s is not None]
    uneven = [one.imbalance for one in outcomes if one.imbalance is not None]
    return Outcome(
        tps=fmean(one.tps for one in outcomes),
        ttft_s=fmean(one.ttft_s for one in outcomes),
        beyond=any(one.beyond for one in outcomes),
        imbalance=fmean(uneven) if uneven else None,
        period_s=fmean(periods) if 2 * len(periods) > len(outcomes) else None,
    )


def table(backends: int, results: dict[Cell, Outcome]) -> list[str]:
    """Return the table for one number of backends, as lines of Markdown."""
    lines = [
        f"### {backends:,} backends",
        "",
        "| lengths | strategy | staleness s | tok/s | of perfect | p99 TTFT s | imbalance | period s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cell, one in results.items():
        if cell.backends == backends:
            best = results[Cell(backends, cell.lengths, PERFECT)].tps
            stale = f"{cell.staleness_s:g}" if cell.strategy in READING else "–"
            share = f"{100 * one.tps / best:.0f} %"
            uneven = "–" if one.imbalance is None else f"{one.imbalance:.2f}"
            period = "–" if one.period_s is None else f"{one.period_s:.0f}"
            lines.append(
                f"| {cell.lengths} | {cell.strategy} | {stale} | {one.tps:.1f} | {share} "
                f"| {'> ' if one.beyond else ''}{one.ttft_s:.1f} | {uneven} | {period} |"
            )
    return [*lines, ""]


def panels(results: dict[Cell, Outcome]) -> list[Panel]:
    """Convert the results to the panels of the picture: throughput, of perfect, over staleness."""
    found: list[Panel] = []
    for backends in dict.fromkeys(cell.backends for cell in results):
        curves: list[Curve] = []
        for lengths in LENGTHS:
            best = results[Cell(backends, lengths, PERFECT)].tps
            for strategy in ("simple-shuffle", *READING):
                points = [
                    (cell.staleness_s, one.tps / best)
                    for cell, one in results.items()
                    if (cell.backends, cell.lengths, cell.strategy) == (backends, lengths, strategy)
                ]
                if strategy not in READING:
                    points = [(stale_s, points[0][1]) for stale_s in (STALENESS_S[0], STALENESS_S[-1])]
                curves.append(Curve(strategy, lengths, tuple(points)))
        found.append(Panel(f"{backends:,} backends", tuple(curves)))
    return found


def write(lines: Sequence[str], results: dict[Cell, Outcome]) -> None:
    """Write the tables between their marks in the README, and draw the picture."""
    readme = HERE / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, _, rest = text.partition(MARKS[0])
    _, found, after = rest.partition(MARKS[1])
    if not found:
        raise SystemExit(f"{readme.name} lacks the lines {MARKS[0]} and {MARKS[1]}")
    middle = "\n".join(lines)
    readme.write_text(f"{before}{MARKS[0]}\n\n{middle}\n{MARKS[1]}{after}", encoding="utf-8")
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(panels(results)), encoding="utf-8")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backends", type=int, action="append")
    parser.add_argument("--staleness", type=float, action="append")
    parser.add_argument("--seconds", type=float, help="simulated; 240, or 120 from 64 backends on")
    parser.add_argument("--load", type=int, default=16, help="clients for each backend")
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--output", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.seconds is not None and given.seconds <= START_UP_S:
        parser.error(f"--seconds is above the start-up's {START_UP_S:g}")
    return given


def main() -> int:
    """Simulate, and print a table for each number of backends as soon as it is done."""
    given = parse()
    # Events form no reference cycles, and searching a million of them for cycles took a fifth of the time.
    gc.disable()
    results: dict[Cell, Outcome] = {}
    lines: list[str] = []
    slowest_s = slowest_cpu_s = 0.0
    for backends in given.backends or BACKENDS:
        for cell in cells(backends, given.staleness or STALENESS_S):
            outcomes: list[Outcome] = []
            for run in range(1 if backends >= MANY else 3):
                began, began_cpu = time.perf_counter(), time.process_time()
                outcomes.append(simulate(cell, given, given.seed + run))
                slowest_s = max(slowest_s, time.perf_counter() - began)
                slowest_cpu_s = max(slowest_cpu_s, time.process_time() - began_cpu)
            results[cell] = average(outcomes)
        new = table(backends, results)
        lines += new
        print("\n".join(new), flush=True)
    print(f"the slowest run took {slowest_s:.1f} s of real time, {slowest_cpu_s:.1f} s of CPU")
    if given.write:
        write(lines, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
