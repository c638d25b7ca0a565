"""`sparktop sweep`: load tests of servers and routers, with confidence intervals and significance tests."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sparktop.commands.arguments import (
    add_keys,
    argument_type,
    chosen_format,
    configured_watch,
    format_name,
    number,
    refuse_removed,
    seconds,
    whole_number,
)
from sparktop.commands.output import output_file, tell, write_out
from sparktop.errors import UsageError
from sparktop.model.text import clean
from sparktop.sweep.plan.presets import TYPED_FIELDS, read_settings
from sparktop.sweep.plan.traces import FORMAT_NAMES, SPEEDS
from sparktop.sweep.terms.definitions import LEAST_S, MOST_S, MOST_TOKENS

if TYPE_CHECKING:
    from sparktop.model.targets import SweepSpec


FORMATS = ("json", "md", "html", "csv", "svg", "llama-benchy", "post")
"""Output formats."""
_EXAMPLES = """\
examples:
  sparktop sweep                                the servers here, preset quick
  sparktop sweep spark-1:8000 -c 1,2,4          three levels on one server
  sparktop sweep a b --pp 2k --tg 128 -c 1..64  raises c up to 64 while tok/s rise
  sparktop sweep a --rate auto                  requests/s that it keeps up with
  sparktop sweep a --agents 1-4 --duration 5m   coding agents
  sparktop sweep a --prompts day.jsonl -c 4     your own prompts"""
_PROMPTS_HELP = (
    "your own prompts in place of made ones: JSON Lines with prompt, messages or conversations, or one "
    "prompt a line of text"
)
_EARLIER = 8
"""Newest results from which the duration is estimated."""


class _Settings(argparse.Action):
    """Stores the settings that the value of an option stands for, each under its own name."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002  # argparse passes it
        namespace: argparse.Namespace,
        values: Any,  # noqa: ANN401  # what `type` returns
        option_string: str | None = None,  # noqa: ARG002  # as above
    ) -> None:
        for name, value in values.items():
            setattr(namespace, name, value)


def settings(
    read: Callable[[str], Mapping[str, object]], **parts: tuple[str, Callable[[str], object] | None]
) -> Callable[[str], Mapping[str, object]]:
    """Return an argument type for `_Settings`: VALUE, which `read` takes, and any of `parts` after it.

    A part is written ",NAME=TEXT", or ",NAME" if it has no function that reads a text.
    """

    def parse(text: str) -> Mapping[str, object]:
        chosen_settings: dict[str, object] = {}
        while True:
            before, comma, part = text.rpartition(",")
            name, sign, value = part.strip().partition("=")
            setting, take = parts.get(name, (None, None))
            takes_value = take is not None
            if not comma or setting is None or bool(sign) != takes_value:
                try:
                    return {**read(text), **chosen_settings}
                except UsageError:
                    if comma and sign and name not in parts:
                        known = ", ".join(f"{known}=…" for known in parts)
                        raise UsageError(f"'{clean(part, 40)}' is not known there; only {known} is") from None
                    raise
            chosen_settings[setting] = True if take is None else take(value)
            text = before

    return argument_type(parse)


_arrivals, _trace_range = (TYPED_FIELDS[name][1] for name in ("arrivals", "trace_range"))


