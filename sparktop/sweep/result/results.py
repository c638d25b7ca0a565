"""The result of a sweep as a file: schema "sparktop.sweep/1".

Every key is always written; what is unknown is null. A reader passes over keys that it does not know, and
those that are missing are unknown: neighbouring versions read each other's files. All text is cleaned as it
is read. The models are frozen: a sweep that goes on makes a new one with `with_level` at the end of each.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Field

from sparktop.model.load import LoadMode, TokenSource
from sparktop.sweep.plan.plan import Api, Order, TargetKind
from sparktop.sweep.result.comparison import ComparisonResult
from sparktop.sweep.result.parts import MOST_CONCURRENCY, Count, Number, Part, Text, Time, Tree, Value
from sparktop.sweep.terms.definitions import LATENCIES, RATES

SCHEMA: Final = "sparktop.sweep/1"


class Rate(Part):
    """A rate with one value a run."""

    mean: Value
    std: Number = None
    values: tuple[Value, ...] = ()
    ci95: tuple[Value, Value] | None = None


class Latency(Part):
    """Milliseconds over requests."""

    mean: Value
    std: Number = None
    p50: Number = None
    p90: Number = None
    p95: Number = None
    p99: Number = None
    max: Number = None
    count: Count | None = None
    run_means: tuple[Value, ...] = ()
    """The mean of each run: runs are the replicates of a comparison, requests are not."""


class Requests(Part):
    """How the requests of a level ended."""

    ok: Count = 0
    failed: Count = 0
    cancelled: Count = 0
    errors: dict[Text, Count] = Field(default_factory=dict)
    """By the words of `request_errors`."""


class TokenCounts(Part):
    """Tokens of a level."""

    prompt: Count | None = None
    generated: Count | None = None
    hidden: Count | None = None
    """Generated tokens that no chunk shows and whose times are unknown; None in an older file."""
    hidden_requests: Count | None = None
    """Finished requests with such tokens."""


class StreamRates(Part):
    """Tokens a second of single streams."""

    p10: Number = None
    p50: Number = None


class EachRequest(Part):
    """Columns with one entry for each request that the server finished, in the order of their starts."""

    run: tuple[int, ...] = ()
    ttfr_ms: tuple[Number, ...] = ()
    ttft_ms: tuple[Number, ...] = ()
    e2e_ms: tuple[Number, ...] = ()
    stream_tps: tuple[Number, ...] = ()
    prompt_tokens: tuple[int | None, ...] = ()
    generated_tokens: tuple[int | None, ...] = ()
    start_ms: tuple[Number, ...] = ()
    """From the first start of its run; empty in a file that is older than this column."""
    served_by: tuple[int | None, ...] = ()
    """Place in `backends`; empty where nobody told any."""
    backends: tuple[Text, ...] = ()


class UncountedRequests(Part):
    """Columns with one entry for each request that no latency counts: for the picture of its run.

    It failed, was called off, or belongs to a run that was broken off.
    """

    run: tuple[int, ...] = ()
    start_ms: tuple[Number, ...] = ()
    """From the first start of its run."""
    ttft_ms: tuple[Number, ...] = ()
    e2e_ms: tuple[Number, ...] = ()
    ok: tuple[bool, ...] = ()
    """True where the server finished it."""
    served_by: tuple[int | None, ...] = ()
    """Place in `backends`; empty where nobody told any."""
    backends: tuple[Text, ...] = ()


class BackendSide(Part):
    """What one server behind the load did while a level ran."""

    running_mean: Number = None
    """Mean of all looks at its running requests while runs went on, those included that found it idle."""
    running_max: Number = None
    waiting_max: Number = None
    kv_cache_max_percent: Number = None
    """Used share of its lanes' caches together."""
    prefill_ms: Number = None
    """Mean of the measured runs, by the server's own word."""


class ServerSide(Part):
    """What the server told of itself while a level ran."""

    running_max: Number = None
    waiting_max: Number = None
    kv_cache_max_percent: Number = None
    """Of the fullest server: the used share of its lanes' caches together."""
    kv_fullest_percent: Number = None
    """Of the fullest lane of any server: what makes its requests wait. None in older files."""
    preemptions: Number = None
    generation_tokens: Number = None
    """How much its counter grew."""
    prompt_tokens: Number = None
    prefix_cache_hit_percent: Number = None


