"""The models of a sweep's result file, of schema "sparktop.sweep/1".

Every key is always written; unknown values are null. A reader ignores unknown keys and treats missing keys as
unknown values, so neighbouring versions can read each other's files. All text is cleaned when it is read. The
models are frozen: a running sweep creates a new result with `with_level` at the end of each level. A level is
one load (concurrency and lengths) on one target; it is measured in several runs.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Field

from sparktop.model.load import TokenSource, concurrency_point
from sparktop.model.sweep_comparison import Value
from sparktop.sweep.plan.plan import TargetKind
from sparktop.sweep.result.agents.parts import AgentsResult
from sparktop.sweep.result.axis import AxisPart, LevelLoad, PlanResult, RanRun
from sparktop.sweep.result.capacity import CapacityResult
from sparktop.sweep.result.client import ClientResult
from sparktop.sweep.result.comparison import ComparisonResult
from sparktop.sweep.result.context import ContextPart
from sparktop.sweep.result.figures import Latency, Rate, StreamRates
from sparktop.sweep.result.open_loop import OpenLoopResult
from sparktop.sweep.result.parts import Count, Finite, Number, Part, Text, Time, Tree
from sparktop.sweep.result.replay.parts import ReplayResult
from sparktop.sweep.terms.definitions import ALL_LATENCIES, CALL_LATENCIES, LATENCIES, RATES
from sparktop.sweep.terms.doubts import SHORT_PROMPT
from sparktop.sweep.terms.statistics import value_of

SCHEMA: Final = "sparktop.sweep/1"


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


class TokenCounts(Part):
    """Numbers of tokens, summed over all requests of a level."""

    prompt: Count | None = None
    generated: Count | None = None
    hidden: Count | None = None
    """Generated tokens of completed requests whose arrival times are unknown; None in older files."""
    hidden_requests: Count | None = None
    """Completed requests with such hidden tokens."""


class EachRequest(Part):
    """The completed requests of a level: columns with one entry per request, in the order of their starts."""

    run: tuple[int, ...] = ()
    ttfr_ms: tuple[Number, ...] = ()
    ttft_ms: tuple[Number, ...] = ()
    e2e_ms: tuple[Number, ...] = ()
    stream_tps: tuple[Number, ...] = ()
    prompt_tokens: tuple[int | None, ...] = ()
    generated_tokens: tuple[int | None, ...] = ()
    start_ms: tuple[Number, ...] = ()
    """Milliseconds since the first request of the run started; empty in files of older versions."""
    wait_ms: tuple[Number, ...] = ()
    """Open loop: milliseconds from when the request was due to its start; empty otherwise."""
    served_by: tuple[int | None, ...] = ()
    """Index into `backends` of the backend that answered; empty if no answer named a backend."""
    backends: tuple[Text, ...] = ()


class UncountedRequests(Part):
    """The requests of a level that do not count for latencies: columns with one entry per request.

    They failed, were cancelled, or belong to an interrupted run. They are stored to draw runs completely.
    """

    run: tuple[int, ...] = ()
    start_ms: tuple[Number, ...] = ()
    """Milliseconds since the first request of the run started."""
    ttft_ms: tuple[Number, ...] = ()
    e2e_ms: tuple[Number, ...] = ()
    ok: tuple[bool, ...] = ()
    """True if the server completed the request."""
    served_by: tuple[int | None, ...] = ()
    """Index into `backends` of the backend that answered; empty if no answer named a backend."""
    backends: tuple[Text, ...] = ()


class BackendSide(Part):
    """Activity of one server behind the target during a level."""

    running_mean: Number = None
    """Mean number of running requests over all samples taken during runs, idle samples included."""
    running_max: Number = None
    waiting_max: Number = None
    kv_cache_max_percent: Number = None
    """Maximum used share, 0 to 100, of the KV caches of all the server's engine cores together."""
    prefill_ms: Number = None
    """Mean prefill time of a request during the measured runs, as the server reports it."""


class ServerSide(Part):
    """What all servers behind the target reported during a level."""

    running_max: Number = None
    waiting_max: Number = None
    kv_cache_max_percent: Number = None
    """Used share of the KV caches of the fullest server, all its engine cores together."""
    kv_fullest_percent: Number = None
    """Used share of the fullest engine core (data-parallel rank) of any server: once it is full, requests
    wait. None in older files."""
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


