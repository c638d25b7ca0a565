"""Checks the draft of a sweep: makes its plan, or reports a problem beside each field."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from sparktop.errors import UsageError
from sparktop.model.load import LoadMode
from sparktop.model.targets import GuardLimits, SweepSettings
from sparktop.model.text import clean
from sparktop.sweep.plan.arrivals import parse_pattern, rates_or_auto
from sparktop.sweep.plan.draft import AUTO_FORMAT, FIELDS, SENT_TOGETHER, Draft, DraftKind
from sparktop.sweep.plan.plan import Api, Order, Plan, SloCondition, SweepTarget
from sparktop.sweep.plan.presets import Wishes, make_plan
from sparktop.sweep.plan.traces.replay import SPEEDS, Replay, find_replay, parse_range
from sparktop.sweep.terms.limits import LEAST_S, MOST_CONCURRENCY, MOST_RUNS, MOST_S, MOST_TOKENS
from sparktop.typed import climbing_numbers, number, number_or_more, seconds, whole_number, whole_numbers

Value = TypeVar("Value")
Word = TypeVar("Word", bound=StrEnum)

WHOLE = "whole"
"""Key in `CheckedDraft.problems` for a problem that concerns several fields together."""
READING = "the file is being read"
"""The problem of a trace whose requests are not counted yet."""
_OPTION = re.compile(r"--([a-z][a-z-]*)")
"""A command-line option in an error message, which the editor replaces by the name of its field."""
_MOST_HEADROOM_GIB = 1_000_000.0
_MOST_GPU_C = 1000.0
_LONGEST_MODEL = 200
_BOUNDS = {"runs": "runs", "duration": "seconds", "requests": "requests"}
"""The fields that can limit a level in burst mode, with their names in error messages."""
_NAMES = _BOUNDS | {"trace-format": "format", "trace-range": "part"}
"""Names of fields by option, where they differ."""
_NUMBERS = "write one number or several, as in 1,4,16"


class TraceWish(Struct, frozen=True):
    """The recorded traffic that a draft names; None: recognised, or all of it."""

    path: str
    form: str | None = None
    speed: float | None = None
    part: str | None = None

    def read(self) -> Replay:
        """Read the file once and return its traffic; for a long file this takes seconds.

        Raises:
            UsageError: the file cannot be used.
        """
        return find_replay(self.path, self.form, self.speed, self.part)


FindReplay = Callable[[TraceWish], Replay | None]
"""Returns the traffic of a file, None while it is being read; raises `UsageError` if it cannot be used."""


class CheckedDraft(Struct, frozen=True):
    """The plan that a draft makes, or the problems that prevent a plan."""

    plan: Plan | None
    problems: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Error messages of one line, by the name of the field of `Draft` or `WHOLE`; empty if there is a
    plan."""


