"""Options of `sparktop sweep` for users and agents."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparktop.commands.arguments import seconds
from sparktop.errors import UsageError

if TYPE_CHECKING:
    from sparktop.sweep.plan.plan import Plan

_LEAST_THINK_S, _LONGEST_THINK_S = 0.1, 3600.0


def add_people_options(parser: argparse._ActionsContainer, numbers: Callable[[str], tuple[int, ...]]) -> None:
    """Add the options for the numbers of users and agents, which `numbers` parses."""
    parser.add_argument(
        "--users",
        type=numbers,
        metavar="N[,N…]",
        help="people at work, level by level: each sends a request, thinks, and sends the next",
    )
    parser.add_argument(
        "--agents",
        type=numbers,
        metavar="N[,N…]",
        help="conversations at the same time, level by level, with pauses for tools and people; the "
        "server's answers become part of the next prompt",
    )


def add_shape_options(parser: argparse._ActionsContainer) -> None:
    """Add the options for what agents do and how long users think."""
    parser.add_argument(
        "--workload",
        metavar="NAME",
        help="of agents: chat, coder, coder-quick (default), rag, or a TOML file of your own",
    )
    parser.add_argument(
        "--think",
        type=seconds(_LEAST_THINK_S, _LONGEST_THINK_S),
        metavar="TIME",
        help="of users: median time between an answer and the next request (default 30s)",
    )


def conversation_wishes(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the plan settings that the options give, by field name; empty without --users and --agents.

    Raises:
        UsageError: options contradict each other, or the workload cannot be used.
    """
    from sparktop.model.load import LoadKind, LoadPoint  # late: --help needs none of them
    from sparktop.sweep.plan.conversations.reading import DEFAULT, find_conversations
    from sparktop.sweep.plan.people import THINK_S

    users, agents = arguments.users, arguments.agents
    if arguments.think is not None and users is None:
        raise UsageError("--think goes with --users: give their numbers")
    if arguments.workload is not None and agents is None:
        raise UsageError("--workload goes with --agents: give their numbers")
    if users is None and agents is None:
        return {}
    _check_alone(arguments)
    kind, counts = (LoadKind.USERS, users) if users is not None else (LoadKind.AGENTS, agents)
    points = tuple(LoadPoint(kind, count) for count in counts)
    if users is not None:
        return {"points": points, "think_s": arguments.think or THINK_S}
    for name, value in (("--pp", arguments.pp), ("--tg", arguments.tg)):
        if value is not None:
            raise UsageError(f"--agents: the workload sets the lengths: leave out {name}")
    return {"points": points, "conversations": find_conversations(arguments.workload or DEFAULT)}


def _check_alone(arguments: argparse.Namespace) -> None:
    """Raise UsageError if another axis or a mode is given beside --users or --agents."""
    axes = {
        "-c": arguments.concurrency,
        "--rate": arguments.rate,
        "--users": arguments.users,
        "--agents": arguments.agents,
    }
    given = [name for name, value in axes.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"a sweep has one axis: give {' or '.join(given)}, not both")
    if arguments.mode is not None:
        raise UsageError(f"{given[0]} sets how requests follow one another: leave out --mode")


def conversations_line(plan: Plan) -> str:
    """Return a line on what a sweep of users or agents is about to do, and how long it takes at least."""
    from sparktop.graphics.durations import range_words  # late: as above
    from sparktop.sweep.plan.people import think_s_of
    from sparktop.sweep.run.conversations.forecast import requests_words
    from sparktop.sweep.run.forecast import forecast

    numbers = ", ".join(point.words for point in plan.axis)
    levels, each_s = len(plan.axis) * len(plan.targets), plan.duration_s or 0.0
    think_s = think_s_of(plan)
    name = plan.conversations.name if plan.conversations is not None else ""
    what = f"workload {name}" if think_s is None else f"pp {plan.pp}, tg {plan.tg}, think time {think_s:g} s"
    noun = "level" if levels == 1 else "levels"
    names = plan.kind.value if len(plan.axis) > 1 or plan.axis[0].value != 1 else plan.kind.value[:-1]
    total = forecast(plan, ()).time
    time = "" if total is None else f", {range_words(total.least_s, total.most_s)}"
    return f"{numbers} {names} ({what}): {levels} {noun} of {each_s:g} s{time}; {requests_words(plan)}"
