"""The `/metrics` page of a simulated server: vLLM 0.32's names, help texts, labels, buckets and order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    Summary,
)
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from sparktop.model.load import EndReason, FirstToken, RequestEnded, Tokens
from sparktop.simulation.engine import Engine, EngineEvent, EngineProfile, RequestTimeline

VERSION = "0.32.0+simulated"
"""Version reported by a simulated server."""
READ_BYTES_PER_S = 265e9
"""Bytes of weights that the GPU reads per second; converts the reading time of a step into bytes."""
KV_TOKEN_BYTES = 73_728
"""Bytes of KV cache per token of gpt-oss-120b: 36 layers x 8 heads x 64 x (key + value) of 2 bytes."""
_ACTIVE_PARAMETERS = 5.1e9
HTTP_SHARE = 0.3
"""CPU seconds of a server's HTTP process for each second of its engine's steps."""
_BLOCK_S = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0),
    *(300.0, 600.0, 1200.0, 1800.0),
)
_SUCCESS = ("stop", "length", "abort", "error", "repetition")
_GAPS = (
    "Histogram of time gaps between consecutive KV cache block accesses. "
    "Only the most recent accesses are recorded (ring buffer)."
)
_SAMPLED = "Sampled metrics (controlled by --kv-cache-metrics-sample)."
_CONFIG = {
    "_block_size_resolved": "True",
    "cache_dtype": "auto",
    "cache_hit_alignment_tokens": "None",
    "enable_mamba_shared_prefix_checkpoint": "False",
    "enable_prefix_caching": "True",
    "gpu_memory_utilization": "0.7",
    "hash_block_size": "None",
    "is_attention_free": "False",
    "kv_cache_dtype_skip_layers": "[]",
    "kv_cache_layout": "None",
    "kv_offloading_backend": "native",
    "kv_offloading_size": "None",
    "kv_sharing_fast_prefill": "False",
    "mamba_block_size": "None",
    "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none",
    "mamba_page_size_padded": "None",
    "mamba_ssm_cache_dtype": "float32",
    "num_cpu_blocks": "None",
    "prefix_cache_retention_interval": "0",
    "prefix_caching_hash_algo": "sha256",
    "prefix_match_unit": "None",
    "replayssm_buffer_len": "16",
    "skip_page_size_padded": "None",
    "sliding_window": "None",
    "swa_bounded_replay": "True",
    "use_kda_recoverssm": "False",
    "use_replayssm": "False",
    "user_specified_block_size": "True",
}
"""Labels of vLLM's cache configuration metric that are equal for all simulated engines."""


def engine_families(
    engine: Engine, ledger: Ledger, started_unix_s: float, *, whole: bool = False, rank: int = 0
) -> list[Metric]:
    """Return the metric families of an engine; unless `whole` is true, only those that viewers read.

    `rank` is its number among the engine cores (data-parallel ranks) of its server.
    """
    page = _Page(engine.profile.model, started_unix_s, whole=whole, rank=rank)
    _work(page, engine)
    _gauges(page, engine)
    _counters(page, engine, ledger)
    _histograms(page, engine, ledger)
    page.families.append(_cache_config(engine.profile, rank))
    return page.families


def _work(page: _Page, engine: Engine) -> None:
    """Add the estimated operations and bytes per GPU, as vLLM reports them with --enable-mfu-metrics."""
    cost, tally = engine.profile.cost, engine.tally
    reading_s = sum(
        steps * min(cost.weights_one_s * rows**cost.weights_exponent, cost.weights_all_s)
        for rows, steps in tally.step_rows.items()
    )
    rows, of = tally.rows / engine.profile.nodes, "per GPU (for Model Flops Utilization calculations)."
    page.counter(
        "estimated_flops_per_gpu",
        f"Estimated number of floating point operations {of}",
        2 * _ACTIVE_PARAMETERS * rows,
    )
    page.counter(
        "estimated_read_bytes_per_gpu",
        f"Estimated number of bytes read from memory {of}",
        reading_s * READ_BYTES_PER_S,
    )
    page.counter(
        "estimated_write_bytes_per_gpu",
        f"Estimated number of bytes written to memory {of}",
        KV_TOKEN_BYTES * rows,
    )


def _gauges(page: _Page, engine: Engine) -> None:
    now = engine.gauges
    page.gauge("num_requests_running", "Number of requests in model execution batches.", now.running)
    page.gauge("num_requests_waiting", "Number of requests waiting to be processed.", now.waiting)
    page.gauge(
        "num_requests_waiting_by_reason",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; "
        "'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of "
        "all reasons equals vllm:num_requests_waiting.",
        {"capacity": now.waiting - now.deferred, "deferred": now.deferred},
        "reason",
    )
    page.gauge(
        "engine_sleep_state",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
        "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
        {"awake": int(not now.asleep), "weights_offloaded": int(now.asleep), "discard_all": 0},
        "sleep_state",
    )
    page.gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", now.kv_usage)


