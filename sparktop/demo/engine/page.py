"""Builds the `/metrics` page of a simulated engine: vLLM 0.32's names, help texts, labels, buckets and order.

In virtual time, the page has only the metrics that viewers read. `process_page` builds the page of an HTTP
server, which has all metrics of vLLM.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.core import Metric

from sparktop.demo.engine.exposition import exposition
from sparktop.demo.engine.ledger import Buckets, Ledger, step_buckets
from sparktop.simulation.engine import Engine
from sparktop.simulation.profile import EngineProfile

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


def engine_page(engine: Engine, ledger: Ledger, started_unix_s: float) -> bytes:
    """Return the metrics page of an engine, with only those metrics that viewers read.

    `started_unix_s` is the process start time on the page.
    """
    start = _metric("process_start_time_seconds", _START_HELP, "gauge")
    start.add_sample(start.name, {}, started_unix_s)
    cpu = _metric("process_cpu_seconds", "Total user and system CPU time spent in seconds.", "counter")
    cpu.add_sample("process_cpu_seconds_total", {}, HTTP_SHARE * engine.tally.busy_s)
    return exposition((start, cpu, *engine_families(engine, ledger, started_unix_s)))


_START_HELP = "Start time of the process since unix epoch in seconds."


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
        metric = _metric(f"vllm:{name}", about, "gauge")
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
        metric = _metric(f"vllm:{name}", about, "counter")
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
        metric, labels, counts = _metric(f"vllm:{name}", about, "histogram"), self._labels, buckets.cumulative
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
    metric = _metric("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", "gauge")
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


def _metric(name: str, about: str, kind: str) -> Metric:
    return Metric(name, about, kind)
