"""A sweep (load test) as a screen shows it, running or finished: immutable values, rebuilt as it progresses.

A running sweep and one read from a result file have the same view; what the file does not hold is None. Names
are cleaned for the screen, and fields called `at` are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct, field

from sparktop.model.activity import Activities
from sparktop.model.balance import Balance
from sparktop.model.capacity_view import SearchView
from sparktop.model.load import LoadPoint, OnAxis
from sparktop.model.sweep_comparison import CurvePlot, Topologies, Value, several_lengths
from sparktop.model.time_range import TimeRange

Slots = tuple[float | None, ...]
"""Values in consecutive time slots of equal length, oldest first; None is a gap."""


class LevelKey(OnAxis, Struct, frozen=True):
    """Key of a load level: its target, point on the axis, and lengths."""

    target: str
    concurrency: int
    """The most requests in flight."""
    prompt_tokens: int | None = None
    position: LoadPoint | None = None
    """Position on the axis of the sweep; None: it is the concurrency."""
    depth: int = 0
    """Tokens of context before the prompt."""


class LevelState(StrEnum):
    """The progress of one load level of a sweep."""

    AHEAD = "ahead"
    WARMING_UP = "warming up"
    RUNNING = "running"
    SETTLING = "settling"
    """Its runs are over or interrupted; the sweep waits for the servers to become idle."""
    PART = "part"
    """Some of its runs are done; runs of other levels come before the next."""
    DONE = "done"
    CUT_SHORT = "cut short"
    """The sweep ended during it."""
    NOT_MADE = "not made"
    """The sweep ended before it."""
    LEFT_OUT = "left out"
    """Its target did not answer."""
    REFUSED = "refused"
    """The server refuses prompts of its length."""


class PlannedLevel(Struct, frozen=True):
    """A load level of the sweep's plan, with its progress."""

    key: LevelKey
    state: LevelState = LevelState.AHEAD
    runs_done: int = 0
    runs: int | None = None
    """Number of runs; None where the sweep's duration decides."""
    share: float | None = None
    """Part of the level that is done, 0 to 1; None where that is unknown."""


_MOST_RUNNING = 0.99
"""Most of a sweep that is shown as done while it runs."""


class SweepStatus(StrEnum):
    """The status of a sweep, as its screen and its result file state it."""

    STARTING = "starting"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    STOPPED_BY_GUARD = "stopped by guard"
    FAILED = "failed"
    BROKEN_OFF = "broken off"
    """The result file has no end: the program ended while the sweep ran."""

    @property
    def over(self) -> bool:
        """Whether the sweep has ended, for whatever reason."""
        return self not in {SweepStatus.STARTING, SweepStatus.RUNNING}


class Rank(StrEnum):
    """How a value ranks among the values of its column of the result table."""

    BEST = "best"
    LEVEL = "level"
    """Not significantly different from the best value."""


class Mark(Struct, frozen=True):
    """A remark on a measured load level: why its values are unreliable, or why they are low."""

    code: str
    word: str
    """A short label, such as "requests waited"; `brief` is one word in its place, for narrow tables."""
    message: str
    """A sentence with the numbers behind the mark."""
    doubt: bool = True
    """True: the values of the level are unreliable; False: the mark explains why they are low."""
    brief: str = ""


class ResultRow(Struct, frozen=True):
    """A row of the result table: the measured values of one load level."""

    key: LevelKey
    figures: Mapping[str, Value]
    """Values by metric name: "decode_tps", "ttft_ms" and the like."""
    ttft_p50_ms: float | None = None
    """For requests at a rate: from the time at which they were due, as the next one."""
    ttft_growth: float | None = None
    """Seconds by which the TTFT grows each second, where the server does not keep up: no percentiles."""
    ttft_p95_ms: float | None = None
    """None below 72 requests: with fewer, the percentile has no confidence interval."""
    stream_p50_tps: float | None = None
    spec_accept_percent: float | None = None
    """Accepted share of the tokens drafted by speculative decoding, 0 to 100; None if unknown."""
    conversations: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Figures of agents by name, such as "tool_p90_ms"; empty for other kinds of load."""
    error: str | None = None
    """The server's error message, where the level has no values."""
    runs: int = 0
    ok: int = 0
    failed: int = 0
    cancelled: int = 0
    marks: tuple[Mark, ...] = ()
    ranks: Mapping[str, Rank] = field(default_factory=lambda: MappingProxyType({}))
    """Rank by column, for values that are the best or not significantly different from the best."""
    rate: str | None = None
    """Name of the token rate by which the sweep's levels are judged; None if no level has one."""
    complete: bool = True
    """False while more runs of the level are to come."""


