"""`sparktop sweep`: load tests of servers and routers, with confidence intervals and significance tests."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktop.commands.arguments import add_keys, number, refuse_removed, seconds, typed, whole_number
from sparktop.commands.output import check_file, tell, write_markdown, write_out
from sparktop.errors import UnreachableError, UsageError
from sparktop.model.text import clean
from sparktop.sweep.plan.traces import FORMAT_NAMES
from sparktop.sweep.terms.limits import LEAST_S, MOST_CONCURRENCY, MOST_RUNS, MOST_S, MOST_TOKENS
from sparktop.typed import climbing_numbers, number_or_more, whole_numbers

if TYPE_CHECKING:
    from sparktop.commands.sweep.targets import Chosen
    from sparktop.sweep.plan.plan import Plan, SweepTarget
    from sparktop.sweep.plan.presets import Wishes
    from sparktop.sweep.result.results import SweepResult


FORMATS = ("json", "md", "html", "csv", "svg", "llama-benchy", "post")
_BY_SUFFIX = {".md": "md", ".html": "html", ".htm": "html", ".csv": "csv", ".svg": "svg"}
"""Formats by the suffix of a file; any other suffix means JSON."""
_EXAMPLES = """\
examples:
  sparktop sweep                                the servers here, preset quick
  sparktop sweep spark-1:8000 -c 1,2,4          three levels on one server
  sparktop sweep a b --pp 2k --tg 128 -c 1..64  on, up to 64, while tok/s rise
  sparktop sweep a --rate auto                  requests/s that it keeps up with
  sparktop sweep a --agents 1-4 --duration 5m   coding agents
  sparktop sweep a --prompts day.jsonl -c 4     your own prompts"""
_INTERRUPTED = 130
_LEAST_PROMPT_SHARE = 0.5
"""Share of a prompt (0 to 1) that a server must count, so that its level is not as one that it refused."""


def counts(most: int) -> Callable[[str], tuple[int, ...]]:
    """Return an argument type for argparse that accepts comma-separated integers from 1 to `most`."""
    return typed(lambda text: whole_numbers(text, 1, most))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: targets, levels, what each of them does, stop conditions and output."""
    parser.usage = "sparktop sweep [TARGET ...] [options]"
    parser.description = f"{parser.description}\n\n{_EXAMPLES}"
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="a backend or router of the configuration, a host, host:port or URL; with none, the "
        "preset's targets, else all that the configuration holds, else this machine's usual ports",
    )
    _add_targets(parser.add_argument_group("targets"))
    _add_levels(parser.add_argument_group("levels"))
    for option in ("--users", "--think"):
        refuse_removed(parser, option, "--agents N --workload chat are people who read and pause")
    group = parser.add_argument_group("agents and recorded traffic")
    add_shape_options(group)
    add_trace_options(group)
    group = parser.add_argument_group("what each request holds")
    _add_lengths(group)
    add_own_options(group)
    _add_runs(parser.add_argument_group("how a level is measured"))
    _add_output(parser.add_argument_group("when it stops, and output"))


def _add_targets(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--target", action="append", default=[], metavar="NAME=URL", help="a target under a name of its own"
    )
    group.add_argument("--config", metavar="FILE", help="the configuration file (see sparktop config)")
    add_keys(group)
    group.add_argument("--model", metavar="NAME", help="default: the server's only or first one")
    group.add_argument("--api", choices=("chat", "completions"), help="default: chat")
    group.add_argument(
        "--yes",
        action="store_true",
        help="put load on targets that are neither here nor in the configuration",
    )


def _add_levels(group: argparse._ActionsContainer) -> None:
    group.add_argument("--preset", metavar="NAME", help="default: quick; --list shows all")
    group.add_argument("--list", action="store_true", help="list the presets and end")
    group.add_argument(
        "-c",
        "--concurrency",
        type=typed(lambda text: climbing_numbers(text, 1, MOST_CONCURRENCY)),
        metavar="N[,N…][..N]",
        help="requests at once, level by level; 1,4,16..256 goes on to at most 256 while tok/s rise",
    )
    group.add_argument(
        "--rate",
        metavar="R[,R…]",
        help="requests per second that arrive however many are in flight, level by level; 0.5..4 is one "
        "level with a rising rate, auto looks for the highest rate that a target keeps up with",
    )
    group.add_argument(
        "--arrivals",
        metavar="HOW",
        help="with --rate: poisson (default), constant, bursty, trains, or gamma:B (B = 1 is poisson, less "
        "is bursty)",
    )
    add_agents_option(group, counts(MOST_CONCURRENCY))
    group.add_argument(
        "--slo",
        metavar="CONDITIONS",
        help="look for the concurrencies under which all hold: ttft_p90_ms=2000,stream_tps=15 end the range "
        "above, output_tps=600 below",
    )


