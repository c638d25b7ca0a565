"""A sweep (load test) as screens and reports show it, running or finished: immutable values.

A running sweep and one read from a result file have the same view; what the file does not hold is None. Names
are cleaned for the screen, and fields called `at` are monotonic seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from statistics import fmean

from msgspec import Struct, field

from sparktop.model.instant import TimeRange
from sparktop.model.judgement import NO_DIFFERENCE
from sparktop.model.load import Level, LoadPoint
from sparktop.model.statistics import CONFIDENCE, student_t

NOT_CERTAIN = "not certain"
"""The verdict on a difference whose 95 % interval excludes 0, but which is not significant among all rows of
its table."""
WITHIN_NOISE = "within noise"
"""The verdict on a difference whose 95 % interval excludes 0, but which is too small to count."""
_K = 1024
"""Tokens of a "k"."""


def have_several_lengths(prompt_tokens: Iterable[int | None]) -> bool:
    """Return whether prompt lengths differ between levels; names of levels must then state the length."""
    return len(set(prompt_tokens)) > 1


def level_name(level: Level, *, lengths: bool, wide: bool = False) -> str:
    """Return the short name of a level, such as "c64" for 64 requests at once, "c64@4k" after context.

    With `lengths` the prompt length in tokens is appended: "c64/1024", or "c64/–" for None. With `wide` the
    point has its unit: "c = 64", "c = 64 @ 4,096".
    """
    length = "–" if level.pp is None else f"{level.pp}"
    context = f"@{short_tokens(level.depth)}" if level.depth else ""
    name = level.label if wide else level.point.short + context
    return name + (f"/{length}" if lengths else "")


def short_tokens(count: int) -> str:
    """Return a number of tokens for narrow columns: "4k" for 4,096, and other numbers as they are."""
    return f"{count // _K}k" if count and count % _K == 0 else f"{count}"


class Value(Struct, frozen=True):
    """The value of a metric: its mean, with confidence interval, standard deviation and runs where known."""

    mean: float
    low: float | None = None
    """Lower end of the 95 % confidence interval over runs; None without one (a single run, a published
    table)."""
    high: float | None = None
    std: float | None = None
    """Standard deviation over runs, or as the source states it."""
    runs: tuple[float, ...] = ()
    """The value of each run; empty if unknown, as in published tables."""
    is_range: bool = False
    """True if the source gives only a range, from `low` to `high`, with `mean` as the middle."""

    @property
    def span(self) -> tuple[float, float] | None:
        """Both ends of a range; None for another value."""
        if not self.is_range or self.low is None or self.high is None:
            return None
        return self.low, self.high


def value_of(mean: float, runs: Sequence[float] = (), std: float | None = None) -> Value:
    """Return a value with its runs, and the 95 % confidence interval over these (Student's t).

    Less than two runs have no interval. `std` is the standard deviation as the source states it; if it is
    None, that of the runs is computed.
    """
    if len(runs) < 2:  # noqa: PLR2004 - an interval needs two
        return Value(mean, std=std, runs=tuple(runs))
    middle = fmean(runs)
    spread = math.hypot(*(run - middle for run in runs)) / math.sqrt(len(runs) - 1)
    half = student_t((1 + CONFIDENCE) / 2, len(runs) - 1) * spread / math.sqrt(len(runs))
    return Value(mean, middle - half, middle + half, spread if std is None else std, tuple(runs))


def value_of_range(mean: float, span: tuple[float, float] | None) -> Value:
    """Return a value of which only a range is known, with its middle; one without range if `span` is None."""
    return Value(mean) if span is None else Value(mean, *span, is_range=True)


class CurvePoint(Struct, frozen=True):
    """A point of a curve: the value of a metric at one point of the axis."""

    point: LoadPoint
    value: Value
    doubtful: bool = False
    """Whether a mark of the level says that the value is unreliable."""
    missed: bool = False
    """Whether too few requests met the condition that the plot shows."""


class CurveLine(Struct, frozen=True):
    """A curve of a plot: the values of one target, or of one published series."""

    name: str
    points: tuple[CurvePoint, ...]
    reference: str | None = None
    """The publication of the values; None for values measured here."""
    definition: str | None = None
    """The publication's definition of the metric, where it differs from sparktop's."""
    place: int = 0
    """Its place among the lines of all plots, which gives its colour: a plot may lack lines before it."""
    number: int = 0
    """Its place among the targets, or among the publications, which gives its letter."""


class LimitLine(Struct, frozen=True):
    """A limit drawn as a line across a plot of curves."""

    metric: str
    words: str
    value: float
    concurrency: int | None = None
    """The only concurrency for which a value of the metric is limited; None: the limit holds for all."""
    target: str = ""
    """The first target whose limit it is; "" for the only limit of a plot, or one of all targets."""


class CurvePlot(Struct, frozen=True):
    """A plot of one metric against concurrency, with a curve for each target."""

    metric: str
    title: str
    unit: str
    definition: str
    more_is_better: bool
    lines: tuple[CurveLine, ...]
    limits: tuple[LimitLine, ...] = ()
    is_condition: bool = False
    """Whether the plot shows the quantile that a condition limits, or the share that met all of them."""
    decimals: int = 1
    of_lengths: str = ""
    """Where levels differ in prompt length, that which is drawn: "5,000 tokens in"."""

    @property
    def heading(self) -> str:
        """Title and unit, with the prompt length where levels differ in it."""
        return f"{self.title} in {self.unit}{self.of_lengths and f', {self.of_lengths}'}"

    def place_of(self, limit: LimitLine) -> int | None:
        """Return the place of the first line of the target whose limit it is; None for one of all targets."""
        # A target with several depths or lengths has a line for each, whose names begin with its own.
        names = (line.place for line in self.lines if f"{line.name} ".startswith(f"{limit.target} "))
        return next(names, None)


class ComparedLevel(Struct, frozen=True):
    """The values of all targets for one metric at one level, with the result of significance tests.

    Its fields call each compared target, or series of a file or publication, a "column".
    """

    key: Level
    """The level without its target."""
    values: tuple[Value | None, ...]
    """The values in the order of `Topologies.columns`; None where a target has no value."""
    winner: str | None = None
    """The column that is significantly better than every other, or the best by published tables; None if
    there is none."""
    ahead: str | None = None
    """The column with the best value, whether significant or not."""
    beats: tuple[str, ...] = ()
    """The columns that `ahead` is significantly better than."""
    against: str | None = None
    """The column that `percent` is relative to: the next best one that `ahead` is not clearly better than,
    behind a winner the next best, or the baseline."""
    percent: float | None = None
    """Lead of `ahead` over `against`, in percent."""
    significant: bool | None = None
    """Whether `ahead` is significantly better than every other column; None: single runs cannot be tested."""
    ratio_ci95: tuple[float, float] | None = None
    """95 % confidence interval of the ratio of `ahead` to `against`; None without a test."""
    runs: int | None = None
    """The fewest runs of `ahead` and `against`; None if unknown."""
    unequal_slots: Mapping[str, int] = field(default_factory=dict)
    """Slots of `ahead` and `against`, where requests wait at the latter alone; else empty."""
    where: str = ""
    """The level's name within a sentence, such as "c16", with its prompt length where levels differ in it."""

    @property
    def point(self) -> LoadPoint:
        """The point on the axis of the sweep."""
        return self.key.point


class ComparedMetric(Struct, frozen=True):
    """The comparison of all targets by one metric, level by level."""

    metric: str
    title: str
    unit: str
    more_is_better: bool
    levels: tuple[ComparedLevel, ...]
    winner_vs: str = "runner-up"
    """What percentages are relative to: "runner-up" or "baseline"."""
    decimals: int = 1
    noise_floor_percent: float = 0.0
    """Differences up to this many percent of the smaller value never count as significant."""


class Topologies(Struct, frozen=True):
    """The comparison of targets of one sweep, or of series of files and publications."""

    columns: tuple[str, ...]
    metrics: tuple[ComparedMetric, ...]
    crossovers: tuple[str, ...] = ()
    """Sentences on the concurrencies at which the best target changes."""
    engines: tuple[str, ...] = ()
    """The best values that independent engines could reach, in sentences."""
    sentences: tuple[str, ...] = ()
    """The judgement on each main metric, the token rate first: where which target is the best."""
    notes: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    """Definitions of the metrics where sources define them differently, one line each."""
    baseline: str | None = None

    @property
    def several_lengths(self) -> bool:
        """Whether the compared levels differ in prompt length."""
        return have_several_lengths(level.key.pp for metric in self.metrics for level in metric.levels)


class DifferenceRow(Struct, frozen=True):
    """The change of one metric at one level between two results."""

    title: str
    unit: str
    more_is_better: bool
    key: Level
    """The level without its target; without lengths where no concurrency was measured with several."""
    before: Value | None
    after: Value | None
    percent: float | None = None
    low_percent: float | None = None
    """Lower end of the 95 % confidence interval of the change, in percent."""
    high_percent: float | None = None
    significant: bool | None = None
    decimals: int = 1
    noise_floor_percent: float = 0.0
    """Changes up to this many percent of the smaller value never count as significant."""

    @property
    def undecided(self) -> str | None:
        """What is known of a change that is not significant, in words; None for any other change."""
        if self.significant is not False or self.percent is None:
            return None
        low, high = self.low_percent, self.high_percent
        if low is None or high is None or low <= 0 <= high:
            return NO_DIFFERENCE
        change = abs(math.log1p(max(self.percent, -99.9) / 100))
        return NOT_CERTAIN if change > math.log1p(self.noise_floor_percent / 100) else WITHIN_NOISE

    @property
    def better(self) -> bool | None:
        """Whether a significant change is an improvement; None without a significant change."""
        if not self.significant or self.percent is None:
            return None
        is_higher = self.percent > 0
        return is_higher if self.more_is_better else not is_higher


class Difference(Struct, frozen=True):
    """The comparison of two results, before and after a change."""

    before: str
    after: str
    rows: tuple[DifferenceRow, ...]
    verdict: str
    """The conclusion in one sentence."""
    why: str = ""
    """Why some changes are not certain; "" if there is none of this kind."""
    notes: tuple[str, ...] = ()


class HistoryRow(Struct, frozen=True):
    """One stored result, as a row of the list of results."""

    key: str
    """The name of the result's file in the store."""
    started_at: datetime | None
    name: str
    status: str
    """done, cancelled, …; "unreadable" for a file that cannot be read."""
    targets: tuple[str, ...] = ()
    model: str | None = None
    levels: int = 0
    most: LoadPoint | None = None
    """The level with the highest load."""
    decode_tps: float | None = None
    """The highest value of all levels, in tokens per second."""
    ttft_ms: float | None = None
    """The lowest mean of all levels, in milliseconds."""
    doubtful: int = 0
    """Number of levels with a mark that says that they are unreliable."""
    simulated: bool = False
    problem: str | None = None


class ConditionBar(Struct, frozen=True):
    """A condition with its value at one load."""

    name: str
    """Such as "p90 TTFT after a tool"."""
    value: str
    """With its unit; "–" if unknown."""
    limit: str
    """With its unit, and "at least" where it is a minimum."""
    ratio: float | None = None
    """How far the limit is used: value ÷ limit, or limit ÷ value of a minimum; above 1 it is not met. None if
    unknown."""
    over_limit: bool = False
    """Whether the value is known to be over the limit alone, since too many requests have no answer."""
    at_least: bool = False
    """Whether the limit is a minimum."""
    met_percent: float | None = None
    needed_percent: float | None = None


class TriedLoad(Struct, frozen=True):
    """A load that the search has tried, or tries now."""

    label: str
    """The number alone, such as "8" or "1.5 /s"."""
    holds: bool | None = None
    """None before its first run has ended."""
    certain: bool = False
    """Whether the 95 % intervals leave no doubt."""
    point: LoadPoint | None = None
    now: bool = False
    """Whether a run of it is being made."""
    holds_percent: float | None = None
    """Probability that it holds, by all loads together; None if unknown."""
    bars: tuple[ConditionBar, ...] = ()
    """The conditions with their values at this load, the one that decides first."""


class SearchView(Struct, frozen=True):
    """The search on one target."""

    target: str
    tried: tuple[TriedLoad, ...] = ()
    """Ascending by load."""
    ahead: str = ""
    """What may come, in words; "" at the end."""
    bars: tuple[ConditionBar, ...] = ()
    at: str = ""
    """The load at which the values of `bars` were seen, with their number of requests, in words."""
    answer: tuple[str, ...] = ()
    """The answer in sentences: what holds, its certainty, what ran out first; empty while it is sought."""
    hint: str = ""
    """What may help against what ran out first; "" if nothing is known."""


SlotMeans = tuple[float | None, ...]
"""Values in consecutive time slots of equal length, oldest first; None is a gap."""


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
    CUT_SHORT = "unfinished"
    """The sweep ended during it."""
    NOT_MADE = "not made"
    """The sweep ended before it."""
    LEFT_OUT = "left out"
    """Its target did not answer."""
    REFUSED = "refused"
    """The server refuses prompts of its length."""


class PlannedLevel(Struct, frozen=True):
    """A load level of the sweep's plan, with its progress."""

    key: Level
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
    UNDER_WAY = "still running"
    """What a result file holds of a sweep that its process has not ended yet."""

    @property
    def over(self) -> bool:
        """Whether what is shown of the sweep is all that there will be; also of a file read while it runs."""
        return self not in {SweepStatus.STARTING, SweepStatus.RUNNING}


class ColumnRank(StrEnum):
    """How a value ranks among the values of its column of the result table."""

    BEST = "best"
    TIED = "level"  # as recordings of 1.x have it
    """Not significantly different from the best value."""
    SCATTERED = "scattered"
    """Too scattered to be compared with the best value."""


class MarkKind(StrEnum):
    """What a remark on a level says: do not rely on its values; why these are low; a small error in them."""

    WARNING = "warning"
    SLOW = "why slow"
    NOTE = "note"


class Mark(Struct, frozen=True):
    """A remark on a measured load level: why its values are unreliable, or why they are low."""

    code: str
    word: str
    """A short label, such as "requests waited"; `brief` is one word in its place, for narrow tables."""
    message: str
    """A sentence with the numbers behind the mark."""
    kind: MarkKind = MarkKind.WARNING
    brief: str = ""
    ttft_percent: float | None = None
    """Percent of the mean TTFT by which one may be too high, where that is what the mark is about."""

    @property
    def doubt(self) -> bool:
        """Whether the values of the level are unreliable."""
        return self.kind is MarkKind.WARNING


class ResultRow(Struct, frozen=True):
    """A row of the result table: the measured values of one load level."""

    key: Level
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
    beside_itl_ms: float | None = None
    """Token gap while long prompts arrive: mean over the runs of their 95 % quantiles or means."""
    conversations: Mapping[str, float] = {}
    """Figures of agents by name, such as "tool_p90_ms"; empty for other kinds of load."""
    error: str | None = None
    """The server's error message, where the level has no values."""
    runs: int = 0
    ok: int = 0
    failed: int = 0
    cancelled: int = 0
    marks: tuple[Mark, ...] = ()
    ranks: Mapping[str, ColumnRank] = {}
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


class SweepMoment(Struct, frozen=True):
    """The current state of a running sweep: its phase, level and run, and live values."""

    phase: str
    """The sweep's current activity, in one word."""
    key: Level | None = None
    run: int | None = None
    """Number of the run, counted from 1."""
    runs: int | None = None
    in_flight: int = 0
    tps: float | None = None
    """Tokens per second over the last two seconds."""
    ttft_p50_ms: float | None = None
    """Median TTFT of the current level so far."""
    ended: int = 0
    requests: int | None = None
    """Number of the level's requests, as far as they are planned; None where a duration decides."""
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

    key: Level
    began_at: float
    ended_at: float | None = None
    """None while it runs."""


class BackendLine(Struct, frozen=True, eq=False):
    """Time series of one backend during a sweep."""

    name: str
    running: SlotMeans = ()
    """Running requests, reported by the server as are the two fields below."""
    waiting: SlotMeans = ()
    kv_cache_percent: SlotMeans = ()


class NodeLine(Struct, frozen=True, eq=False):
    """Time series of one machine during a sweep."""

    name: str
    power_w: SlotMeans = ()
    temperature_c: SlotMeans = ()
    sm_clock_mhz: SlotMeans = ()


class LiveSeries(Struct, frozen=True, eq=False):
    """The time series of a running sweep, in time slots on one common axis."""

    start_at: float
    """Start of the first time slot."""
    step_s: float
    """Length of a time slot; it doubles when the axis is full."""
    count: int
    """Number of time slots up to now."""
    tps: SlotMeans = ()
    in_flight: SlotMeans = ()
    in_flight_now: float | None = None
    concurrency: SlotMeans = ()
    """The requested concurrency."""
    ttft_ms: tuple[tuple[float, ...], ...] = ()
    """Individual times to first token, by time slot; where there are many, only some of them."""
    ttft_p50_ms: SlotMeans = ()
    """Median TTFT of the level so far."""
    ttft_p50_now_ms: float | None = None
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

    key: Level
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


class LevelEvidence(Struct, frozen=True, eq=False):
    """The details of a measured level, shown when its row of the result table is opened."""

    row: ResultRow
    facts: tuple[tuple[str, str], ...] = ()
    """(name, value with unit), the most important first."""
    shares: tuple[BackendShare, ...] = ()
    balance_word: str | None = None
    """The balance verdict of the level; set even where this version does not know the verdict."""
    balance_reasons: tuple[str, ...] = ()
    balance_cause: str | None = None
    balance_hint: str | None = None
    timelines: tuple[Timeline, ...] = ()
    """One timeline for each run."""
    why_no_timeline: str | None = None


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
    """Part done by time, 0 to 1, of a sweep that may add levels; it never falls. None: see `share`."""
    simulated: bool = False
    targets: tuple[SweptTarget, ...] = ()
    levels: tuple[PlannedLevel, ...] = ()
    moment: SweepMoment | None = None
    """None when the sweep is over."""
    live: LiveSeries | None = None
    """None for a sweep read from a file."""
    rows: tuple[ResultRow, ...] = ()
    plots: tuple[CurvePlot, ...] = ()
    topologies: Topologies | None = None
    """None for a single target."""
    searches: tuple[SearchView, ...] = ()
    """Searches for the largest load; while it runs only the one that is being made."""
    notices: tuple[str, ...] = ()
    """Messages for the user, newest last."""
    headline: str | None = None
    """The answer of the sweep in one sentence; None before the first level."""
    verdict: tuple[str, ...] = ()
    """The findings of the sweep below the headline, in sentences that state their certainty."""

    @property
    def several_lengths(self) -> bool:
        """Whether the sweep's planned levels differ in prompt length.

        If the plan is unknown, the measured levels count.
        """
        return have_several_lengths(level.key.pp for level in self.levels or self.rows)

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
        is_over, share = self.status.over, self.progress
        if share is None:
            shares = [level.share for level in self.levels]
            if not shares or (not is_over and (self.searches or None in shares)):
                return None
            share = sum(level_share or 0.0 for level_share in shares) / len(shares)
        return min(share, 1.0 if is_over else _MOST_RUNNING)


class Doing(StrEnum):
    """What an agent does at a moment."""

    DECODE = "decode"
    """Its answer is being generated."""
    PREFILL = "prefill"
    """Its request was sent and has no token yet."""
    WAITING = "waiting"
    """The same, while the server's queue holds the request."""
    TOOL = "tool"
    """The answer called a tool, which runs."""
    THINK = "think"
    """A person reads the answer and thinks, or nothing has begun."""


LETTERS = {doing: doing.value[0] for doing in (Doing.DECODE, Doing.PREFILL, Doing.WAITING, Doing.TOOL)} | {
    Doing.THINK: "h"
}
"""The letter of each activity in `Activities.each`: "h" is for human, as "t" is for tool."""


class Activities(Struct, frozen=True, eq=False):
    """What the agents of a running level have done in time slots of equal length, oldest first."""

    step_s: float
    counts: tuple[tuple[int, ...], ...]
    """For each slot the numbers of agents, in the order of `Doing`; the last slot is now."""
    each: tuple[str, ...] = ()
    """For each agent a text with one of `LETTERS` for each slot; empty where they are many."""
    queue_known: bool = False
    """True if the servers report how many requests wait; else prefill includes waiting."""

    @property
    def now(self) -> dict[Doing, int]:
        """The numbers of agents by what they do now."""
        newest = self.counts[-1] if self.counts else (0,) * len(Doing)
        return dict(zip(Doing, newest, strict=True))
