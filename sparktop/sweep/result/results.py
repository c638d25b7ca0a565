"""The result of a sweep as stored in a file of schema "sparktop.sweep/1".

Every key is always written; unknown values are null. A reader ignores unknown keys and treats missing ones as
unknown, so neighbouring versions can read each other's files. All text is cleaned when it is read. The models
are frozen: a running sweep creates a new result with `with_level` at the end of each level.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Field

from sparktop.model.load import LoadMode, TokenSource
from sparktop.sweep.plan.plan import Api, Order, TargetKind
from sparktop.sweep.result.comparison import ComparisonResult
from sparktop.sweep.result.figures import Latency, Rate, StreamRates
from sparktop.sweep.result.parts import MOST_CONCURRENCY, Count, Number, Part, Text, Time, Tree, Value
from sparktop.sweep.terms.definitions import LATENCIES, RATES

SCHEMA: Final = "sparktop.sweep/1"


class Requests(Part):
    """How the requests of a level ended."""

    ok: Count = 0
    failed: Count = 0
    cancelled: Count = 0
    errors: dict[Text, Count] = Field(default_factory=dict)
    """By error code, see `request_errors`."""


class TokenCounts(Part):
    """Tokens of all requests of a level."""

    prompt: Count | None = None
    generated: Count | None = None
    hidden: Count | None = None
    """Generated tokens that no chunk shows and whose times are unknown; None in files of older versions."""
    hidden_requests: Count | None = None
    """Completed requests with such tokens."""


class EachRequest(Part):
    """Columns with one entry per completed request, in the order of their starts."""

    run: tuple[int, ...] = ()
    ttfr_ms: tuple[Number, ...] = ()
    ttft_ms: tuple[Number, ...] = ()
    e2e_ms: tuple[Number, ...] = ()
    stream_tps: tuple[Number, ...] = ()
    prompt_tokens: tuple[int | None, ...] = ()
    generated_tokens: tuple[int | None, ...] = ()
    start_ms: tuple[Number, ...] = ()
    """Relative to the first start of its run; empty in files of older versions."""
    served_by: tuple[int | None, ...] = ()
    """Index into `backends`; empty if no backend was named."""
    backends: tuple[Text, ...] = ()


class UncountedRequests(Part):
    """Columns with one entry per request that is not part of the latencies, to draw its run completely.

    These requests failed, were cancelled, or belong to a run that was interrupted.
    """

    run: tuple[int, ...] = ()
    start_ms: tuple[Number, ...] = ()
    """Relative to the first start of its run."""
    ttft_ms: tuple[Number, ...] = ()
    e2e_ms: tuple[Number, ...] = ()
    ok: tuple[bool, ...] = ()
    """True if the server completed it."""
    served_by: tuple[int | None, ...] = ()
    """Index into `backends`; empty if no backend was named."""
    backends: tuple[Text, ...] = ()


class BackendSide(Part):
    """Activity of one server behind the target during a level."""

    running_mean: Number = None
    """Mean of all samples of its running requests during runs, idle samples included."""
    running_max: Number = None
    waiting_max: Number = None
    kv_cache_max_percent: Number = None
    """Used share of the KV caches of all its lanes together."""
    prefill_ms: Number = None
    """Mean over the measured runs, as the server reports it."""


class ServerSide(Part):
    """What the servers reported during a level."""

    running_max: Number = None
    waiting_max: Number = None
    kv_cache_max_percent: Number = None
    """The fullest server: used share of the KV caches of all its lanes together."""
    kv_fullest_percent: Number = None
    """The fullest lane of any server, which decides whether requests wait. None in older files."""
    preemptions: Number = None
    generation_tokens: Number = None
    """Growth of the servers' counter."""
    prompt_tokens: Number = None
    prefix_cache_hit_percent: Number = None


class NodeSide(Part):
    """Activity of a machine during a level."""

    gpu_c_max: Number = None
    power_w_mean: Number = None
    sm_clock_mhz_mean: Number = None
    throttled_percent: Number = None
    headroom_min_bytes: Number = None