def _format_name(text: str) -> str:
    if text not in FORMAT_NAMES:
        raise UsageError(f"format must be {', '.join(FORMAT_NAMES)}, not '{clean(text, 40)}'")
    return text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: targets, levels, what each of them does, stop conditions and output."""
    parser.usage = "sparktop sweep [TARGET ...] [options]"
    parser.description = f"{parser.description}\n\n{_EXAMPLES}"
    add_target_options(
        parser,
        "a backend or router of the configuration, a host, host:port or URL, or NAME=URL; with none, "
        "the preset's targets, else all that the configuration holds, else this machine's usual ports",
    )
    _add_levels(parser.add_argument_group("levels"))
    _add_lengths(parser.add_argument_group("what each request holds"))
    _add_runs(parser.add_argument_group("how a level is measured"))
    output = parser.add_argument_group("when it stops, and output")
    add_output(output, FORMATS, "default: by the ending of -o FILE, else json, on a terminal md")
    for option, keywords in OLD_OPTIONS.items():
        parser.add_argument(option, **{**keywords, "help": argparse.SUPPRESS})


def add_target_options(
    parser: argparse.ArgumentParser, about: str, agents: str = "--agents N"
) -> argparse._ArgumentGroup:
    """Add TARGET, with the help `about`, and the options of targets; return the group of these options.

    `agents` is how the command is told to send the load of agents.
    """
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=about)
    group = parser.add_argument_group("targets")
    group.add_argument("--config", metavar="FILE", help="the configuration file (see sparktop config)")
    add_keys(group)
    group.add_argument("--model", metavar="NAME", help="default: the server's only or first one")
    group.add_argument(
        "--yes",
        action="store_true",
        help="do not ask: neither before loading what is not here nor configured, nor what others load",
    )
    for option in ("--users", "--think"):
        refuse_removed(parser, option, f"{agents} --workload chat are people who read and pause")
    return group


def _add_levels(group: argparse._ActionsContainer) -> None:
    """Add the options of what varies from level to level."""
    group.add_argument(
        "--preset",
        nargs="?",
        const="",
        metavar="NAME",
        help="settings by name (default: quick); without a name, list them with what each measures",
    )
    group.add_argument(
        "-c",
        "--concurrency",
        action=_Settings,
        type=settings(partial(read_settings, "concurrency")),
        metavar="N[,N…][..N]",
        help="requests at once, level by level; 1,4,16..256 goes on to at most 256 while tok/s rise",
    )
    group.add_argument(
        "--rate",
        action=_Settings,
        type=settings(partial(read_settings, "rate"), arrivals=("arrivals", _arrivals)),
        metavar="R[,R…]",
        help="requests a second, level by level, sent whether or not earlier ones have ended; 0.5..4: one "
        "level, rising; auto: the highest rate that a target keeps up with; R,arrivals=HOW: poisson "
        "(default), constant, bursty, trains, or gamma:B (bursty below 1)",
    )
    group.add_argument(
        "--agents",
        action=_Settings,
        type=settings(partial(read_settings, "agents"), workload=("workload", str)),
        metavar="N[,N…]",
        help="conversations at the same time, level by level, with pauses for tools and people; the "
        "server's answers become part of the next prompt; N,workload=NAME: chat, coder, coder-quick "
        "(default), rag, or a TOML file of your own",
    )
    group.add_argument(
        "--trace",
        action=_Settings,
        type=settings(
            lambda text: {"trace": text},
            format=("trace_format", _format_name),
            speed=("trace_speed", number(*SPEEDS)),
            range=("trace_range", _trace_range),
        ),
        metavar="FILE",
        help="replay recorded traffic: each request when it was due, with its own lengths and repeated "
        "beginnings of prompts; day.jsonl,speed=2,range=10m..1h is a part of it, twice as fast; formats: "
        f"{', '.join(FORMAT_NAMES)}, recognised or as ,format=NAME",
    )
    group.add_argument(
        "--slo",
        metavar="CONDITIONS",
        help="find from which to which concurrency all hold: latencies at most, rates at least, as in "
        "ttft_p90_ms=2000,stream_tps=15,output_tps=600",
    )


def _add_lengths(group: argparse._ActionsContainer) -> None:
    """Add the options of the lengths of prompts, of context before them, and of answers."""
    group.add_argument(
        "--pp",
        action=_Settings,
        type=settings(partial(read_settings, "pp"), longest=("longest", None)),
        metavar="N[,N…]",
        help="prompt tokens, as in 128,4k; 64k,longest also measures the largest that fits, if 64k does not",
    )
    group.add_argument("--tg", type=whole_number(1, MOST_TOKENS), metavar="N", help="generated tokens")
    group.add_argument(
        "--depth",
        action=_Settings,
        type=settings(partial(read_settings, "depth"), whole=("whole", None)),
        metavar="N[,N…]",
        help="tokens of context before each prompt, as in 0,4k,16k: sent first, so that the prefix cache has "
        "them; 0,4k,whole: context and prompt in one request",
    )
    group.add_argument("--prompts", **REQUEST_OPTIONS["--prompts"])


def _add_runs(group: argparse._ActionsContainer) -> None:
    """Add the options of the runs of a level, and of the order."""
    group.add_argument(
        "--runs",
        action=_Settings,
        type=settings(partial(read_settings, "runs")),
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
        "--duration",
        dest="duration_s",
        type=seconds(LEAST_S, MOST_S),
        metavar="TIME",
        help="of each level, in place of --runs, as in 90, 90s or 2m; with --mode steady, --rate and "
        "--agents that of each run",
    )
    group.add_argument(
        "--mode", choices=("burst", "steady"), help="all at once, or a constant number in flight"
    )
    group.add_argument(
        "--leave",
        action="store_true",
        help="after each level break off running answers, and measure how long the servers go on",
    )
    group.add_argument("--order", choices=("ascending", "abba"), help="abba interleaves the targets' runs")
    add_seed(group)


def add_seed(group: argparse._ActionsContainer) -> None:
    """Add --seed."""
    group.add_argument("--seed", type=whole_number(0, 2**31 - 1), metavar="N", help="default: a new one")


def add_output(group: argparse._ActionsContainer, formats: Sequence[str], default: str) -> None:
    """Add --no-guard, --format with these `formats`, and -o; `default` is the help of --format."""
    group.add_argument(
        "--no-guard",
        action="store_true",
        help="do not stop below 8 GiB of memory left or above 92 °C on unified memory (GB10)",
    )
    group.add_argument("--format", type=format_name, choices=formats, dest="form", help=default)
    group.add_argument("-o", "--output", metavar="FILE", help="write there after each level, and at the end")


REQUEST_OPTIONS: Mapping[str, dict[str, Any]] = {
    "--prompts": {"metavar": "FILE", "help": _PROMPTS_HELP},
    "--extra-body": {
        "metavar": "JSON",
        "help": "more fields of each request, as in '{\"temperature\": 0}'",
    },
    "--header": {
        "action": "append",
        "default": [],
        "metavar": "NAME=VALUE",
        "help": "one more header of each request, any number of times; results hold its name alone (a key: "
        "--api-key-env)",
    },
    "--timeout": {
        "dest": "timeout_s",
        "type": seconds(LEAST_S, MOST_S),
        "metavar": "TIME",
        "help": "a request that waits longer for its first or its next token has failed (default: 5m, then "
        "1m)",
    },
}
"""Options of what each request has of the user's own."""
OLD_OPTIONS: Mapping[str, dict[str, Any]] = {
    "--list": {"action": "store_const", "const": "", "dest": "preset"},
    "--target": {"action": "append", "default": []},
    "--workload": {},
    "--arrivals": {"type": argument_type(_arrivals)},
    "--trace-format": {"choices": FORMAT_NAMES},
    "--trace-speed": {"type": number(*SPEEDS)},
    "--trace-range": {"type": argument_type(_trace_range)},
    "--longest": {"action": "store_true"},
    "--whole-prompt": {"action": "store_true", "dest": "whole"},
    # Settings of [[sweeps]] in the configuration:
    "--api": {"choices": ("chat", "completions")},
    **{option: REQUEST_OPTIONS[option] for option in ("--extra-body", "--header", "--timeout")},
    "--max-errors": {"type": number(0.0, 1.0), "dest": "max_error_share"},
    "--no-warm-up": {"action": "store_const", "const": False, "dest": "warmup"},
}
"""Options that --help leaves out, but scripts may have, with how each is read."""