def _counters(page: _Page, engine: Engine, ledger: Ledger) -> None:
    tally = engine.tally
    cached, tokens = tally.prompt_tokens_cached, "in terms of number of queried tokens."
    hits = "in terms of number of cached tokens."
    page.counter("prefix_cache_queries", f"Prefix cache queries, {tokens}", tally.prefix_queries)
    page.counter("prefix_cache_hits", f"Prefix cache hits, {hits}", tally.prefix_hits)
    shared = "from KV connector cross-instance cache sharing,"
    page.counter("external_prefix_cache_queries", f"External prefix cache queries {shared} {tokens}", 0)
    page.counter("external_prefix_cache_hits", f"External prefix cache hits {shared} {hits}", 0)
    page.counter("mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items.", 0)
    page.counter("mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items.", 0)
    page.counter("num_preemptions", "Cumulative number of preemption from the engine.", tally.preemptions)
    page.counter("prompt_tokens", "Number of prefill tokens processed.", tally.prompt_tokens)
    sources = {
        "local_compute": tally.prompt_tokens - cached,
        "local_cache_hit": cached,
        "external_kv_transfer": 0,
    }
    page.counter("prompt_tokens_by_source", "Number of prompt tokens by source.", sources, "source")
    page.counter("prompt_tokens_cached", "Number of cached prompt tokens (local + external).", cached)
    page.more_counter(
        "prompt_tokens_cached_by_source",
        "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded "
        "to DRAM), disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at "
        "admission; sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
        {"device": tally.prefix_hits, "host": 0, "p2p": 0, "disk": 0, "external_unspecified": 0},
        "source",
    )
    page.counter("generation_tokens", "Number of generation tokens processed.", tally.generation_tokens)
    ended = {**dict.fromkeys(_SUCCESS, 0), **{str(reason): count for reason, count in ledger.ended.items()}}
    page.counter("request_success", "Count of successfully processed requests.", ended, "finished_reason")
    page.more_counter(
        "admission_rejections",
        "Number of admission attempts rejected by a queue limit, by reason.",
        {"max_num_queued_reqs": 0, "max_num_queued_tokens": 0},
        "reason",
        engine_label=False,
    )


def _histograms(page: _Page, engine: Engine, ledger: Ledger) -> None:
    of = "Histogram of time spent in"
    page.histogram("request_prompt_tokens", "Number of prefill tokens processed.", ledger.prompt_tokens)
    page.histogram(
        "request_generation_tokens", "Number of generation tokens processed.", ledger.generation_tokens
    )
    steps = step_buckets(engine.tally.step_rows)
    page.histogram("iteration_tokens_total", "Histogram of number of tokens per engine_step.", steps)
    page.more_histogram(
        "request_max_num_generation_tokens",
        "Histogram of maximum number of requested generation tokens.",
        ledger.max_generation_tokens,
    )
    page.more_histogram("request_params_n", "Histogram of the n request parameter.", ledger.choices)
    page.more_histogram(
        "request_params_max_tokens", "Histogram of the max_tokens request parameter.", ledger.max_tokens
    )
    for name, about, buckets in (
        ("time_to_first_token_seconds", "Histogram of time to first token in seconds.", ledger.ttft_s),
        ("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", ledger.itl_s),
        (
            "request_time_per_output_token_seconds",
            "Histogram of time_per_output_token_seconds per request.",
            ledger.tpot_s,
        ),
        ("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", ledger.e2e_s),
        ("request_queue_time_seconds", f"{of} WAITING phase for request.", ledger.queue_s),
        ("request_inference_time_seconds", f"{of} RUNNING phase for request.", ledger.inference_s),
        ("request_prefill_time_seconds", f"{of} PREFILL phase for request.", ledger.prefill_s),
        ("request_decode_time_seconds", f"{of} DECODE phase for request.", ledger.decode_s),
    ):
        page.histogram(name, about, buckets)
    _more_histograms(page, ledger)


