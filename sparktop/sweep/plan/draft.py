"""The draft of a sweep, as typed into the editor's fields; reports its problems, or makes its plan."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

from sparktop.errors import UsageError
from sparktop.model.load import LoadMode
from sparktop.model.targets import GuardLimits, SweepSettings
from sparktop.model.text import clean
from sparktop.sweep.plan.arrivals import parse_pattern, rates_or_auto
from sparktop.sweep.plan.plan import Api, Order, Plan, SloCondition, SweepTarget
from sparktop.sweep.plan.presets import BUILT_IN, DEFAULT, STEADY_S, Wishes, make_plan
from sparktop.sweep.terms.limits import LEAST_S, MOST_CONCURRENCY, MOST_RUNS, MOST_S, MOST_TOKENS
from sparktop.typed import climbing_numbers, number, number_or_more, token_counts, whole_number, whole_numbers
from sparktop.values import dataclass

Value = TypeVar("Value")
Word = TypeVar("Word", bound=StrEnum)

WHOLE = "whole"
"""Key in `CheckedDraft.problems` for a problem that concerns several fields together."""
_OPTION = re.compile(r"--(\w+)")
"""A command-line option in an error message, which the editor replaces by the name of its field."""
_MOST_HEADROOM_GIB = 1_000_000.0
_MOST_GPU_C = 1000.0
_LONGEST_MODEL = 200
_BOUNDS = {"runs": "runs", "duration": "seconds", "requests": "requests"}
"""The fields that can limit a level in burst mode, with their names in error messages."""

_PER_S = "/s"
_POOLS = {one.name: one.pools for one in BUILT_IN if one.pools}
"""Levels of presets that send prompts twice, which no field shows."""


@dataclass(frozen=True, slots=True)
class Draft:
    """The contents of the sweep editor's fields, exactly as typed."""

    preset: str = DEFAULT
    """Name of the preset that the fields were filled from."""
    targets: tuple[str, ...] = ()
    """Names of the selected targets, in the order in which they are listed."""
    concurrency: str = ""
    """Concurrencies, and after ".." the limit to which the sweep goes on while tokens/s rise: "1,4..256". Or
    rates, with their unit and perhaps how requests arrive: "0.5,1,2 /s", "auto /s bursty"."""
    pp: str = ""
    """Prompt tokens: one number, or several."""
    tg: str = ""
    depth: str = ""
    """Tokens of context before each prompt: one number or several, such as "0,4k"; empty: none."""
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


@dataclass(frozen=True, slots=True)
class CheckedDraft:
    """The plan that a draft makes, or the problems that prevent a plan."""

    plan: Plan | None
    problems: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Error messages of one line, by the name of the field of `Draft` or `WHOLE`; empty if there is a
    plan."""


def draft_of(preset: SweepSettings, targets: tuple[str, ...], guard: GuardLimits) -> Draft:
    """Return the editor's fields filled from a preset, with `targets` selected and the limits of `guard`.

    Settings that the preset leaves open get the defaults of a plan.
    """
    plan = Plan(())
    steady = preset.mode == LoadMode.STEADY.value
    duration_s = preset.duration_s
    if steady and duration_s is None and preset.requests is None:
        duration_s = STEADY_S
    is_burst = not steady and preset.rate is None
    bounded = is_burst and (duration_s is not None or preset.requests is not None)
    return Draft(
        preset=preset.name,
        targets=targets,
        concurrency=_rated(preset) or _climbing(preset.concurrency or plan.concurrency, preset.climb_to),
        pp=_listed(preset.prompt_lengths or plan.lengths),
        tg=_shown(preset.tg or plan.tg),
        depth=_listed(preset.depths),
        runs="" if bounded else _shown(preset.runs or plan.runs) + ("+" if preset.more_runs else ""),
        duration=_shown(duration_s),
        requests=_shown(preset.requests),
        mode=preset.mode or plan.mode.value,
        order=preset.order or plan.order.value,
        headroom=_shown(guard.min_headroom_gib),
        gpu=_shown(guard.max_gpu_c),
    )


def with_preset(draft: Draft, preset: SweepSettings, guard: GuardLimits, known: Collection[str]) -> Draft:
    """Return `draft` with its fields filled from another preset; model and API stay as they are.

    If the preset names targets that are among the `known` names, these are selected; otherwise the selected
    targets stay.
    """
    named = tuple(name for name in preset.targets if name in known)
    return replace(draft_of(preset, named or draft.targets, guard), model=draft.model, api=draft.api)


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

    Targets, model and API are not compared.
    """
    if preset is None:
        return True
    same = replace(draft_of(preset, draft.targets, guard), model=draft.model, api=draft.api)
    return draft != same