class Validity(Part):
    """A reason to doubt a level."""

    code: Text
    message: Text


class LevelResult(Part):
    """The result of one target at one concurrency and prompt length."""

    concurrency: Annotated[int, Field(ge=1, le=MOST_CONCURRENCY)]
    pp: Count | None = None
    """Prompt tokens requested; None means the plan's."""
    tg: Count | None = None
    error: Text | None = None
    """Why there are no figures: the error message of a server that refuses prompts of this length; else None.
    """
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
    """None in files of older versions."""
    ttfr_ms: Latency | None = None
    ttft_ms: Latency | None = None
    first_answer_ms: Latency | None = None
    itl_ms: Latency | None = None
    tpot_ms: Latency | None = None
    e2e_ms: Latency | None = None
    stream_tps: StreamRates | None = None
    served_by: dict[Text, Count] = Field(default_factory=dict)
    """Requests by backend, summed over runs. A router that sends each run to another backend appears even
    here."""
    runs_split: tuple[dict[Text, Count], ...] = ()
    """Requests by backend for each run; empty if no backend was named, and in files of older versions."""
    busy_batch: dict[Text, Value] = Field(default_factory=dict)
    """Mean batch size of each backend while it computed; backends without this figure are left out."""
    router_overhead_ms: Number = None
    """Milliseconds that a router adds to a request; `router_overhead_from` is the source of the figure."""
    router_overhead_from: Literal["router", "direct"] | None = None
    """`router`: median of what the router itself reports in a header of each answer. `direct`: only at c = 1,
    its median TTFT minus that of its backends measured directly. None in files of older versions: there it
    was this difference at any concurrency, which includes the effect of uneven load."""
    server: ServerSide | None = None
    backends: dict[Text, BackendSide] = Field(default_factory=dict)
    """By server name; empty in files of older versions."""
    hardware: dict[Text, NodeSide] = Field(default_factory=dict)
    padding_percent: Number = None
    roofline_percent: Number = None
    validity: tuple[Validity, ...] = ()
    balance: Tree | None = None
    """In the format of a snapshot."""
    each: EachRequest | None = None
    """None for a level with more requests than are kept."""
    uncounted: UncountedRequests | None = None
    """None if there are none, or more than are kept."""

    @property
    def known_servers(self) -> tuple[str, ...]:
        """Names of the servers behind the target, including those that answered no request."""
        return tuple(sorted({*self.backends, *self.served_by, *self.busy_batch}))

    @property
    def own_overhead_ms(self) -> float | None:
        """Milliseconds added by the router itself; None where the stored figure may include uneven load."""
        is_own = self.router_overhead_from is not None or self.concurrency == 1
        return self.router_overhead_ms if is_own else None

    def rate(self, metric: str) -> Rate | None:
        """Return the rate of that name; None if unknown or not in `RATES`."""
        found = getattr(self, metric) if metric in RATES else None
        return found if isinstance(found, Rate) else None

    def latency(self, metric: str) -> Latency | None:
        """Return the latency of that name; None if unknown or not in `LATENCIES`."""
        found = getattr(self, metric) if metric in LATENCIES else None
        return found if isinstance(found, Latency) else None


class TargetResult(Part):
    """The results of one target."""

    name: Text
    url: Text
    kind: TargetKind = TargetKind.ENGINE
    engine: Text | None = None
    model: Text | None = None
    error: Text | None = None
    """Why it was not measured, or not completely."""
    fresh_by: Literal["cache_salt", "nonce"] | None = None
    """How prompts were kept out of the prefix cache.

    `cache_salt`: a salt for each request; the prompts depend on the plan's seed alone. `nonce`: the server is
    not known to accept a salt; the prompts depend on the seed and on a word unique to this sweep."""
    levels: tuple[LevelResult, ...] = ()
    """In the order in which they were measured; a search does not go in order of concurrency."""

    def in_order(self) -> tuple[LevelResult, ...]:
        """Return the levels by prompt length in order of first appearance, then by concurrency."""
        lengths = list(dict.fromkeys(level.pp for level in self.levels))
        return tuple(sorted(self.levels, key=lambda one: (lengths.index(one.pp), one.concurrency)))


