"""Presets (named settings for sweeps), and the creation of plans from them.

Settings that a preset leaves open get the defaults of `Plan`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from sparktop.errors import UsageError
from sparktop.model.load import LoadKind, LoadMode, LoadPoint
from sparktop.model.structs import hide_in_repr
from sparktop.model.targets import GuardLimits, SweepSettings
from sparktop.model.text import clean
from sparktop.nearest import did_you_mean
from sparktop.sweep.plan.arrivals import check_arrivals, parse_pattern, rate_of, rates_or_auto
from sparktop.sweep.plan.conversations import ConversationPreset, find_conversations
from sparktop.sweep.plan.own_requests import PromptFile, checked_body, checked_headers, find_prompts
from sparktop.sweep.plan.plan import Api, Guard, Order, Plan, SloCondition, SweepTarget, Timeouts, patience
from sparktop.sweep.plan.traces import Replay, find_replay, parse_range

DEFAULT = "quick"
CLIMB_TO = 256
"""Highest concurrency to which the default preset goes on while the token rate rises."""
STEADY_S = 30.0
"""Default duration in seconds of a run in steady mode, if neither duration nor requests are given."""
OPEN_S = 60.0
"""Default duration in seconds of the measured part of a run in open mode."""
_OPEN: dict[str, Any] = {
    "mode": LoadMode.OPEN,
    "concurrency": (),
    "climb_to": None,
    "runs": 1,
    "more_runs": False,
    "duration_s": None,
    "requests": None,
}
"""What replaces the settings of a preset if the user gives rates."""

_LEVELS = (
    SweepSettings("quick", concurrency=(1, 4, 16), climb_to=CLIMB_TO, prompt_lengths=(128,), tg=64, runs=3),
    SweepSettings("topology", concurrency=(1, 2, 4, 8, 16, 32, 64), prompt_lengths=(1024,), tg=128, runs=3),
    SweepSettings(
        "arena",
        concurrency=(1, 2, 5, 10),
        prompt_lengths=(2048,),
        tg=128,
        depths=(0, 4096, 8192, 16384, 32768, 65535, 100_000),
        runs=3,
    ),
    SweepSettings(
        "wide",
        concurrency=(1, 2, 4, 5, 8, 10, 16, 32, 64, 128, 256),
        prompt_lengths=(1024,),
        tg=128,
        runs=1,
    ),
    SweepSettings("interactive", concurrency=(1,), prompt_lengths=(105,), tg=256, runs=3),
    SweepSettings("batch-scaling", concurrency=(1, 2, 4, 8, 16), prompt_lengths=(105,), tg=256, runs=3),
    SweepSettings("long-context", concurrency=(1,), prompt_lengths=(5000, 20000, 39000), tg=256, runs=1),
    SweepSettings("agents", concurrency=(64, 128, 256, 512, 1024), prompt_lengths=(128,), tg=128, runs=1),
)
BUILT_IN = tuple(replace(one, more_runs=True) for one in _LEVELS)
"""The built-in presets, in the order in which they are listed.

In all of them, a level has as many runs as a reliable result needs.
"""


@hide_in_repr("extra_body", "headers")
class Wishes(Struct, frozen=True):
    """Settings that a user gives to replace those of a preset; None keeps the preset's value."""

    concurrency: tuple[int, ...] | None = None
    """Replaces `climb_to` of the preset too: concurrencies that a user lists are all that is measured."""
    climb_to: int | None = None
    prompt_lengths: tuple[int, ...] | None = None
    tg: int | None = None
    depths: tuple[int, ...] | None = None
    whole: bool | None = None
    runs: int | None = None
    """Replaces `more_runs` of the preset too, as `duration_s` and `requests` do."""
    more_runs: bool | None = None
    points: tuple[LoadPoint, ...] | None = None
    """The levels on an axis other than concurrency; replaces the preset's concurrencies."""
    find_knee: bool | None = None
    arrivals: str | None = None
    prompts: PromptFile | None = None
    """The user's own prompts, which set the length."""
    extra_body: Mapping[str, Any] | None = None
    """Fields beside those that the preset adds to each body."""
    headers: Mapping[str, str] | None = None
    """Headers beside those of the preset."""
    trace: Replay | None = None
    """Recorded traffic, which sets the point, the lengths and the duration of the only level."""
    conversations: ConversationPreset | None = None
    """What agents do; their numbers are `points`."""
    mode: LoadMode | None = None
    duration_s: float | None = None
    requests: int | None = None
    order: Order | None = None
    api: Api | None = None
    timeouts: Timeouts | None = None
    seed: int | None = None
    warmup: bool | None = None
    slo: tuple[SloCondition, ...] | None = None
    longest: bool | None = None
    max_error_share: float | None = None


