"""The draft of a sweep: the texts in the editor's fields, their check, and the file that keeps them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from sparktop.errors import UsageError
from sparktop.files import write_whole
from sparktop.model.load import LoadMode
from sparktop.model.targets import GuardLimits, SweepSpec
from sparktop.model.text import clean, reason_of
from sparktop.sweep.plan.plan import Api, Order, Plan, SweepTarget
from sparktop.sweep.plan.presets import (
    DEFAULT,
    STEADY_S,
    TYPED_FIELDS,
    make_plan,
    read_settings,
    replay_of,
)
from sparktop.sweep.plan.traces import FORMAT_NAMES, TraceReplay
from sparktop.typed import number


class DraftKind(StrEnum):
    """The kinds of load that the editor offers, by the words in its field."""

    CONCURRENCY = "requests at once"
    RATE = "requests per second"
    AGENTS = "agents"
    TRACE = "recorded traffic"


AUTO_FORMAT = "recognised"
"""The format of a trace that is recognised from its first line."""
SENT_BEFORE, SENT_TOGETHER = "before", "with the prompt"
"""How the context before a prompt is sent: by a request of its own, or as part of the prompt."""


class Draft(Struct, frozen=True):
    """The contents of the sweep editor's fields, exactly as typed."""

    preset: str = DEFAULT
    """Name of the preset that the fields were filled from."""
    targets: tuple[str, ...] = ()
    """Names of the selected targets, in the order in which they are listed."""
    kind: str = DraftKind.CONCURRENCY.value
    concurrency: str = ""
    """Concurrencies, and after ".." the limit to which the sweep goes on while tokens/s rise: "1,4..256"."""
    rate: str = ""
    """Requests per second: "0.5,1,2", one level that rises as "0.5..4", or "auto"."""
    arrivals: str = ""
    """How the gaps between requests vary; empty: poisson."""
    agents: str = ""
    """Numbers of agents."""
    workload: str = ""
    """What the agents do: a name or the path of a TOML file; empty: the default."""
    trace: str = ""
    """Path of a file with recorded traffic."""
    trace_speed: str = ""
    """Speed of the replay; empty: as recorded."""
    trace_range: str = ""
    """Part of the recorded traffic, such as "10m..1h"; empty: all of it."""
    trace_format: str = AUTO_FORMAT
    pp: str = ""
    """Prompt tokens: one number, or several."""
    tg: str = ""
    depth: str = ""
    """Tokens of context before each prompt: one number or several, such as "0,4k"; empty: none."""
    context: str = SENT_BEFORE
    """How that context is sent."""
    runs: str = ""
    """Number of runs; "3+": at least 3, and more where these are too short."""
    duration: str = ""
    """Seconds per level."""
    requests: str = ""
    """Requests per level."""
    mode: str = LoadMode.BURST.value
    order: str = Order.ASCENDING.value
    api: str = Api.CHAT.value
    warmup: bool = True
    headroom: str = ""
    """The guard's minimum of free memory in GiB; empty: the default on unified memory, 0: no limit."""
    gpu: str = ""
    """The guard's maximum GPU temperature in °C; empty: the default on unified memory, 0: no limit."""
    slo: str = ""
    model: str = ""
    """Model to request; empty: the server's first or only model."""