def run(arguments: argparse.Namespace) -> int:
    """Run a sweep; return the exit code: 0, 1 for failures (see `sweep.run.verdict`), or 130 if interrupted.

    Raises:
        SparktopError: an argument, the configuration file or the output cannot be used; or nothing was
            reached.
    """
    # Late: --help needs none of them.
    from msgspec.structs import replace

    from sparktop.commands.sweep.run import make
    from sparktop.commands.sweep.targets import ask_first, asked_targets
    from sparktop.logfile import open_log
    from sparktop.model.load import LoadMode
    from sparktop.model.targets import GuardLimits, Watch
    from sparktop.sweep.formats.exports import check_llama_benchy
    from sparktop.sweep.plan.presets import DEFAULT, find_preset, make_plan
    from sparktop.sweep.result.store import earlier_results, sweeps_folder
    from sparktop.sweep.run.forecast import plan_line

    open_log(os.environ)
    needed = not (arguments.targets or arguments.target)
    watch = configured_watch(arguments.config, os.environ, needed=needed) or Watch()
    if arguments.preset == "":
        return _list_presets(watch.sweeps)
    read = (arguments.config, arguments.prompts, arguments.trace, arguments.workload)
    output = output_file(arguments.output, read)
    is_read = output is None and sys.stdout is not None and sys.stdout.isatty()
    form = chosen_format(arguments.form, output, FORMATS, "md" if is_read else "json")
    spec = find_preset(arguments.preset or DEFAULT, watch.sweeps) | spec_of(arguments)
    guard = GuardLimits(0.0, 0.0) if arguments.no_guard else watch.guard
    plan = make_plan(spec, (), guard=guard)  # first, so that no server is asked for settings that do not fit
    for end, value in (("requests", arguments.requests), ("duration", arguments.duration_s)):
        if plan.mode is LoadMode.BURST and None not in {arguments.runs, value}:
            raise UsageError(
                f"a burst level ends by --runs or by --{end}: leave out one of them "
                f"(with --mode steady, --{end} is that of each run)"
            )
    texts = [*arguments.targets, *arguments.target]
    targets, watch = asked_targets(texts, arguments.api_key_env, arguments.model, watch, spec.targets)
    plan = replace(plan, targets=targets)
    if form == "llama-benchy":  # before anything is sent
        check_llama_benchy(plan.kind, [target.name for target in targets])
    snapshot = ask_first(plan, watch, is_sure=arguments.yes)
    tell(plan_line(plan, earlier_results(sweeps_folder(os.environ), _EARLIER), snapshot))
    return make(plan, watch, form, output)


