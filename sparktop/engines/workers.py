"""Readers for ports of metrics alone: Dynamo workers without their engine's, LMCache's server, MAX, Triton.

* Dynamo worker: `dynamo_component_*` at the port of `DYN_SYSTEM_PORT`. Its requests in flight are running and
  waiting ones together, so neither number is known. The worker's engine writes its names on the same page:
  that page is read as one of the engine. Older versions have `kvstats_` in the names of the KV cache.
* LMCache server: `lmcache_mp_*`, written by OpenTelemetry, which appends a counter's unit to its name. It
  stores KV caches and runs no requests. Counters appear after their first use; lookups have the label
  `model_name`. Older versions name a counter `…_keys_total` that is now `…_chunks_total`.
* MAX: `maxserve_*` at port 8001, written by OpenTelemetry (`max/serve/telemetry/metrics.py`), times in
  milliseconds. `num_requests_running` counts requests from their arrival to their end, so those that wait are
  among them; older versions do not count these. Tokens are counted at a request's end, the cache's at its
  start. A counter of loads has the models' names.
* Triton with the TensorRT-LLM backend: port 8002. Triton's metrics are described in its
  `docs/user_guide/metrics.md`, those of the backend (`nv_trt_llm_*`) in TensorRT-LLM's
  `custom_metrics_reporter.cc`. A request passes several models of an ensemble (tokenizer, engine,
  detokenizer), and each counts it. Only the model that also has `nv_trt_llm_*` metrics is read. Without that
  backend, requests are known only where a single model is served. Times are counters in microseconds, counted
  when a request ends: means are exact, quantiles unknown. `request_type="active"` includes requests that wait
  inside the engine, so "scheduled" is the number of running ones.
"""

from __future__ import annotations

from typing import Any

from sparktop.engines.exposition import Family, Page, Places, Reader
from sparktop.engines.lanes import (
    DYNAMO_IN_FLIGHT,
    START,
    ExtraReader,
    Fields,
    Histograms,
    LanePage,
    dynamo_role,
    finished_by_reason,
    label,
    names_of,
    of_label,
    requests,
    share,
    start_time,
    total,
    total_or_none,
    where,
)
from sparktop.model.engine import EngineSample, Histogram, LaneSample

DYNAMO_NOTE = "only this worker's requests in flight are known: its engine's metrics are not on the page"
LMCACHE_NOTE = "a KV cache server: it runs no requests"

_KV_USED, _KV_HITS = "gpu_cache_usage_percent", "gpu_prefix_cache_hit_rate"
_DYNAMO: Fields = (
    (
        "kv_cache_percent",
        (f"dynamo_component_{_KV_USED}", f"dynamo_component_kvstats_{_KV_USED}"),
        share,
    ),
    (
        "prefix_cache_hit_percent",
        (f"dynamo_component_{_KV_HITS}", f"dynamo_component_kvstats_{_KV_HITS}"),
        share,
    ),
)
_DYNAMO_TIMES: Histograms = (("e2e", ("dynamo_component_request_duration_seconds",)),)
_DYNAMO_DONE = "dynamo_component_requests_total"
_DYNAMO_EXTRAS = ExtraReader()  # only what may stand on the page of any engine
DYNAMO_READER = Reader(
    names_of(_DYNAMO, _DYNAMO_TIMES, DYNAMO_IN_FLIGHT, _DYNAMO_DONE, *_DYNAMO_EXTRAS.names),
    "dynamo_component_",
)
_LMCACHE_EXTRAS = ExtraReader(
    (
        ("lmcache_hits", ("lmcache_mp_lookup_hit_tokens_total",), total),
        ("lmcache_lookups", ("lmcache_mp_lookup_requested_tokens_total",), total),
        (
            "lmcache_evicted",
            ("lmcache_mp_l1_evicted_chunks_total", "lmcache_mp_l1_evicted_keys_total"),
            total,
        ),
        (
            "lmcache_failures",
            (
                *("lmcache_mp_l2_prefetch_failure_total", "lmcache_mp_l2_prefetch_failure_chunks_total"),
                *("lmcache_mp_l1_allocation_failure_chunks_total", "lmcache_mp_l1_read_failure_chunks_total"),
                "lmcache_mp_timeouts_total",
            ),
            total,
        ),
        (
            "lmcache_l2_hits",
            ("lmcache_mp_lookup_hit_l2_tokens_total",),
            total,
        ),
    ),
    (
        ("lmcache_used", ("lmcache_mp_l1_usage_ratio",), share),
        ("lmcache_local_bytes", ("lmcache_mp_l1_memory_usage_bytes",), total),
        ("lmcache_remote_bytes", ("lmcache_mp_l2_usage_bytes",), total),
        (
            "lmcache_inflight",
            ("lmcache_mp_num_inflight_l2_loads", "lmcache_mp_num_inflight_l2_stores"),
            total,
        ),
    ),
)
_LMCACHE_LOOKUPS = ("lmcache_mp_lookup_requested_tokens_total", "lmcache_mp_lookups_requests_total")
LMCACHE_READER = Reader((*_LMCACHE_EXTRAS.names, *_LMCACHE_LOOKUPS, START), "lmcache_mp_")

