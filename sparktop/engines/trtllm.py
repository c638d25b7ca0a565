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
"""

from __future__ import annotations

from sparktop.engines.document import identify
from sparktop.engines.exposition import PageMemory, Reader
from sparktop.engines.extras import SHARED_COUNTS, SHARED_GAUGES, ExtraReader, dynamo_role
from sparktop.engines.figures import finished, requests, share, start_time, total, total_or_none
from sparktop.engines.lanes import START, Fields, Histograms, LanePage, names_of
from sparktop.model.engine import EngineSample, LaneSample

__all__ = ["FACTS", "PATH", "identify", "read"]

PATH = "/prometheus/metrics"
FACTS = ("/version", "/v1/models")
"""Routes that report the server's identity (version and model)."""

_BLOCKS, _BLOCK_TOKENS = "trtllm_kv_cache_max_blocks", "trtllm_kv_cache_tokens_per_block"
_FIELDS: Fields = (
    ("running", ("trtllm_num_requests_running",), requests),
    ("waiting", ("trtllm_num_requests_waiting",), requests),
    ("kv_cache_percent", ("trtllm_kv_cache_utilization",), share),
    ("prompt_tokens", ("trtllm_prompt_tokens_total",), total),
    ("prompt_tokens_cached", ("trtllm_prompt_cached_tokens_total",), total),
    ("generation_tokens", ("trtllm_generation_tokens_total",), total),
    ("prefix_cache_hit_percent", ("trtllm_kv_cache_hit_rate",), share),
    ("spec_draft_tokens", ("trtllm_spec_decode_num_draft_tokens_total",), total_or_none),
    ("spec_accepted_tokens", ("trtllm_spec_decode_num_accepted_tokens_total",), total_or_none),
    ("engine_work", ("trtllm_iteration_latency_seconds",), requests),
    ("finished", ("trtllm_request_success_total",), finished),
)
_HISTOGRAMS: Histograms = (
    ("ttft", ("trtllm_time_to_first_token_seconds",)),
    ("tpot", ("trtllm_time_per_output_token_seconds",)),
    ("e2e", ("trtllm_e2e_request_latency_seconds",)),
    ("queue", ("trtllm_request_queue_time_seconds",)),
    ("prefill", ("trtllm_request_prefill_time_seconds",)),
    ("decode", ("trtllm_request_decode_time_seconds",)),
)
_EXTRAS = ExtraReader(SHARED_COUNTS, SHARED_GAUGES)
_READER = Reader(names_of(_FIELDS, _HISTOGRAMS, START, _BLOCKS, _BLOCK_TOKENS, *_EXTRAS.names))


def read(
    body: bytes, *, at: float, answer_ms: float | None = None, memory: PageMemory | None = None
) -> EngineSample:
    """Parse a metrics page with at least one `trtllm_` sample into a sample dated `at` (monotonic seconds).

    Raises:
        PageError: the page holds more samples or lanes than any real server has.
    """
    page = LanePage(_READER.read(body, memory))
    fields = page.read(_FIELDS, _HISTOGRAMS)["0"]
    blocks = total_or_none(page.families.get(_BLOCKS, {}))
    block_tokens = total_or_none(page.families.get(_BLOCK_TOKENS, {}))
    if blocks is not None and block_tokens is not None:
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
        answer_ms=answer_ms,
        page_bytes=len(body),
        role=dynamo_role(page.families),
    )