def checked(draft: Draft, targets: Sequence[SweepTarget], *, seed: int | None = None) -> CheckedDraft:
    """Return the plan that a draft makes, or its problems if any field is not valid.

    `targets` are all targets that can be selected. Without a `seed` a random one is used, for new prompts.
    """
    form = _Form(draft)
    chosen = form.targets(targets)
    settings = form.settings()
    wishes = Wishes(
        api=form.choice("api", Api),
        seed=secrets.randbelow(2**31) if seed is None else seed,
        warmup=draft.warmup,
        slo=form.slo(),
    )
    limits = form.guard()
    form.check_bounds()
    form.check_search()
    if form.problems:
        return CheckedDraft(None, form.problems)
    try:
        return CheckedDraft(make_plan(settings, chosen, wishes, guard=limits))
    except UsageError as error:
        return CheckedDraft(None, {WHOLE: _words(error)})


class _Form:
    """Parses the fields of a draft one by one, and collects their problems by field name."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.problems: dict[str, str] = {}

    def read(self, name: str, how: Callable[[str], Value], needs: str = "") -> Value | None:
        """Return the field `name` as parsed by the function `how`; None if it is empty or not valid.

        If it is not valid, store the error message in `problems`. If it is empty and `needs` is not "", store
        the message `needs` there.
        """
        text = str(getattr(self.draft, name)).strip()
        if not text:
            if needs:
                self.problems[name] = needs
            return None
        try:
            return how(text)
        except UsageError as error:
            self.problems[name] = _words(error)
            return None

    def choice(self, name: str, kind: type[Word]) -> Word | None:
        """Return the field `name` as a member of the enumeration `kind`.

        If the field is not the value of a member, add it to `problems` and return None.
        """
        word = str(getattr(self.draft, name))
        for member in kind:
            if member.value == word:
                return member
        self.problems[name] = f"must be {' or '.join(member.value for member in kind)}"
        return None

    def targets(self, known: Sequence[SweepTarget]) -> list[SweepTarget]:
        by_name = {one.name: one for one in known}
        gone = [name for name in self.draft.targets if name not in by_name]
        if not self.draft.targets:
            self.problems["targets"] = "mark at least one"
        elif gone:
            self.problems["targets"] = f"{clean(gone[0], 40)} is not watched: take its mark away"
        model = self.read("model", _model)
        chosen = [by_name[name] for name in self.draft.targets if name in by_name]
        return [replace(one, model=model) if model else one for one in chosen]

    def settings(self) -> SweepSettings:
        """Parse those fields that a preset can also set, and return their values as a preset."""
        mode, order = self.choice("mode", LoadMode), self.choice("order", Order)
        rate, arrivals = self._rate()
        concurrency, climb_to = (
            ((), None)
            if rate is not None
            else self.read(
                "concurrency",
                lambda text: climbing_numbers(text, 1, MOST_CONCURRENCY),
                "write one number or several, as in 1,4,16",
            )
            or ((), None)
        )
        runs, more_runs = self.read("runs", lambda text: number_or_more(text, 1, MOST_RUNS)) or (None, False)
        return SweepSettings(
            self.draft.preset,
            concurrency=concurrency,
            climb_to=climb_to,
            rate=rate,
            arrivals=arrivals,
            prompt_lengths=self.read(
                "pp",
                lambda text: whole_numbers(text, 1, MOST_TOKENS),
                "write the tokens of a prompt, as in 128",
            )
            or (),
            tg=self.read("tg", lambda text: whole_number(text, 1, MOST_TOKENS), "write how many, as in 64"),
            pools=_POOLS.get(self.draft.preset, ()),
            depths=self.read("depth", lambda text: token_counts(text, 0, MOST_TOKENS)) or (),
            runs=runs,
            more_runs=more_runs,
            mode=None if mode is None else mode.value,
            duration_s=self.read("duration", lambda text: number(text, LEAST_S, MOST_S, " seconds")),
            requests=self.read("requests", lambda text: whole_number(text, 1, MOST_TOKENS)),
            order=None if order is None else order.value,
        )

    def _rate(self) -> tuple[str | None, str | None]:
        """Return (rates, arrivals) of a concurrency field with "/s"; None for what it does not state."""
        rates, unit, arrivals = (part.strip() for part in self.draft.concurrency.partition(_PER_S))
        if not unit:
            return None, None
        try:
            rates_or_auto(rates)
            parse_pattern(arrivals or Plan(()).arrivals)
        except UsageError as error:
            self.problems["concurrency"] = str(error)
        return rates, arrivals or None

    def slo(self) -> tuple[SloCondition, ...] | None:
        from sparktop.sweep.plan.slo import parse_slo  # late: it loads the modules of result files

        return self.read("slo", parse_slo)

    def guard(self) -> GuardLimits:
        return GuardLimits(
            self.read("headroom", lambda text: number(text, 0.0, _MOST_HEADROOM_GIB, " GiB")),
            self.read("gpu", lambda text: number(text, 0.0, _MOST_GPU_C, " °C")),
        )

    def check_bounds(self) -> None:
        """Add messages to `problems` if runs, duration and requests do not fit the load mode.

        Steady mode needs runs, and a duration or requests. Burst mode needs exactly one of the three.
        """
        given = [name for name in _BOUNDS if str(getattr(self.draft, name)).strip()]
        if _PER_S in self.draft.concurrency:
            if "requests" in given:
                self._add_problem("requests", "a level at a rate ends by seconds: empty this")
            return
        if self.draft.mode == LoadMode.STEADY.value:
            if "runs" not in given:
                self._add_problem("runs", "write how many, as in 3")
            if given in ([], ["runs"]):
                self._add_problem("duration", "steady load needs seconds or requests")
            return
        if not given:
            self._add_problem("runs", "write how many, or give seconds or requests")
        for name in given[1:]:
            first, second = _BOUNDS[given[0]], _BOUNDS[name]
            self._add_problem(name, f"a burst level ends by {first} or by {second}: empty one of them")

    def check_search(self) -> None:
        """Add a message to `problems` if another field rules out a search with the SLO conditions."""
        if not self.draft.slo.strip() or "slo" in self.problems:
            return
        if len([part for part in re.split(r"[,\s]+", self.draft.pp.strip()) if part]) > 1:
            self._add_problem("slo", "looks for the limit under one prompt length: write one")
        if self.draft.mode == LoadMode.BURST.value and not self.draft.runs.strip():
            self._add_problem("slo", "makes as many runs as it takes: give runs, not seconds or requests")

    def _add_problem(self, name: str, line: str) -> None:
        self.problems.setdefault(name, line)


def _model(text: str) -> str:
    if clean(text, _LONGEST_MODEL) != text:
        raise UsageError(f"must be 1 to {_LONGEST_MODEL} printable characters")
    return text


def _words(error: UsageError) -> str:
    line = str(error).removeprefix("--slo: ")
    return _OPTION.sub(lambda found: _BOUNDS.get(found[1], found[1]), line)


def _listed(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


def _rated(preset: SweepSettings) -> str:
    """Return the rates of a preset as typed; "" if it has none."""
    parts = (preset.rate, _PER_S, preset.arrivals) if preset.rate is not None else ()
    return " ".join(part for part in parts if part)


def _climbing(values: Sequence[int], climb_to: int | None) -> str:
    farther = climb_to is not None and climb_to > max(values)
    return _listed(values) + (f"..{climb_to}" if farther else "")


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"
