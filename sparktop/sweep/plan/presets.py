"""Settings of a sweep: as typed, as presets (named ones), and the creation of plans from them.

Settings that are left open get the defaults of `Plan`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from sparktop.errors import UsageError, did_you_mean
from sparktop.model.load import LoadKind, LoadMode, LoadPoint
from sparktop.model.targets import AXES, GuardLimits, SweepSpec
from sparktop.model.text import clean
from sparktop.sweep.plan.arrivals import check_arrivals, parse_pattern, rates_or_auto
from sparktop.sweep.plan.conversations import DEFAULT as WORKLOAD
from sparktop.sweep.plan.conversations import find_conversations
from sparktop.sweep.plan.own_requests import checked_body, checked_headers, find_prompts
from sparktop.sweep.plan.plan import Api, Order, Plan, SweepTarget, Timeouts, runs_words, timeouts_for
from sparktop.sweep.plan.slo import parse_slo
from sparktop.sweep.plan.texts import TEXTS
from sparktop.sweep.plan.traces import SPEEDS, TraceChoice, TraceFormat, TraceReplay, parse_range, read_replay
from sparktop.sweep.terms.definitions import LEAST_S, MOST_CONCURRENCY, MOST_RUNS, MOST_S, MOST_TOKENS
from sparktop.typed import climbing_numbers, number, number_or_more, seconds, whole_number, whole_numbers

DEFAULT = "quick"
"""The preset, if none is named."""
CLIMB_TO = 256
"""Highest concurrency to which the default preset goes on while the token rate rises."""
TEXTS_PRESET = "kinds"
"""Name of the preset that measures one concurrency with prompts of each kind of text."""
STEADY_S = 30.0
"""Default duration in seconds of a run in steady mode, if neither duration nor requests are given."""
OPEN_S = 60.0
"""Default duration in seconds of the measured part of a run in open mode."""
_BURSTS = (
    SweepSpec("quick", concurrency=(1, 4, 16), climb_to=CLIMB_TO, prompt_lengths=(128,), tg=64, runs=3),
    SweepSpec("topology", concurrency=(1, 2, 4, 8, 16, 32, 64), prompt_lengths=(1024,), tg=128, runs=3),
    SweepSpec(
        "arena",
        concurrency=(1, 2, 5, 10),
        prompt_lengths=(2048,),
        tg=128,
        depths=(0, 4096, 8192, 16384, 32768, 65535, 100_000),
        runs=3,
    ),
    SweepSpec(
        "wide",
        concurrency=(1, 2, 4, 5, 8, 10, 16, 32, 64, 128, 256),
        prompt_lengths=(1024,),
        tg=128,
        runs=1,
    ),
    SweepSpec("interactive", concurrency=(1,), prompt_lengths=(105,), tg=256, runs=3),
    SweepSpec("batch-scaling", concurrency=(1, 2, 4, 8, 16), prompt_lengths=(105,), tg=256, runs=3),
    SweepSpec("long-context", concurrency=(1,), prompt_lengths=(5000, 20000, 39000), tg=256, runs=1),
    SweepSpec(
        "high-concurrency", concurrency=(64, 128, 256, 512, 1024), prompt_lengths=(128,), tg=128, runs=1
    ),
    SweepSpec(
        TEXTS_PRESET,
        concurrency=(1,),
        texts=TEXTS,
        prompt_lengths=(512,),
        tg=256,
        runs=3,
        extra_body={"temperature": 0},
    ),
)
"""Presets of bursts."""
_INTERFERENCE = SweepSpec(
    "interference",
    concurrency=(1, 4),
    prompt_lengths=(128,),
    tg=64,
    runs=3,
    mode="steady",
    duration_s=60.0,
    beside=32_768,
)
"""Requests while long prompts arrive."""
BUILT_IN = (*(replace(preset, more_runs=True) for preset in _BURSTS), _INTERFERENCE)
"""The built-in presets, in the order in which they are listed.

