"""Samples of an inference server: gauges, counters and histogram buckets as read, never rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from sparktop.model.plain import compare_without, hide_in_repr
from sparktop.model.series import known_max

UNKNOWN_REASON = "unknown"
"""The reason of finished requests on a page that names none."""


class Histogram(Struct, frozen=True):
    """A Prometheus histogram as exposed: cumulative counts since the server's start."""

    bounds: tuple[float, ...]
    """Upper bounds (`le`), ascending; the last is `inf`."""
    cumulative: Sequence[float]
    """Observations at or below each bound; as long as `bounds`."""
    sum: float
    """Sum of all observations, in the metric's own unit (seconds, tokens)."""

    @property
    def count(self) -> float:
        """Number of observations: the count at `inf`."""
        return self.cumulative[-1] if self.cumulative else 0.0


_HELD_ELSEWHERE = ("grammar_queue", "paused", "pd_bootstrap", "pd_prealloc", "pd_transfer")
"""Gauges of SGLang and TensorRT-LLM that count requests in no other number."""


class LaneSample(Struct, frozen=True):
    """The metrics of one engine core ("lane") of a server: a data-parallel rank, or the server's only core.

    Counters start at 0 with the server. Histograms are in seconds unless stated otherwise.
    """

    lane: str
    """Name of the engine core: the `engine` label on the page, "0" where the page has none."""
    running: float | None = None
    waiting: float | None = None
    waiting_for_capacity: float | None = None
    """Waiting requests that would run if the engine had a free place (vLLM >= 0.22); part of `waiting`."""
    kv_cache_percent: float | None = None
    """Used share of the KV cache, 0 to 100."""
    kv_capacity_tokens: float | None = None
    prompt_tokens: float | None = None
    """Prompt tokens received, cached ones included."""
    prompt_tokens_computed: float | None = None
    prompt_tokens_cached: float | None = None
    generation_tokens: float | None = None
    preemptions: float | None = None
    prefix_cache_hits: float | None = None
    """Tokens found in the prefix cache."""
    prefix_cache_queries: float | None = None
    """Tokens looked up in the prefix cache."""
    external_cache_hits: float | None = None
    """Tokens found in a cache outside the server, which a KV connector shares between servers."""
    external_cache_queries: float | None = None
    """Tokens looked up in this cache."""
    media_cache_hits: float | None = None
    """Images, videos and sounds of prompts that were found preprocessed."""
    media_cache_queries: float | None = None
    """Images, videos and sounds that were looked up."""
    prefix_cache_hit_percent: float | None = None
    """Hit rate as the server's own gauge, 0 to 100, from versions that expose no counters (vLLM 0.8.5)."""
    spec_drafts: float | None = None
    spec_draft_tokens: float | None = None
    spec_accepted_tokens: float | None = None
    spec_accept_percent: float | None = None
    """Acceptance rate as the server's own gauge, 0 to 100, from versions that expose no counters."""
    read_bytes_per_gpu: float | None = None
    """Estimated bytes that each GPU read (vLLM with --enable-mfu-metrics); None where the page says 0."""
    prefill_seconds: float | None = None
    """Seconds that the engine has computed prompts, by its own count; None where it does not count them."""
    decode_seconds: float | None = None
    """Seconds that it has generated tokens, by its own count."""
    engine_work: float | None = None
    """A counter that grows with every forward pass of the engine, in a unit of its own, prefill included; it
    shows only whether the engine goes on. None where a server has no such counter."""
    asleep: bool | None = None
    generation_tps_gauge: float | None = None
    """Generated tokens per second, as reported by the server itself."""
    per_finished_request: bool = False
    """True where `generation_tokens` grows only when a request finishes, so that the token rate comes in
    jumps."""
    finished: Mapping[str, float] = {}
    """Finished requests by reason."""
    counts: Mapping[str, float] = {}
    """Counters that only some servers report, by the name that `COUNTER_FIGURES` uses. Keys that
    begin with `POSITION` count accepted draft tokens by their position in the draft."""
    gauges: Mapping[str, float] = {}
    """Gauges that only some servers report, by the name that `COUNTER_FIGURES` uses."""
    ttft: Histogram | None = None
    itl: Histogram | None = None
    tpot: Histogram | None = None
    e2e: Histogram | None = None
    queue: Histogram | None = None
    prefill: Histogram | None = None
    decode: Histogram | None = None
    step_tokens: Histogram | None = None
    """Tokens per engine step."""
    answer_tokens: Histogram | None = None
    """Generated tokens of a request, counted when it is finished."""
    request_tokens: Histogram | None = None
    """Prompt tokens of a request, counted when it is finished."""

    @property
    def held_elsewhere(self) -> float:
        """Requests that neither run nor wait for a place: for a grammar, a KV transfer, or after a pause."""
        return sum(self.gauges.get(name, 0.0) for name in _HELD_ELSEWHERE)


LANE_COUNTERS = (
    "prompt_tokens",
    "prompt_tokens_computed",
    "prompt_tokens_cached",
    "generation_tokens",
    "preemptions",
    "prefix_cache_hits",
    "prefix_cache_queries",
    "external_cache_hits",
    "external_cache_queries",
    "media_cache_hits",
    "media_cache_queries",
    "spec_drafts",
    "spec_draft_tokens",
    "spec_accepted_tokens",
    "read_bytes_per_gpu",
    "prefill_seconds",
    "decode_seconds",
)
"""Fields of `LaneSample` that never decrease while the server's process lives."""


