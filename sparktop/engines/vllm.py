"""Reader for vLLM's metrics page, from version 0.8.5 (V0 engine included) to 0.32, and for pages like it.

Those of Ray Serve LLM, NIM and LMDeploy have these metrics under other names; their readers are at the end of
this module. Those of Aphrodite and FastDeploy have them under a prefix of their own.

Names change between versions, so each quantity has a list of metric names, newest first; the first name that
is on the page is read, whatever its value. Counters are searched with and without `_total`. Details:

* Lanes are engine cores (data-parallel ranks, label `engine`); pages without the label have one lane, "0".
* Several models or LoRA adapters in a lane are added up. A share (KV cache, hit rate) cannot be added up:
  the highest is read, because requests wait for the fullest cache.
* If several API servers write one page, samples have a `pid` label. Each process counts its own requests,
  so counters are added up. Each process also reports the gauges of the shared scheduler: a sum would count
  requests twice, so the highest value is read.
* A counter that is negative, infinite or NaN is unknown, and so is a sum that includes such a counter. A
  share outside 0 to 1 is unknown too (V0 reports -1 where prefix caching is off).
* Several API servers report a gauge only after it was set, and nothing of their process. Only on their page,
  a missing number of running or waiting requests is 0: the page of a single process has these gauges from
  its start. Tokens per step are unknown with several servers, because each server counts every step,
  including steps without a request of its own.
* Computed prompt tokens are those of source `local_compute`; tokens from this server's cache, or from
  another server's over a KV connector, were not computed here and count as cached. Hits and queries of the
  prefix cache are of the server's own cache only.

Not read: V0's swapped requests and CPU cache, which have no successor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from sparktop.engines.exposition import Family, Labels, Page, Places, Reader
from sparktop.engines.lanes import (
    CPU,
    OLDER,
    START,
    ExtraReader,
    Extras,
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
    positive_number,
    requests,
    share,
    start_time,
    total,
    total_or_none,
    where,
)
from sparktop.model.engine import POSITION, EngineSample, LaneSample, PrefixCache
from sparktop.model.text import clean

_VLLM_PREFIX = "vllm:"
_CONFIG = "vllm:cache_config_info"
_RUNNING = "vllm:num_requests_running"
_EMPTY: Family = {}
_LARGEST_BLOCK = 1e9
"""Tokens of a block of the KV cache above which the value is damaged."""


def _is_asleep(family: Family) -> bool | None:
    """Return whether an engine core sleeps; None if unknown.

    `family` is the sleep metric: the core sleeps if its sample `awake` is 0. On pages without this sample,
    the core sleeps if the sample of a sleep level is above 0.
    """
    awake = where(family, "sleep_state", "awake")
    if awake:
        level = share(awake)
        return None if level is None else level == 0
    level = share(where(family, "sleep_state", "weights_offloaded", "discard_all"))
    return None if level is None else level > 0


def _counter_names(*names: str) -> tuple[str, ...]:
    return tuple(f"vllm:{name}{suffix}" for name in names for suffix in ("_total", ""))


_BY_SOURCE = _counter_names("prompt_tokens_by_source")
FIELDS: Fields = (
    ("running", (_RUNNING,), requests),
    ("waiting", ("vllm:num_requests_waiting",), requests),
    (
        "waiting_for_capacity",
        ("vllm:num_requests_waiting_by_reason",),
        of_label("reason", "capacity", combine=requests),
    ),
    ("kv_cache_percent", ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"), share),
    ("prompt_tokens", _counter_names("prompt_tokens"), total),
    ("prompt_tokens_computed", _BY_SOURCE, of_label("source", "local_compute", combine=total)),
    ("prompt_tokens_cached", _counter_names("prompt_tokens_cached"), total),
    (
        "prompt_tokens_cached",
        _BY_SOURCE,
        of_label("source", "local_cache_hit", "external_kv_transfer", combine=total),
    ),
    ("generation_tokens", _counter_names("generation_tokens"), total),
    ("preemptions", _counter_names("num_preemptions"), total),
    ("prefix_cache_hits", _counter_names("prefix_cache_hits", "gpu_prefix_cache_hits"), total),
    ("prefix_cache_queries", _counter_names("prefix_cache_queries", "gpu_prefix_cache_queries"), total),
    ("external_cache_hits", _counter_names("external_prefix_cache_hits"), total),
    ("external_cache_queries", _counter_names("external_prefix_cache_queries"), total),
    ("media_cache_hits", _counter_names("mm_cache_hits"), total),
    ("media_cache_queries", _counter_names("mm_cache_queries"), total),
    ("prefix_cache_hit_percent", ("vllm:gpu_prefix_cache_hit_rate",), share),
    ("spec_drafts", _counter_names("spec_decode_num_drafts"), total),
    ("spec_draft_tokens", _counter_names("spec_decode_num_draft_tokens"), total),
    ("spec_accepted_tokens", _counter_names("spec_decode_num_accepted_tokens"), total),
    ("spec_accept_percent", ("vllm:spec_decode_draft_acceptance_rate",), share),
    ("read_bytes_per_gpu", _counter_names("estimated_read_bytes_per_gpu"), total_or_none),
    ("asleep", ("vllm:engine_sleep_state",), _is_asleep),
    ("finished", _counter_names("request_success"), finished_by_reason),
)
HISTOGRAMS: Histograms = (
    ("ttft", ("vllm:time_to_first_token_seconds",)),
    ("itl", ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")),
    ("tpot", ("vllm:request_time_per_output_token_seconds",)),
    ("e2e", ("vllm:e2e_request_latency_seconds",)),
    ("queue", ("vllm:request_queue_time_seconds", "vllm:time_in_queue_requests")),
    ("prefill", ("vllm:request_prefill_time_seconds",)),
    ("decode", ("vllm:request_decode_time_seconds",)),
    ("step_tokens", ("vllm:iteration_tokens_total",)),
    ("answer_tokens", ("vllm:request_generation_tokens",)),
    ("request_tokens", ("vllm:request_prompt_tokens",)),
)


# Metrics that only some servers report: moved KV caches, LoRA adapters, refusals.
#
# * The value of `vllm:lora_requests_info` is the Unix time at which its labels were true, and each
#   combination of labels remains on the page: the newest one counts.
# * vLLM's histograms of NIXL count transfers at the server that reads the KV cache, and expired requests at
#   the server that holds it.
# * LMCache's `remote_time_*` are in milliseconds, its other times in seconds.
# * NIXL's failed transfers include its failed notifications since vLLM 0.33, which keeps the count of these
#   beside them; versions before, which have no notifications after the expiry, count both apart.
# * Parsers of tool calls are counted for each choice of a whole answer, and for each piece of a streamed
#   one: only the first are read.


_POSITION_NAME = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
_MOST_POSITIONS = 16
"""Positions in a draft of which the accepted tokens are read."""


def _count_lora(name: str) -> Callable[[Family], float | None]:
    """Return a function that counts the adapters which the newest sample lists in its label `name`."""

    def count(family: Family) -> float | None:
        listed = label(_newest_of_info(family), name)
        return None if listed is None else float(sum(bool(adapter.strip()) for adapter in listed.split(",")))

    return count


def _lora_max(family: Family) -> float | None:
    """Return the most adapters at once, as the newest sample states it."""
    return positive_number(label(_newest_of_info(family), "max_lora"))


def _newest_of_info(family: Family) -> Labels:
    """Return the labels of the sample with the highest value, which is a time; () without samples."""
    return max(family, key=lambda labels: family[labels], default=())


def _counters(*names: str) -> tuple[str, ...]:
    """Return counters of vLLM as its pages spell them."""
    return tuple(f"vllm:{name}_total" for name in names)


def _count_unhealthy(family: Family) -> float | None:
    """Return how many processes report 0 for their health, of a gauge that is 1 for a healthy one."""
    is_known = total(family) is not None
    return float(sum(value == 0 for value in family.values())) if is_known else None


_STAGES, _REASONS = "vllm:num_requests_kv_fetch_by_stage", "vllm:num_requests_waiting_by_reason"
_OFFLOADED = "vllm:kv_offload_total_bytes_total"
_LORA_INFO = "vllm:lora_requests_info"
_CACHED = _counters("prompt_tokens_cached_by_source")
_NIXL_LATE = "nixl_num_notifications_after_expiry"
_NIXL_NOTICES = "nixl_failed_notifications"
"""Key of failed notifications until it is known whether they are among the failed transfers."""
_TOOLS = _counters("tool_call_parser_invocations")
_WHOLE = ("non_streaming", None)


def _tool_calls(*outcomes: str) -> Callable[[Family], float | None]:
    """Return a function that sums parsed whole answers with one of these outcomes, or with any."""

    def read(family: Family) -> float | None:
        whole_calls = where(family, "mode", *_WHOLE)
        return total_or_none(where(whole_calls, "outcome", *outcomes) if outcomes else whole_calls)

    return read


def _of_histogram(key: str, name: str) -> Extras:
    """Return the rows for the sum and the count of a histogram, from which a mean is computed."""
    return (
        (f"{key}_sum", (f"{name}_sum",), total_or_none),
        (f"{key}_count", (f"{name}_count",), total_or_none),
    )


COUNTS: Extras = (
    ("refused", _counters("admission_rejections"), total),
    ("corrupted", _counters("corrupted_requests"), total),
    ("cached_elsewhere", _CACHED, of_label("source", "host", "p2p", "disk", combine=total_or_none)),
    (
        "kv_transfer_bytes",
        ("vllm:nixl_bytes_transferred_sum", "vllm:mooncake_bytes_transferred_sum"),
        total,
    ),
    ("kv_transfer_s", ("vllm:nixl_xfer_time_seconds_sum", "vllm:mooncake_xfer_time_seconds_sum"), total),
    ("kv_transfers", ("vllm:nixl_xfer_time_seconds_count", "vllm:mooncake_xfer_time_seconds_count"), total),
    (
        "kv_failures",
        _counters(
            "nixl_num_failed_transfers",
            "mooncake_num_failed_transfers",
            "mooncake_num_failed_recvs",
            "mooncake_store_operation_failed_keys",
            "hf3fs_num_failed_save",
            "hf3fs_num_failed_load",
            "umbp_transfer_failed",
        ),
        total,
    ),
    (_NIXL_NOTICES, _counters("nixl_num_failed_notifications"), total),
    ("kv_late_notices", _counters(_NIXL_LATE), total),
    (
        "kv_expired",
        _counters("nixl_num_kv_expired_reqs", "mooncake_num_kv_expired_reqs"),
        total,
    ),
    ("offload_loaded", _counters("kv_offload_load_bytes"), total),
    ("offload_stored", _counters("kv_offload_store_bytes"), total),
    (
        "offload_failures",
        _counters("kv_offload_allocation_failure", "kv_offload_tiering_promotion_allocation_failures"),
        total,
    ),
    (
        "tier_failures",
        _counters("kv_offload_tiering_promotion_job_failures", "kv_offload_tiering_cascade_job_failures"),
        total,
    ),
    ("tier_dropped", _counters("kv_offload_tiering_backpressure_stores_dropped"), total),
    ("tier_read_bytes", _counters("kv_offload_tiering_read_bytes"), total),
    ("tier_written_bytes", _counters("kv_offload_tiering_write_bytes"), total),
    ("tier_hits", _counters("kv_offload_tiering_chunk_hits"), total),
    ("tier_lookups", _counters("kv_offload_tiering_chunk_queries"), total),
    *_of_histogram("prefill_kv", "vllm:request_prefill_kv_computed_tokens"),
    *_of_histogram("request_preemptions", "vllm:request_num_preemptions"),
    *_of_histogram("block_life", "vllm:kv_block_lifetime_seconds"),
    *_of_histogram("block_idle", "vllm:kv_block_idle_before_evict_seconds"),
    *_of_histogram("block_gap", "vllm:kv_block_reuse_gap_seconds"),
    ("tool_answers", _TOOLS, _tool_calls()),
    ("tool_calls", _TOOLS, _tool_calls("tool_call")),
    ("tool_failures", _TOOLS, _tool_calls("error", "failure", "failed", "parse_error", "parser_failure")),
    ("lmcache_hits", ("lmcache:num_hit_tokens_total",), total),
    ("lmcache_lookups", ("lmcache:num_requested_tokens_total",), total),
    ("lmcache_retrieve_s", ("lmcache:time_to_retrieve_sum",), total),
    ("lmcache_retrieves", ("lmcache:time_to_retrieve_count",), total),
    ("lmcache_remote_get_ms", ("lmcache:remote_time_to_get_sum",), total),
    ("lmcache_remote_gets", ("lmcache:remote_time_to_get_count",), total),
    (
        "lmcache_failures",
        tuple(
            f"lmcache:{name}{suffix}"
            for name in ("get_blocking_failed_count", "put_failed_count", "remote_ping_errors")
            for suffix in ("_total", "")
        ),
        total,
    ),
    (f"offload_loaded{OLDER}", (_OFFLOADED,), of_label("transfer_type", "CPU_to_GPU", combine=total)),
    (f"offload_stored{OLDER}", (_OFFLOADED,), of_label("transfer_type", "GPU_to_CPU", combine=total)),
    *(
        (f"{POSITION}{index}", (_POSITION_NAME,), of_label("position", str(index), combine=total))
        for index in range(_MOST_POSITIONS)
    ),
)
"""Counters on the page of a vLLM server, those of LMCache inside it included."""
GAUGES: Extras = (
    ("kv_fetch_waiting", (_STAGES,), of_label("stage", "waiting_to_start", combine=requests)),
    ("kv_fetching", (_STAGES,), of_label("stage", "in_progress", combine=requests)),
    ("deferred", (_REASONS,), of_label("reason", "deferred", combine=requests)),
    ("sleep_operations", ("vllm:sleep_mode_operations_in_flight",), requests),
    ("weight_updates", ("vllm:rl_weight_update_operations_in_flight",), requests),
    ("offload_cache", ("vllm:kv_offload_cpu_cache_usage_perc",), share),
    ("offload_pending", ("vllm:simple_kv_offload_pending_store_blocks",), total),
    ("lmcache_local_bytes", ("lmcache:local_cache_usage",), total),
    ("lmcache_remote_bytes", ("lmcache:remote_cache_usage",), total),
    ("lmcache_unhealthy", ("lmcache:lmcache_is_healthy",), _count_unhealthy),
    ("lora_running", (_LORA_INFO,), _count_lora("running_lora_adapters")),
    ("lora_waiting", (_LORA_INFO,), _count_lora("waiting_lora_adapters")),
    ("lora_max", (_LORA_INFO,), _lora_max),
)
"""Gauges on the page of a vLLM server, those of LMCache inside it included."""
EXTRAS = ExtraReader(COUNTS, GAUGES)


def _count_notices(counts: dict[str, float]) -> None:
    """Add failed notifications of NIXL to its failed transfers where these do not include them."""
    notices = counts.pop(_NIXL_NOTICES, None)
    if notices is not None and "kv_late_notices" not in counts:
        counts["kv_failures"] = counts.get("kv_failures", 0.0) + notices


# The page as a whole.


_OF_ONE_PROCESS = (START, "python_info", "go_info", "vllm:generation_tokens_created", f"{_RUNNING}_created")
"""Names that only a page of a single process has."""
NAMES = names_of(FIELDS, HISTOGRAMS, CPU, _CONFIG, *_OF_ONE_PROCESS, *EXTRAS.names)
"""Every metric name that is read, spelled as on the page."""
READER = Reader(NAMES, _VLLM_PREFIX)


def sample_of(families: Page, at: float, *, engine: str = "vllm") -> EngineSample:
    """Return the sample, dated `at` (monotonic seconds), of a metrics page under vLLM's names.

    `engine` is the name of the server in the sample.

    Raises:
        PageError: the page has more lanes than any real server has.
    """
    separates = families.get_or_make("lane label", lambda: lane_label(families, "engine"))
    page = LanePage(families, lane_label=separates)
    fields = page.read(FIELDS, HISTOGRAMS)
    # All that the cache metric says is in its labels, so that it is read once for all pages of this layout.
    labelled, capacities = families.get_or_make("capacities", lambda: _read_cache_config(page, list(fields)))
    for lane in _all_lanes(labelled, fields):
        fields.setdefault(lane, {})
    if separates == "engine":  # only engine cores share blocks as `_kv_capacities` assumes; replicas do not
        for lane, capacity in capacities.items():
            fields[lane]["kv_capacity_tokens"] = capacity
    EXTRAS.add(families, fields, separates)
    for lane_fields in fields.values():
        _count_notices(lane_fields.get("counts", {}))
    if engine == "vllm" and _has_several_servers(families):  # the rule holds for vLLM's own pages
        _correct_for_several_servers(page, fields.values())
    return EngineSample(
        at=at,
        engine=engine,
        lanes=tuple(LaneSample(lane, **fields[lane]) for lane in sorted(fields, key=lane_order)),
        models=page.model_names(),
        start_time=start_time(families.get(START, _EMPTY)),
        cpu_s=total_or_none(families.get(CPU, _EMPTY)),
        role=dynamo_role(families),
        prefix_cache=families.get_or_make("prefix cache", lambda: _prefix_cache(families)),
    )


def _prefix_cache(families: Mapping[str, Family]) -> PrefixCache:
    """Return what the labels of the cache metric say.

    A hybrid model has blocks as large as a state of its recurrent layers, and finds a prompt only where a
    state was kept: in multiples of `prefix_match_unit` where that is set, else of a block (vLLM's
    `resolve_kv_cache_block_sizes`). A model without such layers reports no `mamba_block_size`.
    """
    values = dict(next(iter(families.get(_CONFIG, _EMPTY)), ()))
    is_on = {"True": True, "False": False}.get(values.get("enable_prefix_caching", ""))
    hybrid = positive_number(values.get("mamba_block_size")) is not None
    states = clean(values.get("mamba_cache_mode"), 20) if hybrid else None
    sizes = [positive_number(values.get("block_size")) or 0.0]
    if states == "align":  # states are kept only where a block of the recurrent layers ends
        sizes.append(positive_number(values.get("mamba_block_size")) or 0.0)
    block = positive_number(values.get("prefix_match_unit")) or max(sizes)
    return PrefixCache(is_on, round(block) if 0 < block < _LARGEST_BLOCK else None, states)


def _has_several_servers(families: Mapping[str, Family]) -> bool:
    """Return whether several API servers of one vLLM write a page.

    They do if the number of running requests has a label `pid`, or if the page describes the KV cache and has
    none of `_OF_ONE_PROCESS`. For then prometheus_client writes nothing of the process and of Python, nor
    when a metric was created, while a single process writes some of these. The Rust front end, Triton and
    registries of Go may write none of them, but no description of the KV cache either, which every Python
    front end of vLLM writes.
    """
    if any(label(labels, "pid") is not None for labels in families.get(_RUNNING, _EMPTY)):
        return True
    return _CONFIG in families and not any(name in families for name in _OF_ONE_PROCESS)


def _correct_for_several_servers(page: LanePage, lanes: Iterable[dict[str, Any]]) -> None:
    """Correct the fields of each lane on a page that several API servers of one vLLM write.

    Missing numbers of running and waiting requests become 0, because such a page lacks these gauges until
    they are first set. Tokens per step are removed, because each API server counts every step.
    """
    for fields in lanes:
        fields.pop("step_tokens", None)
        for gauge, names, _ in FIELDS[:2]:  # running and waiting
            name = page.first_present(names)
            if name is None or page.families[name]:  # otherwise the gauge is present but could not be parsed
                fields.setdefault(gauge, 0.0)


def _read_cache_config(page: LanePage, lanes: list[str]) -> tuple[list[str], dict[str, float]]:
    """Return (lanes that the cache metric names, capacity of the KV cache in tokens by lane).

    `lanes` are those of the other metrics.
    """
    configs = page.lanes(_CONFIG)
    labelled = [lane for lane, places in configs.items() if any(label(labels, "engine") for labels in places)]
    return labelled, _kv_capacities(configs, labelled, _all_lanes(labelled, lanes))


def _all_lanes(labelled: Iterable[str], lanes: Iterable[str]) -> list[str]:
    """Return `lanes`, and those `labelled` by the cache metric; a page without any has the lane "0"."""
    return list(dict.fromkeys((*lanes, *labelled))) or ["0"]


def _kv_capacities(
    configs: Mapping[str, Places], labelled: Iterable[str], lanes: list[str]
) -> dict[str, float]:
    """Return the capacity of the KV cache in tokens, by lane (engine core); unknown capacities are left out.

    `configs` has the samples of vLLM's cache metric by lane, and `labelled` the lanes that have an
    engine label. A sample without this label applies to all `lanes`. The capacity is `kv_cache_size_tokens`
    of the lane, which newer versions report. Without it, the capacity is blocks x block size. If this product
    is the same in all lanes, it is divided by the number of lanes, because `num_gpu_blocks` is the sum over
    all cores, repeated in the sample of each core (observed with 0.32 and two cores).
    """
    sizes: dict[str, float] = {}
    sums: dict[str, float] = {}
    for lane, places in configs.items():
        for labels in places:
            values = dict(labels)
            size = positive_number(values.get("kv_cache_size_tokens"))
            blocks = positive_number(values.get("num_gpu_blocks"))
            block_size = positive_number(values.get("block_size"))
            for target in [lane] if lane in labelled else lanes:
                if size is not None:
                    sizes[target] = size
                if blocks is not None and block_size is not None:
                    sums[target] = blocks * block_size
    sharing = len(sums) if len(set(sums.values())) == 1 else 1
    return {lane: tokens / sharing for lane, tokens in sums.items()} | sizes


# Readers for servers with vLLM's metrics under other names.
#
# * Ray Serve LLM: `ray_vllm_<name>` (older versions of Ray: `ray_vllm:<name>`) on the metrics port of each
#   of Ray's nodes. Each counter exists with and without `_total`, and only from its first increment on: the
#   first is read. All replicas on a node are on one page, with equal `engine` labels: with several, each is
#   a lane. They differ by `ReplicaId`, or by `WorkerId` (the process) where vLLM is older than 0.11.
# * NIM: vLLM's old names without a prefix, at `/v1/metrics`. `request_finish_total` has the reasons.
#   `gpu_power_usage_watts` is not read: versions differ in its unit.
# * Aphrodite has vLLM's metrics under its own prefix, FastDeploy many of them, without a model's name.
# * LMDeploy (`lmdeploy/metrics/loggers.py`): vLLM's names but for the time of a step
#   (`iter_token_latency`), that of a token (`time_per_output_token_seconds`), tokens from the prefix cache,
#   counted at the end of a request, and the hit rate. `iteration_tokens_total` is counted for each request,
#   so that it does not show steps. Failed requests and those that wait in the HTTP server
#   (`num_api_requests_waiting`) are gauges. It has no preemptions.


NIM_PATH = "/v1/metrics"
NIM_FACTS = ("/v1/version", "/v1/models")
"""Routes that report the identity of a NIM."""
NIM_PREFIX = "num_requests_"
"""How the names begin by which a page of a NIM is recognised."""
_SLOTS = "num_request_max"
_FINISHED = {
    "request_finish_total": "vllm:request_success_total",
    "request_success_total": "vllm:request_success",  # read only where the name above is absent
}
NIM_READER = Reader(
    {**{name.removeprefix(_VLLM_PREFIX): name for name in NAMES}, **_FINISHED, _SLOTS: _SLOTS}
)
_LMDEPLOY_PREFIX = "lmdeploy:"
_PARTS = ("bucket", "sum", "count")
_LMDEPLOY_OWN = {
    "cached_tokens_total": "prompt_tokens_cached_total",
    "prefix_cache_hit_rate": "gpu_prefix_cache_hit_rate",
    **{f"iter_token_latency_{part}": f"inter_token_latency_seconds_{part}" for part in _PARTS},
    **{
        f"time_per_output_token_seconds_{part}": f"request_time_per_output_token_seconds_{part}"
        for part in _PARTS
    },
}
"""vLLM's name by LMDeploy's, where they differ, without prefixes."""
_FAILED, _API_WAITING = "lmdeploy:num_requests_failed", "lmdeploy:num_api_requests_waiting"
_OF_API_SERVER: Fields = (("queued", (_API_WAITING,), requests), ("failed", (_FAILED,), requests))
_NOT_LMDEPLOY = (
    "vllm:iteration_tokens_total",
    *(f"{_VLLM_PREFIX}{name}" for name in _LMDEPLOY_OWN.values()),
)
LMDEPLOY_NAMES: Mapping[str, str] = MappingProxyType(
    {
        **{
            name.replace(_VLLM_PREFIX, _LMDEPLOY_PREFIX): name
            for name in NAMES
            if name.startswith(_VLLM_PREFIX) and not name.startswith(_NOT_LMDEPLOY)
        },
        **{f"{_LMDEPLOY_PREFIX}{theirs}": f"{_VLLM_PREFIX}{ours}" for theirs, ours in _LMDEPLOY_OWN.items()},
        _FAILED: _FAILED,
        _API_WAITING: _API_WAITING,
        START: START,
        CPU: CPU,
    }
)
"""The name in vLLM's tables of each name that is read from a page of LMDeploy."""
LMDEPLOY_READER = Reader(LMDEPLOY_NAMES, _LMDEPLOY_PREFIX)


