"""Compare the simulated engines with the tables that they were fitted to, in virtual time.

For each concurrency of a reference table, the same bursts run on the simulated engines, are measured by the
code that measures real ones, and are printed as "simulated (difference from the table)". Figures are defined
as in the tables: at c = 1, llama-benchy subtracts its probe's latency from the prefill time, so that is done
here too.

Behind a router, each run draws the destinations of its requests, so there are 50 runs, as in the table. Then
shuffle and least-busy are compared: the winner must be the table's from c = 8 up, and least-busy's loss at
c = 64 between half and double the table's. Least-busy runs once more with counts that rise at once, which
shows the cause of the loss.

usage: simulation.py [--runs 5] [--seed 0] [--only NAME]...
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reference_tables import BATCH_SCALING, CONCURRENCY, CONCURRENCY_FIRST, LONG_PROMPTS, TOPOLOGIES

from sparktop.model.load import Level
from sparktop.simulation.calibration import (
    CLUSTER_TP2,
    GX10_PATCHED,
    GX10_VANILLA,
    LITELLM,
    LONG_CONTEXT,
    SOLO,
)
from sparktop.simulation.engine import Engine, EngineProfile
from sparktop.simulation.routers import RouterSettings, make_router
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import collect
from sparktop.sweep.result.results import LevelResult
from stage.clients import BURST, ClosedLoop, DirectWay, RoutedWay, VirtualTime, Way

WITHIN = {"decode_tps": 0.10, "prefill_tps": 0.15, "ttft_ms": 0.15}
"""Largest allowed difference of a figure from its table's, as a fraction."""
ROUTED_RUNS = 50
WINNERS_FROM = 8
LOSS_AT = 64
LOSS_WITHIN = (0.5, 2.0)
"""Allowed range of least-busy's loss of decode rate, relative to the table's."""

Figures = Mapping[str, float]
MakeWay = Callable[[VirtualTime, int], Way]


@dataclass(frozen=True)
class Topology:
    """Engines that a table has figures of, and how to simulate them."""

    name: str
    engines: tuple[EngineProfile, ...]
    table: Mapping[int, Figures]
    """Figures by concurrency."""
    prompt_tokens: int = 1024
    output_tokens: int = 128
    way: MakeWay = lambda virtual, _seed: DirectWay(virtual)
    """Function that makes the way to the engines with the run's seed: direct, or through a router."""
    least_runs: int = 1
    held: bool = True
    """Whether `WITHIN` must hold at every level; else the differences are only printed."""


def as_rows(columns: Mapping[str, tuple[float, ...]]) -> dict[int, Figures]:
    """Convert a table's columns to figures by concurrency."""
    return {
        concurrency: {name: values[at] for name, values in columns.items()}
        for at, concurrency in enumerate(CONCURRENCY)
    }


def routed(strategy: str, settings: RouterSettings) -> MakeWay:
    """Return a function that makes a router in front of the engines of a run."""

    def make(virtual: VirtualTime, seed: int) -> Way:
        router = make_router(strategy, len(virtual.engines), settings, seed=f"router-{seed}")
        return RoutedWay(virtual, router, BURST, seed=f"way-{seed}")

    return make


def pair(name: str, settings: RouterSettings = LITELLM) -> Topology:
    """Return two solo engines behind a router; the differences of single figures are only printed."""
    return Topology(
        name,
        (SOLO, SOLO),
        as_rows(TOPOLOGIES[name]),
        way=routed(name, settings),
        least_runs=ROUTED_RUNS,
        held=False,
    )


TOPOLOGIES_SIMULATED = (
    Topology("solo", (SOLO,), as_rows(TOPOLOGIES["solo"])),
    Topology("cluster-tp2", (CLUSTER_TP2,), as_rows(TOPOLOGIES["cluster-tp2"])),
    pair("simple-shuffle"),
    pair("least-busy"),
    Topology("gx10-patched", (GX10_PATCHED,), CONCURRENCY_FIRST["gx10-patched"], 2048, held=False),
    Topology(
        "spark-arena-vanilla", (GX10_VANILLA,), CONCURRENCY_FIRST["spark-arena-vanilla"], 2048, held=False
    ),
)