In those of bursts, a level has as many runs as a reliable result needs.
"""


_OLD_NAMES = {"agents": "high-concurrency"}
"""Earlier names of built-in presets, which are still read."""


def all_presets(configured: Iterable[SweepSpec] = ()) -> dict[str, SweepSpec]:
    """Return all presets by name: the built-in and the `configured` ones.

    A configured preset replaces a built-in preset of the same name.
    """
    return {preset.name: preset for preset in (*BUILT_IN, *configured)}


def find_preset(name: str, configured: Iterable[SweepSpec] = ()) -> SweepSpec:
    """Return the preset `name`, which is built-in or one of the `configured` presets.

    Raises:
        UsageError: no preset has this name; the message suggests a similar name or lists all.
    """
    presets = all_presets(configured)
    name = name if name in presets else _OLD_NAMES.get(name, name)
    if name == "prefix-cache" and name not in presets:
        raise UsageError("the preset prefix-cache was removed: --depth 0,4k measures prompts cold and warm")
    if name not in presets:
        suggestion = did_you_mean(name, presets) or f" (known: {', '.join(presets)})"
        raise UsageError(f"there is no preset '{clean(name, 40)}'{suggestion}")
    return presets[name]


_CONVERTED = frozenset({"targets", "mode", "order", "api", "slo", "trace", "prompts"})
"""Settings of which a plan has another form: a member of an enumeration, or what a text or a file says."""
_UNCHANGED = tuple(
    name for name in Plan.__struct_fields__ if name in SweepSpec.__struct_fields__ and name not in _CONVERTED
)
"""Settings that a plan holds as they are given."""
_ENUMERATIONS = {"mode": LoadMode, "order": Order, "api": Api}
"""Settings whose words are members of an enumeration."""


def make_plan(
    spec: SweepSpec,
    targets: Sequence[SweepTarget],
    *,
    guard: GuardLimits | None = None,
    replay: TraceReplay | None = None,
) -> Plan:
    """Return the plan of a sweep of `targets`.

    `guard` has the limits at which the sweep stops itself. `replay` is the traffic of the spec's trace; None
    to read the file.

    Raises:
        UsageError: settings contradict each other or cannot be used, or two targets have the same name.
    """
    given = spec.given
    settings = {name: given[name] for name in _UNCHANGED if name in given}
    settings |= {name: kind(given[name]) for name, kind in _ENUMERATIONS.items() if name in given}
    settings |= _axis_settings(spec, replay)
    checked_body(dict(spec.extra_body))
    checked_headers(spec.headers)
    if spec.prompts is not None:
        settings["prompts"] = find_prompts(spec.prompts)
    if spec.timeout_s is not None:
        settings["timeouts"] = timeouts_for(spec.timeout_s)
    if spec.slo is not None:
        settings["slo"] = parse_slo(spec.slo)
    plan = _without_unfit_settings(
        Plan(
            targets=tuple(targets),
            preset=spec.name or None,
            guard=guard or GuardLimits(),
            **settings,
        )
    )
    if plan.mode is LoadMode.STEADY and plan.duration_s is None and plan.requests is None:
        plan = replace(plan, duration_s=STEADY_S)
    if plan.prompts is not None:
        plan = replace(plan, pp=plan.prompts.about_tokens, prompt_lengths=())
    plan = replace(plan, pp=plan.lengths[0])
    _check(plan)
    return plan


_AGENT_TIMEOUTS = Timeouts(first_token_s=1800.0, between_tokens_s=120.0, whole_s=3600.0)
"""Warm-up calls send the pasts of all conversations at once."""


def _axis_settings(spec: SweepSpec, replay: TraceReplay | None) -> dict[str, Any]:
    """Return the settings of a plan that its axis sets, unless that is the concurrency.

    Raises:
        UsageError: the rate, the workload or the trace cannot be used.
    """
    settings: dict[str, Any] = {
        "concurrency": (),
        "climb_to": None,
        "more_runs": False,
        "runs": spec.runs or 1,
    }
    match spec.axis:
        case "trace":
            settings |= {"mode": LoadMode.OPEN, "trace": replay or replay_of(spec)}
            settings |= settings["trace"].settings()
        case "rate":
            points = rates_or_auto(spec.rate or "")
            settings |= {"mode": LoadMode.OPEN, "points": points, "search_rate": not points}
            settings |= {"duration_s": spec.duration_s or OPEN_S}
        case "agents":
            conversations = find_conversations(spec.workload or WORKLOAD)
            settings |= {
                "mode": LoadMode.AGENTS,
                "points": tuple(LoadPoint(LoadKind.AGENTS, count) for count in spec.agents),
                "conversations": conversations,
                # Token counts are means per call.
                "prompt_lengths": (max(1, round(conversations.new_tokens.typical)),),
                "tg": max(1, round(conversations.output_tokens.typical)),
                "timeouts": _AGENT_TIMEOUTS,
                "warmup": False,  # conversations have warm-up calls of their own
                "duration_s": spec.duration_s or conversations.duration_s,
            }
        case _:
            return {}
    return settings


def replay_of(spec: SweepSpec) -> TraceReplay:
    """Read the trace of a spec once and return its traffic; for a long file this takes seconds.

    Raises:
        UsageError: the file cannot be used.
    """
    begin, end = (0.0, None) if spec.trace_range is None else parse_range(spec.trace_range)
    trace_format = TraceFormat(spec.trace_format) if spec.trace_format else None
    return read_replay(TraceChoice(spec.trace or "", trace_format, spec.trace_speed or 1.0, begin, end))


def _without_unfit_settings(plan: Plan) -> Plan:
    """Return `plan` without settings of its preset that do not fit its order, its mode or its search.

    Interleaved targets need the same levels and runs; an SLO search chooses its levels itself; the duration
    of a level in steady mode is fixed. Where context and prompt are sent as one request, its length is the
    sum of theirs.
    """
    takes_levels_in_turn = not plan.searches_concurrency_or_rate and plan.order is Order.ASCENDING
    # Where a duration bounds a level, the number of its runs is not known before.
    counts_bursts = plan.mode is LoadMode.BURST and plan.runs_of(1) is not None and plan.requests is None
    joined_lengths = tuple(depth + length for depth in plan.depths for length in plan.lengths)
    return replace(
        plan,
        climb_to=plan.climb_to if takes_levels_in_turn and not plan.depths and not plan.texts else None,
        more_runs=plan.more_runs and takes_levels_in_turn and counts_bursts,
        prompt_lengths=tuple(dict.fromkeys(joined_lengths))
        if plan.whole and plan.depths
        else plan.prompt_lengths,
    )


def _check(plan: Plan) -> None:
    """Check that the settings of a plan fit one another.

    Raises:
        UsageError: two of them contradict each other.
    """
    for is_wrong, words in (*_rules(plan), *_rules_of_prompts(plan)):
        if is_wrong:
            raise UsageError(words)
    if plan.mode is LoadMode.OPEN and plan.trace is None:
        pattern = parse_pattern(plan.arrivals)
        for point in plan.points:
            check_arrivals(pattern, point, plan.duration_s or OPEN_S)


_Rule = tuple[bool, str]
"""(Whether settings contradict each other, what to do)."""


def _rules(plan: Plan) -> Iterator[_Rule]:
    """Yield what the settings of a plan are checked for."""
    names = [target.name for target in plan.targets]
    is_abba = plan.order is Order.ABBA
    is_steady, is_burst = plan.mode is LoadMode.STEADY, plan.mode is LoadMode.BURST
    is_open, is_agents = plan.mode is LoadMode.OPEN, plan.mode is LoadMode.AGENTS
    has_slo, is_counted, has_depths = bool(plan.slo), plan.requests is not None, bool(plan.depths)
    yield len(set(names)) < len(names), "two targets have the same name: write them NAME=URL"
    yield is_abba and has_slo, "--slo looks for each target's limit by itself: leave out --order abba"
    words = "--order abba interleaves runs: say how many with --runs instead of --duration"
    yield is_abba and plan.runs_of(1) is None, words
    yield is_open and is_counted, "--rate: a level lasts --duration seconds: leave out --requests"
    yield has_slo and plan.trace is not None, "--slo looks for a concurrency: leave out --trace"
    words = "--slo looks for a concurrency: for a rate, use sparktop capacity --rate --slo"
    yield is_open and has_slo, words
    words = "--rate auto looks for each target's limit by itself: leave out --order abba"
    yield plan.search_rate and is_abba, words
    words = "--rate auto looks for the limit under one prompt length: give one with --pp"
    yield plan.search_rate and len(plan.lengths) > 1, words
    words = "--slo looks for the limit under one prompt length: give one with --pp"
    yield has_slo and plan.searches_concurrency_or_rate and len(plan.lengths) > 1, words
    yield is_agents and is_counted, "--agents: a level lasts --duration seconds: leave out --requests"
    yield is_agents and has_slo, "--slo looks for a concurrency: leave out --agents"
    words = "--agents: --order abba needs one run a level: leave out --runs"
    yield is_agents and is_abba and plan.runs > 1, words
    words = "--depth sends bursts, each after its context: leave out --mode, --rate, --agents"
    yield has_depths and not is_burst, words
    words = "--longest looks for the longest prompt without context: leave out --depth"
    yield has_depths and plan.longest, words
    words = "--whole-prompt says how --depth is sent: give the depths, as in --depth 0,4k,16k"
    yield plan.whole and not has_depths, words
    words = "--leave hangs up on requests at once: leave out --rate, --agents and --trace"
    yield plan.leave and not (is_burst or is_steady), words
    words = (
        "long prompts beside the requests (preset interference) need --mode steady with --duration: "
        "leave out --slo, --requests and other loads"
    )
    yield plan.beside is not None and (not is_steady or plan.duration_s is None or has_slo), words
    words = "a burst level is bounded by --duration or by --requests, not by both"
    yield is_burst and plan.duration_s is not None and is_counted, words


def _rules_of_prompts(plan: Plan) -> Iterator[_Rule]:
    """Yield what excludes prompts of the user's own, and texts of several kinds."""
    makes_prompts = {
        "--agents": plan.kind is LoadKind.AGENTS,
        "--trace": plan.trace is not None,
        "--depth": bool(plan.depths),
        "--longest": plan.longest,
    }
    prompts, texts = plan.prompts, bool(plan.texts)
    if prompts is not None:
        words = f"--prompts: {prompts.name} has messages: leave out --api completions"
        yield prompts.has_messages and plan.api is Api.COMPLETIONS, words
        for option, is_given in makes_prompts.items():
            yield is_given, f"--prompts: {option} makes prompts of its own: leave out one of them"
    for text in plan.texts:
        yield text not in TEXTS, f"there is no text '{clean(text, 40)}' (known: {', '.join(TEXTS)})"
    others = {
        "--prompts": prompts is not None,
        "--rate, --agents, --trace": plan.mode not in {LoadMode.BURST, LoadMode.STEADY},
        **makes_prompts,
        "--slo": bool(plan.slo),
        "long prompts beside them": plan.beside is not None,
        "all lengths of --pp but one": len(plan.lengths) > 1,
    }
    for option, is_given in others.items():
        words = f"texts of several kinds (preset kinds) are measured alone: leave out {option}"
        yield texts and is_given, words


