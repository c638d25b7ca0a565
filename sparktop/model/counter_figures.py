"""Metrics that only some servers report, each computed from one or two counters or gauges of a sample."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

ALSO_REPORTED = "also reported"


class How(StrEnum):
    """How a `CounterFigure` is computed from what a metrics page reports."""

    RATE = "rate"
    """Increase of a counter per second, over 10 s."""
    PERCENT = "percent"
    """Increase of a counter as a percentage of the increase of another, over 60 s."""
    MEAN = "mean"
    """Increase of a counter divided by the increase of another, over 60 s."""
    COUNT = "count"
    """The counter itself, since the server's start, summed over engine cores."""
    GAUGE = "gauge"
    """The current value, summed over engine cores."""
    HIGHEST = "highest"
    """The current value of the engine core with the highest one."""


class CounterFigure(Struct, frozen=True):
    """A metric that only some servers report.

    An entry in `COUNTER_FIGURES` is all that the store, the screen, the reports and the JSON need.
    """

    name: str
    """Key in the JSON."""
    title: str
    """Label of at most 10 cells on the screen, and name of the metric in reports."""
    counter: str
    """Field of `LaneSample`, or key of its `counts` or `gauges`."""
    of: str | None = None
    """The second counter of a percentage or a mean."""
    how: How = How.RATE
    scale: float = 1.0
    """Factor from the server's unit to `unit`; not used for percentages."""
    unit: str = ""
    """Unit of the value, such as "MB/s"; a rate without one is "per second"."""
    fault: bool = False
    """True for a count of faults: it is not shown on the screen while it is 0."""
    section: str = ALSO_REPORTED
    """Title of the section on the screen."""

    @property
    def shown_unit(self) -> str:
        """Return the unit as it follows the value, with its leading space if it has one; "" for a count."""
        percent = self.how is How.PERCENT or self.unit == "%"
        return "" if percent else f" {self.unit}" if self.unit else "/s" if self.how is How.RATE else ""

    @property
    def is_percent(self) -> bool:
        """Whether the value is a percentage, 0 to 100."""
        return self.how is How.PERCENT or self.unit == "%"


