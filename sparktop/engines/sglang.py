"""Reader for SGLang's metrics page (`--enable-metrics`), with old and new metric names.

The metrics are defined by `SchedulerMetricsCollector` and `TokenizerMetricsCollector` in SGLang's
`metrics_collector.py`, their labels and intervals in its `scheduler_metrics_mixin.py`.

* Lanes are engine cores (data-parallel ranks, label `dp_rank`; one lane, "0", where there is no such label).
  SGLang can be configured so that all tensor- and pipeline-parallel ranks of a lane report the same gauges.
  So only the lowest rank of each lane is read. This is rank 0 on a plain server; with DP attention, the
  second lane begins at a higher rank.
* Tokens per finished request, TTFT, ITL and E2E are counted before the schedulers, without a rank: they
  appear in lane "0", whichever lane processed the request.
* With priority scheduling, a scheduler's sample with an empty `priority` is the total of all priorities, and
  each priority has a sample of its own: only the total is read. What is counted before the schedulers has
  only samples by priority, which are added up.
* `cache_hit_rate` is that of the last batch of prompts, and 0 after each step that only generates: where
  tokens are counted, their growth is read instead.
* `generation_tokens_total` increases when a request finishes. `realtime_tokens_total` increases
  every few steps. If present, it is read for all three types of tokens, so that all increase in the same
  way. A type (label `mode`) has no sample before its first token.
* `gen_throughput` is the rate over the last decode interval (40 steps). On an idle server it is refreshed
  only after 30 s, and so is the number of running requests.
* A server of a disaggregated group has a label `engine_type` (unified, prefill, decode, dynamic). Its
  requests also wait in queues of their own, for a KV cache to be sent or received; they are not among the
  waiting ones. The time of a transfer is a histogram in milliseconds, in older versions a gauge.
* Context-parallel ranks have no label: in versions with that fault (issue 31896) their gauges are added up,
  which the page does not show.
* `token_usage` is the use of the fullest pool: that of full attention, of sliding windows (SWA), or of the
  states of Mamba layers. Newer versions have each apart; then the KV cache's use is that of full attention,
  and the others are shown beside it where a model has them: without, their gauges are 0. A state belongs to
  one request, so that pool limits requests, not tokens.
* `forward_execution_seconds_total` is the GPU's time by the kind of forward pass (label `category`): extend
  computes prompts, decode and target_verify generate tokens, mixed does both.
* Speculative decoding is recognised by an acceptance rate above 0: without it SGLang reports 0.
* `num_requests_total` has no reasons, and includes aborted requests that ran to their end.

There is no `process_start_time_seconds`: prometheus_client runs in multiprocess mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sparktop.engines.document import Answers, count, field, first_model, words
from sparktop.engines.exposition import Family, Labels, Page, Places, Reader
from sparktop.engines.lanes import (
    ExtraReader,
    Fields,
    Histograms,
    LanePage,
    dynamo_role,
    finished_by_reason,
    label,
    lane_label,
    lane_order,
    names_of,
    of_label,
    requests,
    scaled_total,
    share,
    share_or_none,
    total,
    total_or_none,
    where,
)
from sparktop.model.engine import EngineIdentity, EngineSample, LaneSample, PrefixCache
from sparktop.model.series import sum_if_all_known
from sparktop.model.text import clean

_INFO, _OLD_INFO = "/server_info", "/get_server_info"
FACTS = (_INFO, "/v1/models")
"""Routes that report the server's identity. `/server_info` also reads the schedulers' state, but
`/model_info` has no version."""
OLDER = ((_INFO, _OLD_INFO),)

_REALTIME = "sglang:realtime_tokens_total"
_FORWARD = "sglang:forward_execution_seconds_total"
_RANK_DIGITS = 6
"""Most digits of a rank; a label with more digits is not a rank and counts as 0."""


def _of_first_rank(places: Places) -> Places:
    """Return the samples of the lowest (pipeline-parallel, tensor-parallel) rank that has samples.

    Of a scheduler's samples those with a value of the label `priority` are left out where there is one
    without: it is their total. Samples of the tokenizer have no rank, and no total.
    """
    ranked: dict[tuple[int, int], dict[Labels, int]] = {}
    for labels, index in places.items():
        rank = (_rank_of(labels, "pp_rank"), _rank_of(labels, "tp_rank"))
        ranked.setdefault(rank, {})[labels] = index
    lowest = ranked[min(ranked)] if ranked else {}
    is_of_scheduler = any(label(labels, "tp_rank") is not None for labels in lowest)
    totals = where(lowest, "priority", None, "") if is_of_scheduler else {}
    return totals or lowest


def _rank_of(labels: Labels, name: str) -> int:
    text = label(labels, name) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _RANK_DIGITS else 0


def _tokens_of_modes(*modes: str) -> Callable[[Family], float | None]:
    """Return a function that sums the samples whose label `mode` is one of `modes`, or that have no `mode`.

    The realtime token counter has modes, and the older token counters have none: the function reads both.
    """
    return of_label("mode", None, *modes, combine=total)


FIELDS: Fields = (
    ("running", ("sglang:num_running_reqs",), requests),
    ("waiting", ("sglang:num_queue_reqs",), requests),
    ("kv_cache_percent", ("sglang:full_token_usage", "sglang:token_usage"), share),
    ("kv_capacity_tokens", ("sglang:max_total_num_tokens",), total_or_none),
    (
        "prompt_tokens",
        (_REALTIME, "sglang:prompt_tokens_total"),
        _tokens_of_modes("prefill_compute", "prefill_cache"),
    ),
    ("prompt_tokens_cached", (_REALTIME, "sglang:cached_tokens_total"), _tokens_of_modes("prefill_cache")),
    ("prompt_tokens_computed", (_REALTIME,), _tokens_of_modes("prefill_compute")),
    ("generation_tokens", (_REALTIME, "sglang:generation_tokens_total"), _tokens_of_modes("decode")),
    ("generation_tps_gauge", ("sglang:gen_throughput",), total),
    ("preemptions", ("sglang:num_retracted_requests_total",), total),
    ("prefix_cache_hit_percent", ("sglang:cache_hit_rate",), share),
    ("spec_accept_percent", ("sglang:spec_accept_rate",), share_or_none),
    ("read_bytes_per_gpu", ("sglang:estimated_read_bytes_per_gpu_total",), total_or_none),
    ("engine_work", (_FORWARD,), total),
    ("prefill_seconds", (_FORWARD,), of_label("category", "extend", "prefill", combine=total)),
    (
        "decode_seconds",
        (_FORWARD,),
        of_label("category", "decode", "target_verify", "draft_extend", combine=total),
    ),
    ("finished", ("sglang:num_requests_total",), finished_by_reason),
)
HISTOGRAMS: Histograms = (
    ("ttft", ("sglang:time_to_first_token_seconds",)),
    ("itl", ("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds")),
    ("tpot", ("sglang:request_time_per_output_token_seconds",)),
    ("e2e", ("sglang:e2e_request_latency_seconds",)),
    ("queue", ("sglang:queue_time_seconds",)),
)
_KV_TOKENS = ("kv_used_tokens", "kv_available_tokens", "kv_evictable_tokens")
_FULL = "sglang:full_token_usage"
_POOLS = {"swa_pool": "sglang:swa_token_usage", "mamba_pool": "sglang:mamba_usage"}
"""Pools beside that of full attention: the key of each in `LaneSample.gauges`, and its metric."""
_HOST_USED, _HOST_TOTAL = "sglang:hicache_host_used_tokens", "sglang:hicache_host_total_tokens"
_EXTRAS = ExtraReader(
    (
        (
            "kv_failures",
            ("sglang:num_bootstrap_failed_reqs_total", "sglang:num_transfer_failed_reqs_total"),
            total,
        ),
        ("kv_transfer_s", ("sglang:kv_transfer_latency_ms_sum",), scaled_total(1e-3)),
        ("kv_transfers", ("sglang:kv_transfer_latency_ms_count",), total),
        ("kv_transfer_bytes", ("sglang:kv_transfer_total_mb_sum",), scaled_total(1e6)),
        ("kv_speed_sum", ("sglang:kv_transfer_speed_gb_s_sum",), total),
        ("kv_speed_count", ("sglang:kv_transfer_speed_gb_s_count",), total),
        ("kv_retries", ("sglang:num_prefill_retries_total",), total_or_none),
        ("aborted", ("sglang:num_aborted_requests_total",), total),
        (
            "grammar_failures",
            ("sglang:num_grammar_aborted_total", "sglang:num_grammar_timeout_total"),
            total,
        ),
    ),
    (
        (
            "pd_bootstrap",
            ("sglang:num_prefill_bootstrap_queue_reqs", "sglang:num_prefill_prealloc_queue_reqs"),
            requests,
        ),
        ("pd_inflight", ("sglang:num_prefill_inflight_queue_reqs",), requests),
        ("pd_prealloc", ("sglang:num_decode_prealloc_queue_reqs",), requests),
        ("pd_transfer", ("sglang:num_decode_transfer_queue_reqs",), requests),
        ("grammar_queue", ("sglang:num_grammar_queue_reqs",), requests),
        ("paused", ("sglang:num_paused_reqs",), requests),
        *((name, (f"sglang:{name}",), total) for name in _KV_TOKENS),
        *((pool, (name,), share) for pool, name in _POOLS.items()),
        ("spec_length", ("sglang:spec_accept_length",), total_or_none),
        ("kv_transfer_gb_s", ("sglang:kv_transfer_speed_gb_s",), total),
        ("kv_transfer_last_ms", ("sglang:kv_transfer_latency_ms",), total),
        ("offload_used", (_HOST_USED,), total),
        ("offload_total", (_HOST_TOTAL,), total),
    ),
)
_ROUNDED = 1.0
"""Percent by which `token_usage` may be above the pool that it is of: it has two decimals."""
_LONGEST_START_S = 1e6
"""Longer starts, of eleven days, are damaged values."""
_STARTUP = {
    "sglang:startup_time_seconds": "phase",
    "sglang:weight_load_duration_seconds": "weights",
    "sglang:startup_cuda_graph_time_seconds": "CUDA graphs",
}
"""Gauges about the server's own start: by name, what they time; the first has a label `phase`."""
NAMES = names_of(FIELDS, HISTOGRAMS, *_EXTRAS.names, *_STARTUP)
"""Every metric name that is read, spelled as on the page."""
READER = Reader(NAMES, "sglang:")