def all_presets(configured: Iterable[SweepSettings] = ()) -> dict[str, SweepSettings]:
    """Return all presets by name: the built-in and the `configured` ones.

    A configured preset replaces a built-in preset of the same name.
    """
    return {one.name: one for one in (*BUILT_IN, *configured)}


def find_preset(name: str, configured: Iterable[SweepSettings] = ()) -> SweepSettings:
    """Return the preset `name`, which is built-in or one of the `configured` presets.

    Raises:
        UsageError: no preset has this name; the message suggests a similar name or lists all.
    """
    known = all_presets(configured)
    if name == "prefix-cache" and name not in known:
        raise UsageError("the preset prefix-cache was removed: --depth 0,4k measures prompts cold and warm")
    if name not in known:
        near = did_you_mean(name, known) or f" (known: {', '.join(known)})"
        raise UsageError(f"there is no preset '{clean(name, 40)}'{near}")
    return known[name]


def make_plan(
    preset: SweepSettings,
    targets: Sequence[SweepTarget],
    wishes: Wishes | None = None,
    *,
    guard: GuardLimits | None = None,
) -> Plan:
    """Return the plan of a sweep of `targets`, with the settings of `preset`.

    The settings that the user gave replace those of the preset; `guard` has the limits at which the sweep
    stops itself.

    Raises:
        UsageError: settings contradict each other, or two targets have the same name.
    """
    plan = Plan(targets=tuple(targets), preset=preset.name)
    plan = replace(plan, **_of_preset(preset))
    asked = _with_requests(preset, _on_axis(preset, wishes or Wishes()))
    settings = _chosen(asked)
    if asked.trace is not None and preset.trace is None:
        settings["preset"] = None  # nothing of it is left
    plan = _fitted(replace(plan, **settings))
    if plan.mode is LoadMode.BURST and asked.runs is not None and asked.requests is not None:
        raise UsageError(
            "--requests of a burst level decide how many runs it has: leave out --runs or --requests "
            "(with --mode steady, --requests are those of each run)"
        )
    if plan.mode is LoadMode.STEADY and plan.duration_s is None and plan.requests is None:
        plan = replace(plan, duration_s=STEADY_S)
    if plan.mode is LoadMode.OPEN and plan.duration_s is None:
        plan = replace(plan, duration_s=OPEN_S)
    limits = guard or GuardLimits()
    plan = replace(
        plan,
        pp=plan.lengths[0],
        guard=Guard(min_headroom_gib=limits.min_headroom_gib, max_gpu_c=limits.max_gpu_c),
    )
    if plan.prompts is not None:
        plan = replace(plan, pp=plan.prompts.about_tokens, prompt_lengths=())
    _check(plan)
    return plan


def _with_requests(preset: SweepSettings, asked: Wishes) -> Wishes:
    """Return `asked` with the prompts, the time limit and what each request has beside them of a preset.

    Raises:
        UsageError: one of them cannot be used.
    """
    prompts, timeouts = asked.prompts, asked.timeouts
    if prompts is not None and asked.prompt_lengths is not None:
        raise UsageError("--prompts: each prompt has its own length: leave out --pp")
    if prompts is None and asked.prompt_lengths is None and preset.prompts is not None:
        prompts = find_prompts(preset.prompts)
    if timeouts is None and preset.timeout_s is not None:
        timeouts = patience(preset.timeout_s)
    return replace(
        asked,
        prompts=prompts,
        timeouts=timeouts,
        extra_body=checked_body({**preset.extra_body, **(asked.extra_body or {})}) or None,
        headers=checked_headers({**preset.headers, **(asked.headers or {})}) or None,
    )


