"""A sweep as a screen shows it, running or finished: values only, made anew as it goes on.

A running sweep and one that was read from a file give the same view; only what nobody can know any more is
None there. Names are clean, seconds are monotonic where they are called `at`, and everything that is unknown
is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from sparktop.model.balance import Balance
from sparktop.model.sweep_comparison import CurvePlot, Measured, Topologies

Slots = tuple[float | None, ...]
"""Values in equal time slots, oldest first; None is a gap."""


@dataclass(frozen=True, slots=True)
class LevelKey:
    """Which level: one target under one load."""

    target: str
    concurrency: int
    prompt_tokens: int | None = None


class LevelState(StrEnum):
    """Where a level of the plan stands."""

    AHEAD = "ahead"
    WARMING_UP = "warming up"
    RUNNING = "running"
    SETTLING = "settling"
    """Its runs are over, or broken off for now; the servers come to rest."""
    PART = "part"
    """Some of its runs are made; others come between."""
    DONE = "done"
    CUT_SHORT = "cut short"
    """The sweep ended within it."""
    NOT_MADE = "not made"
    """The sweep ended before it."""
    LEFT_OUT = "left out"
    """Its target could not be asked."""
    REFUSED = "refused"
    """The server refuses prompts of its length."""


@dataclass(frozen=True, slots=True)
class PlannedLevel:
    """One level of the plan."""

    key: LevelKey
    state: LevelState = LevelState.AHEAD
    runs_done: int = 0
    runs: int | None = None
    """None where the time decides."""
    share: float | None = None
    """How much of it is done, 0 to 1; None where nobody knows."""


class SweepStatus(StrEnum):
    """How a sweep stands, in one word."""

    STARTING = "starting"
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    STOPPED_BY_GUARD = "stopped by guard"
    FAILED = "failed"
    BROKEN_OFF = "broken off"
    """A file without an end: the program was ended while it ran."""

    @property
    def over(self) -> bool:
        """True when nothing more comes."""
        return self not in {SweepStatus.STARTING, SweepStatus.RUNNING}


class Rank(StrEnum):
    """How a figure stands among all of its column."""

    BEST = "best"
    LEVEL = "level"
    """No difference to the best is shown."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something to be known of a level."""

    code: str
    word: str
    """Short: "queue-limited"."""
    message: str
    """A sentence with its figures."""
    doubt: bool = True
    """A reason not to believe the level; False: a reason why it is slow."""


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One level of the result table."""

    key: LevelKey
    figures: Mapping[str, Measured]
    """By metric: "decode_tps", "ttft_ms" and the like."""
    ttft_p50_ms: float | None = None
    ttft_p95_ms: float | None = None
    """None below 72 requests: then no interval for it exists."""
    stream_p50_tps: float | None = None
    error: str | None = None
    """Why it has no figures: the server's words."""
    runs: int = 0
    ok: int = 0
    failed: int = 0
    cancelled: int = 0
    marks: tuple[Mark, ...] = ()
    ranks: Mapping[str, Rank] = field(default_factory=lambda: MappingProxyType({}))
    """By column, of those that are best or cannot be told from the best."""
    complete: bool = True
    """False while more runs of the level are to come."""


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
    """What goes on just now."""

    phase: str
    """What the sweep does, in a word."""
    key: LevelKey | None = None
    run: int | None = None
    """Counted from 1."""
    runs: int | None = None
    in_flight: int = 0
    tps: float | None = None
    """Of the last two seconds."""
    ttft_p50_ms: float | None = None
    """Of the present level so far."""
    ended: int = 0
    failed: int = 0
    tokens: int = 0
    """Of the present level, warm-up not counted."""


@dataclass(frozen=True, slots=True)
class LevelSpan:
    """When a level ran; in an interleaved order it has several of these."""

    key: LevelKey
    began_at: float
    ended_at: float | None = None
    """None while it runs."""


@dataclass(frozen=True, slots=True, eq=False)
class BackendLine:
    """A server behind the load, over time."""

    name: str
    tps: Slots = ()
    """Tokens that reached the load generator from it."""
    running: Slots = ()
    """By the server's own word, as are the two that follow."""
    waiting: Slots = ()
    kv_cache_percent: Slots = ()


