"""`sparktop demo`: a simulated cluster on loopback, shown in the viewer."""

from __future__ import annotations

import argparse
import os

from msgspec.structs import replace

from sparktop.commands.arguments import add_drawing, refuse_beside, whole_number
from sparktop.model.targets import Watch

_MOST_BACKENDS = 8
"""Most simulated servers."""
_LARGEST_SEED = 2**31 - 1
"""Largest seed."""
_MOST_LOAD = 1024
"""Most requests in flight."""
SCENARIOS = {
    "oscillation": "least-busy on counts that come late: all requests go to one server, then to the other",
    "cooldown": "a server whose requests break off is left alone for 5 s and comes back empty",
    "steady": "requests of all lengths, evenly spread",
    "answers": "short prompts and long answers: what a server should give; one restarts slower (4 min)",
    "hot": "machines in warm air: clocks sag",
    "memory": "a program takes 90 MiB of memory a second from the first machine",
    "faulty": "the first server restarts every 40 s, the second one drips",
    "slow-start": "the first server loads its model for 80 s every two and a half minutes",
    "stuck-start": "the first server starts again and hangs as it captures graphs: named after 6.5 minutes",
    "reboot": "the first machine runs out of memory, reboots and loads its model again",
    "pd-fault": "a power-delivery fault pins the second machine's clock",
    "orphan": "an engine process of an earlier server holds 9 GiB of the second machine",
    "memory-held": "the first server ends, and 33 GiB stay held by no living process: too little to start it",
    "lanes": "each server has two data-parallel ranks; the load of the first one's swings between them",
    "tp2": "each server spans two machines",
    "mixed-pair": "the second machine of the first server has another MTU and another NCCL",
    "small-memlock": "the second machine of the first server lets NCCL lock 8 MiB of memory: too little",
    "topologies": "one machine, two as one (TP=2), two behind simple-shuffle, two behind least-busy",
    "recipes": "two recipes of one machine, with and without CUDA graphs for batches of 5 and 10",
    "long-context": "a server that takes 131,072 tokens, and one that takes 20,480",
    "agents": "agents at work: growing contexts from the prefix cache, pauses for tools and people",
    "hang-a": "ranks diverge in a collective call: the GPUs spin at low power",
    "hang-b": "a kernel never ends: the GPU spins at low power",
    "hang-blocked": "the engine waits for a lock: GPU and CPU rest",
    "dead-rank": "the process of the last rank has ended, and the others wait for it",
    "huge-step": "one step takes minutes: nothing is counted, but the GPU works",
    "compile": "a kernel is compiled while requests wait: the GPU rests",
    "graph-capture": "the first request after a start waits for CUDA graphs: short bursts of GPU work",
    "sleep": "sleep mode: the weights are in host memory",
    "swap-storm": "memory is swapped in and out: nothing else happens",
    "kv-wait": "requests wait for the KV cache of a prefill server",
    "cpu-step": "a grammar is compiled on one core of the engine: the GPU rests",
    "long-prefill": "prompts whose prefill takes 6 minutes: no token, but the KV cache fills",
    "kv-starved": "a KV cache too small for the load: requests are preempted again and again",
    "prefix-cold": "agents whose first tokens change: the prefix cache never hits",
    "abandoned": "the clients vanish, and the servers go on: they work for nobody",
    "long-drafts": "drafts of one token, then of five that are hardly accepted, on the first server",
    "slow-link": "pairs whose link carries 0.6 Gb/s, with more requests and fewer by turns",
    "client-gone": "the clients vanish for 2 minutes in every 3: the servers rest",
}
"""Descriptions by scenario; the first is the default. Kept here, so that --help loads no simulation."""
_DEFAULT = next(iter(SCENARIOS))
"""The scenario, if none is named."""
_MAKES_WAY = (
    "The demo's own load makes way: while anybody else sends requests to its router or servers it pauses,\n"
    "and it comes back 10 s after the last of them, but not before the end of your sweep or search. So a\n"
    "sweep measures the servers alone: s, f5 (the router), f6 (two routers, one server), or `sparktop\n"
    "sweep` on them.\n\n"
    "Before the same servers stands a second router that only sweeps load: simple-shuffle, which sends each\n"
    "request to a server at random (round-robin, where the router itself is simple-shuffle; least-busy, in\n"
    "topologies).\n\n"
    "In topologies, recipes and long-context, f6 compares what the scenario has: four topologies at 1 to 64\n"
    "requests (15 minutes), two recipes at 1 to 16 (the dip at 5 and 10), prompts of 5,000 to 128,000 tokens."
)
"""What the help says below the scenarios."""
STRATEGIES = ("simple-shuffle", "round-robin", "least-busy", "power-of-two", "shortest-queue")
"""Routing strategies of the simulated router."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the demo: servers, scenario, router strategy, load, and those of the screen."""
    scenarios = "\n".join(f"  {name:<13} {about}" for name, about in SCENARIOS.items())
    parser.epilog = f"scenarios:\n{scenarios}\n\n{_MAKES_WAY}"
    parser.add_argument(
        "--backends",
        type=whole_number(1, _MOST_BACKENDS),
        default=2,
        metavar="N",
        help=f"simulated servers, 1 to {_MOST_BACKENDS} (default 2)",
    )
    parser.add_argument(
        "--scenario",
        choices=SCENARIOS,
        default=_DEFAULT,
        help=f"what happens, see below (default {_DEFAULT})",
        metavar="NAME",
    )
    parser.add_argument(
        "--strategy",
        choices=STRATEGIES,
        help=f"how the router chooses: {', '.join(STRATEGIES)} (default: the scenario's)",
        metavar="S",
    )
    parser.add_argument(
        "--load",
        type=whole_number(0, _MOST_LOAD),
        metavar="C",
        help=f"requests in flight, 0 to {_MOST_LOAD} (default: the scenario's)",
    )
    parser.add_argument(
        "--seed",
        type=whole_number(0, _LARGEST_SEED),
        default=0,
        metavar="N",
        help="the same seed gives the same load (default 0)",
    )
    parser.add_argument(
        "--serve",
        action="store_true",
        help="only the servers, and their configuration as TOML on standard output",
    )
    add_drawing(parser)


def run(arguments: argparse.Namespace) -> int:
    """Start the simulated servers and open the viewer on them; return the exit code.

    With --serve, run the servers without a viewer.
    """
    # Late: these load the servers and pydantic.
    from sparktop.commands.choice import checked_theme
    from sparktop.commands.watch import show
    from sparktop.demo.command import run_demo
    from sparktop.demo.scenario import DemoPlan
    from sparktop.logfile import open_log

    def show_simulated(watch: Watch) -> int:
        return show(replace(watch, low_bandwidth=arguments.low_bandwidth), simulated=True)

    if arguments.serve:
        refuse_beside("--serve draws nothing", arguments, "low_bandwidth")
    open_log(os.environ)
    plan = DemoPlan(
        scenario=arguments.scenario,
        backends=arguments.backends,
        seed=arguments.seed,
        strategy=arguments.strategy,
        load=arguments.load,
    )
    theme = checked_theme(arguments.theme)
    return run_demo(
        plan, serve=arguments.serve, theme=theme, interval_s=arguments.interval, show=show_simulated
    )