def _add_lengths(group: argparse._ActionsContainer) -> None:
    """Add the options of the lengths of prompts, of context before them, and of answers."""
    group.add_argument("--pp", type=counts(MOST_TOKENS), metavar="N[,N…]", help="prompt tokens, as in 128,4k")
    group.add_argument("--tg", type=whole_number(1, MOST_TOKENS), metavar="N", help="generated tokens")
    group.add_argument(
        "--longest",
        action="store_true",
        help="of a prompt length that a server refuses, find the largest that fits and measure it too",
    )
    group.add_argument(
        "--depth",
        type=typed(lambda text: whole_numbers(text, 0, MOST_TOKENS)),
        metavar="N[,N…]",
        help="tokens of context before each prompt, as in 0,4k,16k: sent first, so that the prefix cache has "
        "them",
    )
    group.add_argument(
        "--whole-prompt",
        action="store_true",
        help="with --depth: context and prompt in one request, nothing from the prefix cache",
    )


def _add_runs(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--runs",
        type=typed(lambda text: number_or_more(text, 1, MOST_RUNS)),
        metavar="N[+]",
        help="runs of each level; 3+: more where these last less than 10 s",
    )
    group.add_argument(
        "--requests",
        type=whole_number(1, MOST_TOKENS),
        metavar="N",
        help="requests of each level, in place of --runs; with --mode steady those of each run",
    )
    group.add_argument(
        "--duration", type=seconds(LEAST_S, MOST_S), metavar="TIME", help="of each level, as in 90, 90s or 2m"
    )
    group.add_argument(
        "--mode", choices=("burst", "steady"), help="all at once, or a constant number in flight"
    )
    add_timeout_option(group)
    group.add_argument("--order", choices=("ascending", "abba"), help="abba interleaves the targets' runs")
    group.add_argument("--seed", type=whole_number(0, 2**31 - 1), metavar="N", help="default: a new one")
    group.add_argument("--no-warm-up", action="store_true", help="leave out the run ahead of each level")


def _add_output(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--max-errors",
        type=number(0.0, 1.0),
        metavar="SHARE",
        help="failed requests from which on the exit code is 1 (default 0.01)",
    )
    group.add_argument(
        "--no-guard",
        action="store_true",
        help="do not stop for memory or heat, as a sweep on unified memory (GB10) else does below 8 GiB of "
        "headroom or above 92 °C",
    )
    group.add_argument("--format", choices=FORMATS, dest="form", help="default: json, on a terminal md")
    group.add_argument("-o", "--output", metavar="FILE", help="write there after each level, and at the end")


def run(arguments: argparse.Namespace) -> int:
    """Run a sweep; return the exit code: 0, 1 for failures (see `verdict`), or 130 if interrupted.

    Raises:
        SparktopError: an argument, the configuration file or the output cannot be used; or nothing was
            reached.
    """
    # Late: --help needs none of them.
    import asyncio

    from sparktop.commands.choice import configured_watch, target_keys
    from sparktop.commands.sweep.targets import choose_targets, named_target
    from sparktop.logfile import open_log
    from sparktop.model.targets import GuardLimits, Watch
    from sparktop.sweep.plan.presets import DEFAULT, find_preset, make_plan

    open_log(os.environ)
    if arguments.list:
        return _list_presets(arguments.config)
    output = None if arguments.output in {None, "-"} else Path(arguments.output)
    if output is not None:
        check_file(output)
    form = chosen_format(arguments.form, output, is_terminal=sys.stdout is not None and sys.stdout.isatty())
    wishes = wishes_of(arguments)
    watch = configured_watch(arguments.config, os.environ) or Watch()
    preset = find_preset(arguments.preset or DEFAULT, watch.sweeps)
    named = [named_target(text) for text in arguments.target]
    words = list(arguments.targets)
    if not words and not named:
        words = list(preset.targets)
    given = [*arguments.targets, *(text for pair in named for text in pair)]
    keys = target_keys(arguments.api_key_env, given, os.environ, targets=len(arguments.targets) + len(named))
    chosen = asyncio.run(choose_targets(words, named, watch, arguments.model, keys))
    guard = GuardLimits(0.0, 0.0) if arguments.no_guard else watch.guard
    plan = make_plan(preset, chosen.targets, wishes, guard=guard)
    if form == "llama-benchy":
        _check_llama_benchy(plan)
    ask_first(chosen.targets, is_sure=arguments.yes)
    return _make(plan, chosen, form, output)