class NodeSide(Part):
    """What a machine did while a level ran."""

    gpu_c_max: Number = None
    power_w_mean: Number = None
    sm_clock_mhz_mean: Number = None
    throttled_percent: Number = None
    headroom_min_bytes: Number = None


class Validity(Part):
    """A reason not to believe a level."""

    code: Text
    message: Text


class LevelResult(Part):
    """What one target gave under one concurrency."""

    concurrency: Annotated[int, Field(ge=1, le=MOST_CONCURRENCY)]
    pp: Count | None = None
    """Prompt tokens asked for, of each request; the plan's where None."""
    tg: Count | None = None
    error: Text | None = None
    """Why it has no figures: the words of a server that refuses prompts of its length; else None."""
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
    ttfr_ms: Latency | None = None
    ttft_ms: Latency | None = None
    first_answer_ms: Latency | None = None
    itl_ms: Latency | None = None
    tpot_ms: Latency | None = None
    e2e_ms: Latency | None = None
    stream_tps: StreamRates | None = None
    served_by: dict[Text, Count] = Field(default_factory=dict)
    """Requests by backend, all runs added up: a router that sends each run elsewhere looks even here."""
    runs_split: tuple[dict[Text, Count], ...] = ()
    """Requests by backend of each run; empty where nobody named who served, and in older files."""
    busy_batch: dict[Text, Value] = Field(default_factory=dict)
    """Mean batch of each backend while it computed anything; without those where it is unknown."""
    router_overhead_ms: Number = None
    """What a router adds to a request; `router_overhead_from` says how that is known."""
    router_overhead_from: Literal["router", "direct"] | None = None
    """`router`: the median of its own count, in a header of each answer. `direct`: at c = 1, its median TTFT
    less that of its backends asked directly. None in an older file: there it was such a difference at any
    concurrency, which holds uneven load as well."""
    server: ServerSide | None = None
    backends: dict[Text, BackendSide] = Field(default_factory=dict)
    """The servers one by one; empty in a file that is older than this part."""
    hardware: dict[Text, NodeSide] = Field(default_factory=dict)
    padding_percent: Number = None
    roofline_percent: Number = None
    validity: tuple[Validity, ...] = ()
    balance: Tree | None = None
    """As in a snapshot."""
    each: EachRequest | None = None
    """None for a level with very many requests."""
    uncounted: UncountedRequests | None = None
    """None where there is none, or very many."""

    @property
    def known_servers(self) -> tuple[str, ...]:
        """The servers behind the target by name, those that answered nothing too."""
        return tuple(sorted({*self.backends, *self.served_by, *self.busy_batch}))

    @property
    def own_overhead_ms(self) -> float | None:
        """What the router itself adds; None where the file's figure may hold uneven load as well."""
        is_own = self.router_overhead_from is not None or self.concurrency == 1
        return self.router_overhead_ms if is_own else None

    def rate(self, metric: str) -> Rate | None:
        """Give one of `RATES`."""
        found = getattr(self, metric) if metric in RATES else None
        return found if isinstance(found, Rate) else None

    def latency(self, metric: str) -> Latency | None:
        """Give one of `LATENCIES`."""
        found = getattr(self, metric) if metric in LATENCIES else None
        return found if isinstance(found, Latency) else None


class TargetResult(Part):
    """What one target gave."""

    name: Text
    url: Text
    kind: TargetKind = TargetKind.ENGINE
    engine: Text | None = None
    model: Text | None = None
    error: Text | None = None
    """Why it was not measured, or not to the end."""
    fresh_by: Literal["cache_salt", "nonce"] | None = None
    """What kept prompts out of the prefix cache.

    `cache_salt`: a salt for each request; the prompts follow from the plan's seed alone. `nonce`: the server
    is not known to take a salt; the prompts follow from the seed and a word that only this sweep has.
    """
    levels: tuple[LevelResult, ...] = ()
    """In the order in which they were made; a search jumps."""

    def in_order(self) -> tuple[LevelResult, ...]:
        """Return the levels by concurrency; of several prompt lengths, those of the first one first."""
        lengths = list(dict.fromkeys(level.pp for level in self.levels))
        return tuple(sorted(self.levels, key=lambda one: (lengths.index(one.pp), one.concurrency)))