_MAX_USED, _MAX_BLOCKS, _MAX_MISSED = "used_blocks", "all_blocks", "missed_tokens"
_MAX: Fields = (
    ("running", ("maxserve_num_requests_running",), requests),
    ("waiting", ("maxserve_num_requests_queued",), requests),
    (_MAX_USED, ("maxserve_cache_num_used_blocks",), total),
    (_MAX_BLOCKS, ("maxserve_cache_num_total_blocks",), total_or_none),
    ("prompt_tokens", ("maxserve_num_input_tokens_total",), total),
    ("generation_tokens", ("maxserve_num_output_tokens_total",), total),
    ("prefix_cache_hits", ("maxserve_cache_hits_tokens_total",), total),
    (_MAX_MISSED, ("maxserve_cache_misses_tokens_total",), total),
    ("preemptions", ("maxserve_cache_preemption_count_total",), total),
    (
        "finished",
        ("maxserve_request_count_total",),
        lambda family: finished_by_reason(where(family, "path", "/v1/chat/completions", "/v1/completions")),
    ),
)
_MAX_TIMES: Histograms = (
    ("ttft", ("maxserve_time_to_first_token_milliseconds",)),
    ("itl", ("maxserve_itl_milliseconds",)),
    ("tpot", ("maxserve_time_per_output_token_milliseconds",)),
    ("e2e", ("maxserve_request_time_milliseconds",)),
)
_MAX_LOADS = "maxserve_pipeline_load_total"
MAX_READER = Reader(names_of(_MAX, _MAX_TIMES, _MAX_LOADS), "maxserve_")


def sample_of_max(families: Page, at: float) -> EngineSample:
    """Parse the page of a MAX server, dated `at` (monotonic seconds).

    Raises:
        PageError: the page holds more samples than any real server has.
    """
    page = LanePage(families, model_label="model")
    fields = page.read(_MAX, _MAX_TIMES)["0"]
    page.note_models(_MAX_LOADS)
    present, waiting = fields.pop("running", None), fields.get("waiting")
    used_blocks, blocks = fields.pop(_MAX_USED, None), fields.pop(_MAX_BLOCKS, None)
    hit_tokens, missed_tokens = fields.get("prefix_cache_hits"), fields.pop(_MAX_MISSED, None)
    if present is not None:
        fields["gauges"] = {"in_flight": present}
        fields["running"] = None if waiting is None else max(0.0, present - waiting)
    if blocks and used_blocks is not None and used_blocks <= blocks:
        fields["kv_cache_percent"] = 100.0 * used_blocks / blocks
    if hit_tokens is not None and missed_tokens is not None:
        fields["prefix_cache_queries"] = hit_tokens + missed_tokens
    for name, _ in _MAX_TIMES:
        if (value := fields.get(name)) is not None:
            bounds_s = tuple(bound / 1000 for bound in value.bounds)
            fields[name] = Histogram(bounds_s, value.cumulative, value.sum / 1000)
    return EngineSample(
        at=at,
        engine="max",
        lanes=(LaneSample("0", per_finished_request=True, **fields),),
        models=page.model_names(),
    )


def sample_of_dynamo(families: Page, at: float) -> EngineSample:
    """Parse the page of a Dynamo worker without its engine's names, dated `at` (monotonic seconds).

    Raises:
        PageError: the page holds more samples than any real server has.
    """
    page = LanePage(families, model_label="model", keep=lambda places: _of_generation(places) or places)
    fields = page.read(_DYNAMO, _DYNAMO_TIMES)
    done_requests = of_label("dynamo_endpoint", "generate", combine=total)(families.get(_DYNAMO_DONE, {}))
    fields["0"]["finished"] = {} if done_requests is None else {"unknown": done_requests}
    page.note_models(DYNAMO_IN_FLIGHT)
    _DYNAMO_EXTRAS.add(families, fields)
    return EngineSample(
        at=at,
        engine="dynamo",
        lanes=(LaneSample("0", **fields["0"]),),
        models=page.model_names(),
        note=DYNAMO_NOTE,
        role=dynamo_role(families),
    )