class Validity(Part):
    """A reason to doubt the metrics of a level."""

    code: Text
    message: Text


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
    prefill_tps: Rate | None = None
    decode_tps: Rate | None = None
    pure_decode_tps: Rate | None = None
    sustained_tps: Rate | None = None
    peak_tps: Rate | None = None
    output_tps: Rate | None = None
    total_tps: Rate | None = None
    requests_per_s: Rate | None = None
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
    stream_tps: StreamRates | None = None
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
    backends: dict[Text, BackendSide] = Field(default_factory=dict)
    """By server name; empty in files of older versions."""
    hardware: dict[Text, NodeSide] = Field(default_factory=dict)
    """By name of the machine."""
    padding_percent: Number = None
    """Share of a batch that is computed for nothing, because it runs in the next larger CUDA graph."""
    roofline_percent: Number = None
    """Decode rate of a single request in percent of what the memory bandwidth allows."""
    validity: tuple[Validity, ...] = ()
    limited_by: LimitSide | None = None
    balance: Tree | None = None
    """How evenly the router distributed the load over its backends, in the format of a JSON snapshot."""
    each: EachRequest | None = None
    """The completed requests one by one; None if there were too many to store."""
    uncounted: UncountedRequests | None = None
    """The other requests one by one; None if there were none, or too many to store."""

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
        return any(one.code == SHORT_PROMPT for one in self.validity)

    @property
    def same_load(self) -> LevelLoad:
        """What identifies the level among those of its target."""
        return self.point, self.pp, self.tg, self.depth

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
        powers = [side.power_w_mean for side in self.hardware.values()]
        rate = self.output_tps.mean if self.output_tps is not None else 0.0
        known = [power for power in powers if power is not None]
        return sum(known) / rate if rate > 0 and known and len(known) == len(powers) else None

    def rate(self, metric: str) -> Rate | None:
        """Return the rate `metric`; None if it was not measured or its name is not in `RATES`."""
        found = getattr(self, metric) if metric in RATES else None
        return found if isinstance(found, Rate) else None

    @property
    def figures(self) -> dict[str, Value]:
        """All rates and latencies that were measured, by name, with the interval over runs."""
        found = ((name, self.figure(name)) for name in (*RATES, *ALL_LATENCIES))
        return {name: value for name, value in found if value is not None}

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
        found = getattr(self, metric) if metric in LATENCIES else None
        return found if isinstance(found, Latency) else None


class TargetResult(Part):
    """The results of one target (an inference server or a router): what it is, and its measured levels."""

    name: Text
    url: Text
    kind: TargetKind = TargetKind.ENGINE
    engine: Text | None = None
    model: Text | None = None
    error: Text | None = None
    """Why the target was not measured, or not completely; else None."""
    fresh_by: Literal["cache_salt", "nonce"] | None = None
    """How requests avoided hits in the server's prefix cache.

    `cache_salt`: each request has a salt; prompts depend on the plan's seed alone. `nonce`: prompts depend on
    the seed and on a word unique to this sweep, because the server is not known to accept a salt."""
    slots: Count | None = None
    """Requests that all its servers together can run at once; None if one of them does not report it."""
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
    levels: tuple[LevelResult, ...] = ()
    """In the order of measurement, which is not ascending in a search for SLO limits."""

    def in_order(self) -> tuple[LevelResult, ...]:
        """Return the levels grouped by depth, then by prompt length, each group sorted by its points.

        The prompt lengths are in the order in which they were first measured.
        """
        lengths = list(dict.fromkeys(level.pp for level in self.levels))
        return tuple(sorted(self.levels, key=lambda one: (one.depth, lengths.index(one.pp), one.point)))


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
    def is_measured(self) -> bool:
        """Whether at least one level was measured."""
        return any(level.error is None for target in self.targets for level in target.levels)

    @property
    def counted_prompt_tokens(self) -> float | None:
        """Mean prompt tokens of all completed requests as the servers counted them; None if none did."""
        levels = [level for target in self.targets for level in target.levels]
        known = [(one.counted_prompt_tokens, one.requests.ok) for one in levels]
        counts = [(count, ok) for count, ok in known if count is not None and ok]
        total = sum(ok for _, ok in counts)
        return sum(count * ok for count, ok in counts) / total if total else None

    def prompt_lengths(self) -> list[int]:
        """Return the requested prompt lengths in tokens, ascending, of the plan and of all levels."""
        asked = {level.pp for target in self.targets for level in target.levels} | {self.plan.pp}
        return sorted(length for length in asked if length is not None)

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object with every key; unknown values are None."""
        return self.model_dump(mode="json", by_alias=True)

    def target(self, name: str) -> TargetResult | None:
        """Return the target named `name`; None if the sweep has no such target."""
        return next((one for one in self.targets if one.name == name), None)

    def with_level(self, target: str, level: LevelResult) -> Self:
        """Return a copy of the result with `level` added to `target`, replacing a level of the same load.

        Raises:
            ValueError: the result has no such target.
        """
        found = self.target(target)
        if found is None:
            raise ValueError(f"the sweep has no target {target}")
        others = (one for one in found.levels if one.same_load != level.same_load)
        return self.with_target(found.model_copy(update={"levels": (*others, level)}))

    def with_target(self, target: TargetResult) -> Self:
        """Return a copy of the result with `target` added, or replaced where a target has the same name."""
        others = [one if one.name != target.name else target for one in self.targets]
        known = any(one.name == target.name for one in self.targets)
        return self.model_copy(update={"targets": tuple(others if known else [*others, target])})