class PlanResult(Part):
    """What the sweep was to do."""

    targets: tuple[Text, ...] = ()
    concurrency: tuple[int, ...] = ()
    pp: Count | None = None
    tg: Count | None = None
    runs: Count | None = None
    mode: LoadMode = LoadMode.BURST
    duration_s: Number = None
    requests: Count | None = None
    order: Order = Order.ASCENDING
    api: Api = Api.CHAT
    seed: int | None = None
    warmup: bool = True
    tokens_from: TokenSource | None = None
    """The worst of all levels."""
    preset: Text | None = None


class LoopLag(Part):
    """How late the generator's timers came, in milliseconds."""

    mean: Number = None
    p50: Number = None
    p99: Number = None
    max: Number = None


class ClientResult(Part):
    """How the generator itself fared."""

    loop: Literal["uvloop", "asyncio"] | None = None
    cpu_percent: Number = None
    loop_lag_ms: LoopLag | None = None
    connect_ms: Number = None
    trustworthy: bool | None = None
    reasons: tuple[Text, ...] = ()


class RanRun(Part):
    """A run as it was made: the order of levels and targets is part of a result."""

    target: Text
    concurrency: int
    run: int
    started_at: Time | None = None


class Holds(Part):
    """The concurrencies under which all conditions hold for one target."""

    concurrency: int | None
    """The largest; None where they hold nowhere."""
    interval: tuple[int | None, int | None]
    """The largest that surely holds and the largest that may; the second is None where no level failed."""
    from_concurrency: int | None = None
    """The smallest; None without a condition that needs a least concurrency, or where they hold nowhere."""
    from_interval: tuple[int | None, int | None] | None = None
    """The smallest that may hold and the smallest that surely does; None without such a condition."""


class SloResult(Part):
    """How many agents it can take."""

    conditions: tuple[Text, ...]
    holds_to: dict[Text, Holds] = Field(default_factory=dict)


class SweepResult(Part):
    """A whole sweep, or as much of it as there is yet."""

    schema_: Annotated[Literal["sparktop.sweep/1"], Field(alias="schema", serialization_alias="schema")] = (
        SCHEMA
    )
    started_at: Time
    finished_at: Time | None = None
    """None while it runs; a file without it is of a sweep that was killed."""
    sparktop: Text
    simulated: bool = False
    status: Literal["done", "cancelled", "stopped_by_guard", "failed"] | None = None
    """None while it runs: nobody knows yet how it ends."""
    stop_reason: Text | None = None
    plan: PlanResult
    guard: Text | None = None
    """What stops the sweep on which machines, in a line; None in older files."""
    client: ClientResult = ClientResult()
    targets: tuple[TargetResult, ...] = ()
    ran: tuple[RanRun, ...] = ()
    comparison: ComparisonResult | None = None
    slo: SloResult | None = None

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    def prompt_lengths(self) -> list[int]:
        """Return the prompt lengths that were asked for, ascending: the plan's, or those of its levels."""
        asked = {level.pp for target in self.targets for level in target.levels} | {self.plan.pp}
        return sorted(length for length in asked if length is not None)

    def to_json(self) -> dict[str, Any]:
        """Give it as JSON values, every key there."""
        return self.model_dump(mode="json", by_alias=True)

    def target(self, name: str) -> TargetResult | None:
        """Give a target by its name."""
        return next((one for one in self.targets if one.name == name), None)

    def with_level(self, target: str, level: LevelResult) -> Self:
        """Give this result with one more level of a target; one of the same load is replaced.

        Raises:
            ValueError: it has no such target.
        """
        found = self.target(target)
        if found is None:
            raise ValueError(f"the sweep has no target {target}")
        load = (level.concurrency, level.pp, level.tg)
        others = (one for one in found.levels if (one.concurrency, one.pp, one.tg) != load)
        return self.with_target(found.model_copy(update={"levels": (*others, level)}))

    def with_target(self, target: TargetResult) -> Self:
        """Give this result with a target added, or replaced where one has its name."""
        others = [one if one.name != target.name else target for one in self.targets]
        known = any(one.name == target.name for one in self.targets)
        return self.model_copy(update={"targets": tuple(others if known else [*others, target])})