def _on_axis(preset: SweepSettings, asked: Wishes) -> Wishes:
    """Return `asked` with the trace, rates or agents of a preset, unless another axis was chosen.

    Raises:
        UsageError: the preset's trace, rate or workload cannot be used.
    """
    axes = (asked.concurrency, asked.points, asked.find_knee, asked.trace, asked.climb_to)
    if preset.trace is not None and all(one is None for one in (*axes, asked.mode)):
        part = preset.trace_speed, preset.trace_range
        return replace(asked, trace=find_replay(preset.trace, None, *part), runs=asked.runs or preset.runs)
    if preset.rate is not None and all(one is None for one in (*axes, asked.mode)):
        points, arrivals = rates_or_auto(preset.rate), asked.arrivals or preset.arrivals
        asked = replace(
            asked, duration_s=asked.duration_s or preset.duration_s, runs=asked.runs or preset.runs
        )
        return replace(asked, points=points or None, find_knee=not points or None, arrivals=arrivals)
    if not preset.agents or any(one is not None for one in axes):
        return asked
    asked = replace(asked, duration_s=asked.duration_s or preset.duration_s, runs=asked.runs or preset.runs)
    from sparktop.sweep.plan.conversations import DEFAULT as WORKLOAD  # late: few plans need it
    from sparktop.sweep.plan.conversations import find_conversations

    points = tuple(LoadPoint(LoadKind.AGENTS, one) for one in preset.agents)
    return replace(asked, points=points, conversations=find_conversations(preset.workload or WORKLOAD))


def _chosen(asked: Wishes) -> dict[str, Any]:
    """Return the plan settings that a user chose, and those that follow from them, by field name."""
    settings = {name: value for name, value in asdict(asked).items() if value is not None}
    if (conversations := settings.get("conversations")) is not None:
        settings = {**agents_settings(conversations), **settings}
    elif asked.trace is not None:
        settings = {**_OPEN, **settings, **asked.trace.settings()}
    elif settings.keys() & {"points", "find_knee"}:
        settings = {**_OPEN, **settings}
    if "runs" in settings and "requests" not in settings:
        settings["requests"] = None
    if "concurrency" in settings:
        settings.setdefault("climb_to", None)
    if settings.keys() & {"runs", "duration_s", "requests"}:
        settings.setdefault("more_runs", False)
    return settings


def _fitted(plan: Plan) -> Plan:
    """Return `plan` without settings of its preset that do not fit its order, its mode or its search.

    Interleaved targets need the same levels and runs; an SLO search chooses its levels itself; the duration
    of a level in steady mode is fixed. Where context and prompt are one request, the prompt is longer.
    """
    chosen = not plan.searches and plan.order is Order.ASCENDING
    bursts = plan.mode is LoadMode.BURST and plan.runs_of(1) is not None
    whole = plan.whole and bool(plan.depths)
    lengths = tuple(depth + length for depth in plan.depths for length in plan.lengths)
    return replace(
        plan,
        climb_to=plan.climb_to if chosen and not plan.depths else None,
        more_runs=plan.more_runs and chosen and bursts and plan.requests is None,
        prompt_lengths=tuple(dict.fromkeys(lengths)) if whole else plan.prompt_lengths,
    )


def _of_preset(preset: SweepSettings) -> dict[str, Any]:
    found: dict[str, Any] = {
        "concurrency": preset.concurrency,
        "prompt_lengths": preset.prompt_lengths,
        "tg": preset.tg,
        "depths": preset.depths,
        "runs": preset.runs,
        "climb_to": preset.climb_to,
        "more_runs": preset.more_runs,
        "mode": preset.mode and LoadMode(preset.mode),
        "duration_s": preset.duration_s,
        "requests": preset.requests,
        "order": preset.order and Order(preset.order),
    }
    return {name: value for name, value in found.items() if value}