def _more_histograms(page: _Page, ledger: Ledger) -> None:
    blocks = Buckets(_BLOCK_S)
    for name, about, buckets in (
        (
            "request_num_preemptions",
            "Histogram of the number of times a request was preempted.",
            ledger.preemptions,
        ),
        (
            "request_prefill_kv_computed_tokens",
            "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
            ledger.computed_tokens,
        ),
        (
            "kv_block_lifetime_seconds",
            f"Histogram of KV cache block lifetime from allocation to eviction. {_SAMPLED}",
            blocks,
        ),
        (
            "kv_block_idle_before_evict_seconds",
            f"Histogram of idle time before KV cache block eviction. {_SAMPLED}",
            blocks,
        ),
        (
            "kv_block_reuse_gap_seconds",
            f"{_GAPS} {_SAMPLED}",
            blocks,
        ),
    ):
        page.more_histogram(name, about, buckets)


class _Page:
    """Builds metric families that share the labels `engine` and `model_name`."""

    def __init__(self, model: str, started_unix_s: float, *, whole: bool, rank: int) -> None:
        self.families: list[Metric] = []
        self._labels = {"engine": str(rank), "model_name": model}
        self._created = started_unix_s
        self._whole = whole

    def gauge(self, name: str, about: str, value: float | Mapping[str, float], label: str = "") -> None:
        """Add a gauge `vllm:name` with the help text `about`.

        `value` is a number, or a mapping from each value of the label `label` to a number.
        """
        metric = Metric(f"vllm:{name}", about, "gauge")
        for word, number in _words(value):
            metric.add_sample(metric.name, self._of(label, word), number)
        self.families.append(metric)

    def counter(
        self,
        name: str,
        about: str,
        value: float | Mapping[str, float],
        label: str = "",
        *,
        engine_label: bool = True,
    ) -> None:
        """Add a counter `vllm:name`; the parameters are those of `gauge`.

        A complete page also has the counter's creation time. If `engine_label` is false, the label `engine`
        is omitted.
        """
        metric = Metric(f"vllm:{name}", about, "counter")
        for word, number in _words(value):
            labels = self._of(label, word)
            if not engine_label:
                del labels["engine"]
            metric.add_sample(f"{metric.name}_total", labels, number)
            if self._whole:
                metric.add_sample(f"{metric.name}_created", labels, self._created)
        self.families.append(metric)

    def more_counter(
        self,
        name: str,
        about: str,
        value: float | Mapping[str, float],
        label: str = "",
        *,
        engine_label: bool = True,
    ) -> None:
        """Add a counter that the screens of a simulation do not need; only to a complete page."""
        if self._whole:
            self.counter(name, about, value, label, engine_label=engine_label)

    def histogram(self, name: str, about: str, buckets: Buckets) -> None:
        """Add a histogram `vllm:name`: cumulative buckets, count and sum.

        A complete page also has the histogram's creation time.
        """
        metric, labels, counts = Metric(f"vllm:{name}", about, "histogram"), self._labels, buckets.cumulative
        stem = f"{metric.name}_bucket"
        for bound, count in zip(buckets.bounds, counts, strict=False):
            metric.add_sample(stem, {**labels, "le": repr(bound)}, count)
        metric.add_sample(stem, {**labels, "le": "+Inf"}, counts[-1])
        metric.add_sample(f"{metric.name}_count", labels, counts[-1])
        metric.add_sample(f"{metric.name}_sum", labels, buckets.sum)
        if self._whole:
            metric.add_sample(f"{metric.name}_created", labels, self._created)
        self.families.append(metric)

    def more_histogram(self, name: str, about: str, buckets: Buckets) -> None:
        """Add a histogram that viewers do not read; does nothing unless the page is complete."""
        if self._whole:
            self.histogram(name, about, buckets)

    def _of(self, label: str, word: str | None) -> dict[str, str]:
        return {**self._labels, label: word} if word is not None else dict(self._labels)


def _words(value: float | Mapping[str, float]) -> Iterable[tuple[str | None, float]]:
    return value.items() if isinstance(value, Mapping) else ((None, value),)


def _cache_config(profile: EngineProfile, rank: int) -> Metric:
    """Return vLLM's info metric about the KV cache, whose labels hold the size of the cache."""
    metric = Metric("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", "gauge")
    tokens = profile.kv_capacity_tokens
    sizes = {
        "block_size": profile.block_tokens,
        "effective_attention_block_size": profile.block_tokens,
        "engine": rank,
        "kv_cache_max_concurrency": round(tokens / profile.max_model_len, 2),
        "kv_cache_memory_bytes": tokens * KV_TOKEN_BYTES // profile.nodes,
        "kv_cache_size_tokens": tokens,
        "num_gpu_blocks": profile.kv_blocks,
        "num_gpu_blocks_override": profile.kv_blocks,
    }
    metric.add_sample(metric.name, {**_CONFIG, **{name: str(size) for name, size in sizes.items()}}, 1)
    return metric