def _list_presets(configured: Sequence[SweepSpec]) -> int:
    """Print the presets with what each measures, the `configured` ones too; return the exit code 0."""
    from sparktop.sweep.plan.presets import all_presets, preset_line  # late: as above

    presets = all_presets(configured)
    width = max(map(len, presets))
    write_out("".join(f"{name:<{width}}  {preset_line(preset)}\n" for name, preset in presets.items()))
    return 0


def spec_of(arguments: argparse.Namespace) -> SweepSpec:
    """Return the settings that the arguments lay over the preset.

    Without --seed, draw a random seed, so that no server has the prompts in its cache.

    Raises:
        UsageError: options contradict each other or cannot be used.
    """
    import secrets  # late: as above

    from sparktop.model.targets import SweepSpec

    values = vars(arguments) | own_settings(arguments)
    values["seed"] = secrets.randbelow(2**31) if arguments.seed is None else arguments.seed
    names = [name for name in SweepSpec.__struct_fields__ if name != "targets"]
    spec = SweepSpec(**{name: values[name] for name in names if values.get(name) is not None})
    _check_axis(spec)
    return spec


_OPTIONS = {
    "concurrency": "-c",
    "prompt_lengths": "--pp",
    "depths": "--depth",
    "duration_s": "--duration",
}
"""The options that are called otherwise than their settings."""
_EXCLUDED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "rate": {"--rate sends each request when it is due": ("mode",)},
    "agents": {
        "--agents sets how requests follow one another": ("mode",),
        "--agents: the workload sets the lengths": ("prompt_lengths", "tg"),
    },
    "trace": {
        "--trace: each request has its own lengths": ("prompt_lengths", "tg", "depths", "longest"),
        "--trace: choose a part of it with ,range=FROM..TO": ("duration_s", "requests"),
        "--trace sends each request when it was due": ("mode", "arrivals"),
    },
    "prompts": {"--prompts: each prompt has its own length": ("prompt_lengths",)},
}
"""Settings that another one leaves no room for, by the reason."""


def _check_axis(spec: SweepSpec) -> None:
    """Check that there is one axis at most, with the options that go with it.

    Raises:
        UsageError: options contradict each other.
    """
    from sparktop.model.targets import AXES  # late: as above

    def option(name: str) -> str:
        return _OPTIONS.get(name, f"--{name.replace('_', '-')}")

    given_options = spec.given
    axes = [name for name in tuple(AXES)[::-1] if name in given_options]
    if len(axes) > 1:
        raise UsageError(f"a sweep varies one kind of load: give {' or '.join(map(option, axes))}, not both")
    for name, reasons in _EXCLUDED.items():
        if name not in given_options:
            continue
        for reason, incompatible in reasons.items():
            for incompatible_option in filter(given_options.__contains__, incompatible):
                raise UsageError(f"{reason}: leave out {option(incompatible_option)}")
    for axis, parts in AXES.items():
        for part in parts:
            if part in given_options and axis not in given_options:
                raise UsageError(f"{option(part)} goes with {option(axis)}")


def own_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of what each request has of the user's own, by name.

    Raises:
        UsageError: the fields or a header cannot be used.
    """
    from sparktop.sweep.plan.own_requests import parse_extra_body, parse_headers  # late: --help needs none

    body, headers = arguments.extra_body, arguments.header
    return {
        "extra_body": {} if body is None else parse_extra_body(body),
        "headers": parse_headers(headers) if headers else {},
    }