_MOVED, _FAILED, _LMCACHE, _LORA = "KV moved", "refused and failed", "LMCache", "LoRA adapters"
COUNTER_FIGURES = (
    CounterFigure(
        "external_cache_hit_percent",
        "external",
        "external_cache_hits",
        of="external_cache_queries",
        how=How.PERCENT,
    ),
    CounterFigure(
        "media_cache_hit_percent", "media", "media_cache_hits", of="media_cache_queries", how=How.PERCENT
    ),
    CounterFigure(
        "cached_elsewhere_percent", "off GPU", "cached_elsewhere", of="prompt_tokens", how=How.PERCENT
    ),
    CounterFigure("spec_tokens_per_step", "per step", "spec_length", how=How.HIGHEST, unit="tok"),
    CounterFigure("in_flight", "in flight", "in_flight", how=How.GAUGE),
    CounterFigure("grammar_queue", "grammar", "grammar_queue", how=How.GAUGE, fault=True),
    CounterFigure("paused_requests", "paused", "paused", how=How.GAUGE, fault=True),
    CounterFigure("swa_pool_percent", "SWA pool", "swa_pool", how=How.HIGHEST, unit="%"),
    CounterFigure("mamba_pool_percent", "states", "mamba_pool", how=How.HIGHEST, unit="%"),
    CounterFigure(
        "computed_tokens_per_request",
        "prefill",
        "prefill_kv_sum",
        of="prefill_kv_count",
        how=How.MEAN,
        unit="tok",
    ),
    CounterFigure(
        "preemptions_per_request",
        "preempted",
        "request_preemptions_sum",
        of="request_preemptions_count",
        how=How.MEAN,
        unit="/req",
        fault=True,
    ),
    CounterFigure(
        "kv_block_lifetime_s", "block life", "block_life_sum", of="block_life_count", how=How.MEAN, unit="s"
    ),
    CounterFigure(
        "kv_block_idle_s", "block idle", "block_idle_sum", of="block_idle_count", how=How.MEAN, unit="s"
    ),
    CounterFigure(
        "kv_block_reuse_gap_s", "reuse gap", "block_gap_sum", of="block_gap_count", how=How.MEAN, unit="s"
    ),
    CounterFigure("tool_call_percent", "tool calls", "tool_calls", of="tool_answers", how=How.PERCENT),
    CounterFigure("aborted_requests", "aborted", "aborted", how=How.COUNT, fault=True, section=_FAILED),
    CounterFigure("failed_requests", "failed", "failed", how=How.COUNT, fault=True, section=_FAILED),
    CounterFigure(
        "grammar_failures", "grammar", "grammar_failures", how=How.COUNT, fault=True, section=_FAILED
    ),
    CounterFigure(
        "tool_call_failures", "tool calls", "tool_failures", how=How.COUNT, fault=True, section=_FAILED
    ),
    CounterFigure("refused_requests", "refused", "refused", how=How.COUNT, fault=True, section=_FAILED),
    CounterFigure("corrupted_requests", "corrupted", "corrupted", how=How.COUNT, fault=True, section=_FAILED),
    CounterFigure("http_4xx", "HTTP 4xx", "http_4xx", how=How.COUNT, fault=True, section=_FAILED),
    CounterFigure("http_5xx", "HTTP 5xx", "http_5xx", how=How.COUNT, fault=True, section=_FAILED),
    CounterFigure(
        "http_error_percent",
        "error rate",
        "http_errors",
        of="http_answers",
        how=How.PERCENT,
        fault=True,
        section=_FAILED,
    ),
    CounterFigure("worker_errors", "errors", "worker_errors", how=How.COUNT, fault=True, section=_FAILED),
    CounterFigure("kv_fetch_waiting", "to fetch", "kv_fetch_waiting", how=How.GAUGE, section=_MOVED),
    CounterFigure("kv_fetching", "fetching", "kv_fetching", how=How.GAUGE, section=_MOVED),
    CounterFigure("waiting_deferred", "deferred", "deferred", how=How.GAUGE, fault=True, section=_MOVED),
    CounterFigure("pd_bootstrap_queue", "bootstrap", "pd_bootstrap", how=How.GAUGE, section=_MOVED),
    CounterFigure("pd_inflight_queue", "sending", "pd_inflight", how=How.GAUGE, section=_MOVED),
    CounterFigure("pd_prealloc_queue", "prealloc", "pd_prealloc", how=How.GAUGE, section=_MOVED),
    CounterFigure("pd_transfer_queue", "receiving", "pd_transfer", how=How.GAUGE, section=_MOVED),
    CounterFigure(
        "kv_transfer_mb_per_s", "transfer", "kv_transfer_bytes", scale=1e-6, unit="MB/s", section=_MOVED
    ),
    CounterFigure(
        "kv_transfer_ms",
        "each takes",
        "kv_transfer_s",
        of="kv_transfers",
        how=How.MEAN,
        scale=1e3,
        unit="ms",
        section=_MOVED,
    ),
    CounterFigure(
        "kv_transfer_gb_per_s", "speed", "kv_transfer_gb_s", how=How.HIGHEST, unit="GB/s", section=_MOVED
    ),
    CounterFigure(
        "kv_transfer_mean_gb_per_s",
        "mean speed",
        "kv_speed_sum",
        of="kv_speed_count",
        how=How.MEAN,
        unit="GB/s",
        section=_MOVED,
    ),
    CounterFigure(
        "kv_transfer_last_ms", "last took", "kv_transfer_last_ms", how=How.HIGHEST, unit="ms", section=_MOVED
    ),
    CounterFigure(
        "kv_transfer_failures", "KV failed", "kv_failures", how=How.COUNT, fault=True, section=_MOVED
    ),
    CounterFigure(
        "kv_expired_requests", "KV expired", "kv_expired", how=How.COUNT, fault=True, section=_MOVED
    ),
    CounterFigure("kv_late_notices", "KV late", "kv_late_notices", how=How.COUNT, fault=True, section=_MOVED),
    CounterFigure("kv_retries", "KV retried", "kv_retries", how=How.COUNT, fault=True, section=_MOVED),
    CounterFigure(
        "tier_read_mb_per_s", "tier read", "tier_read_bytes", scale=1e-6, unit="MB/s", section=_MOVED
    ),
    CounterFigure(
        "tier_written_mb_per_s", "tier write", "tier_written_bytes", scale=1e-6, unit="MB/s", section=_MOVED
    ),
    CounterFigure(
        "tier_hit_percent", "tier hits", "tier_hits", of="tier_lookups", how=How.PERCENT, section=_MOVED
    ),
    CounterFigure("tier_failures", "tier fails", "tier_failures", how=How.COUNT, fault=True, section=_MOVED),
    CounterFigure(
        "tier_dropped_stores", "tier drops", "tier_dropped", how=How.COUNT, fault=True, section=_MOVED
    ),
    CounterFigure(
        "offload_load_mb_per_s", "to the GPU", "offload_loaded", scale=1e-6, unit="MB/s", section=_MOVED
    ),
    CounterFigure(
        "offload_store_mb_per_s", "off GPU", "offload_stored", scale=1e-6, unit="MB/s", section=_MOVED
    ),
    CounterFigure(
        "offload_cache_percent", "CPU cache", "offload_cache", how=How.HIGHEST, unit="%", section=_MOVED
    ),
    CounterFigure("offload_pending_blocks", "pending", "offload_pending", how=How.GAUGE, section=_MOVED),
    CounterFigure(
        "offload_failures", "no room", "offload_failures", how=How.COUNT, fault=True, section=_MOVED
    ),
    CounterFigure(
        "lmcache_hit_percent", "hits", "lmcache_hits", of="lmcache_lookups", how=How.PERCENT, section=_LMCACHE
    ),
    CounterFigure(
        "lmcache_l2_hit_percent",
        "from L2",
        "lmcache_l2_hits",
        of="lmcache_lookups",
        how=How.PERCENT,
        section=_LMCACHE,
    ),
    CounterFigure("lmcache_inflight", "moving", "lmcache_inflight", how=How.GAUGE, section=_LMCACHE),
    CounterFigure(
        "lmcache_used_percent", "filled", "lmcache_used", how=How.HIGHEST, unit="%", section=_LMCACHE
    ),
    CounterFigure(
        "lmcache_local_gb",
        "in memory",
        "lmcache_local_bytes",
        how=How.GAUGE,
        scale=1e-9,
        unit="GB",
        section=_LMCACHE,
    ),
    CounterFigure(
        "lmcache_remote_gb",
        "remote",
        "lmcache_remote_bytes",
        how=How.GAUGE,
        scale=1e-9,
        unit="GB",
        section=_LMCACHE,
    ),
    CounterFigure(
        "lmcache_retrieve_ms",
        "retrieve",
        "lmcache_retrieve_s",
        of="lmcache_retrieves",
        how=How.MEAN,
        scale=1e3,
        unit="ms",
        section=_LMCACHE,
    ),
    CounterFigure(
        "lmcache_remote_get_ms",
        "remote get",
        "lmcache_remote_get_ms",
        of="lmcache_remote_gets",
        how=How.MEAN,
        unit="ms",
        section=_LMCACHE,
    ),
    CounterFigure("lmcache_evicted_per_s", "evicted", "lmcache_evicted", section=_LMCACHE),
    CounterFigure(
        "lmcache_failures", "failed", "lmcache_failures", how=How.COUNT, fault=True, section=_LMCACHE
    ),
    CounterFigure(
        "lmcache_unhealthy", "unhealthy", "lmcache_unhealthy", how=How.GAUGE, fault=True, section=_LMCACHE
    ),
    CounterFigure("lora_running", "running", "lora_running", how=How.GAUGE, section=_LORA),
    CounterFigure("lora_waiting", "waiting", "lora_waiting", how=How.GAUGE, section=_LORA),
    CounterFigure("lora_max", "at most", "lora_max", how=How.GAUGE, section=_LORA),
)
"""The metrics that only some servers report, in the order in which they are shown."""


def also_reported(values: Mapping[str, float | None]) -> list[tuple[CounterFigure, float]]:
    """Return what only some servers report and this one does: (metric, value), in the order to show.

    `values` has the values by name. Faults that never happened are left out, and a section (see
    `CounterFigure`) with nothing but zeros, because servers report zeros for features that are off.
    """
    known = [
        (one, value)
        for one in COUNTER_FIGURES
        if (value := values.get(one.name)) is not None and (value or not one.fault)
    ]
    used = {one.section for one, value in known if value}
    return [(one, value) for one, value in known if one.section in used or one.section == ALSO_REPORTED]