def _text_checked_by(parse: Callable[[str], object]) -> Callable[[str], str]:
    """Return a function that returns its text, after parsing it."""

    def read(text: str) -> str:
        parse(text)
        return text

    return read


def _checked_workload(text: str) -> str:
    """Return the name of a workload, or the path of its file, after reading it."""
    name = str(_expand_path(text)) if text.endswith(".toml") else text
    find_conversations(name)
    return name


def _expand_path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:  # the home of an unknown user
        return Path(text)


TYPED_FIELDS: Mapping[str, tuple[tuple[str, ...], Callable[[str], Any]]] = {
    "concurrency": (("concurrency", "climb_to"), lambda text: climbing_numbers(text, 1, MOST_CONCURRENCY)),
    "pp": (("prompt_lengths",), lambda text: whole_numbers(text, 1, MOST_TOKENS)),
    "tg": (("tg",), lambda text: whole_number(text, 1, MOST_TOKENS)),
    "depth": (("depths",), lambda text: whole_numbers(text, 0, MOST_TOKENS)),
    "runs": (("runs", "more_runs"), lambda text: number_or_more(text, 1, MOST_RUNS)),
    "duration": (("duration_s",), lambda text: seconds(text, LEAST_S, MOST_S)),
    "requests": (("requests",), lambda text: whole_number(text, 1, MOST_TOKENS)),
    "rate": (("rate",), _text_checked_by(rates_or_auto)),
    "arrivals": (("arrivals",), _text_checked_by(parse_pattern)),
    "agents": (("agents",), lambda text: whole_numbers(text, 1, MOST_CONCURRENCY)),
    "workload": (("workload",), _checked_workload),
    "trace": (("trace",), lambda text: str(_expand_path(text))),
    "trace_speed": (("trace_speed",), lambda text: number(text, *SPEEDS)),
    "trace_range": (("trace_range",), _text_checked_by(parse_range)),
    "slo": (("slo",), _text_checked_by(parse_slo)),
}
"""The fields that are typed: the settings that they are, and how they are read."""


