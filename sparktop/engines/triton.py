"""Reader for Triton Inference Server's metrics page (port 8002) with the TensorRT-LLM backend.

Triton's metrics are described in its `docs/user_guide/metrics.md`, those of the backend (`nv_trt_llm_*`) in
TensorRT-LLM's `custom_metrics_reporter.cc`.

* A request passes several models of an ensemble (tokenizer, engine, detokenizer), and each counts it. Only
  the model that also has `nv_trt_llm_*` metrics is read. Without that backend, requests are known only where
  a single model is served.
* Times are counters in microseconds, counted when a request ends: means are exact, quantiles unknown.
* `request_type="active"` includes requests that wait inside the engine, so "scheduled" is the number of
  running ones.
"""

from __future__ import annotations

from sparktop.engines.exposition import Family, Page, Reader
from sparktop.engines.lanes import (
    Fields,
    LanePage,
    label,
    names_of,
    of_label,
    requests,
    share,
    total,
    total_or_none,
    where,
)
from sparktop.model.engine import EngineSample, Histogram, LaneSample

_GENERAL = "nv_trt_llm_general_metrics"
_REQUESTS, _BLOCKS = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"
_FIELDS: Fields = (
    ("running", (_REQUESTS,), of_label("request_type", "scheduled", combine=requests)),
    ("waiting", (_REQUESTS,), of_label("request_type", "waiting", combine=requests)),
    ("kv_cache_percent", (_BLOCKS,), of_label("kv_cache_block_type", "fraction", combine=share)),
    ("prompt_tokens", ("nv_llm_input_token_len_sum",), total),
    ("generation_tokens", ("nv_llm_output_token_len_sum",), total),
    ("engine_work", (_GENERAL,), of_label("general_type", "iteration_counter", combine=total)),
)
_DONE = {"success": "nv_inference_request_success", "failure": "nv_inference_request_failure"}
_TIMES = {"e2e": "nv_inference_request_duration_us", "queue": "nv_inference_queue_duration_us"}
READER = Reader(names_of(_FIELDS, (), *_DONE.values(), *_TIMES.values()))


def sample_of(families: Page, at: float) -> EngineSample:
    """Parse a metrics page with at least one `nv_inference_` sample, dated `at` (monotonic seconds).

    Raises:
        PageError: the page holds more samples than any real server has.
    """
    request_family = families.get(_REQUESTS) or families.get(_DONE["success"], {})
    models = {label(labels, "model") or "" for labels in request_family} - {""}
    own_models = models if _REQUESTS in families or len(models) == 1 else set()
    places_of = families.places if own_models else {}
    of_models = {name: where(places, "model", *own_models) for name, places in places_of.items()}
    kept_places = {name: places for name, places in of_models.items() if places}
    kept = Page(kept_places, {}, families.values_read)
    page = LanePage(kept, model_label="model")
    fields = page.read(_FIELDS, ())["0"]
    fields["kv_capacity_tokens"] = _kv_capacity(kept.get(_BLOCKS, {}))
    counts = {word: total(kept.get(name, {})) for word, name in _DONE.items()}
    done = {word: count for word, count in counts.items() if count is not None}
    for field, name in _TIMES.items():
        spent_us = total(kept.get(name, {}))
        if spent_us is not None and "success" in done:
            fields[field] = Histogram((float("inf"),), (done["success"],), spent_us / 1e6)
    slots = total_or_none(where(kept.get(_REQUESTS, {}), "request_type", "max"))
    return EngineSample(
        at=at,
        engine="triton",
        lanes=(LaneSample("0", per_finished_request=True, finished=done, **fields),),
        models=page.model_names(),
        slots=None if slots is None else int(slots),
        counted_at_arrival=frozenset({"prompt_tokens"}),
        note=None
        if own_models
        else "several models and no TensorRT-LLM among them: requests cannot be counted",
    )


def _kv_capacity(blocks: Family) -> float | None:
    """Return the size of the KV cache in tokens: its number of blocks times the tokens of a block."""
    number, tokens = (
        total_or_none(where(blocks, "kv_cache_block_type", kind)) for kind in ("max", "tokens_per")
    )
    return None if number is None or tokens is None else number * tokens