# Builds the complete `/metrics` page of a simulated server: engine cores, process and HTTP server.


def server_page(
    cores: Sequence[tuple[Engine, Ledger]], started_unix_s: float, http: CollectorRegistry
) -> bytes:
    """Return the complete page of a server with these engine cores (data-parallel ranks).

    `http` holds the metrics of its HTTP server, `started_unix_s` is the process start time on the page.
    """
    registry = CollectorRegistry(auto_describe=False)
    GCCollector(registry=registry)
    PlatformCollector(registry=registry)
    cpu_s = HTTP_SHARE * sum(engine.tally.busy_s for engine, _ in cores)
    registry.register(Families(_process(started_unix_s, cpu_s)))
    registry.register(Families(_families(cores, started_unix_s)))
    return generate_latest(registry) + generate_latest(http)


def _families(cores: Sequence[tuple[Engine, Ledger]], started_unix_s: float) -> list[Metric]:
    """Return the metric families of all engine cores; those without a label `engine` once."""
    first, *others = (
        engine_families(engine, ledger, started_unix_s, whole=True, rank=rank)
        for rank, (engine, ledger) in enumerate(cores)
    )
    for families in others:
        for metric, more in zip(first, families, strict=True):
            metric.samples += [sample for sample in more.samples if "engine" in sample.labels]
    return first


def _process(started_unix_s: float, cpu_s: float) -> Iterator[Metric]:
    """Yield the metrics of this process, which several engines share, with an engine's start and CPU time."""
    own = {"process_start_time_seconds": started_unix_s, "process_cpu_seconds": cpu_s}
    for metric in ProcessCollector(registry=None).collect():
        if metric.name in own:
            metric.samples = [sample._replace(value=own[metric.name]) for sample in metric.samples]
        yield metric


# Counts the requests of a simulated engine into the same histograms that vLLM has.


# Bucket bounds as vLLM 0.32 exposes them.
_TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0),
    *(80.0, 160.0, 640.0, 2560.0),
)
_ITL_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0),
    80.0,
)
_REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0),
    *(960.0, 1920.0, 7680.0),
)
_STEP_TOKENS = (1.0, *(float(1 << power) for power in range(3, 15)))
_CHOICES = (1.0, 2.0, 5.0, 10.0, 20.0)
_PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)


class Buckets:
    """A histogram with fixed bucket bounds, to which observations can be added."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Start without observations; `bounds` are the upper bounds of the buckets, finite and ascending."""
        self.bounds = tuple(bounds)
        self.sum = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Add `times` observations of `value`."""
        self._counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def cumulative(self) -> list[int]:
        """Number of observations up to each bound, and as the last element the number of all observations."""
        return list(accumulate(self._counts))


def step_buckets(step_rows: Mapping[int, int]) -> Buckets:
    """Return the histogram of tokens per engine step.

    `step_rows` has the number of steps by the number of tokens in a step.
    """
    buckets = Buckets(_STEP_TOKENS)
    for rows, steps in step_rows.items():
        buckets.observe(rows, steps)
    return buckets


def length_bounds(longest: int) -> tuple[float, ...]:
    """Return vLLM's bucket bounds for token counts: 1, 2, 5, 10, 20, 50, … up to `longest`."""
    bounds: list[float] = []
    size = 1
    while True:
        for digit in (1, 2, 5):
            if digit * size > longest:
                return tuple(bounds)
            bounds.append(float(digit * size))
        size *= 10