def read_settings(name: str, text: str) -> dict[str, Any]:
    """Return the settings that a text is in the field, or option of the command line, `name`.

    Raises:
        UsageError: the text is none.
    """
    keys, reader = TYPED_FIELDS[name]
    value = reader(text)
    return dict(zip(keys, value, strict=True)) if len(keys) > 1 else {keys[0]: value}


_OPTION = re.compile(r"--([a-z-]+)")
"""A command-line option in a message."""
_KEYS = {
    "duration": "duration_s",
    "depth": "depths",
    "header": "headers",
    "timeout": "timeout_s",
    "whole-prompt": "whole",
}
"""Keys of a preset that are called otherwise than the options of the command line."""


def preset_faults(preset: SweepSpec) -> Iterator[tuple[str, str]]:
    """Yield (key, message) for each setting of a preset that no sweep can use; a trace is read once."""
    is_usable = True
    for key in ("rate", "arrivals", "workload", "trace_range"):
        if (text := getattr(preset, key)) is None:
            continue
        try:
            read_settings(key, text)
        except UsageError as error:
            is_usable = False
            yield key, _with_keys(str(error))
    if not is_usable:
        return
    try:
        make_plan(preset, (SweepTarget("any", "http://127.0.0.1"),))  # only the settings are checked
    except UsageError as error:
        yield _faulty_key(str(error), preset), _with_keys(str(error))