CHOICES: Mapping[str, tuple[str, ...]] = {
    "kind": tuple(kind.value for kind in DraftKind),
    "mode": (LoadMode.BURST.value, LoadMode.STEADY.value),
    "order": tuple(order.value for order in Order),
    "api": tuple(api.value for api in Api),
    "context": (SENT_BEFORE, SENT_TOGETHER),
    "trace_format": (AUTO_FORMAT, *FORMAT_NAMES),
}
"""The words of the fields that have one of a few."""
_COMMON = ("kind", "order", "api", "model", "headroom", "gpu")
"""Fields of every kind of load."""
FIELDS: Mapping[str, tuple[str, ...]] = {
    DraftKind.CONCURRENCY: (
        "concurrency",
        "pp",
        "tg",
        "depth",
        "context",
        "runs",
        "duration",
        "requests",
        "mode",
        "warmup",
        "slo",
        *_COMMON,
    ),
    DraftKind.RATE: ("rate", "arrivals", "pp", "tg", "runs", "duration", "warmup", *_COMMON),
    DraftKind.AGENTS: ("agents", "workload", "runs", "duration", *_COMMON),
    DraftKind.TRACE: ("trace", "trace_speed", "trace_range", "trace_format", "runs", *_COMMON),
}
"""The fields that have an effect on each kind of load, beside preset and targets."""
_EXAMPLES: Mapping[str, Mapping[str, str]] = {
    DraftKind.CONCURRENCY: {"concurrency": "1,4,16"},
    DraftKind.RATE: {"rate": "0.5,1,2", "arrivals": Plan(()).arrivals},
    DraftKind.AGENTS: {"agents": "1,4,16", "workload": "coder-quick"},
    DraftKind.TRACE: {"trace_speed": "1"},
}
"""What fills the empty fields of a kind that the user chooses."""
_BURST_ENDS = {"runs": "3+", "duration": "", "requests": "", "mode": LoadMode.BURST.value}
_ONE_RUN = {"runs": "1", "duration": "", "requests": "", "depth": ""}
"""How levels end of a kind that the user chooses: those of requests at once, and all others."""


def shown_fields(draft: Draft) -> tuple[str, ...]:
    """Return the names of the fields that have an effect on a draft's load, beside preset and targets."""
    fields = FIELDS[draft.kind]
    return fields if draft.depth.strip() else tuple(name for name in fields if name != "context")


def draft_of(preset: SweepSpec, targets: tuple[str, ...], guard: GuardLimits) -> Draft:
    """Return the editor's fields filled from a preset, with `targets` selected and the limits of `guard`.

    Settings that the preset leaves open get the defaults of a plan.
    """
    plan = Plan(())
    kind = kind_of(preset)
    steady = preset.mode == LoadMode.STEADY.value and kind is DraftKind.CONCURRENCY
    duration_s = preset.duration_s
    if steady and duration_s is None and preset.requests is None:
        duration_s = STEADY_S
    is_burst = not steady and kind is DraftKind.CONCURRENCY
    bounded = is_burst and (duration_s is not None or preset.requests is not None)
    default_runs = plan.runs if kind is DraftKind.CONCURRENCY else 1
    runs = _number_text(preset.runs or default_runs) + ("+" if preset.more_runs else "")
    filled = Draft(
        preset=preset.name,
        targets=targets,
        kind=kind.value,
        pp=_comma_list(preset.prompt_lengths or plan.lengths),
        tg=_number_text(preset.tg or plan.tg),
        depth=_comma_list(preset.depths),
        runs="" if bounded else runs,
        duration=_number_text(duration_s),
        requests=_number_text(preset.requests),
        mode=LoadMode.STEADY.value if steady else LoadMode.BURST.value,
        context=SENT_TOGETHER if preset.whole else SENT_BEFORE,
        warmup=preset.warmup is not False,
        slo=preset.slo or "",
        api=preset.api or plan.api.value,
        order=preset.order or plan.order.value,
        headroom=_number_text(guard.min_headroom_gib),
        gpu=_number_text(guard.max_gpu_c),
    )
    return _with_axis(filled, preset)


def kind_of(preset: SweepSpec) -> DraftKind:
    """Return the kind of load of a preset."""
    return DraftKind[(preset.axis or "concurrency").upper()]


