"""The draft of a sweep: the texts in the editor's fields, how presets fill them, and which a load has."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.load import LoadMode
from sparktop.model.targets import GuardLimits, SweepSettings
from sparktop.sweep.plan.plan import Api, Order, Plan
from sparktop.sweep.plan.presets import DEFAULT, STEADY_S


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


_COMMON = ("kind", "order", "api", "model", "headroom", "gpu")
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
_ENDS: Mapping[str, Mapping[str, str]] = {
    DraftKind.CONCURRENCY: {"runs": "3+", "duration": "", "requests": "", "mode": LoadMode.BURST.value},
}
_ONE_RUN = {"runs": "1", "duration": "", "requests": "", "depth": ""}
"""How levels end of a kind that the user chooses: for the kinds not in `_ENDS`, after one run."""


def shown_fields(draft: Draft) -> tuple[str, ...]:
    """Return the names of the fields that have an effect on a draft's load, beside preset and targets."""
    fields = FIELDS[draft.kind]
    return fields if draft.depth.strip() else tuple(name for name in fields if name != "context")


def draft_of(preset: SweepSettings, targets: tuple[str, ...], guard: GuardLimits) -> Draft:
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
    runs = _shown(preset.runs or default_runs) + ("+" if preset.more_runs else "")
    filled = Draft(
        preset=preset.name,
        targets=targets,
        kind=kind.value,
        pp=_listed(preset.prompt_lengths or plan.lengths),
        tg=_shown(preset.tg or plan.tg),
        depth=_listed(preset.depths),
        runs="" if bounded else runs,
        duration=_shown(duration_s),
        requests=_shown(preset.requests),
        mode=LoadMode.STEADY.value if steady else LoadMode.BURST.value,
        order=preset.order or plan.order.value,
        headroom=_shown(guard.min_headroom_gib),
        gpu=_shown(guard.max_gpu_c),
    )
    return _with_axis(filled, preset)


def kind_of(preset: SweepSettings) -> DraftKind:
    """Return the kind of load of a preset."""
    if preset.trace is not None:
        return DraftKind.TRACE
    if preset.rate is not None:
        return DraftKind.RATE
    if preset.agents:
        return DraftKind.AGENTS
    return DraftKind.CONCURRENCY


def _with_axis(draft: Draft, preset: SweepSettings) -> Draft:
    """Return `draft` with the fields filled that only its kind of load has."""
    match draft.kind:
        case DraftKind.RATE:
            return replace(draft, rate=preset.rate or "", arrivals=preset.arrivals or Plan(()).arrivals)
        case DraftKind.AGENTS:
            return replace(draft, agents=_listed(preset.agents), workload=preset.workload or "")
        case DraftKind.TRACE:
            return replace(
                draft,
                trace=preset.trace or "",
                trace_speed=_shown(preset.trace_speed or 1.0),
                trace_range=preset.trace_range or "",
            )
        case _:
            levels = preset.concurrency or Plan(()).concurrency
            return replace(draft, concurrency=_climbing(levels, preset.climb_to))


def with_preset(draft: Draft, preset: SweepSettings, guard: GuardLimits, known: Collection[str]) -> Draft:
    """Return `draft` with its fields filled from another preset; model and API stay as they are.

    If the preset names targets that are among the `known` names, these are selected; otherwise the selected
    targets stay.
    """
    named = tuple(name for name in preset.targets if name in known)
    return replace(draft_of(preset, named or draft.targets, guard), model=draft.model, api=draft.api)


def with_kind(draft: Draft, kind: str) -> Draft:
    """Return `draft` for another kind of load, with examples in those of its fields that are empty.

    Runs, duration and requests get the defaults of that kind, because those of another have other meanings.
    """
    examples = {name: text for name, text in _EXAMPLES[kind].items() if not getattr(draft, name).strip()}
    texts = {"kind": kind, **examples, **_ENDS.get(kind, _ONE_RUN)}
    return replace(draft, **texts)  # type: ignore[arg-type]  # fields that hold texts


def with_mode(draft: Draft, mode: str) -> Draft:
    """Return `draft` in the load mode `mode`, with the fields filled in that this mode requires.

    Steady mode needs runs, and a duration or requests. Burst mode removes the default duration of steady mode
    if runs are given.
    """
    changed = replace(draft, mode=mode)
    if mode == LoadMode.STEADY.value:
        if not changed.duration.strip() and not changed.requests.strip():
            changed = replace(changed, duration=_shown(STEADY_S))
        return changed if changed.runs.strip() else replace(changed, runs="1")
    if changed.runs.strip() and changed.duration.strip() == _shown(STEADY_S):
        changed = replace(changed, duration="")
    return changed


def is_changed(draft: Draft, preset: SweepSettings | None, guard: GuardLimits) -> bool:
    """Return whether the fields differ from those that the preset would fill; True without a preset.

    Targets, model and API are not compared, nor fields without effect on the kind of load.
    """
    if preset is None:
        return True
    filled = draft_of(preset, draft.targets, guard)
    compared = (name for name in FIELDS[draft.kind] if name not in {"model", "api"})
    return any(getattr(draft, name) != getattr(filled, name) for name in compared)


def _listed(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


def _climbing(values: Sequence[int], climb_to: int | None) -> str:
    farther = climb_to is not None and climb_to > max(values)
    return _listed(values) + (f"..{climb_to}" if farther else "")


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"