class Ledger:
    """Counts the events of a simulated engine into histograms, as vLLM does.

    Times to first tokens and gaps between tokens are counted when they occur, other values when a request
    ends. If a client aborted its request, nothing is counted at the request's end.
    """

    def __init__(self, max_model_len: int) -> None:
        """Start at zero; `max_model_len` limits the bucket bounds for token counts."""
        lengths = length_bounds(max_model_len)
        self.ttft_s = Buckets(_TTFT_S)
        self.itl_s = Buckets(_ITL_S)
        self.tpot_s = Buckets(_ITL_S)
        self.e2e_s = Buckets(_REQUEST_S)
        self.queue_s = Buckets(_REQUEST_S)
        self.inference_s = Buckets(_REQUEST_S)
        self.prefill_s = Buckets(_REQUEST_S)
        self.decode_s = Buckets(_REQUEST_S)
        self.prompt_tokens = Buckets(lengths)
        self.generation_tokens = Buckets(lengths)
        self.max_generation_tokens = Buckets(lengths)
        self.choices = Buckets(_CHOICES)
        self.max_tokens = Buckets(lengths)
        self.preemptions = Buckets(_PREEMPTIONS)
        self.computed_tokens = Buckets(lengths)
        self.ended = {EndReason.STOP: 0, EndReason.LENGTH: 0}
        """Number of requests that ended normally, by reason."""
        self._newest_s: dict[str, float] = {}
        """By id of each request in flight: time of its newest token, or of its arrival."""
        self._asked: dict[str, int] = {}

    def arrived(self, request_id: str, at: float, max_tokens: int) -> None:
        """Record that a request with the token limit `max_tokens` arrived at the time `at` (seconds)."""
        self._newest_s[request_id] = at
        self._asked[request_id] = max_tokens

    def hear(self, event: EngineEvent) -> None:
        """Count the time to a request's first token, or the time between two of its tokens.

        The end of a request is not counted here; it only removes the stored time of the request's last token.
        """
        if isinstance(event, RequestEnded):
            self._newest_s.pop(event.request_id, None)
            return
        before_s = self._newest_s.get(event.request_id)
        if before_s is None:
            return
        if isinstance(event, FirstToken):
            self.ttft_s.observe(event.at - before_s)
        elif isinstance(event, Tokens):
            self.itl_s.observe(event.at - before_s)
        self._newest_s[event.request_id] = event.at

    def finished(self, timeline: RequestTimeline) -> None:
        """Count a request that has ended; the engine is created with this method as its `on_end` callback."""
        request, reason = timeline.request, timeline.reason
        asked = self._asked.pop(request.request_id, timeline.generated_tokens)
        admitted_s, first_s, last_s = timeline.admitted_s, timeline.first_token_s, timeline.last_token_s
        if reason not in self.ended or admitted_s is None or first_s is None or last_s is None:
            return
        self.ended[reason] += 1
        self.e2e_s.observe(timeline.ended_s - timeline.arrived_s)
        self.queue_s.observe(admitted_s - timeline.arrived_s)
        self.inference_s.observe(last_s - admitted_s)
        self.prefill_s.observe(first_s - admitted_s)
        self.decode_s.observe(last_s - first_s)
        self.tpot_s.observe((last_s - first_s) / max(1, timeline.generated_tokens - 1))
        self.prompt_tokens.observe(request.prompt_tokens)
        self.generation_tokens.observe(timeline.generated_tokens)
        self.max_generation_tokens.observe(timeline.generated_tokens)
        self.choices.observe(1)
        self.max_tokens.observe(asked)
        self.preemptions.observe(timeline.preemptions)
        self.computed_tokens.observe(request.prompt_tokens - timeline.cached_tokens)


# Metrics of a simulated HTTP server, with the names that vLLM's own instrumentation uses.


_FINE_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0),
    *(30.0, 60.0),
)
_COARSE_S = (0.1, 0.5, 1.0)


class HttpFigures:
    """Counts the responses of an HTTP server by handler, method and status."""

    def __init__(self) -> None:
        """Start at zero."""
        self.registry = registry = CollectorRegistry()
        of = ("handler", "method")
        self._requests = Counter(
            "http_requests",
            "Total number of requests by method, status and handler.",
            (*of, "status"),
            registry=registry,
        )
        length = "Only value of header is respected. Otherwise ignored. No percentile calculated. "
        self._incoming, self._outgoing = (
            Summary(
                f"http_{name}_size_bytes",
                f"Content length of {way} {name}s by handler. {length}",
                ("handler",),
                registry=registry,
            )
            for name, way in (("request", "incoming"), ("response", "outgoing"))
        )
        self._fine = Histogram(
            "http_request_duration_highr_seconds",
            "Latency with many buckets but no API specific labels. Made for more accurate percentile "
            "calculations. ",
            buckets=_FINE_S,
            registry=registry,
        )
        self._coarse = Histogram(
            "http_request_duration_seconds",
            "Latency with only few buckets by handler. Made to be only used if aggregation by handler is "
            "important. ",
            of,
            buckets=_COARSE_S,
            registry=registry,
        )

    def count(self, method: str, handler: str, status: int, took_s: float, body_bytes: int) -> None:
        """Count a response that took `took_s` seconds, to a request with a body of `body_bytes` bytes."""
        self._requests.labels(handler, method, f"{status // 100}xx").inc()
        self._incoming.labels(handler).observe(body_bytes)
        self._outgoing.labels(handler).observe(0)  # streams have no length in their header
        self._fine.observe(took_s)
        self._coarse.labels(handler, method).observe(took_s)


class Families(Collector):
    """Prometheus collector for metric families that were built for a single page."""

    def __init__(self, made: Iterable[Metric]) -> None:
        """Store the metric families of a page."""
        self._made = made

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the families need not be described when the collector is registered."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return the stored metric families."""
        return self._made
