"""The models of a sweep's result file, of schema "sparktop.sweep/1".

Every key is always written; unknown values are null. A reader ignores unknown keys and treats missing keys as
unknown values, so neighbouring versions can read each other's files. All text is cleaned when it is read. The
models are frozen: a running sweep creates a new result with `with_level` at the end of each level. A level is
one load (concurrency and lengths) on one target; it is measured in several runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import fmean, stdev
from typing import Annotated, Any, Final, Literal, Self

from msgspec.structs import replace
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, PlainSerializer

from sparktop.graphics.numbers import duration_words
from sparktop.model.load import Level, LoadKind, LoadMode, LoadPoint, TokenSource, concurrency_point
from sparktop.model.series import sum_if_all_known
from sparktop.model.statistics import P90_FROM, P95_FROM, P99_FROM, quantile
from sparktop.model.sweep import Value, value_of
from sparktop.model.text import clean
from sparktop.sweep.plan.plan import Api, Order, TargetKind
from sparktop.sweep.terms.definitions import ALL_LATENCIES, CALL_LATENCIES, CUT_SHORT, RATES, SHORT_PROMPT

LARGEST = 1e15
"""Larger numbers are not plausible measurements; as bytes, this is a petabyte."""
MOST_CONCURRENCY = 1_000_000
"""Largest concurrency that a file may state."""
_TEXT_LIMIT = 1000
"""Characters of a text that are read."""
_LONGEST_BODY = 200
"""Characters of a body's further fields in a sentence."""
_DEEPEST = 8
"""Levels of nested values that are read of parts without a model."""


def _clean(value: object) -> object:
    return clean(value, _TEXT_LIMIT) if isinstance(value, str) else value


def _finite_or_none(value: object) -> object:
    if isinstance(value, int | float) and not abs(value) <= LARGEST:  # nor NaN
        return None
    return value


def _clean_tree(value: object, depth: int = 0) -> object:
    if depth > _DEEPEST:
        return None
    if isinstance(value, dict):
        return {clean(key): _clean_tree(part, depth + 1) for key, part in value.items()}
    if isinstance(value, list):
        return [_clean_tree(part, depth + 1) for part in value]
    return _finite_or_none(_clean(value))


