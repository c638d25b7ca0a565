"""Options of `sparktop sweep` for recorded traffic."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sparktop.commands.arguments import number
from sparktop.errors import UsageError
from sparktop.sweep.plan.traces.replay import FORMAT_NAMES

if TYPE_CHECKING:
    from sparktop.sweep.plan.traces.replay import Replay

_LEAST_SPEED, _MOST_SPEED = 0.001, 1000.0


def add_trace_options(parser: argparse._ActionsContainer) -> None:
    """Add the options for a file of recorded traffic, its format, the speed, and the part to replay."""
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="replay recorded traffic: each request when it was due, with its own lengths and repeated "
        "beginnings of prompts; see docs/measuring.md for the formats",
    )
    parser.add_argument(
        "--trace-format", choices=FORMAT_NAMES, help="with --trace: default: recognised from its first line"
    )
    parser.add_argument(
        "--trace-speed",
        type=number(_LEAST_SPEED, _MOST_SPEED),
        metavar="X",
        help="with --trace: 2 is twice as fast as recorded (default 1)",
    )
    parser.add_argument(
        "--trace-range",
        metavar="FROM..TO",
        help="with --trace: the part from FROM to TO seconds after its first request, as in 600..1200 or "
        "10m..1h; one of them may be left out",
    )


def traced(arguments: argparse.Namespace) -> Replay | None:
    """Return the recorded traffic that the options choose, after reading it once; None without --trace.

    Raises:
        UsageError: options contradict each other, or the file cannot be used.
    """
    parts = {
        "--trace-format": arguments.trace_format,
        "--trace-speed": arguments.trace_speed,
        "--trace-range": arguments.trace_range,
    }
    if arguments.trace is None:
        for name, value in parts.items():
            if value is not None:
                raise UsageError(f"{name} goes with --trace: give the file")
        return None
    _check_alone(arguments)
    from sparktop.sweep.plan.traces.replay import find_replay, parse_range  # late: --help needs none of them

    if arguments.trace_range is not None:
        try:
            parse_range(arguments.trace_range)
        except UsageError as error:
            raise UsageError(f"--trace-range: {error}") from None
    return find_replay(arguments.trace, arguments.trace_format, arguments.trace_speed, arguments.trace_range)


def _check_alone(arguments: argparse.Namespace) -> None:
    """Raise UsageError if another option sets what the trace sets."""
    axes = {
        "-c": arguments.concurrency,
        "--rate": arguments.rate,
        "--agents": arguments.agents,
    }
    for name, value in axes.items():
        if value is not None:
            raise UsageError(f"a sweep has one axis: give {name} or --trace, not both")
    lengths = {"--pp": arguments.pp, "--tg": arguments.tg, "--depth": arguments.depth}
    for name, value in lengths.items():
        if value is not None:
            raise UsageError(f"--trace: each request has its own lengths: leave out {name}")
    for name, value in {"--duration": arguments.duration, "--requests": arguments.requests}.items():
        if value is not None:
            raise UsageError(f"--trace: choose a part of it with --trace-range: leave out {name}")
    for name, value in {"--mode": arguments.mode, "--arrivals": arguments.arrivals}.items():
        if value is not None:
            raise UsageError(f"--trace sends each request when it was due: leave out {name}")
    if arguments.longest:
        raise UsageError("--trace: each request has its own lengths: leave out --longest")
