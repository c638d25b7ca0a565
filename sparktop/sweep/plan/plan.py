"""The plan of a sweep: its targets, loads, limits, and the order in which they are measured.

The module `presets` creates plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

from sparktop.graphics.numbers import count_words
from sparktop.model.load import Level, LoadKind, LoadMode, LoadPoint, concurrency_point
from sparktop.model.plain import hide_in_repr
from sparktop.model.targets import GuardLimits
from sparktop.sweep.plan.conversations import ConversationPreset
from sparktop.sweep.plan.own_requests import PromptFile
from sparktop.sweep.plan.traces import TraceReplay
from sparktop.sweep.terms.definitions import ERROR_SHARE

_NOTHING: Mapping[str, Any] = MappingProxyType({})
ENOUGH_S = 10.0
"""Seconds that all runs of a level in burst mode must last together for a reliable result."""


class Api(StrEnum):
    """Which of the two OpenAI-compatible completion APIs is used."""

    CHAT = "chat"
    COMPLETIONS = "completions"


class Order(StrEnum):
    """The order in which levels and targets are measured."""

    ASCENDING = "ascending"
    """One target after the other, each from the first concurrency to the last."""
    ABBA = "abba"
    """Level by level, with the runs of all targets interleaved A B B A, so that slow drift affects all
    alike."""


def runs_words(runs: int, *, more_runs: bool) -> str:
    """Return how many runs a level has: "3 runs a level", or "at least 3 runs and 10 s a level"."""
    words = count_words(runs, "run")
    return (f"at least {words} and {ENOUGH_S:.0f} s" if more_runs else words) + " a level"


class TargetKind(StrEnum):
    """The kind of server at a target's address."""

    ENGINE = "engine"
    ROUTER = "router"


@hide_in_repr("api_key")
class SweepTarget(Struct, frozen=True):
    """A server or router to put load on."""

    name: str
    url: str
    """Base URL, without a trailing slash and without /v1."""
    kind: TargetKind = TargetKind.ENGINE
    model: str | None = None
    """The model to request; None for the server's first or only model."""
    api_key: str | None = None
    tls_ca: str | None = None
    """Path of a certificate file that verifies the server's; None: the system's certificates do."""
    backends: Mapping[str, str] = field(default_factory=dict)
    """For a router: URL of each watched backend behind it, by name."""
    deployments: Mapping[str, str] = field(default_factory=dict)
    """For a router: name of the backend by the deployment id in the router's answers."""
    strategy: str | None = None
    """For a router: its routing strategy; None if unknown."""
    nodes: tuple[str, ...] = ()
    """Names of the watched machines that the target's servers run on."""
    known: bool = False
    """True for a target on this machine or in the configuration, which needs no confirmation before load."""


class Timeouts(Struct, frozen=True):
    """Time limits of a request, in seconds."""

    connect_s: float = 10.0
    first_token_s: float = 300.0
    between_tokens_s: float = 60.0
    whole_s: float = 1800.0

    @property
    def token_s(self) -> float | None:
        """The limit for the first and each next token, as a user sets it; None for the usual ones."""
        return self.first_token_s if self.first_token_s == self.between_tokens_s else None


def timeouts_for(seconds: float) -> Timeouts:
    """Return the time limits of a request that may wait `seconds` for its first and each next token."""
    whole_s = max(seconds, Timeouts().whole_s)
    return Timeouts(first_token_s=seconds, between_tokens_s=seconds, whole_s=whole_s)


class SloCondition(Struct, frozen=True):
    """A condition (SLO) on a metric of a level, such as `ttft_p90_ms <= 2000` or `stream_tps >= 15`."""

    figure: str
    limit: float
    at_least: bool = False
    """True when `limit` is a minimum, False when it is a maximum."""


class Capacity(Struct, frozen=True):
    """What a search for the largest load looks for; see `sparktop.sweep.plan.capacity`."""

    kind: LoadKind
    conditions: tuple[SloCondition, ...]
    share: float = 0.95
    """Share (0 to 1) of the requests at a rate that must meet all conditions."""
    most: float = 64.0
    """The largest load to try."""
    limits: str | None = None
    """Name of the published limits that the conditions are; None for others."""
    fixed_s: bool = False
    """True if the user set the duration of levels: only a rate extends it, for enough arrivals."""
    fixed_workload: bool = False
    """True if the user chose what the agents do; else it is chosen to fit the servers' context."""