def simulate(topology: Topology, concurrency: int, *, runs: int, seed: int) -> dict[str, float]:
    """Run the bursts of one level; return its figures as the tables define them."""
    runs = max(runs, topology.least_runs)
    engines = [Engine(profile, seed=f"{seed}-{at}") for at, profile in enumerate(topology.engines)]
    virtual = VirtualTime(engines)
    level = Level(topology.name, concurrency, topology.prompt_tokens, topology.output_tokens, runs=runs)
    loop = ClosedLoop(virtual, topology.way(virtual, seed), level, seed=seed)
    loop.start()
    virtual.run()
    figures = level_result(level, collect(loop.events))
    if figures.decode_tps is None or figures.prefill_tps is None or figures.ttft_ms is None:
        raise SystemExit(f"{topology.name}: no figures at c = {concurrency}")
    prefill_tps = figures.prefill_tps.mean
    if concurrency == 1:
        prefill_s = topology.prompt_tokens / prefill_tps - topology.engines[0].wake_s
        prefill_tps = topology.prompt_tokens / prefill_s
    result = {
        "decode_tps": figures.decode_tps.mean,
        "prefill_tps": prefill_tps,
        "ttft_ms": figures.ttft_ms.mean,
    }
    if figures.peak_tps is not None:
        result["peak_tps"] = figures.peak_tps.mean
    return result


def compare(topology: Topology, *, runs: int, seed: int) -> tuple[dict[int, Figures], int]:
    """Print one topology's table; return (its figures, how many of them differ too much)."""
    names = list(dict.fromkeys(name for figures in topology.table.values() for name in figures))
    print(f"\n{topology.name}: {topology.prompt_tokens} + {topology.output_tokens} tokens")
    print("| c | " + " | ".join(names) + " |")
    print("|---|" + "---|" * len(names))
    missed, found = 0, dict[int, Figures]()
    for concurrency, table in topology.table.items():
        simulated = simulate(topology, concurrency, runs=runs, seed=seed)
        found[concurrency] = simulated
        cells: list[str] = []
        for name in names:
            difference = simulated[name] / table[name] - 1
            far = topology.held and abs(difference) > WITHIN[name]
            missed += far
            cells.append(f"{simulated[name]:,.1f} ({100 * difference:+.1f} %{', TOO FAR' if far else ''})")
        print(f"| {concurrency} | " + " | ".join(cells) + " |", flush=True)
    return found, missed


def winner(shuffle: Figures, least_busy: Figures, name: str) -> str:
    """Return the strategy that is better in a figure: a lower one is better for TTFT only."""
    ahead = shuffle[name] > least_busy[name]
    return "simple-shuffle" if ahead != (name == "ttft_ms") else "least-busy"


