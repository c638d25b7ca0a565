"""Reader for the metrics page of TensorRT-LLM's server (`trtllm-serve`), at `/prometheus/metrics`.

The metrics are defined in `tensorrt_llm/metrics/collector.py`. `/metrics` of this server is JSON, and every
request empties the server's list of iteration statistics. So `/metrics` is requested only while the engine is
not known yet.

* Metrics of requests (tokens, latencies, finished) are counted when a request finishes, and only with
  `return_perf_metrics`; metrics of iterations (running, waiting, KV cache, speculation) at each iteration,
  and only with `enable_iter_perf_stats`. Older versions have fewer names.
* `time_per_output_token_seconds` is one mean per request: TPOT, not ITL.
* `kv_cache_max_blocks` includes blocks in host memory with the older KV cache manager: the capacity is
  then too high, which the page does not show.
* `iteration_latency_seconds` is the duration of the newest iteration. Not a counter, but it hardly ever
  has the same value twice: it shows that the engine goes on.
* `num_paused_requests` is a gauge, not a count of preemptions.
* Gauges of processes that have ended stay on the page, with their label `pid`, where the folder of
  prometheus_client outlives a restart: the highest is read.
* Versions before 1.0 write the same names without the prefix, and fewer of them.

Without `return_perf_metrics` there is no such page. Then the JSON of `/metrics` is read: the statistics of
each iteration since the last request, whoever made that; of each rank of attention data parallelism the
newest one counts. It has requests and the KV cache, but no tokens.
"""

from __future__ import annotations

from sparktop.engines.document import amount, count, field, parse
from sparktop.engines.exposition import Page, PageError, Reader
from sparktop.engines.lanes import (
    MAX_LANES,
    START,
    ExtraReader,
    Fields,
    Histograms,
    LanePage,
    dynamo_role,
    finished_by_reason,
    names_of,
    requests,
    share,
    start_time,
    total,
    total_or_none,
)
from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import FailureKind

PATH = "/prometheus/metrics"
ITERATIONS = "it writes tokens and latencies only with return_perf_metrics"
NO_ITERATION = "no step since the last poll, or enable_iter_perf_stats is off"
_SEEN_BYTES = 8192
"""Bytes of a list that are searched: the members of an iteration may be sorted by name."""
_MOST = 1e12
"""Counts above this are damaged."""
FACTS = ("/version", "/v1/models")
"""Routes that report the server's identity (version and model)."""

_BLOCKS, _BLOCK_TOKENS = "trtllm_kv_cache_max_blocks", "trtllm_kv_cache_tokens_per_block"
FIELDS: Fields = (
    ("running", ("trtllm_num_requests_running",), requests),
    ("waiting", ("trtllm_num_requests_waiting",), requests),
    ("kv_cache_percent", ("trtllm_kv_cache_utilization",), share),
    ("prompt_tokens", ("trtllm_prompt_tokens_total",), total),
    (
        "prompt_tokens_cached",
        ("trtllm_prompt_cached_tokens_total", "trtllm_prompt_cache_hit_tokens_total"),
        total,
    ),
    ("generation_tokens", ("trtllm_generation_tokens_total",), total),
    ("prefix_cache_hit_percent", ("trtllm_kv_cache_hit_rate",), share),
    (
        "spec_draft_tokens",
        ("trtllm_spec_decode_num_draft_tokens_total", "trtllm_spec_decode_drafted_tokens_total"),
        total_or_none,
    ),
    (
        "spec_accepted_tokens",
        ("trtllm_spec_decode_num_accepted_tokens_total", "trtllm_spec_decode_accepted_tokens_total"),
        total_or_none,
    ),
    ("engine_work", ("trtllm_iteration_latency_seconds",), requests),
    ("finished", ("trtllm_request_success_total",), finished_by_reason),
)
HISTOGRAMS: Histograms = (
    ("ttft", ("trtllm_time_to_first_token_seconds",)),
    ("tpot", ("trtllm_time_per_output_token_seconds",)),
    ("e2e", ("trtllm_e2e_request_latency_seconds",)),
    ("queue", ("trtllm_request_queue_time_seconds",)),
    ("prefill", ("trtllm_request_prefill_time_seconds",)),
    ("decode", ("trtllm_request_decode_time_seconds",)),
)
_EXTRAS = ExtraReader(
    (
        ("failed", ("trtllm_request_error_total",), total),
        ("offload_loaded", ("trtllm_kv_cache_onboard_bytes_total",), total),
        ("offload_stored", ("trtllm_kv_cache_offload_bytes_total",), total),
    ),
    (
        ("paused", ("trtllm_num_paused_requests",), requests),
        ("offload_cache", ("trtllm_kv_cache_host_utilization",), share),
        ("spec_length", ("trtllm_spec_decode_acceptance_length",), total_or_none),
    ),
)
_SLOTS = "trtllm_max_num_active_requests"
NAMES = names_of(FIELDS, HISTOGRAMS, START, _BLOCKS, _BLOCK_TOKENS, _SLOTS, *_EXTRAS.names)
"""Every metric name that is read, spelled as on the page."""
READER = Reader(NAMES, "trtllm_")