def _faulty_key(message: str, preset: SweepSpec) -> str:
    """Return the key of the preset that an error message is about; its axis if the message names no key."""
    for key in ("trace", "prompts"):
        path = getattr(preset, key)
        if path is not None and path in message:
            return key
    for option in _OPTION.findall(message):
        key = _key_of(option)
        if getattr(preset, key, None):
            return key
    return next((key for key in AXES if getattr(preset, key)), "name")


def _with_keys(message: str) -> str:
    """Return an error message of the command line with the keys of the configuration for its options."""
    return _OPTION.sub(lambda option: _key_of(option[1]), message)


def _key_of(option: str) -> str:
    return _KEYS.get(option, option.replace("-", "_"))


def preset_line(preset: SweepSpec) -> str:
    """Return what a preset measures: its loads, lengths, runs and targets, each where it has one."""
    return clean("; ".join(_preset_parts(preset)), 200) or "the usual load"


def _preset_parts(preset: SweepSpec) -> Iterator[str]:
    """Yield what a preset measures, part by part."""
    yield from _load_parts(preset)
    if preset.prompt_lengths:
        yield f"{_comma_list(preset.prompt_lengths)} tokens in"
    if preset.tg is not None:
        yield f"{preset.tg:,} out"
    if preset.prompts is not None:
        yield f"prompts of {Path(preset.prompts).name}"
    if preset.beside is not None:
        yield f"alone and while prompts of {preset.beside:,} tokens arrive"
    if preset.texts:
        yield f"prompts of {', '.join(preset.texts)}"
    if preset.depths:
        yield f"after {_comma_list(preset.depths)} tokens of context"
    if preset.runs is not None:
        yield runs_words(preset.runs, more_runs=preset.more_runs)
    if preset.targets:
        yield f"on {', '.join(preset.targets)}"


def _load_parts(preset: SweepSpec) -> Iterator[str]:
    if preset.concurrency:
        climb_words = "" if preset.climb_to is None else f" and on to {preset.climb_to} while tok/s rise"
        yield f"c = {_comma_list(preset.concurrency)}{climb_words}"
    if preset.agents:
        yield f"agents {_comma_list(preset.agents)}"
    if preset.rate:
        yield f"{preset.rate} requests/s"
    if preset.trace:
        yield f"the traffic of {preset.trace}"
    if preset.workload:
        yield f"workload {preset.workload}"


def _comma_list(values: tuple[int, ...] | tuple[float, ...]) -> str:
    return ", ".join(f"{value:,g}" for value in values)