class PlanResult(Part):
    """The plan of the sweep."""

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
    """The least exact source among all levels."""
    preset: Text | None = None


class LoopLag(Part):
    """Delay of the generator's timers in milliseconds."""

    mean: Number = None
    p50: Number = None
    p99: Number = None
    max: Number = None


class ClientResult(Part):
    """The health of the load generator."""

    loop: Literal["uvloop", "asyncio"] | None = None
    cpu_percent: Number = None
    loop_lag_ms: LoopLag | None = None
    connect_ms: Number = None
    trustworthy: bool | None = None
    reasons: tuple[Text, ...] = ()


class RanRun(Part):
    """A run in the order of execution, because the order of levels and targets is part of a result."""

    target: Text
    concurrency: int
    run: int
    started_at: Time | None = None


class Holds(Part):
    """The range of concurrencies at which all conditions hold for one target."""

    concurrency: int | None
    """The largest concurrency at which they hold; None if they hold nowhere."""
    interval: tuple[int | None, int | None]
    """(largest that certainly holds, largest that may hold); the second is None if no level failed."""
    from_concurrency: int | None = None
    """The smallest concurrency at which they hold; None without a condition that sets a minimum, or if they
    hold nowhere."""
    from_interval: tuple[int | None, int | None] | None = None
    """(smallest that may hold, smallest that certainly holds); None without such a condition."""


class SloResult(Part):
    """The concurrency at which the SLO conditions hold, by target."""

    conditions: tuple[Text, ...]
    holds_to: dict[Text, Holds] = Field(default_factory=dict)


class SweepResult(Part):
    """A complete sweep, or the part of it that is finished."""

    schema_: Annotated[Literal["sparktop.sweep/1"], Field(alias="schema", serialization_alias="schema")] = (
        SCHEMA
    )
    started_at: Time
    finished_at: Time | None = None
    """None while it runs; a file without it belongs to a sweep that was killed."""
    sparktop: Text
    simulated: bool = False
    status: Literal["done", "cancelled", "stopped_by_guard", "failed"] | None = None
    """None while it runs."""
    stop_reason: Text | None = None
    plan: PlanResult
    guard: Text | None = None
    """The limits that stop the sweep and the machines they apply to, in one line; None in files of older
    versions."""
    client: ClientResult = ClientResult()
    targets: tuple[TargetResult, ...] = ()
    ran: tuple[RanRun, ...] = ()
    comparison: ComparisonResult | None = None
    slo: SloResult | None = None

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    def prompt_lengths(self) -> list[int]:
        """Return the requested prompt lengths, ascending, from the plan and from the levels."""
        asked = {level.pp for target in self.targets for level in target.levels} | {self.plan.pp}
        return sorted(length for length in asked if length is not None)

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values, with every key."""
        return self.model_dump(mode="json", by_alias=True)

    def target(self, name: str) -> TargetResult | None:
        """Return the target of that name; None if there is none."""
        return next((one for one in self.targets if one.name == name), None)

    def with_level(self, target: str, level: LevelResult) -> Self:
        """Return a copy with another level of a target; replaces a level of the same load.

        Raises:
            ValueError: the result has no such target.
        """
        found = self.target(target)
        if found is None:
            raise ValueError(f"the sweep has no target {target}")
        load = (level.concurrency, level.pp, level.tg)
        others = (one for one in found.levels if (one.concurrency, one.pp, one.tg) != load)
        return self.with_target(found.model_copy(update={"levels": (*others, level)}))

    def with_target(self, target: TargetResult) -> Self:
        """Return a copy with a target added, or replaced if one has its name."""
        others = [one if one.name != target.name else target for one in self.targets]
        known = any(one.name == target.name for one in self.targets)
        return self.model_copy(update={"targets": tuple(others if known else [*others, target])})
