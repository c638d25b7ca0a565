"""`sparktop capacity`: how many agents or requests a target can take under conditions."""

from __future__ import annotations

import argparse
import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.commands.arguments import (
    argument_type,
    chosen_format,
    configured_watch,
    number,
    refuse_beside,
    seconds,
    whole_number,
)
from sparktop.commands.output import output_file, tell, write_result
from sparktop.commands.sweep.command import FORMATS as SWEEP_FORMATS
from sparktop.commands.sweep.command import (
    REQUEST_OPTIONS,
    add_output,
    add_seed,
    add_target_options,
    own_settings,
)
from sparktop.errors import UsageError
from sparktop.sweep.terms.definitions import LEAST_S, MOST_CONCURRENCY, MOST_S, MOST_TOKENS
from sparktop.typed import whole_numbers

if TYPE_CHECKING:
    from sparktop.model.load import LoadKind
    from sparktop.model.targets import SweepSpec
    from sparktop.sweep.plan.plan import Capacity
    from sparktop.sweep.result.results import SweepResult

FORMATS = ("txt", *SWEEP_FORMATS[:4])
"""Output formats; others of a sweep hold no answer of a search."""
_EXAMPLES = """\
examples:
  sparktop capacity                                coding agents on the servers here
  sparktop capacity spark-1:8000 --workload chat   how many people
  sparktop capacity a --rate --pp 2k --tg 128      requests per second
  sparktop capacity a --slo ttft_p90_ms=500        under a limit of your own
  sparktop capacity --from last --slo stream_tps=30   what a stored sweep says of it"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: targets, kind of load, conditions and output."""
    parser.usage = "sparktop capacity [TARGET ...] [options]"
    parser.description = f"{parser.description}\n\n{_EXAMPLES}"
    group = add_target_options(
        parser,
        "a backend or router of the configuration, a host, host:port or URL, or NAME=URL; with none, all "
        "that the configuration holds, else this machine's usual ports",
        agents="--agents",
    )
    group.add_argument("--api", choices=("chat", "completions"), help="default: chat")
    _add_search(parser.add_argument_group("what is counted, and the conditions"))
    _add_load(parser.add_argument_group("the load"))
    group = parser.add_argument_group("what each request holds")
    lengths = argument_type(lambda text: whole_numbers(text, 1, MOST_TOKENS))
    group.add_argument("--pp", type=lengths, metavar="N", help="prompt tokens, as in 2k")
    group.add_argument("--tg", type=whole_number(1, MOST_TOKENS), metavar="N", help="generated tokens")
    for option in ("--prompts", "--extra-body", "--header"):
        group.add_argument(option, **REQUEST_OPTIONS[option])
    group = parser.add_argument_group("when it stops, and output")
    group.add_argument(
        "--max-errors",
        type=number(0.0, 1.0),
        metavar="SHARE",
        help="failed requests from which on a level fails (default 0.01)",
    )
    add_output(group, FORMATS, "default: by the ending of -o FILE, else txt")


def _add_search(group: argparse._ArgumentGroup) -> None:
    """Add the options of what is searched: the kind of load, conditions, limits."""
    kind = group.add_mutually_exclusive_group()
    kind.add_argument("--agents", action="store_true", help="conversations at the same time (default)")
    kind.add_argument("--rate", action="store_true", help="requests per second, however many are in flight")
    kind.add_argument("--concurrency", action="store_true", help="requests at the same time")
    group.add_argument(
        "--slo",
        metavar="CONDITIONS",
        help="default ttft_p90_ms=2000,stream_tps=15: 90 %% of the requests have their first token within "
        "2 s, and 90 %% get 15 tok/s; for agents also ttft_tool_p90_ms and ttft_human_p90_ms; with --rate, "
        "95 %% of the requests must meet all limits",
    )
    group.add_argument("--preset", metavar="NAME", help="published limits, such as mlperf-gpt-oss-120b")
    group.add_argument(
        "--from",
        dest="stored",
        metavar="RESULT",
        help="send nothing: judge the levels of a stored sweep, a file or last; its axis is the kind",
    )
    group.add_argument(
        "--most",
        type=number(1, MOST_CONCURRENCY),
        metavar="N",
        help="the largest number to try (default 64 agents, else 256)",
    )


def _add_load(group: argparse._ActionsContainer) -> None:
    """Add the options of the load."""
    group.add_argument(
        "--workload",
        metavar="NAME",
        help="of agents: chat, coder, coder-quick (default), rag, or a TOML file of your own",
    )
    group.add_argument(
        "--arrivals", metavar="HOW", help="of a rate: poisson (default), constant, bursty, trains or gamma:B"
    )
    group.add_argument(
        "--duration",
        type=seconds(LEAST_S, MOST_S),
        metavar="TIME",
        help="of each level (default: 60 to 120 s, longer for slow requests and low rates)",
    )
    group.add_argument("--timeout", **REQUEST_OPTIONS["--timeout"])
    add_seed(group)