def _list_presets(config: str | None) -> int:
    """Print the presets with what each measures, those of the configuration too; return the exit code 0."""
    # Late: --help needs none of them.
    from sparktop.commands.choice import configured_watch
    from sparktop.model.targets import Watch
    from sparktop.sweep.plan.presets import all_presets, preset_line

    watch = configured_watch(config, os.environ) or Watch()
    known = all_presets(watch.sweeps)
    width = max(map(len, known))
    write_out("".join(f"{name:<{width}}  {preset_line(one)}\n" for name, one in known.items()))
    return 0


def _check_llama_benchy(plan: Plan) -> None:
    """Check that llama-benchy's JSON can hold the result of a plan, before anything is sent.

    Raises:
        UsageError: it cannot; the message says why.
    """
    from sparktop.sweep.formats.exports import check_axis  # late: --help needs no formats

    if len(plan.targets) > 1:
        raise UsageError("--format llama-benchy holds one target: sweep one, or choose json")
    check_axis(plan.kind)


def wishes_of(arguments: argparse.Namespace) -> Wishes:
    """Return the settings that the arguments change in the preset; None stands for a missing argument.

    Without --seed, draw a random seed, so that no server has the prompts in its cache.

    Raises:
        UsageError: a condition of --slo cannot be used.
    """
    import secrets  # late: as above

    from sparktop.model.load import LoadMode
    from sparktop.sweep.plan.plan import Api, Order
    from sparktop.sweep.plan.presets import Wishes
    from sparktop.sweep.plan.slo import parse_slo

    concurrency, climb_to = arguments.concurrency or (None, None)
    runs, more_runs = arguments.runs or (None, None)
    return Wishes(
        concurrency=concurrency,
        climb_to=climb_to,
        prompt_lengths=arguments.pp,
        tg=arguments.tg,
        depths=arguments.depth,
        whole=True if arguments.whole_prompt else None,
        runs=runs,
        more_runs=more_runs,
        arrivals=arguments.arrivals,
        mode=LoadMode(arguments.mode) if arguments.mode else None,
        duration_s=arguments.duration,
        requests=arguments.requests,
        order=Order(arguments.order) if arguments.order else None,
        api=Api(arguments.api) if arguments.api else None,
        seed=secrets.randbelow(2**31) if arguments.seed is None else arguments.seed,
        warmup=False if arguments.no_warm_up else None,
        slo=parse_slo(arguments.slo) if arguments.slo is not None else None,
        longest=True if arguments.longest else None,
        max_error_share=arguments.max_errors,
        **axis_wishes(arguments),
        **request_wishes(arguments),
    )


_AXES = {"concurrency": "-c", "rate": "--rate", "agents": "--agents", "trace": "--trace"}
"""The options of which a sweep has one, by the name of the argument."""
_NEEDS = {
    "arrivals": ("rate", "give the requests per second"),
    "workload": ("agents", "give their numbers"),
    "trace_format": ("trace", "give the file"),
    "trace_speed": ("trace", "give the file"),
    "trace_range": ("trace", "give the file"),
}
"""Options that go with an axis alone, and what to do."""
_EXCLUDED: dict[str, dict[str, tuple[str, ...]]] = {
    "rate": {"--rate sends each request when it is due": ("mode",)},
    "agents": {
        "--agents sets how requests follow one another": ("mode",),
        "--agents: the workload sets the lengths": ("pp", "tg"),
    },
    "trace": {
        "--trace: each request has its own lengths": ("pp", "tg", "depth", "longest"),
        "--trace: choose a part of it with --trace-range": ("duration", "requests"),
        "--trace sends each request when it was due": ("mode", "arrivals"),
    },
}
"""Options that an axis leaves no room for, by the reason."""