@hide_in_repr("extra_body", "headers")
class Plan(Struct, frozen=True):
    """The complete plan of a sweep: targets, loads, number of runs, and limits."""

    targets: tuple[SweepTarget, ...]
    concurrency: tuple[int, ...] = (1, 4, 16)
    points: tuple[LoadPoint, ...] = ()
    """The levels on an axis other than concurrency, all of one kind; empty: `concurrency` has the levels."""
    climb_to: int | None = None
    """Highest concurrency to which the sweep goes on after `concurrency`, while the token rate rises; None to
    measure `concurrency` only."""
    pp: int = 128
    """Prompt tokens of each request."""
    prompt_lengths: tuple[int, ...] = ()
    """Several prompt lengths, each combined with every concurrency; if empty, `pp` is the only one."""
    tg: int = 64
    """Tokens to generate per request."""
    depths: tuple[int, ...] = ()
    """Tokens of context before each prompt (llama-benchy's depth), each combined with all other loads; empty
    for none."""
    whole: bool = False
    """True: each request has context and prompt at once, and the prompt lengths include the depths. False:
    the context is sent before, so that the server's prefix cache has it when the prompt comes."""
    runs: int = 3
    more_runs: bool = False
    """True: a level in burst mode gets more than `runs` runs where these last less than `ENOUGH_S`."""
    mode: LoadMode = LoadMode.BURST
    arrivals: str = "poisson"
    """Open mode: how the gaps between arrivals vary; see `sparktop.sweep.plan.arrivals`."""
    trace: TraceReplay | None = None
    """Open mode: the recorded traffic that is replayed; lengths and duration are then its means."""
    search_rate: bool = False
    """Open mode, without `points`: True to look for the highest rate that a target keeps up with."""
    conversations: ConversationPreset | None = None
    """Agents mode: what the agents do."""
    duration_s: float | None = None
    """Steady mode: duration of a run. Open and agents mode: of the measured part of a run. Burst mode: time
    that the runs of a level last together at least."""
    requests: int | None = None
    """Steady mode: requests per run, instead of a duration. Burst mode: minimum number of requests in a
    level, which decides its number of runs."""
    prompts: PromptFile | None = None
    """The user's own prompts, sent in place of made ones; `pp` is then a guess of their mean length, for
    forecasts."""
    texts: tuple[str, ...] = ()
    """Kinds of built-in text, with prompts of which each concurrency is measured; `pp` is then their length
    as a guess. Empty for made prompts and the user's own."""
    extra_body: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    """Further fields of each request's body, whose texts may be secrets."""
    headers: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """Further headers of each request, whose values may be secrets."""
    order: Order = Order.ASCENDING
    api: Api = Api.CHAT
    seed: int = 0
    warmup: bool = True
    """True for an additional run before each level that is not measured."""
    timeouts: Timeouts = Timeouts()
    guard: GuardLimits = GuardLimits()
    slo: tuple[SloCondition, ...] = ()
    capacity: Capacity | None = None
    """The search that chooses the levels; None: the plan has them."""
    longest: bool = False
    """True: if a target refuses a prompt length, search for the largest length that it accepts, and measure
    it."""
    leave: bool = False
    """True to hang up in the middle of answers after each level, and see how long the servers go on."""
    beside: int | None = None
    """Tokens of the long prompts that arrive while each level is measured again (steady mode); None for none.
    A server with less context gets shorter ones."""
    max_error_share: float = ERROR_SHARE
    """Share (0 to 1) of failed requests above which the sweep counts as failed (exit code 1)."""
    preset: str | None = None
    """Name of the preset that the plan was made from; None without one."""

    @property
    def loaded(self) -> frozenset[str]:
        """Names of all targets, and of the backends behind those that are routers."""
        return frozenset(name for target in self.targets for name in (target.name, *target.backends))

    @property
    def loaded_urls(self) -> frozenset[str]:
        """Addresses of all targets, and of the backends behind those that are routers."""
        return frozenset(url for target in self.targets for url in (target.url, *target.backends.values()))

    @property
    def axis(self) -> tuple[LoadPoint, ...]:
        """The points of all levels, in the order in which they are measured."""
        if self.points or self.search_rate or self.capacity is not None:
            return self.points
        texts = self.texts or (None,)
        return tuple(concurrency_point(count, text) for count in self.concurrency for text in texts)

    @property
    def guesses_length(self) -> bool:
        """True if prompts are the user's own or built-in texts: `pp` is a guess of their lengths."""
        return self.prompts is not None or bool(self.texts)

    @property
    def kind(self) -> LoadKind:
        """What varies from level to level."""
        if self.capacity is not None:
            return self.capacity.kind
        if self.mode is LoadMode.OPEN:
            return LoadKind.RATE
        return self.points[0].kind if self.points else LoadKind.CONCURRENCY

    @property
    def searches_concurrency_or_rate(self) -> bool:
        """Whether the sweep looks for the highest concurrency or rate that holds: its levels are not planned.

        Searches for a `capacity` are apart, and so is `climb_to`, whose first levels are planned. With
        `depths`, all levels are: `slo` tells up to which depth it holds.
        """
        return self.search_rate or (bool(self.slo) and not self.depths)

    @property
    def highest_concurrency(self) -> int:
        """The most requests in flight of the levels that are planned; a climb goes beyond, to `climb_to`."""
        if self.capacity is not None:
            return LoadPoint(self.capacity.kind, self.capacity.most).most_in_flight
        return max((point.most_in_flight for point in self.axis), default=1)

    @property
    def bases(self) -> tuple[int, ...]:
        """The prompt lengths without context, where context and prompt are one request; else empty.

        Prompts of 128 tokens after 0 and 4,096 tokens are planned as the lengths 128 and 4,224: 128 is one,
        since both 128 + 0 and 128 + 4,096 are lengths.
        """
        if not self.whole:
            return ()
        bases = (length - min(self.depths, default=0) for length in self.lengths)
        return tuple(
            base for base in bases if base > 0 and {base + depth for depth in self.depths} <= {*self.lengths}
        )

    @property
    def lengths(self) -> tuple[int, ...]:
        """All prompt lengths of the plan in tokens, in the order in which they are measured."""
        return self.prompt_lengths or (self.pp,)

    def runs_of(self, concurrency: int) -> int | None:
        """Return the number of runs of a level at `concurrency`; None if only the duration limits it."""
        if self.mode is not LoadMode.BURST:
            return self.runs
        if self.requests is not None:
            return -(-self.requests // concurrency)
        return self.runs if self.duration_s is None else None

    def level(self, target: str, point: LoadPoint, length: int | None = None, depth: int = 0) -> Level:
        """Return the level at `point` with prompts of `length` tokens (None: `pp`) after `depth` tokens."""
        return Level(target, point, None if self.guesses_length else length or self.pp, self.tg, depth)

    def levels(self, target: str = "") -> list[Level]:
        """Return the levels of a target: all points of the axis with the first prompt length, then the next.

        Of several depths, the first comes first with all of them.
        """
        depths = (0,) if self.whole or not self.depths else self.depths
        return [
            self.level(target, point, length, depth)
            for depth in depths
            for length in self.lengths
            for point in self.axis
        ]

    def length_of(self, level: Level) -> int:
        """Return the prompt tokens of a level, of the user's own prompts and of texts as a guess."""
        return self.pp if level.pp is None else level.pp

    def id_of(self, level: Level) -> str:
        """Return a level as part of an id, unique among those of its target: "128x4", "128x0.5rate"."""
        point = level.point
        kind = point.text or ("" if point.kind is LoadKind.CONCURRENCY else point.kind.value)
        depth = f"d{level.depth}" if level.depth else ""
        return f"{self.length_of(level)}x{point.words}{kind}{depth}"


class RunBatch(Struct, frozen=True):
    """A series of load runs of one level, without runs on other targets in between."""

    level: Level
    runs: tuple[int, ...] | None
    """Numbers of the runs within the level, from 0; None if the level lasts a fixed time instead."""
    first: bool = True
    """True if the level's first run is in this batch."""
    last: bool = True
    """True if the level's last run is in this batch."""


def run_batches(plan: Plan, targets: Iterable[str] | None = None) -> Iterator[RunBatch]:
    """Yield every batch of runs of a plan in order.

    `targets` has names that replace the targets of the plan, for example to leave out those that cannot be
    measured.
    """
    names = [target.name for target in plan.targets] if targets is None else list(targets)
    if plan.order is Order.ASCENDING:
        for name in names:
            for level in plan.levels(name):
                yield RunBatch(level, run_numbers(plan, level))
        return
    for levels in zip(*(plan.levels(name) for name in names), strict=True):
        # Without a number of runs the order is refused by `presets`.
        yield from _interleaved_batches(levels, plan.runs_of(levels[0].point.most_in_flight) or plan.runs)


def run_numbers(plan: Plan, level: Level) -> tuple[int, ...] | None:
    """Return the run numbers of a level, from 0; None if the plan's duration decides how many there are."""
    count = plan.runs_of(level.point.most_in_flight)
    return None if count is None else tuple(range(count))


def _interleaved_batches(levels: Sequence[Level], runs: int) -> Iterator[RunBatch]:
    """Yield the batches of one level of each target with their runs interleaved, such as A B, B A, A B.

    This order makes slow drift affect all targets alike. Consecutive runs of one target make one batch.
    """
    orders = (tuple(levels), tuple(reversed(levels)))
    turns = [(level, run) for run in range(runs) for level in orders[run % 2]]
    for level, group in groupby(turns, key=lambda turn: turn[0]):
        numbers = tuple(run for _, run in group)
        yield RunBatch(level, numbers, first=0 in numbers, last=runs - 1 in numbers)
