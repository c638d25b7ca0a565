"""Options of `sparktop sweep` for agents."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparktop.errors import UsageError

if TYPE_CHECKING:
    from sparktop.sweep.plan.plan import Plan


def add_agents_option(parser: argparse._ActionsContainer, numbers: Callable[[str], tuple[int, ...]]) -> None:
    """Add the option for the numbers of agents, which `numbers` parses."""
    parser.add_argument(
        "--agents",
        type=numbers,
        metavar="N[,N…]",
        help="conversations at the same time, level by level, with pauses for tools and people; the "
        "server's answers become part of the next prompt",
    )


def add_shape_options(parser: argparse._ActionsContainer) -> None:
    """Add the option for what agents do."""
    parser.add_argument(
        "--workload",
        metavar="NAME",
        help="of agents: chat, coder, coder-quick (default), rag, or a TOML file of your own",
    )


def conversation_wishes(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the plan settings that the options give, by field name; empty without --agents.

    Raises:
        UsageError: options contradict each other, or the workload cannot be used.
    """
    from sparktop.model.load import LoadKind, LoadPoint  # late: --help needs none of them
    from sparktop.sweep.plan.conversations.reading import DEFAULT, find_conversations

    agents = arguments.agents
    if arguments.workload is not None and agents is None:
        raise UsageError("--workload goes with --agents: give their numbers")
    if agents is None:
        return {}
    _check_alone(arguments)
    points = tuple(LoadPoint(LoadKind.AGENTS, count) for count in agents)
    for name, value in (("--pp", arguments.pp), ("--tg", arguments.tg)):
        if value is not None:
            raise UsageError(f"--agents: the workload sets the lengths: leave out {name}")
    return {"points": points, "conversations": find_conversations(arguments.workload or DEFAULT)}


def _check_alone(arguments: argparse.Namespace) -> None:
    """Raise UsageError if another axis or a mode is given beside --agents."""
    axes = {
        "-c": arguments.concurrency,
        "--rate": arguments.rate,
        "--agents": arguments.agents,
    }
    given = [name for name, value in axes.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"a sweep has one axis: give {' or '.join(given)}, not both")
    if arguments.mode is not None:
        raise UsageError(f"{given[0]} sets how requests follow one another: leave out --mode")


def conversations_line(plan: Plan) -> str:
    """Return a line on what a sweep of agents is about to do, and how long it takes at least."""
    from sparktop.graphics.numbers import range_words  # late: as above
    from sparktop.sweep.run.conversations.forecast import requests_words
    from sparktop.sweep.run.forecast import forecast

    numbers = ", ".join(point.words for point in plan.axis)
    levels, each_s = len(plan.axis) * len(plan.targets), plan.duration_s or 0.0
    name = plan.conversations.name if plan.conversations is not None else ""
    noun = "level" if levels == 1 else "levels"
    names = plan.kind.value if len(plan.axis) > 1 or plan.axis[0].value != 1 else plan.kind.value[:-1]
    total = forecast(plan, ()).time
    time = "" if total is None else f", {range_words(total.least_s, total.most_s)}"
    what = f"{numbers} {names} (workload {name}): {levels} {noun} of {each_s:g} s"
    return f"{what}{time}; {requests_words(plan)}"