def _check(plan: Plan) -> None:
    names = [target.name for target in plan.targets]
    if len(set(names)) < len(names):
        raise UsageError("two targets have the same name: give others with --target NAME=URL")
    if plan.order is Order.ABBA and plan.slo:
        raise UsageError("--slo looks for each target's limit by itself: leave out --order abba")
    if plan.order is Order.ABBA and plan.runs_of(1) is None:
        raise UsageError("--order abba interleaves runs: say how many with --runs instead of --duration")
    _check_prompts(plan)
    if plan.mode is LoadMode.OPEN:
        _check_open(plan)
    if plan.mode is LoadMode.AGENTS:
        check_conversations(plan)
    _check_context(plan)
    if plan.mode is LoadMode.BURST and plan.duration_s is not None and plan.requests is not None:
        raise UsageError("a burst level is bounded by --duration or by --requests, not by both")


def _check_prompts(plan: Plan) -> None:
    if plan.prompts is None:
        return
    if plan.prompts.has_messages and plan.api is Api.COMPLETIONS:
        raise UsageError(f"--prompts: {plan.prompts.name} has messages: leave out --api completions")
    others = {
        "--agents": plan.kind is LoadKind.AGENTS,
        "--trace": plan.trace is not None,
        "--depth": bool(plan.depths),
        "--longest": plan.longest,
    }
    for option, is_given in others.items():
        if is_given:
            raise UsageError(f"--prompts: {option} makes prompts of its own: leave out one of them")


def _check_context(plan: Plan) -> None:
    if plan.depths and plan.mode is not LoadMode.BURST:
        raise UsageError("--depth sends bursts, each after its context: leave out --mode, --rate, --agents")
    if plan.depths and plan.longest:
        raise UsageError("--longest looks for the longest prompt without context: leave out --depth")
    if plan.whole and not plan.depths:
        raise UsageError("--whole-prompt says how --depth is sent: give the depths, as in --depth 0,4k,16k")


def _check_open(plan: Plan) -> None:
    if plan.requests is not None:
        raise UsageError("--rate: a level lasts --duration seconds: leave out --requests")
    if plan.slo:
        if plan.trace is not None:
            raise UsageError("--slo looks for a concurrency: leave out --trace")
        raise UsageError("--slo looks for a concurrency: for a rate, use sparktop capacity --rate --slo")
    if plan.trace is not None:
        return
    if not plan.points and not plan.find_knee:
        raise UsageError("--mode open: give the rates with --rate")
    if plan.find_knee and plan.order is Order.ABBA:
        raise UsageError("--rate auto looks for each target's limit by itself: leave out --order abba")
    if plan.find_knee and len(plan.lengths) > 1:
        raise UsageError("--rate auto looks for the limit under one prompt length: give one with --pp")
    pattern = parse_pattern(plan.arrivals)
    for point in plan.points:
        check_arrivals(pattern, rate_of(point), plan.duration_s or OPEN_S)


# The settings of plans with agents.


_PATIENCE = Timeouts(first_token_s=1800.0, between_tokens_s=120.0, whole_s=3600.0)
"""Warm-up calls send the pasts of all conversations at once."""
_SETTINGS: dict[str, Any] = {
    "mode": LoadMode.AGENTS,
    "concurrency": (),
    "climb_to": None,
    "runs": 1,
    "more_runs": False,
    "duration_s": None,
    "requests": None,
    "warmup": False,
}
"""What replaces the settings of a preset; conversations have warm-up calls of their own."""


def agents_settings(preset: ConversationPreset) -> dict[str, Any]:
    """Return the settings of a plan of agents: token counts are means per call of the conversations."""
    return {
        **_SETTINGS,
        "duration_s": preset.duration_s,
        "prompt_lengths": (max(1, round(preset.new_tokens.typical)),),
        "tg": max(1, round(preset.output_tokens.typical)),
        "timeouts": _PATIENCE,
        "conversations": preset,
    }