class SweptTarget(Struct, frozen=True):
    """A server or router that a sweep sends requests to."""

    name: str
    kind: str = "engine"
    """"engine" or "router"."""
    model: str | None = None
    engine: str | None = None
    error: str | None = None
    """Why the target was not measured, or not to the end."""


class Moment(Struct, frozen=True):
    """The current state of a running sweep: its phase, level and run, and live values."""

    phase: str
    """The sweep's current activity, in one word."""
    key: LevelKey | None = None
    run: int | None = None
    """Number of the run, counted from 1."""
    runs: int | None = None
    in_flight: int = 0
    tps: float | None = None
    """Tokens per second over the last two seconds."""
    ttft_p50_ms: float | None = None
    """Median TTFT of the current level so far."""
    ended: int = 0
    failed: int = 0
    tokens: int = 0
    """Tokens generated in the current level, without warm-up."""
    requests_per_s: tuple[float, float] | None = None
    """At a rate: requests per second (sent, completed) over the last seconds; None early in a run."""
    trace_at_s: float | None = None
    """Seconds of the recorded traffic that were replayed; None for other loads."""
    trace_s: float | None = None
    """Duration of the recorded traffic in seconds."""


class LevelSpan(Struct, frozen=True):
    """A period in which a load level ran.

    A level has several periods if the sweep alternates between the levels of different targets.
    """

    key: LevelKey
    began_at: float
    ended_at: float | None = None
    """None while it runs."""


class BackendLine(Struct, frozen=True, eq=False):
    """Time series of one backend during a sweep."""

    name: str
    tps: Slots = ()
    """Tokens per second from this backend, as received by the load generator."""
    running: Slots = ()
    """Running requests, reported by the server as are the two fields below."""
    waiting: Slots = ()
    kv_cache_percent: Slots = ()


class NodeLine(Struct, frozen=True, eq=False):
    """Time series of one machine during a sweep."""

    name: str
    power_w: Slots = ()
    temperature_c: Slots = ()
    sm_clock_mhz: Slots = ()


class LiveSeries(Struct, frozen=True, eq=False):
    """The time series of a running sweep, in time slots on one common axis."""

    start_at: float
    """Start of the first time slot."""
    step_s: float
    """Length of a time slot; it doubles when the axis is full."""
    count: int
    """Number of time slots up to now."""
    tps: Slots = ()
    in_flight: Slots = ()
    in_flight_now: float | None = None
    concurrency: Slots = ()
    """The requested concurrency."""
    ttft_ms: tuple[tuple[float, ...], ...] = ()
    """Individual times to first token, by time slot; where there are many, only some of them."""
    ttft_p50_ms: Slots = ()
    """Median TTFT of the level so far."""
    backends: tuple[BackendLine, ...] = ()
    nodes: tuple[NodeLine, ...] = ()
    spans: tuple[LevelSpan, ...] = ()
    activities: Activities | None = None
    """What the agents of the running level do; None for other kinds of load."""


class RequestBar(Struct, frozen=True):
    """One request as a bar on a timeline; times in seconds from the beginning of its run."""

    start_s: float
    first_token_s: float | None = None
    end_s: float | None = None
    """None while it runs."""
    queue_s: float | None = None
    """Seconds from the request's start until its prefill began; None where that is unknown."""
    backend: str | None = None
    ok: bool = True


class Timeline(Struct, frozen=True, eq=False):
    """The requests of one run (one repetition of a load level) as bars, in the order of their starts."""

    key: LevelKey
    run: int
    bars: tuple[RequestBar, ...]
    until_s: float
    """Right edge: the end of the run, or now."""
    backends: tuple[str, ...] = ()
    """Names of the backends that served any of the requests, in the order of their rows."""
    notes: tuple[str, ...] = ()
    """What is estimated on this timeline and what is unknown, in sentences."""


class BackendShare(Struct, frozen=True):
    """Number of requests, batch size and load of one backend during a load level."""

    name: str
    requests: int | None = None
    busy_batch: float | None = None
    """Mean batch size during the time in which the backend computed anything; None where that is unknown."""
    running_max: float | None = None
    waiting_max: float | None = None
    kv_cache_max_percent: float | None = None
    running: Slots = ()
    """Running requests over the level, in time slots of equal length."""