def _read_startup(families: Mapping[str, Family]) -> Mapping[str, float]:
    """Return the seconds that phases of the start took, the slowest rank's; {} where the page has none."""
    values: dict[str, float] = {}
    for name, title in _STARTUP.items():
        for labels, value in families.get(name, {}).items():
            phase = clean(label(labels, "phase") or title, 40)
            if 0 <= value < _LONGEST_START_S:
                values[phase] = max(value, values.get(phase, 0.0))
    return values


def sample_of(families: Page, at: float) -> EngineSample:
    """Parse a metrics page with at least one `sglang:` sample into a sample dated `at` (monotonic seconds).

    Raises:
        PageError: the page holds more samples or lanes than any real server has.
    """
    separates = families.get_or_make("lane label", lambda: lane_label(families, "dp_rank"))
    page = LanePage(families, lane_label=separates, keep=_of_first_rank)
    lanes = page.read(FIELDS, HISTOGRAMS)
    if not lanes:
        lanes["0"] = {}
    _EXTRAS.add(page.families, lanes, separates, _of_first_rank)
    for fields in lanes.values():
        _set_derived_fields(fields, realtime=bool(page.families.get(_REALTIME)))
        _set_use_of_pools(fields, has_full=_FULL in page.families)
    return EngineSample(
        at=at,
        engine="sglang",
        lanes=tuple(LaneSample(lane, **lanes[lane]) for lane in sorted(lanes, key=lane_order)),
        models=page.model_names(),
        role=_read_role(page.families) or dynamo_role(page.families),
        startup=_read_startup(page.families),
    )


