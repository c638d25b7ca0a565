"""A sweep as a screen shows it, running or finished: values only, rebuilt as it progresses.

A running sweep and one read from a file have the same view; in the latter only what can no longer be known is
None. Names are clean, fields called `at` are monotonic seconds, and every unknown value is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from sparktop.model.balance import Balance
from sparktop.model.sweep_comparison import CurvePlot, Measured, Topologies, several_lengths

Slots = tuple[float | None, ...]
"""Values in equal time slots, oldest first; None is a gap."""


@dataclass(frozen=True, slots=True)
class LevelKey:
    """Identifies a level: one target under one load."""

    target: str
    concurrency: int
    prompt_tokens: int | None = None


class LevelState(StrEnum):
    """The progress of a level of the plan."""

    AHEAD = "ahead"
    WARMING_UP = "warming up"
    RUNNING = "running"
    SETTLING = "settling"
    """Its runs are over, or interrupted for now; the servers become idle."""
    PART = "part"
    """Some of its runs are done; runs of other levels come between."""
    DONE = "done"
    CUT_SHORT = "cut short"
    """The sweep ended during it."""
    NOT_MADE = "not made"
    """The sweep ended before it."""
    LEFT_OUT = "left out"
    """Its target did not answer."""
    REFUSED = "refused"
    """The server refuses prompts of its length."""


@dataclass(frozen=True, slots=True)
class PlannedLevel:
    """One level of the plan."""

    key: LevelKey
    state: LevelState = LevelState.AHEAD
    runs_done: int = 0
    runs: int | None = None
    """None where the duration decides."""
    share: float | None = None
    """Part of it that is done, 0 to 1; None where that is unknown."""


class SweepStatus(StrEnum):
    """The status of a sweep."""

    STARTING = "starting"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    STOPPED_BY_GUARD = "stopped by guard"
    FAILED = "failed"
    BROKEN_OFF = "broken off"
    """A file without an end: the program ended while the sweep ran."""

    @property
    def over(self) -> bool:
        """True when nothing more follows."""
        return self not in {SweepStatus.STARTING, SweepStatus.RUNNING}


class Rank(StrEnum):
    """How a figure ranks within its column."""

    BEST = "best"
    LEVEL = "level"
    """Not shown to differ from the best."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A note on a level."""

    code: str
    word: str
    """Short: "queue-limited"."""
    message: str
    """A sentence with its figures."""
    doubt: bool = True
    """True: the level is unreliable; False: the reason why it is slow."""


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One level of the result table."""

    key: LevelKey
    figures: Mapping[str, Measured]
    """By metric: "decode_tps", "ttft_ms" and the like."""
    ttft_p50_ms: float | None = None
    ttft_p95_ms: float | None = None
    """None below 72 requests: with fewer there is no confidence interval."""
    stream_p50_tps: float | None = None
    error: str | None = None
    """Why it has no figures: the server's message."""
    runs: int = 0
    ok: int = 0
    failed: int = 0
    cancelled: int = 0
    marks: tuple[Mark, ...] = ()
    ranks: Mapping[str, Rank] = field(default_factory=lambda: MappingProxyType({}))
    """By column, for figures that are best or not shown to differ from the best."""
    complete: bool = True
    """False while more runs of the level follow."""


@dataclass(frozen=True, slots=True)
class SweptTarget:
    """A server or router that the sweep puts load on."""

    name: str
    kind: str = "engine"
    """engine or router."""
    model: str | None = None
    engine: str | None = None
    error: str | None = None
    """Why it was not measured, or not to the end."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What is happening now."""

    phase: str
    """The sweep's current activity, in a word."""
    key: LevelKey | None = None
    run: int | None = None
    """Counted from 1."""
    runs: int | None = None
    in_flight: int = 0
    tps: float | None = None
    """Over the last two seconds."""
    ttft_p50_ms: float | None = None
    """Of the current level so far."""
    ended: int = 0
    failed: int = 0
    tokens: int = 0
    """Of the current level, without warm-up."""


@dataclass(frozen=True, slots=True)
class LevelSpan:
    """The time in which a level ran; in an interleaved order a level has several."""

    key: LevelKey
    began_at: float
    ended_at: float | None = None
    """None while it runs."""


@dataclass(frozen=True, slots=True, eq=False)
class BackendLine:
    """A server under the load, over time."""

    name: str
    tps: Slots = ()
    """Tokens per second that reached the load generator from it."""
    running: Slots = ()
    """As reported by the server, like the two fields below."""
    waiting: Slots = ()
    kv_cache_percent: Slots = ()