def run(arguments: argparse.Namespace) -> int:
    """Run the search; return the exit code: 0, 1 for failures (see `verdict`), or 130 if interrupted.

    Raises:
        SparktopError: an argument, the configuration file or the output cannot be used; or nothing was
            reached.
    """
    # Late: --help needs none of them.
    from sparktop.commands.report import result_path
    from sparktop.commands.sweep.run import make, render
    from sparktop.commands.sweep.targets import ask_first, asked_targets
    from sparktop.logfile import open_log
    from sparktop.model.targets import GuardLimits, Watch
    from sparktop.sweep.plan.capacity import make_capacity_plan
    from sparktop.sweep.run.forecast import plan_sentences

    open_log(os.environ)
    stored = None if arguments.stored is None else result_path(arguments.stored)
    read = (stored, arguments.config, arguments.prompts, arguments.workload)
    output = output_file(arguments.output, read)
    form = chosen_format(arguments.form, output, FORMATS, "txt")
    if stored is not None:
        answered = _stored_answer(stored, arguments)
        write_result(output, render(answered, form), is_markdown=form == "md")
        if output is not None:
            tell(answer_of(answered))
        return 0
    capacity = capacity_of(arguments)
    watch = configured_watch(arguments.config, os.environ, needed=not arguments.targets) or Watch()
    targets, watch = asked_targets(arguments.targets, arguments.api_key_env, arguments.model, watch)
    guard = GuardLimits(0.0, 0.0) if arguments.no_guard else watch.guard
    plan = make_capacity_plan(capacity, targets, _spec(arguments), guard=guard)
    ask_first(plan, watch, is_sure=arguments.yes)
    for line in plan_sentences(plan, datetime.now().astimezone()):
        tell(line)
    return make(plan, watch, form, output)


_SENDING = ("targets", "workload", "arrivals", "tg", "prompts", "duration", "most", "seed", "header", "model")
"""Arguments that say what is sent."""


def _stored_answer(stored: str, arguments: argparse.Namespace) -> SweepResult:
    """Return the sweep in the file `stored` with its answers to the conditions of the arguments.

    Raises:
        UsageError: the file cannot be read, or options or conditions do not fit it.
    """
    from sparktop.sweep.result.store import load  # late: as above
    from sparktop.sweep.run.again import answer_from_levels
    from sparktop.sweep.terms.definitions import ERROR_SHARE

    refuse_beside("--from sends nothing", arguments, *_SENDING)
    result = load(Path(stored))
    asks_load = any((arguments.agents, arguments.rate, arguments.concurrency))
    kind = kind_of(arguments) if asks_load else result.plan.load
    share = ERROR_SHARE if arguments.max_errors is None else arguments.max_errors
    return answer_from_levels(
        result, _search_of(arguments, kind), None if arguments.pp is None else arguments.pp[0], share
    )


def kind_of(arguments: argparse.Namespace) -> LoadKind:
    """Return the kind of load that the arguments choose; agents by default."""
    from sparktop.model.load import LoadKind  # late: --help needs it not

    if arguments.concurrency:
        return LoadKind.CONCURRENCY
    # Published limits are those of rates.
    is_rate = arguments.rate or (arguments.preset is not None and not arguments.agents)
    return LoadKind.RATE if is_rate else LoadKind.AGENTS


def capacity_of(arguments: argparse.Namespace) -> Capacity:
    """Return what the arguments let the search look for.

    Raises:
        UsageError: a condition is invalid, or options contradict each other.
    """
    from sparktop.model.load import LoadKind  # late: as above

    kind = kind_of(arguments)
    of_kinds = (
        ("--workload", arguments.workload, (LoadKind.AGENTS,)),
        ("--arrivals", arguments.arrivals, (LoadKind.RATE,)),
        ("--pp", arguments.pp, (LoadKind.RATE, LoadKind.CONCURRENCY)),
        ("--tg", arguments.tg, (LoadKind.RATE, LoadKind.CONCURRENCY)),
        ("--prompts", arguments.prompts, (LoadKind.RATE, LoadKind.CONCURRENCY)),
    )
    for option, value, kinds in of_kinds:
        if value is not None and kind not in kinds:
            raise UsageError(f"{option} goes with {' or '.join(f'--{kind.value}' for kind in kinds)}")
    return _search_of(arguments, kind)


def _search_of(arguments: argparse.Namespace, kind: LoadKind) -> Capacity:
    """Return a search for the largest load of this kind under the conditions that the arguments set.

    Raises:
        UsageError: a condition is invalid, or both --slo and --preset are given.
    """
    from sparktop.model.load import LoadKind  # late: as above
    from sparktop.sweep.plan.capacity import (
        DEFAULT_CONDITIONS,
        DEFAULT_MOST,
        DEFAULT_SHARE,
        find_limits,
        parse_conditions,
    )
    from sparktop.sweep.plan.plan import Capacity

    if arguments.slo is not None and arguments.preset is not None:
        raise UsageError("--slo and --preset both set the conditions: give one of them")
    conditions, share = DEFAULT_CONDITIONS if arguments.slo is None else arguments.slo, DEFAULT_SHARE
    if arguments.preset is not None:
        conditions, share = find_limits(arguments.preset)
    largest = arguments.most or DEFAULT_MOST[kind]
    if arguments.pp is not None and len(arguments.pp) > 1:
        raise UsageError("--pp: the answer is for one prompt length")
    return Capacity(
        kind,
        parse_conditions(conditions, kind),
        share=share,
        most=largest if kind is LoadKind.RATE else float(int(largest)),  # whole agents or requests
        limits=arguments.preset,
        fixed_s=arguments.duration is not None,
    )


def _spec(arguments: argparse.Namespace) -> SweepSpec:
    """Return the settings of the levels that the arguments give."""
    import secrets  # late: as above

    from sparktop.model.targets import SweepSpec

    return SweepSpec(
        prompt_lengths=arguments.pp or (),
        tg=arguments.tg,
        arrivals=arguments.arrivals,
        workload=arguments.workload,
        duration_s=arguments.duration,
        api=arguments.api,
        seed=secrets.randbelow(2**31) if arguments.seed is None else arguments.seed,
        max_error_share=arguments.max_errors,
        prompts=arguments.prompts,
        timeout_s=arguments.timeout_s,
        **own_settings(arguments),
    )


def answer_of(result: SweepResult) -> str:
    """Return the answer of a search in a line."""
    from sparktop.sweep.view.result import result_view  # late: as above

    return result_view(result).headline or "nothing was measured"