def _read_role(families: Mapping[str, Family]) -> str | None:
    """Return "prefill" or "decode" for a server of a disaggregated group, by its label `engine_type`."""
    running_family = families.get("sglang:num_running_reqs", {})
    types = {label(labels, "engine_type") for labels in running_family}
    return next((role for role in ("prefill", "decode") if types == {role}), None)


def _set_derived_fields(fields: dict[str, Any], *, realtime: bool) -> None:
    """Set those fields that follow from others: computed tokens, how tokens are counted, use of host memory.

    `realtime` is whether the page has the realtime token counter.
    """
    prompt, cached = fields.get("prompt_tokens"), fields.get("prompt_tokens_cached")
    if prompt is not None and cached is not None and cached <= prompt:
        fields["prefix_cache_hits"], fields["prefix_cache_queries"] = cached, prompt
        if not realtime:
            fields["prompt_tokens_computed"] = prompt - cached
    fields["per_finished_request"] = not realtime
    gauges = fields.get("gauges", {})
    used, size = gauges.pop("offload_used", None), gauges.pop("offload_total", None)
    if used is not None and size and used <= size:
        gauges["offload_cache"] = 100.0 * used / size


def _set_use_of_pools(fields: dict[str, Any], *, has_full: bool) -> None:
    """Correct the use of the KV cache where it is that of another pool, and remove gauges of unused pools.

    `has_full` is whether the page has the use of the pool of full attention. Without that, a use that is not
    above that of another pool is not the KV cache's, which then follows from its tokens.
    """
    gauges = fields.get("gauges", {})
    for pool in _POOLS:
        if not gauges.get(pool):  # a model without such layers
            gauges.pop(pool, None)
    others = [gauges[pool] for pool in _POOLS if pool in gauges]
    kv_percent = fields.get("kv_cache_percent")
    used, *unused = [gauges.pop(name, None) for name in _KV_TOKENS]
    if not has_full and kv_percent is not None and others and max(others) >= kv_percent - _ROUNDED:
        size = sum_if_all_known((used, *unused))
        fields["kv_cache_percent"] = 100.0 * used / size if size else None


def identify(answers: Answers) -> EngineIdentity:
    """Return the identity that `/server_info` and `/v1/models` report."""
    info = answers.get(_INFO)
    model, max_model_len = first_model(answers.get("/v1/models"))
    tokens = count(field(info, "max_total_num_tokens"))
    off = field(info, "disable_radix_cache")
    return EngineIdentity(
        version=words(field(info, "version"), 60),
        model=model or words(field(info, "served_model_name")),
        max_model_len=max_model_len or count(field(info, "context_length")),
        slots=count(field(info, "max_running_requests")),
        kv_capacity_tokens=None if tokens is None else tokens * (count(field(info, "dp_size")) or 1),
        prefix_cache=PrefixCache(not off, count(field(info, "page_size"))) if isinstance(off, bool) else None,
    )