POSITION = "spec_position_"
"""Beginning of the keys of `LaneSample.counts` that count accepted draft tokens by their position, from 0."""
LANE_HISTOGRAMS = (
    *("ttft", "itl", "tpot", "e2e", "queue", "prefill", "decode"),
    *("step_tokens", "answer_tokens", "request_tokens"),
)
"""Fields of `LaneSample` that hold a `Histogram`."""


class PrefixCache(Struct, frozen=True):
    """How the prefix cache of a server is configured, as far as the server reports it."""

    on: bool | None = None
    block_tokens: int | None = None
    """Prompts are found in whole blocks of so many tokens: a shorter one cannot be."""
    states: str | None = None
    """Of a hybrid model, how the states of its recurrent layers are kept: "align", "all", "none" (vLLM)."""


@hide_in_repr("page")
@compare_without("page")
class EngineSample(Struct, frozen=True):
    """A parsed metrics page of an inference server.

    Has one `LaneSample` for each engine core (data-parallel rank).
    """

    at: float
    """Monotonic time, on this machine, when the answer's first byte arrived."""
    engine: str
    """Name of the engine whose parser read the page: "vllm", "sglang", ..., or "openai" where only the
    list of models is known."""
    lanes: tuple[LaneSample, ...]
    """One for each engine core, sorted by name; never empty."""
    models: tuple[str, ...] = ()
    """Served model names on the page, cleaned, sorted."""
    start_time: float | None = None
    """The server process's start as Unix time (`process_start_time_seconds`)."""
    cpu_s: float | None = None
    """CPU seconds that the process of the HTTP server has used (`process_cpu_seconds_total`)."""
    answer_ms: float | None = None
    """Milliseconds from the request to the last byte."""
    page_bytes: int | None = None
    note: str | None = None
    """Why metrics are missing, in one clean line; None where all are present."""
    role: str | None = None
    """What the server does of each request, as its page reports it: "prefill", "decode", or another clean
    word; None where the page does not report it."""
    slots: int | None = None
    """Most requests that the server runs at once, where its page reports that."""
    counted_at_arrival: frozenset[str] = frozenset()
    """Counters of `LaneSample` to which the HTTP side adds when a request arrives, whether or not the engine
    ever takes it."""
    prefix_cache: PrefixCache | None = None
    startup: Mapping[str, float] = {}
    """Seconds that phases of the server's start took, by their names on the page; empty without them."""
    impossible: Mapping[str, float] = {}
    """Values on the page that no server can have, by metric; the figures of these are unknown."""
    cache_age_s: float | None = None
    """Seconds for which a cache has held the page (the header `Age`); None where no cache says so."""
    client: tuple[int, int] | None = None
    """`end_marks` of this program's end of the connection that the page came by; None where unknown."""
    page: bytes | None = None
    """The answer that the sample was read from, decompressed, for a recording; None where there was none."""


@compare_without("models")
class EngineIdentity(Struct, frozen=True):
    """The version, model and limits that a server reports, at first contact and after a restart."""

    version: str | None = None
    model: str | None = None
    """The first served model name."""
    max_model_len: int | None = None
    """Tokens."""
    slots: int | None = None
    """Most requests that the server runs at once, where it reports that."""
    models: tuple[str, ...] | None = None
    """All names under which the server answers requests; None where it does not list them."""
    kv_capacity_tokens: int | None = None
    """Tokens for which the KV caches of all its engine cores have room, where it reports that apart from its
    metrics."""
    prefix_cache: PrefixCache | None = None
    """None where its metrics report it, or nothing does."""


def lane_sum(lanes: Sequence[LaneSample], of: Callable[[LaneSample], float | None]) -> float | None:
    """Return the sum of `of(lane)` over all lanes.

    None if `lanes` is empty, or if `of` returns None for any lane: the sum of the others would be too low.
    The board, the balance and the levels of a sweep use this rule.
    """
    if len(lanes) == 1:
        value = of(lanes[0])
        return None if value is None else 0 + value
    values = [value for value in map(of, lanes) if value is not None]
    return sum(values) if values and len(values) == len(lanes) else None


def kv_used_percent(lanes: Sequence[LaneSample]) -> float | None:
    """Return the used share (0 to 100) of all lanes' KV caches taken together.

    The mean of the lanes' shares is weighted by KV cache capacity if every lane reports its capacity, else
    unweighted. None without lanes, or where a lane does not report its share.
    """
    shares = [lane.kv_cache_percent for lane in lanes]
    numbers = [share for share in shares if share is not None]
    if not numbers or len(numbers) < len(shares):
        return None
    capacities = [lane.kv_capacity_tokens or 0.0 for lane in lanes]
    if not all(capacity > 0 for capacity in capacities):
        return sum(numbers) / len(numbers)
    used = sum(share * capacity for share, capacity in zip(numbers, capacities, strict=True))
    return used / sum(capacities)


def kv_fullest_percent(lanes: Sequence[LaneSample]) -> float | None:
    """Return the highest used share (0 to 100) of any lane's KV cache; None if no lane reports its share.

    This matters beside the mean of the lanes: a request that waits for a full lane cannot use the free space
    of another lane.
    """
    return known_max(lane.kv_cache_percent for lane in lanes)