def _with_axis(draft: Draft, preset: SweepSpec) -> Draft:
    """Return `draft` with the fields filled that only its kind of load has."""
    match draft.kind:
        case DraftKind.RATE:
            return replace(draft, rate=preset.rate or "", arrivals=preset.arrivals or Plan(()).arrivals)
        case DraftKind.AGENTS:
            return replace(draft, agents=_comma_list(preset.agents), workload=preset.workload or "")
        case DraftKind.TRACE:
            return replace(
                draft,
                trace=preset.trace or "",
                trace_speed=_number_text(preset.trace_speed or 1.0),
                trace_range=preset.trace_range or "",
                trace_format=preset.trace_format or AUTO_FORMAT,
            )
        case _:
            levels = preset.concurrency or Plan(()).concurrency
            more = preset.climb_to if (preset.climb_to or 0) > max(levels) else None
            return replace(draft, concurrency=_comma_list(levels) + ("" if more is None else f"..{more}"))


def with_preset(draft: Draft, preset: SweepSpec, guard: GuardLimits, names: Collection[str]) -> Draft:
    """Return `draft` with its fields filled from another preset; model and API stay as they are.

    If the preset names targets that are among the `names` names, these are selected; otherwise the selected
    targets stay.
    """
    preset_targets = tuple(name for name in preset.targets if name in names)
    return replace(draft_of(preset, preset_targets or draft.targets, guard), model=draft.model, api=draft.api)


def with_kind(draft: Draft, kind: str) -> Draft:
    """Return `draft` for another kind of load, with examples in those of its fields that are empty.

    Runs, duration and requests get the defaults of that kind, because those of another have other meanings.
    """
    examples = {name: text for name, text in _EXAMPLES[kind].items() if not getattr(draft, name).strip()}
    texts = {"kind": kind, **examples, **(_BURST_ENDS if kind == DraftKind.CONCURRENCY else _ONE_RUN)}
    return replace(draft, **texts)  # type: ignore[arg-type]  # fields that hold texts


def is_changed(draft: Draft, preset: SweepSpec | None, guard: GuardLimits) -> bool:
    """Return whether the fields differ from those that the preset would fill; True without a preset.

    Targets, model and API are not compared, nor fields without effect on the kind of load, nor spaces at the
    ends of a text.
    """
    if preset is None:
        return True
    filled = draft_of(preset, draft.targets, guard)
    compared = (name for name in FIELDS[draft.kind] if name not in {"model", "api"})
    return any(str(getattr(draft, name)).strip() != str(getattr(filled, name)) for name in compared)