def check_conversations(plan: Plan) -> None:
    """Check the settings of a plan of agents.

    Raises:
        UsageError: a setting contradicts another.
    """
    if plan.conversations is None or not plan.points:
        raise UsageError("--mode agents: give the numbers of conversations with --agents")
    if plan.requests is not None:
        raise UsageError("--agents: a level lasts --duration seconds: leave out --requests")
    if plan.slo:
        raise UsageError("--slo looks for a concurrency: leave out --agents")
    if plan.runs > 1 and plan.order is Order.ABBA:
        raise UsageError("--agents: --order abba needs one run a level: leave out --runs")
    if len(plan.lengths) > 1:
        raise UsageError("--agents has one prompt length: give one with --pp")


# Checks what the presets of a configuration file say about their load, beyond the types of the values.


_OPTION = re.compile(r"--([a-z-]+)")
_KEYS = {
    "duration": "duration_s",
    "depth": "depths",
    "header": "headers",
    "timeout": "timeout_s",
}
"""Keys of a preset that are called otherwise than the options of the command line."""
_AXES = ("trace", "rate", "agents", "concurrency")
_ANY = SweepTarget("any", "http://127.0.0.1")


def preset_faults(preset: SweepSettings) -> Iterator[tuple[str, str]]:
    """Yield (key, message) for each setting of a preset that no sweep can use; a trace is read once."""
    values: tuple[tuple[str, str | None, Callable[[str], object]], ...] = (
        ("rate", preset.rate, rates_or_auto),
        ("arrivals", preset.arrivals, parse_pattern),
        ("workload", preset.workload, find_conversations),
        ("trace_range", preset.trace_range, parse_range),
    )
    is_usable = True
    for key, text, parse in values:
        if text is None:
            continue
        try:
            parse(text)
        except UsageError as error:
            is_usable = False
            yield key, _named(str(error))
    if not is_usable:
        return
    try:
        make_plan(preset, (_ANY,))
    except UsageError as error:
        yield _key(str(error), preset), _named(str(error))


def _key(message: str, preset: SweepSettings) -> str:
    """Return the key of the preset that an error message is about; its axis if the message names no key."""
    for key in ("trace", "prompts"):
        if (path := getattr(preset, key)) is not None and path in message:
            return key
    for option in _OPTION.findall(message):
        key = _key_of(option)
        if getattr(preset, key, None):
            return key
    return next((key for key in _AXES if getattr(preset, key)), "name")


def _named(message: str) -> str:
    """Return an error message of the command line with the keys of the configuration for its options."""
    return _OPTION.sub(lambda found: _key_of(found[1]), message)


def _key_of(option: str) -> str:
    return _KEYS.get(option, option.replace("-", "_"))


# What a preset of sweeps measures, in a line.


def preset_line(preset: SweepSettings) -> str:
    """Return what a preset measures: its loads, lengths, runs and targets, each where it has one."""
    return clean("; ".join(_parts(preset)), 200) or "the usual load"


def _parts(preset: SweepSettings) -> Iterator[str]:
    yield from _load(preset)
    if preset.prompt_lengths:
        yield f"{_listed(preset.prompt_lengths)} tokens in"
    if preset.tg is not None:
        yield f"{preset.tg:,} out"
    if preset.prompts is not None:
        yield f"prompts of {Path(preset.prompts).name}"
    if preset.depths:
        yield f"after {_listed(preset.depths)} tokens of context"
    if preset.runs is not None:
        yield f"{preset.runs} run{'' if preset.runs == 1 else 's'}"
    if preset.targets:
        yield f"on {', '.join(preset.targets)}"


def _load(preset: SweepSettings) -> Iterator[str]:
    if preset.concurrency:
        more = "" if preset.climb_to is None else f" and on to {preset.climb_to} while tok/s rise"
        yield f"c = {_listed(preset.concurrency)}{more}"
    if preset.agents:
        yield f"agents {_listed(preset.agents)}"
    if preset.rate:
        yield f"{preset.rate} requests/s"
    if preset.trace:
        yield f"the traffic of {preset.trace}"
    if preset.workload:
        yield f"workload {preset.workload}"


def _listed(values: tuple[int, ...] | tuple[float, ...]) -> str:
    return ", ".join(f"{value:,g}" for value in values)
