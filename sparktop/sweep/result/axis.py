"""The axis of a sweep in its result file: the position of each level, the plan, and the executed runs."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from sparktop.model.load import LoadKind, LoadMode, LoadPoint, TokenSource, concurrency_point
from sparktop.model.text import clean
from sparktop.sweep.plan.plan import Api, Order
from sparktop.sweep.result.parts import MOST_CONCURRENCY, Count, Number, Part, Text, Time, Tree
from sparktop.sweep.result.replay.parts import TracePlan


class AxisPart(Part):
    """The position of a level on the axis of its sweep: the concurrency, unless `load` is another kind."""

    concurrency: Annotated[int, Field(ge=0, le=MOST_CONCURRENCY)]
    """The most requests in flight; 0 if unknown or if it does not matter."""
    load: LoadKind = LoadKind.CONCURRENCY
    value: Number = None
    """The value on an axis other than concurrency; None on the latter."""
    rises_to: Number = None
    """The value at the end of a level during which it rises; None if it stays the same."""
    trace: Text | None = None
    """Name of the recorded traffic of a level, whose mean rate is `value`; None for other levels."""

    @property
    def point(self) -> LoadPoint:
        """The position on the axis of the sweep."""
        if self.load is LoadKind.CONCURRENCY or self.value is None:
            return concurrency_point(self.concurrency)
        return LoadPoint(self.load, self.value, self.rises_to, self.trace)


def axis_fields(concurrency: int, point: LoadPoint) -> dict[str, Any]:
    """Return the fields of an `AxisPart` at `point`, with at most `concurrency` requests in flight."""
    if point.kind is LoadKind.CONCURRENCY:
        return {"concurrency": concurrency}
    named = {"load": point.kind, "value": point.value, "rises_to": point.rises_to, "trace": point.trace}
    return {"concurrency": concurrency, **named}


_LONGEST_BODY = 200
LevelLoad = tuple[LoadPoint, int | None, int | None, int]
"""What identifies a level of a target: its point on the axis, prompt, output and context tokens."""


class PromptPlan(Part):
    """The file of a user's own prompts."""

    name: Text
    """Name of the file, without its folder."""
    path: Text | None = None
    """The file as the user named it; None in anonymous reports."""
    digest: Text | None = None
    """SHA-256 of the file: equal digests are equal prompts."""
    count: Count | None = None
    """Number of prompts in the file."""

    @property
    def words(self) -> str:
        """The file as text: "day.jsonl (1,234 prompts)"."""
        return self.name if self.count is None else f"{self.name} ({self.count:,} prompts)"


class PlanResult(Part):
    """The plan of a sweep as stored in its result: targets, loads, and how they are run."""

    targets: tuple[Text, ...] = ()
    concurrency: tuple[int, ...] = ()
    load: LoadKind = LoadKind.CONCURRENCY
    points: tuple[Text, ...] = ()
    """The levels on an axis other than concurrency, such as "0.5" or "0.5..4"; empty on the latter."""
    pp: Count | None = None
    tg: Count | None = None
    depths: tuple[Count, ...] = ()
    """Tokens of context before each prompt; empty for none."""
    bases: tuple[Count, ...] = ()
    """The prompt lengths without context, if context and prompt were one request, whose length includes
    both; else empty."""
    depth_slo: tuple[Text, ...] = ()
    """The SLO conditions that each depth is held against, such as "stream_tps ≥ 15"."""
    runs: Count | None = None
    climb_to: Count | None = None
    """Highest concurrency to which the sweep went on while the token rate rose; None: it did not go on."""
    more_runs: bool = False
    """True if levels had more than `runs` runs where these were short."""
    mode: LoadMode = LoadMode.BURST
    prompts: PromptPlan | None = None
    """The user's own prompts, in place of made ones; None for made ones."""
    extra_body: Tree = Field(default_factory=dict)
    """Further fields of each request's body, with "…" for texts, which may be secrets."""
    headers: tuple[Text, ...] = ()
    """Names of further headers of each request; their values may be secrets and are not stored."""
    request_digest: Text | None = None
    """The first eight digits of a SHA-256 of these fields and headers with their values: equal digests are
    equal requests; None without such fields and headers."""
    timeout_s: Number = None
    """Seconds that a request may wait for its first and each next token, where the user set it; else None."""
    arrivals: Text | None = None
    """Open loop: how the gaps between arrivals vary; None in other modes."""
    trace: TracePlan | None = None
    """The recorded traffic that was replayed; None for arrivals that were drawn, and in other modes."""
    find_knee: bool = False
    """True if the sweep looked for the highest rate that a target keeps up with."""
    workload: Text | None = None
    """Name of the preset of agents' conversations; None in other modes."""
    duration_s: Number = None
    requests: Count | None = None
    order: Order = Order.ASCENDING
    api: Api = Api.CHAT
    seed: int | None = None
    warmup: bool = True
    tokens_from: TokenSource | None = None
    """How tokens were counted: the least exact source among all levels."""
    preset: Text | None = None

    @property
    def request_words(self) -> tuple[str, ...]:
        """What a user gave for each request, in words: prompts, further fields and headers, a time limit."""
        body = json.dumps(self.extra_body, ensure_ascii=False)
        noun = "header" if len(self.headers) == 1 else "headers"
        return (
            *([] if self.prompts is None else [f"own prompts of {self.prompts.words}"]),
            *([f"each request with {clean(body, _LONGEST_BODY)}"] if self.extra_body else []),
            *([f"with the {noun} {', '.join(self.headers)}"] if self.headers else []),
            *([] if self.timeout_s is None else [f"failed after {self.timeout_s:g} s without a token"]),
        )

    def context_of(self, prompt_tokens: int) -> int:
        """Return how many tokens of such a request are context; 0 if context and prompt were apart."""
        return next((one for one in self.depths if prompt_tokens - one in self.bases), 0)

    @property
    def axis(self) -> tuple[LoadPoint, ...]:
        """The planned levels on the axis of the sweep."""
        if self.load is LoadKind.CONCURRENCY:
            return tuple(concurrency_point(one) for one in self.concurrency)
        found = (_point_of(self.load, one) for one in self.points)
        name = None if self.trace is None else self.trace.name
        return tuple(replace(point, trace=name) for point in found if point is not None)


class RanRun(AxisPart):
    """One executed run of a level. A result lists its runs in the order of execution."""

    target: Text
    run: int
    started_at: Time | None = None


def _point_of(kind: LoadKind, words: str) -> LoadPoint | None:
    """Return the point of `LoadPoint.words`; None for a text that is not one."""
    first, rises, last = words.partition("..")
    try:
        value, rises_to = float(first), float(last) if rises else None
    except ValueError:
        return None
    return LoadPoint(kind, value, rises_to) if math.isfinite(value) else None