def _of_generation(places: Places) -> Places:
    """Return the samples of the endpoint that generates text; a worker also has endpoints for its control."""
    return where(places, "dynamo_endpoint", "generate")


def sample_of_lmcache(families: Page, at: float) -> EngineSample:
    """Parse the page of an LMCache server, dated `at` (monotonic seconds).

    Raises:
        PageError: the page holds more samples than any real server has.
    """
    page = LanePage(families)
    fields: dict[str, dict[str, Any]] = {"0": {}}
    _LMCACHE_EXTRAS.add(families, fields)
    for name in _LMCACHE_LOOKUPS:
        page.note_models(name)
    return EngineSample(
        at=at,
        engine="lmcache",
        lanes=(LaneSample("0", **fields["0"]),),
        models=page.model_names(),
        start_time=start_time(families.get(START, {})),
        note=LMCACHE_NOTE,
    )


_TRITON_GENERAL = "nv_trt_llm_general_metrics"
_TRITON_REQUESTS, _TRITON_BLOCKS = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"
_TRITON: Fields = (
    ("running", (_TRITON_REQUESTS,), of_label("request_type", "scheduled", combine=requests)),
    ("waiting", (_TRITON_REQUESTS,), of_label("request_type", "waiting", combine=requests)),
    ("kv_cache_percent", (_TRITON_BLOCKS,), of_label("kv_cache_block_type", "fraction", combine=share)),
    ("prompt_tokens", ("nv_llm_input_token_len_sum",), total),
    ("generation_tokens", ("nv_llm_output_token_len_sum",), total),
    ("engine_work", (_TRITON_GENERAL,), of_label("general_type", "iteration_counter", combine=total)),
)
_TRITON_DONE = {"success": "nv_inference_request_success", "failure": "nv_inference_request_failure"}
_TRITON_TIMES = {"e2e": "nv_inference_request_duration_us", "queue": "nv_inference_queue_duration_us"}
_TRITON_UNCLEAR = "several models and no TensorRT-LLM among them: requests cannot be counted"
TRITON_READER = Reader(
    names_of(_TRITON, (), *_TRITON_DONE.values(), *_TRITON_TIMES.values()), "nv_inference_"
)


def sample_of_triton(families: Page, at: float) -> EngineSample:
    """Parse a metrics page with at least one `nv_inference_` sample, dated `at` (monotonic seconds).

    Raises:
        PageError: the page holds more samples than any real server has.
    """
    kept_page = _page_of_engine(families)
    page = LanePage(kept_page, model_label="model")
    fields = page.read(_TRITON, ())["0"]
    fields["kv_capacity_tokens"] = _kv_capacity(kept_page.get(_TRITON_BLOCKS, {}))
    counts = {word: total(kept_page.get(name, {})) for word, name in _TRITON_DONE.items()}
    done_by_outcome = {word: count for word, count in counts.items() if count is not None}
    for field, name in _TRITON_TIMES.items():
        spent_us = total(kept_page.get(name, {}))
        if spent_us is not None and "success" in done_by_outcome:
            fields[field] = Histogram((float("inf"),), (done_by_outcome["success"],), spent_us / 1e6)
    slots = total_or_none(where(kept_page.get(_TRITON_REQUESTS, {}), "request_type", "max"))
    return EngineSample(
        at=at,
        engine="triton",
        lanes=(LaneSample("0", per_finished_request=True, finished=done_by_outcome, **fields),),
        models=page.model_names(),
        slots=None if slots is None else int(slots),
        counted_at_arrival=frozenset({"prompt_tokens"}),
        note=None if kept_page else _TRITON_UNCLEAR,
    )


def _page_of_engine(families: Page) -> Page:
    """Return the samples of Triton's models that have TensorRT-LLM's metrics, else of its only model.

    It is empty where Triton has several models and none with such metrics.
    """
    request_family = families.get(_TRITON_REQUESTS) or families.get(_TRITON_DONE["success"], {})
    models = {label(labels, "model") or "" for labels in request_family} - {""}
    if _TRITON_REQUESTS not in families and len(models) > 1:
        return Page({}, {}, [])
    of_models = {name: where(places, "model", *models) for name, places in families.places.items()}
    return Page({name: places for name, places in of_models.items() if places}, {}, families.values_read)


def _kv_capacity(blocks: Family) -> float | None:
    """Return the size of the KV cache in tokens: its number of blocks times the tokens of a block."""
    number, tokens = (
        total_or_none(where(blocks, "kv_cache_block_type", kind)) for kind in ("max", "tokens_per")
    )
    return None if number is None or tokens is None else number * tokens