def sample_of(families: Page, at: float) -> EngineSample:
    """Parse a metrics page with at least one `trtllm_` sample into a sample dated `at` (monotonic seconds).

    Raises:
        PageError: the page holds more samples or lanes than any real server has.
    """
    page = LanePage(families)
    fields = page.read(FIELDS, HISTOGRAMS)["0"]
    blocks, block_tokens = (requests(families.get(name, {})) for name in (_BLOCKS, _BLOCK_TOKENS))
    if blocks and block_tokens:
        fields["kv_capacity_tokens"] = blocks * block_tokens
    _EXTRAS.add(page.families, {"0": fields})
    prompt, cached = fields.get("prompt_tokens"), fields.get("prompt_tokens_cached")
    if prompt is not None and cached is not None and cached <= prompt:
        fields["prompt_tokens_computed"] = prompt - cached
    return EngineSample(
        at=at,
        engine="trtllm",
        lanes=(LaneSample("0", per_finished_request=True, **fields),),
        models=page.model_names(),
        start_time=start_time(page.families.get(START, {})),
        role=dynamo_role(page.families),
        slots=int(requests(families.get(_SLOTS, {})) or 0) or None,
    )


def is_iterations(body: bytes) -> bool:
    """Return whether a response of `/metrics` is a list of iterations, which may be empty."""
    start = body.lstrip()[:_SEEN_BYTES]
    return start.startswith(b"[") and (b'"iter"' in start or not body.strip(b" []\r\n\t"))


def read_json(body: bytes, at: float) -> EngineSample:
    """Parse the list of iterations at `/metrics` into a sample dated `at` (monotonic seconds).

    Raises:
        PageError: the body is no list of iterations.
    """
    document = parse(body)
    if not isinstance(document, list) or not all(isinstance(sample, dict) for sample in document):
        raise PageError(FailureKind.MALFORMED, "no list of iterations of TensorRT-LLM")
    # Of each rank the last one in the list, which is the newest.
    newest = {count(field(sample, "attentionDpRank")) or 0: sample for sample in document}
    if len(newest) > MAX_LANES:
        raise PageError(FailureKind.TOO_LARGE, f"iterations of more than {MAX_LANES} ranks")
    slots = [count(field(value, "maxNumActiveRequests")) for value in newest.values()]
    return EngineSample(
        at=at,
        engine="trtllm",
        lanes=tuple(_lane(str(rank), newest[rank]) for rank in sorted(newest)) or (LaneSample("0"),),
        note=ITERATIONS if newest else f"{NO_ITERATION}; {ITERATIONS}",
        slots=None if not slots or None in slots else sum(slot or 0 for slot in slots),
    )


def _lane(lane: str, iteration: object) -> LaneSample:
    """Return the lane that an iteration reports."""
    cache, batch = field(iteration, "kvCacheStats"), field(iteration, "inflightBatchingStats")
    blocks, used = _number(cache, "maxNumBlocks"), _number(cache, "usedNumBlocks")
    tokens, paused = _number(cache, "tokensPerBlock"), _number(batch, "numPausedRequests")
    percent = 100.0 * used / blocks if blocks and used is not None and used <= blocks else None
    return LaneSample(
        lane,
        running=_number(iteration, "numActiveRequests"),
        waiting=_number(iteration, "numQueuedRequests"),
        kv_cache_percent=percent,
        kv_capacity_tokens=blocks * tokens if blocks and tokens else None,
        engine_work=_number(iteration, "iter"),
        gauges={} if paused is None else {"paused": paused},
    )


def _number(document: object, name: str) -> float | None:
    return amount(field(document, name), _MOST)