def checked(
    draft: Draft,
    targets: Sequence[SweepTarget],
    *,
    seed: int | None = None,
    find: FindReplay = TraceWish.read,
    preset: SweepSettings | None = None,
) -> CheckedDraft:
    """Return the plan that a draft makes, or its problems if any field is not valid.

    `targets` are all targets that can be selected. Without a `seed` a random one is used, for new prompts.
    `find` returns the traffic of a trace. `preset` is what the fields were filled from: what it adds to
    each request has no fields, and stays.
    """
    form = _Form(draft)
    chosen = form.targets(targets)
    settings = form.settings()
    if preset is not None:
        own = {name: getattr(preset, name) for name in ("prompts", "extra_body", "headers", "timeout_s")}
        settings = replace(settings, **own)
    replay = form.replay(find)
    shown = FIELDS.get(draft.kind, ())
    wishes = Wishes(
        api=form.choice("api", Api),
        seed=secrets.randbelow(2**31) if seed is None else seed,
        warmup=draft.warmup if "warmup" in shown else None,
        slo=form.slo(),
        whole=(draft.context == SENT_TOGETHER or None) if settings.depths else None,
        trace=replay,
        runs=None if replay is None else settings.runs,
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
        self._shown = FIELDS.get(draft.kind, ())

    def read(self, name: str, how: Callable[[str], Value], needs: str = "") -> Value | None:
        """Return the field `name` as parsed by the function `how`.

        None if it is empty, not valid, or has no effect on the kind of load. If it is not valid, store the
        error message in `problems`. If it is empty and `needs` is not "", store the message `needs` there.
        """
        if name not in self._shown:
            return None
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
        kind, order = self.choice("kind", DraftKind), self.choice("order", Order)
        mode = self.choice("mode", LoadMode) if "mode" in self._shown else None
        counts = self.read("concurrency", lambda text: climbing_numbers(text, 1, MOST_CONCURRENCY), _NUMBERS)
        concurrency, climb_to = counts or ((), None)
        runs, more_runs = self.read("runs", lambda text: number_or_more(text, 1, MOST_RUNS)) or (None, False)
        return self._with_axis(
            SweepSettings(
                self.draft.preset,
                concurrency=concurrency,
                climb_to=climb_to,
                prompt_lengths=self.read("pp", _lengths, "write the tokens of a prompt, as in 128") or (),
                tg=self.read(
                    "tg", lambda text: whole_number(text, 1, MOST_TOKENS), "write how many, as in 64"
                ),
                depths=self.read("depth", lambda text: whole_numbers(text, 0, MOST_TOKENS)) or (),
                runs=runs,
                more_runs=more_runs and kind is DraftKind.CONCURRENCY,
                mode=None if mode is None else mode.value,
                duration_s=self.read("duration", lambda text: seconds(text, LEAST_S, MOST_S)),
                requests=self.read("requests", lambda text: whole_number(text, 1, MOST_TOKENS)),
                order=None if order is None else order.value,
            )
        )

    def _with_axis(self, settings: SweepSettings) -> SweepSettings:
        """Return `settings` with what the kinds of load other than concurrencies have."""
        workload = self.read("workload", _workload)
        return replace(
            settings,
            rate=self.read("rate", _rates, "write requests per second, as in 0.5,1,2, or auto"),
            arrivals=self.read("arrivals", _pattern),
            agents=self.read("agents", _agents, _NUMBERS) or (),
            workload=workload,
        )

    def replay(self, find: FindReplay) -> Replay | None:
        """Return the recorded traffic of the draft; None if it has none, or with a problem at its field."""
        path = self.read(
            "trace", lambda text: str(_path(text)), "write the path of a file of recorded traffic"
        )
        speed = self.read("trace_speed", lambda text: number(text, *SPEEDS))
        part = self.read("trace_range", _part)
        if path is None or "trace_speed" in self.problems or "trace_range" in self.problems:
            return None
        form = None if self.draft.trace_format == AUTO_FORMAT else self.draft.trace_format
        try:
            found = find(TraceWish(path, form, speed, part))
        except UsageError as error:
            self.problems["trace"] = _words(error)
            return None
        if found is None:
            self.problems["trace"] = READING
        return found

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
        if self.draft.kind != DraftKind.CONCURRENCY:
            return
        given = [name for name in _BOUNDS if str(getattr(self.draft, name)).strip()]
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
        if "slo" not in self._shown or not self.draft.slo.strip() or "slo" in self.problems:
            return
        if len([part for part in re.split(r"[,\s]+", self.draft.pp.strip()) if part]) > 1:
            self._add_problem("slo", "looks for the limit under one prompt length: write one")
        if self.draft.mode == LoadMode.BURST.value and not self.draft.runs.strip():
            self._add_problem("slo", "makes as many runs as it takes: give runs, not seconds or requests")

    def _add_problem(self, name: str, line: str) -> None:
        self.problems.setdefault(name, line)


def _lengths(text: str) -> tuple[int, ...]:
    return whole_numbers(text, 1, MOST_TOKENS)


def _agents(text: str) -> tuple[int, ...]:
    return whole_numbers(text, 1, MOST_CONCURRENCY)


def _rates(text: str) -> str:
    """Return `text` if it is a list of rates or "auto"."""
    rates_or_auto(text)
    return text


def _pattern(text: str) -> str:
    return parse_pattern(text).name


def _part(text: str) -> str:
    """Return `text` if it is a part of a trace."""
    parse_range(text)
    return text


def _workload(text: str) -> str:
    """Return the name of a workload, or the path of its file, after reading it."""
    from sparktop.sweep.plan.conversations.reading import find_conversations  # late: few sweeps need it

    name = str(_path(text)) if text.endswith(".toml") else text
    find_conversations(name)
    return name


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:  # the home of an unknown user
        return Path(text)


def _model(text: str) -> str:
    if clean(text, _LONGEST_MODEL) != text:
        raise UsageError(f"must be 1 to {_LONGEST_MODEL} printable characters")
    return text


def _words(error: UsageError) -> str:
    line = str(error).removeprefix("--slo: ")
    return _OPTION.sub(lambda found: _NAMES.get(found[1], found[1]), line)