def _utc(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Text = Annotated[str, BeforeValidator(_clean)]
"""A text, cleaned of control characters when it is read."""
Number = Annotated[float | None, BeforeValidator(_finite_or_none)]
"""A number that may be missing: None where the value is unknown, not finite, or beyond ±`LARGEST`."""
Finite = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
"""A number that is always known."""
Count = Annotated[int, Field(ge=0, le=int(LARGEST))]
"""A number of things."""
Time = Annotated[datetime, PlainSerializer(_utc, return_type=str, when_used="json")]
"""A time, written in UTC with milliseconds."""
Tree = Annotated[dict[str, JsonValue], BeforeValidator(_clean_tree)]
"""JSON without a model of its own: cleaned texts, finite numbers."""


class Part(BaseModel):
    """Base model of every object in a result file: frozen, unknown keys ignored.

    A model can also be validated from any object whose attributes have the names of its fields.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, from_attributes=True)


class TracePlan(Part):
    """Which part of which file a sweep replayed."""

    name: Text
    """Name of the file, without its folder."""
    path: Text | None = None
    """The file as the user named it; None in anonymous reports."""
    form: Text | None = None
    """Format of the file, as `--trace-format` accepts it."""
    speed: Number = 1.0
    """2 is twice as fast as recorded."""
    from_s: Number = None
    """Seconds after the file's first request at which the part begins; None: it begins with the file."""
    to_s: Number = None
    """Seconds after the file's first request at which the part ends; None: it ends with the file."""
    requests: Count | None = None
    """Requests of the part that are replayed, in each run."""
    duration_s: Number = None
    """Seconds from the first request to the last one, if answers take no time."""
    waits: bool = False
    """True if requests wait for the answers before them in their conversation."""

    @property
    def words(self) -> str:
        """The file, the part and the speed as text: "day.csv, 600..1200 s at 2×, 1,234 requests"."""
        part = "" if self.span is None else f", {self.span} s"
        speed = "" if self.speed in {None, 1.0} else f" at {self.speed:g}×"
        count = "" if self.requests is None else f", {self.requests:,} requests"
        return f"{self.name}{part}{speed}{count}"

    @property
    def span(self) -> str | None:
        """The part as `--trace-range` accepts it, such as "600..1200" or "600.."; None for the whole file."""
        if self.from_s is None and self.to_s is None:
            return None
        end = "" if self.to_s is None else f"{self.to_s:.12g}"
        return f"{self.from_s or 0.0:.12g}..{end}"


class ReplayPhase(Part):
    """One of the equal parts of a replay."""

    from_s: Number = None
    """Begin of the part, in seconds of the file."""
    to_s: Number = None
    requests: Count = 0
    """Requests that were due in the part, in all runs."""
    arrived_per_s: Number = None
    """Requests that were due, per second."""
    completed_per_s: Number = None
    """Requests that completed, per second."""
    ttft_due_p50_ms: Number = None
    """Time to first token from the due time, of the requests that were due in the part."""
    ttft_due_p90_ms: Number = None

    @property
    def words(self) -> str:
        """The part as text: "10 min–20 min"."""
        return f"{duration_words(self.from_s)}–{duration_words(self.to_s)}"


class ReplayResult(Part):
    """What a level that replays recorded traffic shows beside the figures of an open loop."""

    not_due: Count = 0
    """Requests of the trace whose predecessor had not ended when the run was over, so that none was sent."""
    prompt_tokens: Count | None = None
    """Prompt tokens of the answered requests, as the server counted them; None if it does not."""
    cached_tokens: Count | None = None
    """Those of them from the server's prefix cache, as it reports with each answer; None if it does not."""
    server_cached_tokens: Number = None
    """Hits of the servers' prefix caches during the measured runs, in tokens, by their own counters."""
    server_queried_tokens: Number = None
    repeated_percent: Number = None
    """Prompt tokens that earlier requests of the trace hold, in percent: the most that a cache can have."""
    context_tokens: Count | None = None
    """The server's context length; None if unknown."""
    beyond_context: Count | None = None
    """Requests of the trace that are longer, prompt and answer together; None if unknown."""
    phases: tuple[ReplayPhase, ...] = ()
    """Equal parts of the replay; empty for a short one."""

    @property
    def cached_percent(self) -> float | None:
        """Prompt tokens from the prefix cache in percent, by the answers, else by the servers' counters."""
        answers = _percent(self.cached_tokens, self.prompt_tokens)
        return _percent(self.server_cached_tokens, self.server_queried_tokens) if answers is None else answers


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
    text: Text | None = None
    """The kind of built-in text that the prompts of a level are; None for other prompts."""

    @property
    def point(self) -> LoadPoint:
        """The position on the axis of the sweep."""
        if self.load is LoadKind.CONCURRENCY or self.value is None:
            return concurrency_point(self.concurrency, self.text)
        return LoadPoint(self.load, self.value, self.rises_to, self.trace)


def axis_fields(concurrency: int, point: LoadPoint) -> dict[str, Any]:
    """Return the fields of an `AxisPart` at `point`, with at most `concurrency` requests in flight."""
    if point.kind is LoadKind.CONCURRENCY:
        return {"concurrency": concurrency, "text": point.text}
    fields = {"load": point.kind, "value": point.value, "rises_to": point.rises_to, "trace": point.trace}
    return {"concurrency": concurrency, **fields}


class PromptPlan(Part):
    """The file of a user's own prompts, or the kinds of built-in text."""

    name: Text
    """Name of the file, without its folder."""
    path: Text | None = None
    """The file as the user named it; None in anonymous reports."""
    digest: Text | None = None
    """SHA-256 of the file: equal digests are equal prompts."""
    count: Count | None = None
    """Number of prompts in the file."""
    texts: tuple[Text, ...] = ()
    """Kinds of built-in text, with prompts of which each concurrency was measured; empty for a file."""
    about_tokens: Count | None = None
    """Length of a prompt in tokens as a guess; the servers count the true one."""

    @property
    def words(self) -> str:
        """The file as text: "day.jsonl (1,234 prompts)"; or "built-in texts: code, prose"."""
        if self.texts:
            return f"{self.name}: {', '.join(self.texts)}"
        return self.name if self.count is None else f"{self.name} ({self.count:,} prompts)"


class PlanResult(Part):
    """The plan of a sweep as stored in its result: targets, loads, and how they are run."""

    targets: tuple[Text, ...] = ()
    concurrency: tuple[int, ...] = ()
    load: LoadKind = LoadKind.CONCURRENCY
    points: tuple[Text, ...] = ()
    """The levels on an axis other than concurrency, such as "0.5" or "0.5..4"; empty on the latter."""
    pp: Count | None = None
    lengths: tuple[Count, ...] = ()
    """All prompt lengths, in the order in which they are measured; empty for the user's own prompts."""
    longest: bool = False
    """True if the largest length that a target accepts was looked for where it refused one."""
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
    leave: bool = False
    """True if clients hung up in the middle of answers after each level; see `LeftRequests`."""
    beside: Count | None = None
    """Tokens of the long prompts that arrived while each level was measured again; None for none."""
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
        words = []
        if self.prompts is not None:
            words.append(f"{'' if self.prompts.texts else 'own prompts of '}{self.prompts.words}")
        if self.extra_body:
            body = json.dumps(self.extra_body, ensure_ascii=False)
            words.append(f"each request with {clean(body, _LONGEST_BODY)}")
        if self.headers:
            words.append(f"with the header{'s' if len(self.headers) > 1 else ''} {', '.join(self.headers)}")
        if self.timeout_s is not None:
            words.append(f"failed after {self.timeout_s:g} s without a token")
        return tuple(words)

    def context_of(self, prompt_tokens: int) -> int:
        """Return how many tokens of such a request are context; 0 if context and prompt were apart."""
        return next((depth for depth in self.depths if prompt_tokens - depth in self.bases), 0)

    @property
    def axis(self) -> tuple[LoadPoint, ...]:
        """The planned levels on the axis of the sweep."""
        if self.load is LoadKind.CONCURRENCY:
            texts = () if self.prompts is None else self.prompts.texts
            return tuple(
                concurrency_point(level, text) for level in self.concurrency for text in texts or (None,)
            )
        points = (_point_of(self.load, level) for level in self.points)
        name = None if self.trace is None else self.trace.name
        return tuple(replace(point, trace=name) for point in points if point is not None)


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
    is_finite = math.isfinite(value) and math.isfinite(rises_to or 0.0)
    return LoadPoint(kind, value, rises_to) if is_finite else None


class Rate(Part):
    """A rate of a level (tokens/s or requests/s): the value of each run, and their mean."""

    mean: Finite
    std: Number = None
    """Sample standard deviation (n - 1); None for a single run."""
    values: tuple[Finite, ...] = ()
    ci95: tuple[Finite, Finite] | None = None
    """(low, high) of the mean's 95 % confidence interval (Student's t over runs); None for a single run."""

    @classmethod
    def of_runs(cls, values: Sequence[float | None]) -> Self | None:
        """Return the rate whose values per run are `values`, with mean and 95 % confidence interval.

        Runs whose value is None are left out. Return None if no run has a value, or if all are 0.
        """
        known_values = tuple(value for value in values if value is not None)
        if not any(known_values):
            return None
        over_runs = value_of(fmean(known_values), known_values)
        ends = None if over_runs.low is None or over_runs.high is None else (over_runs.low, over_runs.high)
        return cls(mean=over_runs.mean, std=over_runs.std, values=known_values, ci95=ends)


def _measured(rate: Rate | None) -> Rate | None:
    """Return a rate; None for 0, which older files have where nothing arrived: that is not measured."""
    return rate if rate is not None and rate.mean else None


MeasuredRate = Annotated[Rate | None, AfterValidator(_measured)]
"""A rate that may be missing."""


class Latency(Part):
    """A latency of a level in milliseconds: mean and quantiles over its requests (ITL: over token gaps).

    There is no confidence interval, because requests of a run are not independent of each other.
    """

    mean: Finite
    std: Number = None
    p50: Number = None
    p90: Number = None
    """None for fewer than 36 values."""
    p95: Number = None
    """None for fewer than 72 values."""
    p99: Number = None
    """None for fewer than 368 values."""
    max: Number = None
    count: Count | None = None
    """Number of values."""
    run_means: tuple[Finite, ...] = ()
    """Mean of each run in milliseconds; comparisons test these, because runs are independent."""

    @classmethod
    def of_values(cls, values: Sequence[float], run_means: Sequence[float] = ()) -> Self | None:
        """Return the latency with the given values in milliseconds, in any order; None without values.

        `run_means`, the mean of each run in milliseconds, are stored unchanged. A quantile is None if there
        are too few values for it.
        """
        if not values:
            return None
        ordered = sorted(values)
        count = len(ordered)
        return cls(
            mean=fmean(ordered),
            std=stdev(ordered) if count > 1 else None,
            p50=quantile(ordered, 0.5),
            p90=quantile(ordered, 0.9) if count >= P90_FROM else None,
            p95=quantile(ordered, 0.95) if count >= P95_FROM else None,
            p99=quantile(ordered, 0.99) if count >= P99_FROM else None,
            max=ordered[-1],
            count=count,
            run_means=tuple(run_means),
        )


class Quantiles(Part):
    """Quantiles of something that has no runs; those that are not stored are None."""

    mean: Number = None
    p10: Number = None
    p50: Number = None
    p99: Number = None
    max: Number = None


class ClientResult(Part):
    """The load generator's own speed during a sweep, and whether its measurements can be trusted."""

    loop: Literal["uvloop", "asyncio"] | None = None
    cpu_percent: Number = None
    loop_lag_ms: Quantiles | None = None
    """How late the timers of its event loop fired."""
    connect_ms: Number = None
    trustworthy: bool | None = None
    reasons: tuple[Text, ...] = ()


class ContextPart(Part):
    """The runs that sent the context alone, and what the prompts after it found in the prefix cache.

    llama-benchy has these figures in rows such as `ctx_pp @ d4096` and `ctx_tg @ d4096`. The columns `each_…`
    have an entry per request.
    """

    counted_tokens: Number = None
    """Mean length of the context as the server counted it with the prompts; None if it sent no counts, and in
    older files."""
    ok: Count = 0
    failed: Count = 0
    prefill_tps: MeasuredRate = None
    decode_tps: MeasuredRate = None
    peak_tps: MeasuredRate = None
    ttfr_ms: Latency | None = None
    ttft_ms: Latency | None = None
    each_prompt_tokens: tuple[int | None, ...] = ()
    each_ttfr_ms: tuple[Number, ...] = ()
    each_ttft_ms: tuple[Number, ...] = ()
    each_stream_tps: tuple[Number, ...] = ()
    found_percent: Number = None
    """Mean share (0 to 100) of the context's tokens that the prompts found in the cache; None if unknown."""
    found_from: Literal["answers", "counters"] | None = None
    """What reported it: the usage of each answer, or the servers' counters."""
    asked_tokens: Number = None
    """Tokens that the servers looked for in their prefix caches, by their counters: 0 where it is off; None
    where they do not count them."""
    counted_percent: Number = None
    """The same share as the servers' counters report it; None if unknown."""

    def figure(self, metric: str) -> Rate | Latency | None:
        """Return the rate or latency `metric` of the context; None if it was not measured."""
        figure = getattr(self, metric, None)
        return figure if isinstance(figure, Rate | Latency) else None


class ConditionResult(Part):
    """How a level met one condition."""

    condition: Text
    """Such as `ttft_p90_ms ≤ 2000`; "all" for all conditions together, which decide on a rate."""
    figure: Text | None = None
    limit: Number = None
    at_least: bool = False
    value: Number = None
    """What the condition limits, in its unit; None if unknown."""
    needed_percent: Number = None
    """Share of the requests that must meet it."""
    met_percent: Number = None
    interval_percent: tuple[Number, Number] | None = None
    """95 % interval of `met_percent`."""
    requests: Count = 0


class ProbeResult(Part):
    """A level of the search, judged by all its runs."""

    value: Finite
    runs: Count = 1
    holds: bool
    certain: bool
    """True if the 95 % intervals leave no doubt."""
    fails_percent: Number = None
    """Probability that it fails, by all levels of the search together; None in older files."""
    trouble: Text | None = None
    """Why it fails whatever its latencies are: unstable, or failed requests."""
    requests: Count = 0
    conditions: tuple[ConditionResult, ...] = ()


class RanOut(Part):
    """What ran out first at a level that fails, or at the largest one: slots, memory, or another limit."""

    kind: Text | None = None
    """Such as "KV cache" or "slots"; None if unknown."""
    evidence: Text
    """Figures of the servers; of an unknown limit what is missing to name it."""
    hint: Text | None = None
    server: Text | None = None
    value: Number = None
    """The load at which this was seen."""
    elsewhere: dict[Text, tuple[Finite, ...]] = Field(default_factory=dict)
    """Other limits at the largest load that holds and at those that fail: the loads by limit. The border is
    then where one takes over from another."""


class Drift(Part):
    """How a server changed while a search measured it: one level at two times."""

    value: Finite
    """The load of the level."""
    condition: ConditionResult
    """How its first run met a condition."""
    later: ConditionResult
    """How its last run met the same condition; the 95 % intervals of the two shares do not overlap."""
    first_at: datetime
    last_at: datetime


class CapacityAnswer(Part):
    """The answer for one target."""

    holds: Number = None
    """The largest load under which the conditions hold; 0 if they hold under none, None if unknown."""
    fails: Number = None
    """The smallest load above it under which they do not; None if none was found."""
    at_least: bool = False
    """True if the largest load that was allowed holds: the answer may be larger."""
    complete: bool = False
    """False if the search was stopped."""
    interval: tuple[Number, Number] = (None, None)
    """(largest load under which they certainly hold, smallest under which they certainly do not), by 95 %
    intervals; None where there is none."""
    moved_from: Number = None
    """A larger load that held in its first run, but not with another one; None if there is none."""
    drift: Drift | None = None
    """How the server changed during the search; None if no change is shown."""
    ran_out: RanOut | None = None
    output_tps: Number = None
    """Generated tokens per second at `holds`."""
    probes: tuple[ProbeResult, ...] = ()
    """All levels, in the order in which they were measured."""
    left_out: tuple[Text, ...] = ()
    """Of stored levels, those that the answer is not made from, each with the reason."""

    def probe(self, value: float | None) -> ProbeResult | None:
        """Return the level at the load `value`; None if it was not measured."""
        return next((probe for probe in self.probes if probe.value == value), None)


class CapacityResult(Part):
    """What a capacity search looked for, and its answers."""

    load: LoadKind
    conditions: tuple[Text, ...]
    share_percent: Number = None
    """Of a rate: share of the requests that must meet all conditions."""
    limits: Text | None = None
    """Name of the published limits that the conditions are; None for others."""
    most: Number = None
    """The largest load that was allowed."""
    answers: dict[Text, CapacityAnswer] = Field(default_factory=dict)
    """By target."""
    stored: bool = False
    """True if the answers are those of the levels of a stored result: nothing was sent for them."""

    def point(self, value: float) -> LoadPoint:
        """Return the point of a load on the axis of the search."""
        return LoadPoint(self.load, value)


class Change(Part):
    """The difference of one target from the baseline target, for one metric under one load."""

    percent: Number = None
    ratio_ci95: tuple[Finite, Finite] | None = None
    significant: bool | None = None
    """Whether the difference is significant at the table's common error rate and beyond the noise floor.
    None for single runs, which allow no test."""


class ComparisonRow(AxisPart):
    """One metric of all targets under one load, and which target is the best."""

    metric: Text
    pp: int | None = None
    """Prompt tokens; None unless a target has several levels of this concurrency."""
    tg: int | None = None
    """Output tokens; None as for `pp`."""
    depth: Count = 0
    """Tokens of context before the prompt."""
    values: dict[Text, Number]
    """Mean of the metric by target."""
    ranges: dict[Text, tuple[Finite, Finite]] = Field(default_factory=dict)
    """(low, high) by target, for values that their source gives as a range; `values` has the middle."""
    winner: Text | None = None
    """The target that is significantly better than every other one; for published tables the best target if
    its lead exceeds rounding. None if there is no such target."""
    winner_vs: Literal["runner-up", "baseline", "table"] | None = None
    """Why `percent` refers to `against`: it is second best, the baseline, or named by a published table."""
    ahead: Text | None = None
    """The target with the best value, significant or not; None for equal values or overlapping ranges."""
    beats: tuple[Text, ...] = ()
    """Targets that are significantly worse than the best one."""
    against: Text | None = None
    """The target that `percent` refers to; in a row with tests but without a winner the best of those that
    `ahead` is not significantly better than."""
    percent: Number = None
    """Difference of the best target from `against`, in percent; negative if lower values are better."""
    ratio_ci95: tuple[Finite, Finite] | None = None
    """95 % confidence interval of the ratio of the best target to `against`."""
    runs: Count | None = None
    """The fewest runs of these two; None if unknown."""
    significant: bool | None = None
    """True if the best target is significantly better than every other one; None for single runs whose
    difference is beyond the noise floor."""
    unequal_slots: dict[Text, Count] = Field(default_factory=dict)
    """Slots of `ahead` and `against`, if requests wait for those of `against` alone: then there is no winner.
    Else empty."""

    changes: dict[Text, Change] = Field(default_factory=dict)
    """The difference from the baseline of every other target, by target; empty without a baseline."""


class Crossover(Part):
    """Two levels between which the winner in a metric changes, with the winner at each of them."""

    metric: Text
    between: tuple[int | float, int | float]
    load: LoadKind = LoadKind.CONCURRENCY
    """The axis of `between`."""
    from_: Annotated[Text, Field(alias="from", serialization_alias="from")]
    to: Text
    significant: bool | None = None
    """True if both winners are significant; None if a winner comes from a published table, without a test."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    @property
    def words(self) -> str:
        """The two levels as text: "c8 and c16"."""
        return " and ".join(LoadPoint(self.load, end).short for end in self.between)


class EnginesLevel(Part):
    """A router's value at one concurrency, and the sum of its engines' values, each measured alone."""

    concurrency: int
    each: int
    """Concurrent requests per engine: `concurrency` / number of engines."""
    bound: Finite
    """Upper bound of the metric for the router: the sum of the engines' values, each measured alone at a
    concurrency of `each`."""
    routed: Number = None
    """The router's own value of the metric."""
    percent: Number = None
    """`routed` in percent of `bound`."""
    significant: bool | None = None
    """Whether `routed` differs from `bound` beyond noise, at an error rate of 5 % for all levels together.
    None for single runs, which allow no test, and in files of older versions."""
    beyond: tuple[Text, ...] = ()
    """Other targets whose value exceeds the bound: no router over these engines can reach it."""


class IndependentEngines(Part):
    """A router's values of a metric, compared with the upper bound that its engines allow at each level.

    The bound is the sum of the values of N engines, each measured alone at 1/N of the concurrency.
    """

    metric: Text
    routed: Text
    """Name of the router's series."""
    alone: tuple[Text, ...]
    """Name of the series of each engine behind the router; the bound is the sum of these series."""
    levels: tuple[EnginesLevel, ...]


class CapacityComparison(Part):
    """The answers of capacity searches beside one another."""

    load: LoadKind
    conditions: tuple[Text, ...]
    alike: bool
    """False if the searches differ in load or conditions, so that their answers cannot be compared."""
    holds: dict[Text, Number]
    """The largest load under which the conditions hold, by target."""
    ranges: dict[Text, tuple[Number, Number]]
    """(Smallest, largest) answer within the 95 % interval by target; None for a largest that is not known."""
    takes_more: Text | None = None
    """The target whose interval lies above those of all others; None if no difference is shown."""


class ComparisonResult(Part):
    """The comparison of all targets of a sweep, or of several series."""

    baseline: Text | None = None
    """Name of the target that all others are compared with; None if none was selected."""
    rows: tuple[ComparisonRow, ...] = ()
    crossovers: tuple[Crossover, ...] = ()
    notes: tuple[Text, ...] = ()
    definitions: dict[Text, dict[Text, Text]] = Field(default_factory=dict)
    """Definition by metric, then by series, for metrics that a source defines in its own way."""
    noise_floor_percent: dict[Text, float] = Field(default_factory=dict)
    """By metric: differences up to this many percent count as noise, even if significant."""
    error_rate_percent: Number = None
    """Maximum percentage of tables of equal targets in which a winner is named by chance.

    None in files of older versions, in which each row was tested separately."""
    independent_engines: tuple[IndependentEngines, ...] = ()
    capacity: CapacityComparison | None = None
    """The answers of capacity searches; None unless at least two of the series have one."""

    def row(self, metric: str, point: LoadPoint, pp: int | None, depth: int = 0) -> ComparisonRow | None:
        """Return the row of a metric under a load with `pp` prompt tokens; None if there is no such row."""
        rows_here = (row for row in self.rows if (row.metric, row.point, row.depth) == (metric, point, depth))
        return next((row for row in rows_here if row.pp in {None, pp}), None)


class CallGroup(Part):
    """The time to first token of the calls that have something in common."""

    name: Text
    """The turn numbers of its calls, from 1: "1", "2-3", "11-20", "51+"."""
    calls: Count = 0
    ttft_ms: Latency | None = None


class TimeShares(Part):
    """What the agents did in the measured time, in percent of it; the sum is 100."""

    first_token: Number = None
    """Waiting for the first token of an answer: queue and prefill."""
    generation: Number = None
    """From the first token to the end of the answer."""
    tool: Number = None
    """Pause until the output of a tool."""
    human: Number = None
    """Pause until the next request of a person, and anything else."""


class AgentsResult(Part):
    """What a level of agents shows. A call is a request to the model; those that are measured count."""

    workload: Text | None = None
    """Name of the preset of the conversations."""
    calls: Count = 0
    unanswered: Count = 0
    """Calls without an answer at the end of the run; their TTFT is not known."""
    conversations: Count = 0
    """Conversations with a measured call."""
    after_tool_ms: Latency | None = None
    """TTFT of calls after a tool, without those after a compaction."""
    after_human_ms: Latency | None = None
    """TTFT of calls after a person's request, without first calls and those after a compaction."""
    first_ms: Latency | None = None
    """TTFT of first calls of conversations: their prompt is new except for the shared start."""
    compacted_ms: Latency | None = None
    """TTFT of calls after a compaction."""
    turns: tuple[CallGroup, ...] = ()
    """TTFT by turn, in ascending order."""
    request_ms: Latency | None = None
    """Model time of a person's whole request: the E2E of all its calls together, without tools."""
    calls_per_request: Number = None
    """Mean number of calls in these requests."""
    prompt_tokens: Count | None = None
    cached_tokens: Count | None = None
    """Prompt tokens from the server's prefix cache, as it reports with each answer; None if it does not."""
    new_tokens: Count | None = None
    """Prompt tokens that no earlier prompt or answer had: what an endless cache would leave to compute."""
    prompt_tokens_all: Count | None = None
    """Like `prompt_tokens`, of all answered calls of the level; to compare with the server's counters."""
    cached_tokens_all: Count | None = None
    server_cached_tokens: Number = None
    """Hits of the servers' prefix caches during the level, in tokens, by their own counters."""
    server_queried_tokens: Number = None
    compactions: Count = 0
    early: dict[Text, Count] = Field(default_factory=dict)
    """Conversations that ended early, by error code."""
    early_message: Text | None = None
    """The message of the latest of these errors."""
    context_tokens: Number = None
    """Mean tokens of prompt and answer."""
    shared_tokens: Count | None = None
    """Tokens of the start that all conversations share."""
    kv_capacity_tokens: Number = None
    """Tokens for which the KV caches of all servers have space."""
    interactivity_tps: Number = None
    """E2E-normalised interactivity: 1 / 90th percentile of (E2E / output tokens); not 1 / TPOT."""
    in_flight_mean: Number = None
    shares: TimeShares | None = None

    def latency(self, metric: str) -> Latency | None:
        """Return the latency `metric` of `CALL_LATENCIES`; None if it was not measured."""
        names = ("after_tool_ms", "after_human_ms", "request_ms")
        name = dict(zip(CALL_LATENCIES, names, strict=True)).get(metric)
        return None if name is None else getattr(self, name)

    @property
    def early_words(self) -> str:
        """How many conversations ended early, by error: "2 (context 2)"; "" for none."""
        parts = ", ".join(f"{word} {count}" for word, count in sorted(self.early.items()))
        return f"{self.ended_early} ({parts})" if parts else ""

    @property
    def cached_percent(self) -> float | None:
        """Share of the prompt tokens that came from the prefix cache, as reported with the answers."""
        return _percent(self.cached_tokens, self.prompt_tokens)

    @property
    def server_cached_percent(self) -> float | None:
        """The same for the whole level, by the servers' own counters."""
        return _percent(self.server_cached_tokens, self.server_queried_tokens)

    @property
    def amplification(self) -> float | None:
        """Computed prompt tokens / new ones; 1 is a perfect cache."""
        if self.prompt_tokens is None or self.cached_tokens is None or not self.new_tokens:
            return None
        return (self.prompt_tokens - self.cached_tokens) / self.new_tokens

    @property
    def ended_early(self) -> int:
        """Number of conversations that ended early."""
        return sum(self.early.values())

    @property
    def conversations_in_cache(self) -> float | None:
        """How many conversations of mean length stay in the KV cache, the shared start counted once."""
        if self.kv_capacity_tokens is None or self.context_tokens is None:
            return None
        shared = self.shared_tokens or 0
        own_tokens = self.context_tokens - shared
        room = self.kv_capacity_tokens - shared
        return room / own_tokens if own_tokens > 0 and room > 0 else None


def _percent(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else 100 * part / whole


SCHEMA: Final = "sparktop.sweep/1"
"""Name and number of the format, in each file."""


class OpenLoopResult(Part):
    """What the open-loop runs of a level show, in the result file."""

    offered_per_s: Number = None
    """Requests per second that were asked for."""
    arrived_per_s: Number = None
    """Measured arrivals per second, as drawn."""
    completed_per_s: Number = None
    """Requests that completed within the measured time, per second."""
    requests: Count = 0
    """Measured arrivals of all runs."""
    unanswered: Count = 0
    """Measured requests without an answer at the end of their run; their age is a lower bound."""
    in_flight_mean: Number = None
    in_flight_max: Number = None
    """Requests that were due and not answered yet, also those that waited in the client."""
    in_flight_limit: Count | None = None
    """Requests in flight from which on further ones wait in the client."""
    overloaded: bool = False
    """True if that limit was reached: all latencies are lower bounds."""
    unstable: bool = False
    """True if the server did not keep up: latencies depend on how long one looks, and are left out."""
    ttft_growth: Number = None
    """Seconds by which the TTFT from the due time grows each second; None unless unstable, and without any
    first token."""
    queue_growth_per_s: Number = None
    """Requests by which those without a first token grow in number each second; None unless unstable."""
    late: bool = False
    """True if the client sent requests noticeably later than they were due."""
    client_wait_p99_ms: Number = None

    @property
    def growth_words(self) -> str:
        """How latencies grow, as text: "TTFT grows by 0.80 s each second"; "" unless unstable."""
        if not self.unstable:
            return ""
        if self.ttft_growth is not None:
            return f"TTFT grows by {self.ttft_growth:.2f} s each second"
        if self.queue_growth_per_s is not None:
            return f"no first token, the queue grows by {self.queue_growth_per_s:.2f} requests each second"
        return "no first token"


class Requests(Part):
    """Numbers of requests of a level, by how they ended."""

    ok: Count = 0
    failed: Count = 0
    cancelled: Count = 0
    errors: dict[Text, Count] = Field(default_factory=dict)
    """Failed requests by error code, see `sparktop.sweep.terms.request_errors`."""
    resent: Count = 0
    """Requests that were sent a second time, because the server had closed the idle connection that they were
    sent on first; not failures. 0 in older files."""

    @property
    def ended(self) -> int:
        """Number of requests that were completed or failed."""
        return self.ok + self.failed


class TokenCounts(Part):
    """Numbers of tokens, summed over all requests of a level."""

    prompt: Count | None = None
    generated: Count | None = None
    hidden: Count | None = None
    """Generated tokens of completed requests whose arrival times are unknown; None in older files."""
    hidden_requests: Count | None = None
    """Completed requests with such hidden tokens."""
    surplus: Count | None = None
    """Chunks with text beyond the tokens that the server counted; None in older files."""
    first_read: Number = None
    """Mean number of tokens that the first read of an answer brought; None in older files."""
    cached: Count | None = None
    """Prompt tokens that the answers report as found in the prefix cache; None where they report none."""


class RequestColumns(Part):
    """Requests of a level one by one: columns with an entry per request, in the order of their starts.

    A column is empty where nothing of the kind is known, and some are in files of older versions.
    """

    run: tuple[int, ...] = ()
    ttfr_ms: tuple[Number, ...] = ()
    ttft_ms: tuple[Number, ...] = ()
    e2e_ms: tuple[Number, ...] = ()
    stream_tps: tuple[Number, ...] = ()
    """Of completed requests, as the two columns of tokens."""
    prompt_tokens: tuple[int | None, ...] = ()
    generated_tokens: tuple[int | None, ...] = ()
    start_ms: tuple[Number, ...] = ()
    """Milliseconds since the first request of the run started."""
    wait_ms: tuple[Number, ...] = ()
    """Open loop: milliseconds from when the request was due to its start."""
    served_by: tuple[int | None, ...] = ()
    """Index into `backends` of the backend that answered; empty if no answer named a backend."""
    backends: tuple[Text, ...] = ()
    call: tuple[Text, ...] = ()
    """Agents: what each request followed: "first" (nothing), "human", "tool", or whatever that was, the
    "compacted" context."""
    ok: tuple[bool, ...] = ()
    """Only of requests that do not count (`uncounted`): whether the server completed the request."""
    missed: tuple[Literal["error", "unanswered"] | None, ...] = ()
    """Likewise: how a measured request ended; None for one that was not measured."""


class ServerSide(Part):
    """What one server behind the target, or all of them together, reported during a level."""

    running_mean: Number = None
    """Of one server: mean number of running requests over all samples during runs, idle ones included."""
    running_max: Number = None
    waiting_max: Number = None
    kv_cache_max_percent: Number = None
    """Used share, 0 to 100, of the KV caches of the fullest server, all its engine cores together."""
    prefill_ms: Number = None
    """Of one server: mean prefill time of a request during the measured runs, as it reports it."""
    kv_fullest_percent: Number = None
    """Of all, as what follows: used share of the fullest engine core (data-parallel rank) of any server: once
    it is full, requests wait. None in older files."""
    preemptions: Number = None
    generation_tokens: Number = None
    """Tokens generated during the level, by the servers' own counters; `prompt_tokens` likewise."""
    prompt_tokens: Number = None
    prefix_cache_hit_percent: Number = None
    spec_accept_percent: Number = None
    """Accepted share of the tokens that speculative decoding drafted in the measured runs, 0 to 100, by the
    servers' own counters; None without such decoding, where servers do not count it, and in older files."""
    spec_accepted_per_draft: Number = None
    """Mean number of accepted tokens of a draft; None as above."""


class NodeSide(Part):
    """Hardware metrics of one machine during a level: temperature, power, clock, throttling and memory."""

    gpu_c_max: Number = None
    power_w_mean: Number = None
    sm_clock_mhz_mean: Number = None
    throttled_percent: Number = None
    headroom_min_bytes: Number = None


class LimitSide(Part):
    """What held a server back during a level, by sparktop's judgement of its samples."""

    kind: Text
    reason: Text
    hint: Text | None = None
    server: Text | None = None  # the one that it holds for, where several served the level


class YardstickSide(Part):
    """A decode rate that a level's is compared with: the server's own best, a published one, or the limit."""

    name: Text
    """"its own best", "the published" or "the limit"."""
    source: Text
    """Where it comes from, or why it is not known."""
    tps: Number = None
    percent: Number = None
    """The level's decode rate, as a percentage of `tps`."""
    prompt_tokens: Count | None = None
    output_tokens: Count | None = None
    """Lengths of each request of a published rate; None where they are not stated. Where those of the level
    are others, there is no percentage."""


class Validity(Part):
    """A reason to doubt the metrics of a level, or a note on something too small for that."""

    code: Text
    message: Text
    ttft_percent: Number = None
    """Percent of the mean TTFT by which one may be too high, of the code "client_lag"; None if unknown."""
    itl: bool = False
    """Whether later tokens may be late, too: ITL is too high by an unknown part."""


class LeftRequests(Part):
    """What the servers did after all clients had hung up in the middle of their answers."""

    requests: Count = 0
    """Requests in flight at the hang-up."""
    received_tokens: Count = 0
    """Tokens of these that had arrived."""
    goes_on_s: Number = None
    """Seconds from the hang-up to the last sample of a server with requests; 0: none had any."""
    idle_s: Number = None
    """Seconds to the first sample without; None if there was none."""
    tokens_after: Number = None
    """Tokens that the servers generated and nobody received; None if they do not count them, or went on."""


class BesideResult(Part):
    """What the requests of a level showed while long prompts arrived, one long prompt at a time.

    `prompt_tokens` to `error` describe the long prompts; all other figures leave these out.
    """

    prompt_tokens: Count
    """Tokens that each long prompt was to have."""
    arrived: Count = 0
    """Long prompts that were answered."""
    failed: Count = 0
    """Long prompts that failed."""
    error: Text | None = None
    """The message of the last failure; None if none failed."""
    requests: Requests = Requests()
    itl_ms: Latency | None = None
    """Of all token gaps during which a long prompt was in flight."""
    ttft_ms: Latency | None = None
    itl_runs_ms: tuple[Finite, ...] = ()
    """The mean of each run's token gaps during which a long prompt was in flight; empty if a run has none."""
    alone_itl_runs_ms: tuple[Finite, ...] = ()
    """Of the runs of the level without long prompts."""
    significant: bool | None = None
    """Whether the two differ, tested as other latencies are, by the runs' values; None: single runs."""
    change_percent: tuple[Number, Number] | None = None
    """95 % interval of the change by the long prompts; None for single runs."""

    @property
    def mean_itl_ms(self) -> float | None:
        """Mean over the runs of `itl_runs_ms`; None without any."""
        return fmean(self.itl_runs_ms) if self.itl_runs_ms else None


class LevelResult(AxisPart):
    """The result of one target at one point of the axis and prompt length."""

    depth: Count = 0
    """Tokens of context before the prompt, which was sent before, so that the prefix cache has it."""
    context: ContextPart | None = None
    """How the context was computed; None without depth."""
    pp: Count | None = None
    """Requested prompt tokens; None means the plan's value."""
    tg: Count | None = None
    """Requested output tokens; None means the plan's value."""
    asked_prompt_tokens: Number = None
    """Mean prompt tokens of the requests as they were asked for, context included; None in older files."""
    counted_prompt_tokens: Number = None
    """The same as the server counted them; None if it sent no counts, and in older files."""
    error: Text | None = None
    """The error message of a server that refuses prompts of this length: there are no metrics. Else None."""
    runs: Count = 0
    duration_s: Number = None
    requests: Requests = Requests()
    tokens: TokenCounts = TokenCounts()
    tokens_from: TokenSource | None = None
    prefill_tps: MeasuredRate = None
    decode_tps: MeasuredRate = None
    pure_decode_tps: MeasuredRate = None
    sustained_tps: MeasuredRate = None
    peak_tps: MeasuredRate = None
    output_tps: MeasuredRate = None
    total_tps: MeasuredRate = None
    requests_per_s: MeasuredRate = None
    """Completed requests per second; None in files of older versions."""
    ttfr_ms: Latency | None = None
    ttft_ms: Latency | None = None
    first_answer_ms: Latency | None = None
    itl_ms: Latency | None = None
    tpot_ms: Latency | None = None
    e2e_ms: Latency | None = None
    ttft_due_ms: Latency | None = None
    """Open loop, like the next two: from the time at which the request was due."""
    e2e_due_ms: Latency | None = None
    client_wait_ms: Latency | None = None
    stream_tps: Quantiles | None = None
    """Tokens/s of single requests: their 10th percentile and median."""
    open_loop: OpenLoopResult | None = None
    """What requests at a rate show; None on other axes."""
    replay: ReplayResult | None = None
    """What recorded traffic shows beside `open_loop`; None on other levels."""
    agents: AgentsResult | None = None
    served_by: dict[Text, Count] = Field(default_factory=dict)
    """Requests by backend, summed over runs. A router that sends each run to another backend looks balanced
    in these sums; `runs_split` shows the difference."""
    runs_split: tuple[dict[Text, Count], ...] = ()
    """Requests by backend for each run; empty if no backend was named, and in files of older versions."""
    busy_batch: dict[Text, Finite] = Field(default_factory=dict)
    """Mean batch size of each backend while it computed; backends of unknown batch size are left out."""
    router_overhead_ms: Number = None
    """Milliseconds that a router adds to a request; `router_overhead_from` says how they were measured."""
    router_overhead_from: Literal["router", "direct"] | None = None
    """`router`: the median of what the router reports in a header of each answer. `direct`: at concurrency 1,
    the router's median TTFT minus that of its backends measured directly. None in files of older versions:
    they have the latter difference at any concurrency, which includes the effect of uneven load."""
    server: ServerSide | None = None
    backends: dict[Text, ServerSide] = Field(default_factory=dict)
    """By server name; empty in files of older versions."""
    hardware: dict[Text, NodeSide] = Field(default_factory=dict)
    """By name of the machine."""
    padding_percent: Number = None
    """Share of a batch that is computed for nothing, because it runs in the next larger CUDA graph."""
    roofline_percent: Number = None
    """Decode rate of a single request in percent of what the memory bandwidth allows."""
    yardsticks: tuple[YardstickSide, ...] = ()
    """What the decode rate is compared with; empty where nothing is known, and in files of older versions."""
    validity: tuple[Validity, ...] = ()
    notes: tuple[Validity, ...] = ()
    """What is known to be off in the metrics, by less than what counts as a difference between targets."""
    left: LeftRequests | None = None
    """None if the clients did not hang up (`--leave`), or servers do not report running requests."""
    beside: BesideResult | None = None
    """The level measured again while long prompts arrived; None if it was not."""
    limited_by: LimitSide | None = None
    balance: Tree | None = None
    """How evenly the router distributed the load over its backends, in the format of a JSON snapshot."""
    each: RequestColumns | None = None
    """The completed requests one by one; None if there were too many to store."""
    uncounted: RequestColumns | None = None
    """Those that do not count for latencies: they failed, were cancelled, or are of an interrupted run. They
    are stored to draw runs completely; None if there were none, or too many."""

    @property
    def is_measured(self) -> bool:
        """Whether anything was measured: a figure, or that the server does not keep up with a rate."""
        return bool(self.figures) or (self.open_loop is not None and self.open_loop.unstable)

    @property
    def prompt_share(self) -> float | None:
        """Prompt tokens that the server counted / those that were asked for; None if it sent no counts."""
        asked, counted = self.asked_prompt_tokens, self.counted_prompt_tokens
        return counted / asked if asked and counted is not None else None

    @property
    def has_other_prompt(self) -> bool:
        """True if the server counted another prompt length than was asked for (the warning `short_prompt`).

        Such a level is one of the counted length: it wins nothing among levels of the length asked for.
        """
        return any(reason.code == SHORT_PROMPT for reason in self.validity)

    @property
    def is_cut_short(self) -> bool:
        """True if the level ended before its time (the warning `cut_short`)."""
        return any(reason.code == CUT_SHORT for reason in self.validity)

    @property
    def known_servers(self) -> tuple[str, ...]:
        """Names of the servers behind the target, sorted, including those that answered no request."""
        return tuple(sorted({*self.backends, *self.served_by, *self.busy_batch}))

    @property
    def own_overhead_ms(self) -> float | None:
        """Latency in milliseconds that a router adds to a request; None if unknown.

        Also None in files of older versions at concurrencies above 1, where uneven load may affect the value.
        """
        is_own = self.router_overhead_from is not None or self.point == concurrency_point(1)
        return self.router_overhead_ms if is_own else None

    @property
    def joules_per_token(self) -> float | None:
        """Energy of the machines' GPUs for each generated token: mean power while they compute / output rate.

        None if the power of any machine is unknown.
        """
        power_w = sum_if_all_known(side.power_w_mean for side in self.hardware.values())
        rate = self.output_tps
        return power_w / rate.mean if rate is not None and power_w is not None else None

    def rate(self, metric: str) -> Rate | None:
        """Return the rate `metric`; None if it was not measured or its name is not in `RATES`.

        A peak below the mean rate is none: answers of about a second fill no whole second.
        """
        rate = getattr(self, metric) if metric in RATES else None
        if not isinstance(rate, Rate):
            return None
        others = [self.decode_tps, self.sustained_tps] if metric == "peak_tps" else []
        return None if any(other is not None and other.mean > rate.mean for other in others) else rate

    @property
    def figures(self) -> dict[str, Value]:
        """All rates and latencies that were measured, by name, with the interval over runs."""
        figures = ((name, self.figure(name)) for name in (*RATES, *ALL_LATENCIES))
        return {name: value for name, value in figures if value is not None}

    def figure(self, metric: str) -> Value | None:
        """Return a rate, or a latency in milliseconds, with the interval over runs; None if not measured.

        The mean of a latency is over requests, its interval over the means of the runs.
        """
        if (rate := self.rate(metric)) is not None:
            low, high = rate.ci95 or (None, None)
            return Value(rate.mean, low, high, rate.std, rate.values)
        latency = self.latency(metric)
        return None if latency is None else value_of(latency.mean, latency.run_means)

    def latency(self, metric: str) -> Latency | None:
        """Return the latency `metric` of `ALL_LATENCIES`; None if it was not measured or is another name."""
        if metric in CALL_LATENCIES:
            return None if self.agents is None else self.agents.latency(metric)
        latency = getattr(self, metric) if metric in ALL_LATENCIES else None
        return latency if isinstance(latency, Latency) else None


def level_of(part: LevelResult | ComparisonRow, target: str = "", plan: PlanResult | None = None) -> Level:
    """Return the level that is measured, or compared; lengths that `part` does not state are the `plan`'s."""
    pp, tg = (None, None) if plan is None else (plan.pp, plan.tg)
    return Level(
        target,
        part.point,
        pp if part.pp is None else part.pp,
        tg if part.tg is None else part.tg,
        part.depth,
    )


class TargetResult(Part):
    """The results of one target (an inference server or a router): what it is, and its measured levels."""

    name: Text
    url: Text
    kind: TargetKind = TargetKind.ENGINE
    engine: Text | None = None
    model: Text | None = None
    asked_model: Text | None = None
    """The model that the user named; None for the server's only or first one."""
    error: Text | None = None
    """Why the target was not measured, or not completely; else None."""
    fresh_by: Literal["cache_salt", "nonce"] | None = None
    """How requests avoided hits in the server's prefix cache.

    `cache_salt`: each request has a salt; prompts depend on the plan's seed alone. `nonce`: prompts depend on
    the seed and on a word unique to this sweep, because the server is not known to accept a salt."""
    slots: Count | None = None
    """Requests that all its servers together can run at once; None if one of them does not report it."""
    slots_each: tuple[Count, ...] = ()
    """The same of each of its servers that reports it; empty in files of older versions."""
    version: Text | None = None
    """Version of the engine, of a router those of the engines behind it, joined by commas."""
    context_tokens: Count | None = None
    """Context length, the smallest that one of its servers reports."""
    router_version: Text | None = None
    """Of a router, like the next; None for an engine."""
    strategy: Text | None = None
    """How the router distributes requests, such as "least-busy"."""
    engines: tuple[Text, ...] = ()
    """Kinds of the servers behind a router, such as "vllm"; empty for an engine."""
    machines: dict[Text, Text] = Field(default_factory=dict)
    """Product, GPUs and driver of each machine by name; empty if unknown, and in files of older versions."""
    setups: dict[Text, dict[Text, Text]] = Field(default_factory=dict)
    """What each of its watched servers reports of its setup, by name: its version, the `flags` of its command
    line that change its speed, kernel, driver, NCCL. Empty if unknown, and in files of older versions."""
    commands: dict[Text, Text] = Field(default_factory=dict)
    """Command line of each of its watched servers, without what may be secret, by name; empty as above."""
    levels: tuple[LevelResult, ...] = ()
    """In the order of measurement, which is not ascending in a search for SLO limits."""

    def in_order(self) -> tuple[LevelResult, ...]:
        """Return the levels grouped by depth, then by prompt length, each group sorted by its points.

        The prompt lengths, and kinds of text, are in the order in which they were first measured, lengths
        that the server refuses behind them.
        """
        by_error = sorted(self.levels, key=lambda level: level.error is not None)
        lengths = list(dict.fromkeys(level.pp for level in by_error))
        texts = list(dict.fromkeys(level.point.text for level in self.levels))

        def place(level: LevelResult) -> tuple[int, int, LoadPoint, int]:
            bare = replace(level.point, text=None)
            return level.depth, lengths.index(level.pp), bare, texts.index(level.point.text)

        return tuple(sorted(self.levels, key=place))

    def answered(self) -> list[LevelResult]:
        """Return the levels at which a request was answered, in the order of `in_order`."""
        return [level for level in self.in_order() if level.requests.ok]


class Holds(Part):
    """The range of concurrencies at which one target meets all SLO conditions."""

    concurrency: int | None
    """The largest concurrency at which the conditions hold; None if they hold nowhere."""
    interval: tuple[int | None, int | None]
    """(largest concurrency that certainly holds, largest that may hold); the second is None if no level
    certainly failed."""
    from_concurrency: int | None = None
    """The smallest concurrency at which the conditions hold; None if no condition sets a minimum
    concurrency, or if they hold nowhere."""
    from_interval: tuple[int | None, int | None] | None = None
    """(smallest concurrency that may hold, smallest that certainly holds); None if no condition sets a
    minimum concurrency."""


class SloResult(Part):
    """The SLO conditions of a sweep, and the concurrencies at which each target meets them."""

    conditions: tuple[Text, ...]
    holds_to: dict[Text, Holds] = Field(default_factory=dict)


class SweepResult(Part):
    """The result of a sweep; while the sweep runs or if it was interrupted, what was measured so far."""

    schema_: Annotated[Literal["sparktop.sweep/1"], Field(alias="schema", serialization_alias="schema")] = (
        SCHEMA
    )
    started_at: Time
    finished_at: Time | None = None
    """None while the sweep runs, and in the file of a sweep that was killed."""
    sparktop: Text
    """Version of sparktop that measured."""
    simulated: bool = False
    status: Literal["done", "cancelled", "stopped_by_guard", "failed"] | None = None
    """None while the sweep runs, and in the file of a sweep that was killed."""
    stop_reason: Text | None = None
    plan: PlanResult
    guard: Text | None = None
    """The hardware limits that stop the sweep, and the machines they apply to, as one line of text; None in
    files of older versions."""
    client: ClientResult = ClientResult()
    targets: tuple[TargetResult, ...] = ()
    ran: tuple[RanRun, ...] = ()
    comparison: ComparisonResult | None = None
    slo: SloResult | None = None
    capacity: CapacityResult | None = None
    joined_from: tuple[Text, ...] = ()
    """In reports as JSON on several sweeps, the names of their files without suffix; else empty."""
    headline: Text | None = None
    """The answer of the sweep in one sentence, in reports as JSON; None in stored files, from which it is
    computed, and where nothing was measured."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    @property
    def has_levels(self) -> bool:
        """Whether at least one level was made, perhaps one that servers refused: else nothing is kept."""
        return any(target.levels for target in self.targets)

    @property
    def is_measured(self) -> bool:
        """Whether at least one level was measured."""
        return any(level.is_measured for target in self.targets for level in target.levels)

    @property
    def counted_prompt_tokens(self) -> float | None:
        """Mean prompt tokens of all completed requests as the servers counted them; None if none did."""
        levels = [level for target in self.targets for level in target.levels]
        counted = [(measured.counted_prompt_tokens, measured.requests.ok) for measured in levels]
        counts = [(count, ok) for count, ok in counted if count is not None and ok]
        total = sum(ok for _, ok in counts)
        return sum(count * ok for count, ok in counts) / total if total else None

    def prompt_lengths(self) -> list[int]:
        """Return the requested prompt lengths in tokens, ascending, of the plan and of all levels."""
        asked_lengths = {level.pp for target in self.targets for level in target.levels}
        asked_lengths |= {self.plan.pp, *self.plan.lengths}
        return sorted(length for length in asked_lengths if length is not None)

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object with every key; unknown values are None."""
        return self.model_dump(mode="json", by_alias=True)

    def target(self, name: str) -> TargetResult | None:
        """Return the target named `name`; None if the sweep has no such target."""
        return next((target for target in self.targets if target.name == name), None)

    def with_level(self, target: str, level: LevelResult) -> Self:
        """Return a copy of the result with `level` added to `target`, replacing a level of the same load.

        Raises:
            ValueError: the result has no such target.
        """
        measured = self.target(target)
        if measured is None:
            raise ValueError(f"the sweep has no target {target}")
        others = (other for other in measured.levels if level_of(other) != level_of(level))
        return self.with_target(measured.model_copy(update={"levels": (*others, level)}))

    def with_target(self, target: TargetResult) -> Self:
        """Return a copy of the result with `target` added, or replaced where a target has the same name."""
        targets = {known_target.name: known_target for known_target in self.targets} | {target.name: target}
        return self.model_copy(update={"targets": tuple(targets.values())})