def compare_routers(shuffle: Mapping[int, Figures], least_busy: Mapping[int, Figures], seed: int) -> int:
    """Print shuffle against least-busy, simulated and in the table; return the number of failed checks."""
    tables = [as_rows(TOPOLOGIES[name]) for name in ("simple-shuffle", "least-busy")]
    print("\nsimple-shuffle against least-busy: who is better, simulated (in the table)")
    print("| c | " + " | ".join(WITHIN) + " |")
    print("|---|" + "---|" * len(WITHIN))
    missed = 0
    for concurrency in CONCURRENCY:
        cells: list[str] = []
        for name in WITHIN:
            said = winner(shuffle[concurrency], least_busy[concurrency], name)
            true = winner(tables[0][concurrency], tables[1][concurrency], name)
            wrong = concurrency >= WINNERS_FROM and said != true
            missed += wrong
            cells.append(f"{said} ({true}){' WRONG' if wrong else ''}")
        print(f"| {concurrency} | " + " | ".join(cells) + " |")

    def loss(one: Figures, other: Figures) -> float:
        return 1 - other["decode_tps"] / one["decode_tps"]

    in_table = loss(tables[0][LOSS_AT], tables[1][LOSS_AT])
    simulated = loss(shuffle[LOSS_AT], least_busy[LOSS_AT])
    fresh = simulate(pair("least-busy", RouterSettings()), LOSS_AT, runs=ROUTED_RUNS, seed=seed)
    held = LOSS_WITHIN[0] * in_table <= simulated <= LOSS_WITHIN[1] * in_table
    print(
        f"least-busy's loss of decode at c = {LOSS_AT}: {100 * simulated:.0f} % "
        f"(table {100 * in_table:.0f} %){'' if held else ', TOO FAR'}\n"
        "made by burst herding: requests that arrive together read the same counts, ties go to the first;\n"
        f"with counts that rise at once: {100 * loss(shuffle[LOSS_AT], fresh):.0f} %"
    )
    return missed + (not held)


def long_context() -> int:
    """Print the long-context server against its two tables; return how many figures differ too much."""
    missed = 0

    def figures(concurrency: int, prompt_tokens: int, output_tokens: int) -> LevelResult:
        virtual = VirtualTime([Engine(LONG_CONTEXT)])
        level = Level(LONG_CONTEXT.name, concurrency, prompt_tokens, output_tokens)
        loop = ClosedLoop(virtual, DirectWay(virtual), level)
        loop.start()
        virtual.run()
        return level_result(level, collect(loop.events))

    def cell(simulated: float, table: float, within: float) -> str:
        nonlocal missed
        difference = simulated / table - 1
        far = abs(difference) > within
        missed += far
        return f"{simulated:,.1f} ({100 * difference:+.1f} %{', TOO FAR' if far else ''})"

    print("\nlong-context: one request\n| prompt tokens | e2e_ms | output_tps |\n|---|---|---|")
    for prompt_tokens, table in LONG_PROMPTS.items():
        made = figures(1, prompt_tokens, round(table["output_tps"] * table["e2e_ms"] / 1000))
        if made.e2e_ms is None or made.output_tps is None:
            raise SystemExit(f"long-context: no figures at {prompt_tokens}")
        cells = (
            cell(made.e2e_ms.mean, table["e2e_ms"], 0.03),
            cell(made.output_tps.mean, table["output_tps"], 0.03),
        )
        print(f"| {prompt_tokens:,} | {' | '.join(cells)} |")
    print("\nlong-context: 105 + 256 tokens\n| c | output_tps |\n|---|---|")
    for concurrency, tps in BATCH_SCALING.items():
        output_tps = figures(concurrency, 105, 256).output_tps
        print(f"| {concurrency} | {cell(output_tps.mean if output_tps else 0.0, tps, 0.10)} |")
    return missed


def main() -> int:
    """Print the tables; return 1 if a checked figure differs too much, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", action="append", choices=[*(one.name for one in TOPOLOGIES_SIMULATED), LONG_CONTEXT.name]
    )
    options = parser.parse_args()
    began = time.perf_counter()
    missed, found = 0, dict[str, dict[int, Figures]]()
    for topology in TOPOLOGIES_SIMULATED:
        if options.only is None or topology.name in options.only:
            found[topology.name], far = compare(topology, runs=options.runs, seed=options.seed)
            missed += far
    if {"simple-shuffle", "least-busy"} <= found.keys():
        missed += compare_routers(found["simple-shuffle"], found["least-busy"], options.seed)
    if options.only is None or LONG_CONTEXT.name in options.only:
        missed += long_context()
    limits = ", ".join(f"{name} {100 * share:g} %" for name, share in WITHIN.items())
    print(f"\nheld within {limits}; {missed} too far; {time.perf_counter() - began:.1f} s of real time")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