@dataclass(frozen=True, slots=True, eq=False)
class NodeLine:
    """A machine under the load, over time."""

    name: str
    power_w: Slots = ()
    temperature_c: Slots = ()
    sm_clock_mhz: Slots = ()


@dataclass(frozen=True, slots=True, eq=False)
class LiveSeries:
    """Everything drawn of a running sweep, in slots on one time axis."""

    start_at: float
    """Where the first slot begins."""
    step_s: float
    """Length of a slot; it doubles when the axis is full."""
    count: int
    """Slots up to now."""
    tps: Slots = ()
    in_flight: Slots = ()
    concurrency: Slots = ()
    """The requested concurrency."""
    ttft_ms: tuple[tuple[float, ...], ...] = ()
    """The times to first token in each slot, thinned out where there are many."""
    ttft_p50_ms: Slots = ()
    """Median of the level so far."""
    backends: tuple[BackendLine, ...] = ()
    nodes: tuple[NodeLine, ...] = ()
    spans: tuple[LevelSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestBar:
    """One request on a timeline; seconds from the beginning of its run."""

    start_s: float
    first_token_s: float | None = None
    end_s: float | None = None
    """None while it runs."""
    queue_s: float | None = None
    """Seconds from its start until its prefill began; None where that is unknown."""
    backend: str | None = None
    ok: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """The requests of one run of a level, in the order of their starts."""

    key: LevelKey
    run: int
    bars: tuple[RequestBar, ...]
    until_s: float
    """Right edge: the end of the run, or now."""
    backends: tuple[str, ...] = ()
    """Those that served any of the requests, in order."""
    notes: tuple[str, ...] = ()
    """What is estimated here, and what is unknown."""


@dataclass(frozen=True, slots=True)
class BackendShare:
    """The part of one server in a level."""

    name: str
    requests: int | None = None
    busy_batch: float | None = None
    """Mean batch while it computed anything; None where that is unknown."""
    running_max: float | None = None
    waiting_max: float | None = None
    kv_cache_max_percent: float | None = None
    running: Slots = ()
    """Over the level, in equal slots."""


@dataclass(frozen=True, slots=True, eq=False)
class LevelEvidence:
    """The evidence for a level's figures, shown when its row is opened."""

    row: ResultRow
    facts: tuple[tuple[str, str], ...] = ()
    """(name, figure with its unit), the most telling first."""
    shares: tuple[BackendShare, ...] = ()
    balance: Balance | None = None
    """While the level runs, that of the board's group; once measured, that of the level alone."""
    balance_word: str | None = None
    """The verdict of a measured level; set even where it is a word that this version does not know."""
    balance_reasons: tuple[str, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    """By run."""
    why_no_timeline: str | None = None
    slot_s: float | None = None
    """Length of a slot of `shares`."""


@dataclass(frozen=True, slots=True)
class SloAnswer:
    """The concurrency that one target can sustain."""

    target: str
    holds_to: int | None
    low: int | None
    """Lower bound of the interval: the target holds at least to here."""
    high: int | None
    """Upper bound: above it the target certainly fails; None: not found."""


@dataclass(frozen=True, slots=True)
class Slo:
    """The conditions of a search, and its results."""

    conditions: tuple[str, ...]
    answers: tuple[SloAnswer, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SweepView:
    """A sweep, running or finished."""

    title: str
    """The preset or file it came from."""
    status: SweepStatus
    words: str
    """What is going on, or how it ended, in one line."""
    plan_words: str = ""
    """What each request asks for, and how requests follow one another."""
    guard: str | None = None
    """What stops the sweep on which machines; None where that is not known yet, or not stored."""
    started_at: datetime | None = None
    elapsed_s: float | None = None
    left_s: float | None = None
    """Seconds until the end, as far as known."""
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
    notices: tuple[str, ...] = ()
    """Newest last."""
    doubts: tuple[str, ...] = ()
    """Why the load generator's own figures are unreliable; empty where they are reliable."""
    verdict: tuple[str, ...] = ()
    """The findings of the sweep in sentences, with their certainty."""

    @property
    def several_lengths(self) -> bool:
        """Whether its levels differ in prompt length; of the measured ones where the plan is not known."""
        return several_lengths(level.key.prompt_tokens for level in self.levels or self.rows)

    @property
    def share(self) -> float | None:
        """Part of the plan that is done, 0 to 1; None where the total is unknown."""
        if not self.levels:
            return None
        known = [level.share for level in self.levels]
        done = sum(share or 0.0 for share in known)
        return None if any(share is None for share in known) and not self.status.over else done / len(known)