class LevelEvidence(Struct, frozen=True, eq=False):
    """The details of a measured level, shown when its row of the result table is opened."""

    row: ResultRow
    facts: tuple[tuple[str, str], ...] = ()
    """(name, value with unit), the most important first."""
    shares: tuple[BackendShare, ...] = ()
    balance: Balance | None = None
    """The balance of the backends: while the level runs, of the overview's group; afterwards, of this
    level alone."""
    balance_word: str | None = None
    """The balance verdict of a measured level; set even where this version does not know the verdict."""
    balance_reasons: tuple[str, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    """One timeline for each run."""
    why_no_timeline: str | None = None
    slot_s: float | None = None
    """Seconds of a time slot in `shares`."""


class SloAnswer(Struct, frozen=True):
    """The highest concurrency (`holds_to`) at which a target meets the conditions of a search (`Slo`)."""

    target: str
    holds_to: int | None
    low: int | None
    """Lower bound of its confidence interval: up to here the target meets the conditions."""
    high: int | None
    """Upper bound: above it the target fails the conditions; None: not found."""


class Slo(Struct, frozen=True):
    """A search for the highest concurrency at which targets meet given conditions, with its results."""

    conditions: tuple[str, ...]
    answers: tuple[SloAnswer, ...]


class SweepView(Struct, frozen=True, eq=False):
    """A sweep, running or finished, with everything that its screen and its report show."""

    title: str
    """Name of the preset or file that the sweep came from."""
    status: SweepStatus
    words: str
    """The sweep's activity, or how it ended, in one line."""
    plan_words: str = ""
    """Prompt and answer length of the requests and their timing, in words."""
    guard: str | None = None
    """The limits at which the sweep stops, and the machines they hold for, in words; None where unknown or
    not stored."""
    started_at: datetime | None = None
    elapsed_s: float | None = None
    left: TimeRange | None = None
    """Range of the seconds until the end; None where unknown."""
    progress: float | None = None
    """Part that is done, 0 to 1, of a sweep that may add levels; it never falls. None: see `share`."""
    may_go_on_to: int | None = None
    """The highest concurrency of the levels that may follow the planned ones; None where none may follow."""
    simulated: bool = False
    targets: tuple[SweptTarget, ...] = ()
    levels: tuple[PlannedLevel, ...] = ()
    moment: Moment | None = None
    """None when the sweep is over."""
    live: LiveSeries | None = None
    """None for a sweep read from a file."""
    rows: tuple[ResultRow, ...] = ()
    plots: tuple[CurvePlot, ...] = ()
    topologies: Topologies | None = None
    """None for a single target."""
    slo: Slo | None = None
    searches: tuple[SearchView, ...] = ()
    """Searches for the largest load; while it runs only the one that is being made."""
    notices: tuple[str, ...] = ()
    """Messages for the user, newest last."""
    doubts: tuple[str, ...] = ()
    """Why the load generator's measurements are unreliable; empty where they are reliable."""
    headline: str | None = None
    """The answer of the sweep in one sentence; None before the first level."""
    verdict: tuple[str, ...] = ()
    """The findings of the sweep below the headline, in sentences that state their certainty."""

    @property
    def several_lengths(self) -> bool:
        """Whether the sweep's planned levels differ in prompt length.

        If the plan is unknown, the measured levels count.
        """
        return several_lengths(level.key.prompt_tokens for level in self.levels or self.rows)

    @property
    def failed(self) -> int:
        """Number of requests that failed so far, in all levels; those that were cancelled do not count."""
        by_level = {row.key: row.failed for row in self.rows}
        if self.moment is not None and self.moment.key is not None:
            key = self.moment.key
            by_level[key] = max(by_level.get(key, 0), self.moment.failed)
        return sum(by_level.values())

    @property
    def share(self) -> float | None:
        """Part of the plan that is done, 0 to 1; None where no share can be computed.

        Until the sweep is over it stays below 1: a level may be measured again.
        """
        if not self.levels or self.progress is not None or (self.searches and not self.status.over):
            return self.progress if self.progress is None else min(self.progress, self._most_share)
        known = [level.share for level in self.levels]
        if any(share is None for share in known) and not self.status.over:
            return None
        return min(sum(share or 0.0 for share in known) / len(known), self._most_share)

    @property
    def _most_share(self) -> float:
        return 1.0 if self.status.over else _MOST_RUNNING