def _comma_list(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


def _number_text(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"


FieldValue = TypeVar("FieldValue")

WHOLE = "whole"
"""Key of a problem that concerns several fields together."""
READING = "the file is being read"
"""The problem of a trace whose requests are not counted yet."""
_OPTION = re.compile(r"--([a-z][a-z-]*)")
"""A command-line option in an error message, which the editor replaces by the name of its field."""
_MOST_HEADROOM_GIB = 1_000_000.0
"""Largest limit that the guard's fields take, as the next."""
_MOST_GPU_C = 1000.0
"""Highest limit of a GPU's temperature that can be typed, in degrees Celsius."""
_LONGEST_MODEL = 200
"""Characters of a model's name."""
_BOUNDS = {"runs": "runs", "duration": "seconds", "requests": "requests"}
"""The fields that can limit a level in burst mode, with their names in error messages."""
_NAMES = _BOUNDS | {"trace-format": "format", "trace-range": "part"}
"""Names of fields by option, where they differ."""
_WITHOUT_FIELDS = (
    "prompts",
    "texts",
    "extra_body",
    "headers",
    "timeout_s",
    "longest",
    "leave",
    "beside",
    "max_error_share",
)
"""Settings of a preset that have no field: they stay."""


FindReplay = Callable[[SweepSpec], TraceReplay | None]
"""Returns the traffic of a spec's trace, None while it is being read; raises `UsageError` if it cannot be
used."""


def check_draft(
    draft: Draft,
    targets: Sequence[SweepTarget],
    *,
    seed: int | None = None,
    find: FindReplay = replay_of,
    preset: SweepSpec | None = None,
) -> tuple[Plan | None, Mapping[str, str]]:
    """Return (the plan that a draft makes, its problems); there is a plan exactly if there is no problem.

    A problem is a line by the name of the field of `Draft` or `WHOLE`.

    `targets` are all targets that can be selected. Without a `seed` a random one is used, for new prompts.
    `find` returns the traffic of a trace. `preset` is what the fields were filled from: what it adds to
    each request has no fields, and stays.
    """
    parser = _DraftParser(draft)
    chosen_targets = parser.targets(targets)
    spec = replace(parser.spec(), seed=secrets.randbelow(2**31) if seed is None else seed)
    if preset is not None:
        spec = replace(spec, **{name: getattr(preset, name) for name in _WITHOUT_FIELDS})
    replay = parser.replay(spec, find)
    limits = parser.guard()
    parser.check_bounds()
    parser.check_search()
    if parser.problems:
        return None, parser.problems
    try:
        return make_plan(spec, chosen_targets, guard=limits, replay=replay), {}
    except UsageError as error:
        return None, {WHOLE: _field_message(error)}


class _DraftParser:
    """Parses the fields of a draft one by one, and collects their problems by field name."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.problems: dict[str, str] = {}
        self._shown = FIELDS.get(draft.kind, ())

    def read(self, name: str, how: Callable[[str], FieldValue]) -> FieldValue | None:
        """Return the field `name` as parsed by the function `how`.

        None if it is empty, not valid, or has no effect on the kind of load. If it is not valid, store the
        error message in `problems`. If it must not be empty, store there what it needs.
        """
        if name not in self._shown:
            return None
        text = str(getattr(self.draft, name)).strip()
        if not text:
            if name in _NEEDS:
                self.problems[name] = _NEEDS[name]
            return None
        try:
            return how(text)
        except UsageError as error:
            self.problems[name] = _field_message(error)
            return None

    def targets(self, selectable: Sequence[SweepTarget]) -> list[SweepTarget]:
        by_name = {target.name: target for target in selectable}
        missing_names = [name for name in self.draft.targets if name not in by_name]
        if not self.draft.targets:
            self.problems["targets"] = "mark at least one"
        elif missing_names:
            self.problems["targets"] = f"{clean(missing_names[0], 40)} is not watched: take its mark away"
        model = self.read("model", _parse_model)
        chosen_targets = [by_name[name] for name in self.draft.targets if name in by_name]
        return [replace(target, model=model) if model else target for target in chosen_targets]

    def spec(self) -> SweepSpec:
        """Return the sweep that the fields describe; what is wrong or empty is left open."""
        draft = self.draft
        fields: dict[str, Any] = {"name": draft.preset, "order": draft.order, "api": draft.api}
        if "mode" in self._shown:
            fields["mode"] = draft.mode
        for name in TYPED_FIELDS:
            fields |= self.read(name, partial(read_settings, name)) or {}
        if "warmup" in self._shown:
            fields["warmup"] = draft.warmup
        if draft.kind != DraftKind.CONCURRENCY:
            fields.pop("more_runs", None)
        if fields.get("depths"):
            fields["whole"] = draft.context == SENT_TOGETHER
        if draft.trace_format != AUTO_FORMAT:
            fields["trace_format"] = draft.trace_format
        return SweepSpec(**fields)

    def replay(self, spec: SweepSpec, find: FindReplay) -> TraceReplay | None:
        """Return the recorded traffic of the draft; None if it has none, or with a problem at its field."""
        if spec.trace is None or "trace_speed" in self.problems or "trace_range" in self.problems:
            return None
        try:
            replay = find(spec)
        except UsageError as error:
            self.problems["trace"] = _field_message(error)
            return None
        if replay is None:
            self.problems["trace"] = READING
        return replay

    def guard(self) -> GuardLimits:
        return GuardLimits(
            self.read("headroom", lambda text: number(text, 0.0, _MOST_HEADROOM_GIB, " GiB")),
            self.read("gpu", lambda text: number(text, 0.0, _MOST_GPU_C, " °C")),
        )

    def check_bounds(self) -> None:
        """Add messages to `problems` unless a burst has exactly one of runs, duration and requests."""
        if self.draft.kind != DraftKind.CONCURRENCY or self.draft.mode == LoadMode.STEADY.value:
            return
        given_bounds = [name for name in _BOUNDS if str(getattr(self.draft, name)).strip()]
        if not given_bounds:
            self.problems.setdefault("runs", "write how many, or give seconds or requests")
        for name in given_bounds[1:]:
            first, second = _BOUNDS[given_bounds[0]], _BOUNDS[name]
            self.problems.setdefault(name, f"set {first} or {second}, not both")

    def check_search(self) -> None:
        """Add a message to `problems` if another field rules out a search with the SLO conditions."""
        if "slo" not in self._shown or not self.draft.slo.strip() or "slo" in self.problems:
            return
        if len([length for length in re.split(r"[,\s]+", self.draft.pp.strip()) if length]) > 1:
            self.problems.setdefault("slo", "looks for the limit under one prompt length: write one")
        if self.draft.mode == LoadMode.BURST.value and not self.draft.runs.strip():
            self.problems.setdefault(
                "slo", "makes as many runs as it takes: give runs, not seconds or requests"
            )


def _parse_model(text: str) -> str:
    if clean(text, _LONGEST_MODEL) != text:
        raise UsageError(f"must be 1 to {_LONGEST_MODEL} printable characters")
    return text


def _field_message(error: UsageError) -> str:
    line = str(error).removeprefix("--slo: ")
    return _OPTION.sub(lambda option: _NAMES.get(option[1], option[1]), line)


_NEEDS = {
    "concurrency": "write one number or several, as in 1,4,16",
    "pp": "write the tokens of a prompt, as in 128",
    "tg": "write how many, as in 64",
    "rate": "write requests per second, as in 0.5,1,2, or auto",
    "agents": "write one number or several, as in 1,4,16",
    "trace": "write the path of a file of recorded traffic",
}
"""What the fields need that must not be empty."""


_LONGEST = 400
"""Maximum length of a field's text, in characters."""
_MOST_TARGETS = 256
"""Targets that are read from the file."""
_MOST_BYTES = 256 * 1024
"""Bytes that are read of the file."""


def recall(path: Path) -> Draft | None:
    """Return the editor's last settings from the file `path`; None if the file is missing or not valid."""
    try:
        with path.open("rb") as stream:
            draft = msgspec.json.decode(stream.read(_MOST_BYTES), type=Draft)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
    if any(getattr(draft, name) not in words for name, words in CHOICES.items()):
        return None
    texts = {name: clean(text, _LONGEST) for name, text in asdict(draft).items() if isinstance(text, str)}
    targets = dict.fromkeys(clean(name, _LONGEST) for name in draft.targets[:_MOST_TARGETS])
    return replace(draft, targets=tuple(targets), **texts)  # type: ignore[arg-type]  # fields that hold texts


def without_missing(draft: Draft, presets: Collection[str], targets: Collection[str]) -> Draft:
    """Return `draft` without what no longer exists.

    A preset that is not in `presets` becomes the default preset; names that are not in `targets` are dropped.
    """
    return replace(
        draft,
        preset=draft.preset if draft.preset in presets else DEFAULT,
        targets=tuple(name for name in draft.targets if name in targets),
    )


def remember(path: Path, draft: Draft) -> str | None:
    """Write the editor's settings to the file `path` atomically; return an error message, None on success."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, msgspec.json.encode(draft).decode())
    except OSError as error:
        return reason_of(error)
    return None