def sample_of_lmdeploy(families: Page, at: float) -> EngineSample:
    """Parse a metrics page of LMDeploy, dated `at` (monotonic seconds).

    Raises:
        PageError: the page holds more samples or lanes than any real server has.
    """
    sample = sample_of(families, at, engine="lmdeploy")
    of_api = LanePage(families, lane_label="engine").read(_OF_API_SERVER, ())
    return replace(sample, lanes=tuple(_with_api_server(lane, of_api[lane.lane]) for lane in sample.lanes))


def _with_api_server(lane: LaneSample, of_api: Mapping[str, float | None]) -> LaneSample:
    """Return a lane with what LMDeploy's HTTP server reports of it: its queue and its failed requests."""
    queued, failed = of_api.get("queued"), of_api.get("failed")
    finished = {reason.rpartition(".")[2].lower(): number for reason, number in lane.finished.items()}
    return replace(
        lane,
        waiting=lane.waiting if lane.waiting is None or queued is None else lane.waiting + queued,
        finished=finished,  # "ResponseType.FINISH"
        counts=lane.counts if failed is None else {**lane.counts, "failed": failed},
    )


def sample_of_nim(families: Page, at: float) -> EngineSample:
    """Parse a metrics page of a NIM, dated `at` (monotonic seconds).

    Raises:
        PageError: the page holds more samples or lanes than any real server has.
    """
    sample = sample_of(families, at, engine="nim")
    slots = total_or_none(families.get(_SLOTS, {}))
    return replace(sample, slots=None if slots is None else int(slots))
