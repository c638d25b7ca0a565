"""The simulated engines against the tables that they were fitted to, in virtual time.

For each concurrency of a reference table the same bursts run on the simulated engines, are measured by the
code that measures real ones, and printed as "simulated (difference from the table)". Figures are defined as
the tables define them: at c = 1 llama-benchy takes its probe's latency off the prefill time, so that is done
here.

usage: simulation.py [--runs 5] [--seed 0] [--only NAME]...
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reference_tables import CONCURRENCY, CONCURRENCY_FIRST, TOPOLOGIES

from sparktop.model.load import Level
from sparktop.simulation.calibration import CLUSTER_TP2, GX10_PATCHED, GX10_VANILLA, SOLO
from sparktop.simulation.closed_loop import ClosedLoop, DirectWay, Way
from sparktop.simulation.engine import Engine
from sparktop.simulation.profile import EngineProfile
from sparktop.simulation.virtual_time import VirtualTime
from sparktop.sweep.measure import measure_level

WITHIN = {"decode_tps": 0.10, "prefill_tps": 0.15, "ttft_ms": 0.15}
"""How far a figure may be from its table's."""

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Topology:
    """Something that a table has figures of, and how to build it."""

    name: str
    engines: tuple[EngineProfile, ...]
    table: Mapping[int, Figures]
    """By concurrency."""
    prompt_tokens: int = 1024
    output_tokens: int = 128
    way: Callable[[VirtualTime, int], Way] = lambda virtual, _seed: DirectWay(virtual)
    """What stands before the engines, made with the run's seed: nothing, or a router."""
    held: bool = True
    """Whether `WITHIN` holds at every level; else the differences are only shown."""


def as_rows(columns: Mapping[str, tuple[float, ...]]) -> dict[int, Figures]:
    """Turn a table's columns into figures by concurrency."""
    return {
        concurrency: {name: values[at] for name, values in columns.items()}
        for at, concurrency in enumerate(CONCURRENCY)
    }


TOPOLOGIES_SIMULATED = (
    Topology("solo", (SOLO,), as_rows(TOPOLOGIES["solo"])),
    Topology("cluster-tp2", (CLUSTER_TP2,), as_rows(TOPOLOGIES["cluster-tp2"])),
    Topology("gx10-patched", (GX10_PATCHED,), CONCURRENCY_FIRST["gx10-patched"], 2048, held=False),
    Topology(
        "spark-arena-vanilla", (GX10_VANILLA,), CONCURRENCY_FIRST["spark-arena-vanilla"], 2048, held=False
    ),
)


def simulate(topology: Topology, concurrency: int, *, runs: int, seed: int) -> dict[str, float]:
    """Run the bursts of one level and give its figures as the tables define them."""
    engines = [Engine(profile, seed=f"{seed}-{at}") for at, profile in enumerate(topology.engines)]
    virtual = VirtualTime(engines)
    level = Level(topology.name, concurrency, topology.prompt_tokens, topology.output_tokens, runs=runs)
    loop = ClosedLoop(virtual, topology.way(virtual, seed), level, seed=seed)
    loop.start()
    virtual.run()
    figures = measure_level(level, loop.events)
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


def compare(topology: Topology, *, runs: int, seed: int) -> int:
    """Print one topology's table and give how many figures are further off than they may be."""
    names = list(dict.fromkeys(name for figures in topology.table.values() for name in figures))
    print(f"\n{topology.name}: {topology.prompt_tokens} + {topology.output_tokens} tokens")
    print("| c | " + " | ".join(names) + " |")
    print("|---|" + "---|" * len(names))
    missed = 0
    for concurrency, table in topology.table.items():
        simulated = simulate(topology, concurrency, runs=runs, seed=seed)
        cells: list[str] = []
        for name in names:
            difference = simulated[name] / table[name] - 1
            far = topology.held and abs(difference) > WITHIN[name]
            missed += far
            cells.append(f"{simulated[name]:,.1f} ({100 * difference:+.1f} %{', TOO FAR' if far else ''})")
        print(f"| {concurrency} | " + " | ".join(cells) + " |", flush=True)
    return missed


def main() -> int:
    """Print the tables; 1 when a figure that is held is too far off."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=[one.name for one in TOPOLOGIES_SIMULATED])
    options = parser.parse_args()
    began = time.perf_counter()
    missed = sum(
        compare(topology, runs=options.runs, seed=options.seed)
        for topology in TOPOLOGIES_SIMULATED
        if options.only is None or topology.name in options.only
    )
    limits = ", ".join(f"{name} {100 * share:g} %" for name, share in WITHIN.items())
    print(f"\nheld within {limits}; {missed} too far; {time.perf_counter() - began:.1f} s of real time")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