@dataclass(frozen=True, slots=True, eq=False)
class NodeLine:
    """A machine below the load, over time."""

    name: str
    power_w: Slots = ()
    temperature_c: Slots = ()
    sm_clock_mhz: Slots = ()


@dataclass(frozen=True, slots=True, eq=False)
class LiveSeries:
    """Everything that a running sweep draws, in slots of one time axis."""

    start_at: float
    """Where the first slot begins."""
    step_s: float
    """Length of a slot; it doubles when the axis is full."""
    count: int
    """Slots up to now."""
    tps: Slots = ()
    in_flight: Slots = ()
    concurrency: Slots = ()
    """What was asked for."""
    ttft_ms: tuple[tuple[float, ...], ...] = ()
    """The times to first token that came in each slot, thinned out where they are many."""
    ttft_p50_ms: Slots = ()
    """Median of the level so far."""
    backends: tuple[BackendLine, ...] = ()
    nodes: tuple[NodeLine, ...] = ()
    spans: tuple[LevelSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestBar:
    """One request on a timeline; seconds from its run's beginning."""

    start_s: float
    first_token_s: float | None = None
    end_s: float | None = None
    """None while it runs."""
    queue_s: float | None = None
    """The part before its prefill began, from its start; None where nobody tells."""
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
    """Those that served any of them, in order."""
    notes: tuple[str, ...] = ()
    """What is estimated here, and what nobody knows."""


@dataclass(frozen=True, slots=True)
class BackendShare:
    """What one server did in a level."""

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
    """Why a level is as it is: what a person sees who opens its row."""

    row: ResultRow
    facts: tuple[tuple[str, str], ...] = ()
    """Name and figure with its unit, the most telling first."""
    shares: tuple[BackendShare, ...] = ()
    balance: Balance | None = None
    """While it runs, of the board's group; once measured, what was judged of the level alone."""
    balance_word: str | None = None
    """Of a measured level, also where its word is unknown here."""
    balance_reasons: tuple[str, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    """By run."""
    why_no_timeline: str | None = None
    slot_s: float | None = None
    """Length of a slot of `shares`."""


@dataclass(frozen=True, slots=True)
class SloAnswer:
    """How many agents one target can take."""

    target: str
    holds_to: int | None
    low: int | None
    """From here on it surely does not hold less."""
    high: int | None
    """Above it, it surely fails; None: not found."""


@dataclass(frozen=True, slots=True)
class Slo:
    """The conditions of a search, and what it found."""

    conditions: tuple[str, ...]
    answers: tuple[SloAnswer, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SweepView:
    """A whole sweep, running or finished."""

    title: str
    """The preset or file it came from."""
    status: SweepStatus
    words: str
    """What is going on or how it ended, in a line."""
    plan_words: str = ""
    """What each request asks for, and how they follow one another."""
    guard: str | None = None
    """What stops the sweep on which machines; None where that is not known yet, or kept."""
    started_at: datetime | None = None
    elapsed_s: float | None = None
    left_s: float | None = None
    """Until the end, as far as known."""
    simulated: bool = False
    targets: tuple[SweptTarget, ...] = ()
    levels: tuple[PlannedLevel, ...] = ()
    moment: Moment | None = None
    """None when it is over."""
    live: LiveSeries | None = None
    """None for one that was read from a file."""
    rows: tuple[ResultRow, ...] = ()
    plots: tuple[CurvePlot, ...] = ()
    topologies: Topologies | None = None
    """None for a single target."""
    slo: Slo | None = None
    notices: tuple[str, ...] = ()
    """Newest last."""
    doubts: tuple[str, ...] = ()
    """Why the load generator's own figures are not to be believed; empty where they are."""
    verdict: tuple[str, ...] = ()
    """What the sweep found, in sentences, with how sure that is."""

    @property
    def share(self) -> float | None:
        """How much of the plan is done, 0 to 1; None where it is not known how much there is."""
        if not self.levels:
            return None
        known = [level.share for level in self.levels]
        done = sum(share or 0.0 for share in known)
        return None if any(share is None for share in known) and not self.status.over else done / len(known)