def _check_axis(arguments: argparse.Namespace) -> None:
    """Check that there is one axis at most, with the options that go with it.

    Raises:
        UsageError: options contradict each other.
    """

    def is_given(name: str) -> bool:
        return getattr(arguments, name) not in {None, False}

    given = [name for name in _AXES if is_given(name)]
    if len(given) > 1:
        names = " or ".join(_AXES[name] for name in given)
        raise UsageError(f"a sweep has one axis: give {names}, not both")
    for reason, options in _EXCLUDED.get(given[0] if given else "", {}).items():
        for option in filter(is_given, options):
            raise UsageError(f"{reason}: leave out --{option}")
    for name, (axis, advice) in _NEEDS.items():
        if is_given(name) and axis not in given:
            raise UsageError(f"--{name.replace('_', '-')} goes with {_AXES[axis]}: {advice}")


def axis_wishes(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the plan settings of the axis that the options choose, by field name; a trace is read once.

    Raises:
        UsageError: options contradict each other, or a rate, the workload or the trace cannot be used.
    """
    from sparktop.model.load import LoadKind, LoadPoint  # late: --help needs none of them
    from sparktop.sweep.plan.arrivals import parse_pattern, rates_or_auto
    from sparktop.sweep.plan.conversations import DEFAULT, find_conversations
    from sparktop.sweep.plan.traces import find_replay, parse_range

    _check_axis(arguments)
    for option, text, parse in (
        ("--arrivals ", arguments.arrivals, parse_pattern),
        ("--rate: ", arguments.rate, rates_or_auto),
        ("--trace-range: ", arguments.trace_range, parse_range),
    ):
        try:
            if text is not None:
                parse(text)
        except UsageError as error:
            raise UsageError(f"{option}{error}") from None
    if arguments.trace is not None:
        part = arguments.trace_format, arguments.trace_speed, arguments.trace_range
        return {"trace": find_replay(arguments.trace, *part)}
    if arguments.agents is not None:
        points = tuple(LoadPoint(LoadKind.AGENTS, count) for count in arguments.agents)
        return {"points": points, "conversations": find_conversations(arguments.workload or DEFAULT)}
    if arguments.rate is None:
        return {}
    points = rates_or_auto(arguments.rate)
    return {"points": points} if points else {"find_knee": True}


def chosen_format(asked: str | None, output: Path | None, *, is_terminal: bool) -> str:
    """Return the output format: `asked` if given, else by the suffix of `output`.

    Without either, return "md" if standard output is a terminal, else "json".

    Raises:
        UsageError: the suffix of `output` is that of another format.
    """
    if asked is not None:
        held = None if output is None else _BY_SUFFIX.get(output.suffix.lower())
        if output is not None and held not in {None, "md" if asked == "post" else asked}:
            why = f"--format {asked} is not what {output.suffix.lower()} files hold"
            raise UsageError(
                f"{clean(output, 200)}: {why}; leave --format out for {held}, or name another file"
            )
        return asked
    if output is not None:
        return _BY_SUFFIX.get(output.suffix.lower(), "json")
    return "md" if is_terminal else "json"


def ask_first(targets: tuple[SweepTarget, ...], *, is_sure: bool) -> None:
    """Ask the user for confirmation if a target is neither on this machine nor in the configuration.

    With `is_sure`, ask nothing.

    Raises:
        UsageError: the answer is no, or there is no terminal to ask on.
    """
    from sparktop.sweep.plan.watched_targets import strangers  # late: --help needs no targets

    unknown = strangers(targets)
    if is_sure or not unknown:
        return
    names = ", ".join(clean(one.url, 80) for one in unknown)
    what = f"{names}: neither on this machine nor in the configuration"
    if sys.stdin is None or not sys.stdin.isatty() or sys.stderr is None or not sys.stderr.isatty():
        raise UsageError(f"{what}; say --yes to put load on it")
    sys.stderr.write(f"sparktop: {what}. Put load on it? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise UsageError("nothing was sent")


def _make(plan: Plan, chosen: Chosen, form: str, output: Path | None) -> int:
    import asyncio

    from sparktop.commands.sweep.run import Keeper, make_sweep, plan_line
    from sparktop.sweep.view.result import result_view

    for line in plan_line(plan).splitlines():
        tell(line)
    keeper = Keeper.open(os.environ, plan, output, form, render)
    result = asyncio.run(make_sweep(plan, chosen.watch, keeper.keep))
    keeper.finish(result)
    if output is None:
        (write_markdown if form in {"md", "post"} else write_out)(render(result, form))
    _draw(result)
    code = verdict(result, plan)
    found = result_view(result).headline
    if found is not None:
        tell(found)  # last, where the eye is after pages of tables and plots
    return code


def render(result: SweepResult, form: str) -> str:
    """Return a sweep result in the format `form`, one of `FORMATS`; only JSON has the servers' addresses."""
    # Late: --help needs none of them.
    if form == "json":
        from sparktop.sweep.formats.written import render_json

        return render_json(result)
    from sparktop.sweep.formats.written import sweep_report

    return sweep_report(result, form)


def verdict(result: SweepResult, plan: Plan) -> int:
    """Return the exit code of a sweep that has ended; print to standard error what went wrong.

    0: no problem. 1: the sweep stopped early, too many requests failed, a target or level was not measured,
    or a server read less than half of a prompt. 130: Ctrl+C.

    Raises:
        UnreachableError: no target could be measured at all.
    """
    if result.status == "cancelled":
        tell("interrupted: the result holds what was done until then")
        return _INTERRUPTED
    levels = [level for target in result.targets for level in target.levels]
    if all(level.error is not None for level in levels) and all(
        target.error is not None for target in result.targets
    ):
        raise UnreachableError(result.stop_reason or "nothing was measured")
    if result.status != "done":
        tell(f"{(result.status or 'unfinished').replace('_', ' ')}: {result.stop_reason}")
        return 1
    ended = sum(level.requests.ok + level.requests.failed for level in levels)
    failed = sum(level.requests.failed for level in levels)
    bad = failed > plan.max_error_share * ended
    if bad:
        tell(f"{failed} of {ended} requests failed: more than {100 * plan.max_error_share:.1f} %")
    refused = sum(level.error is not None for level in levels)
    if refused:
        tell(f"{refused} of {len(levels)} levels were refused by the server and have no figures")
    bad |= bool(refused) and not plan.longest  # refusals are part of a search for the longest prompt
    shares = ((level, level.prompt_share) for level in levels)
    cut = [level for level, share in shares if share is not None and share < _LEAST_PROMPT_SHARE]
    if cut:
        counted, asked = cut[0].counted_prompt_tokens or 0, cut[0].asked_prompt_tokens or 0
        lengths = f"the server counted {counted:,.0f} of {asked:,.0f} prompt tokens"
        tell(f"{len(cut)} of {len(levels)} levels measured other prompts than were asked for: {lengths}")
    bad |= bool(cut)
    return 1 if bad or any(target.error is not None for target in result.targets) else 0


def _draw(result: SweepResult) -> None:
    """Plot the measured curves on standard error if it is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        return
    import shutil  # late: as above

    from sparktop.sweep.compare.series import series_of
    from sparktop.sweep.formats.drawings import plots

    width = min(100, shutil.get_terminal_size().columns)
    try:
        sys.stderr.write(plots([one for one in series_of(result) if one.levels], width))
        sys.stderr.flush()
    except OSError:
        return


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


def add_own_options(parser: argparse._ActionsContainer) -> None:
    """Add the options for own prompts, further fields of bodies, and headers."""
    parser.add_argument(
        "--prompts",
        metavar="FILE",
        help="your own prompts in place of made ones: JSON Lines with prompt, messages or conversations, or "
        "one prompt a line of text",
    )
    parser.add_argument(
        "--extra-body",
        metavar="JSON",
        help="more fields of each request, as in '{\"temperature\": 0}'",
    )
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one more header of each request, any number of times; results hold its name alone (a key: "
        "--api-key-env)",
    )


def add_timeout_option(parser: argparse._ActionsContainer) -> None:
    """Add the time limit of a request."""
    parser.add_argument(
        "--timeout",
        type=seconds(LEAST_S, MOST_S),
        metavar="TIME",
        help="a request that waits longer for its first or its next token has failed (default: 5m, then 1m)",
    )


def request_wishes(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the plan settings that the options give, by field name; None for one that is not given.

    Raises:
        UsageError: the file, the fields or a header cannot be used.
    """
    from sparktop.sweep.plan.own_requests import (  # late: --help needs none
        find_prompts,
        parse_extra_body,
        parse_headers,
    )
    from sparktop.sweep.plan.plan import patience

    return {
        "prompts": None if arguments.prompts is None else find_prompts(arguments.prompts),
        "extra_body": None if arguments.extra_body is None else parse_extra_body(arguments.extra_body),
        "headers": parse_headers(arguments.header) if arguments.header else None,
        "timeouts": None if arguments.timeout is None else patience(arguments.timeout),
    }


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
