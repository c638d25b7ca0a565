"""Reads metrics that only some servers report: moved KV caches, LoRA adapters, refusals, HTTP errors.

The tables say which metric names hold each entry of `LaneSample.counts` and `LaneSample.gauges`. Details:

* `http_requests_total` is that of prometheus-fastapi-instrumentator, which most servers with FastAPI use. It
  is counted when an answer ends. Only POST is read: GET requests are those of monitors.
* The value of `vllm:lora_requests_info` is the Unix time at which its labels were true, and each combination
  of labels remains on the page: the newest one counts.
* vLLM's histograms of NIXL count transfers at the server that reads the KV cache, and expired requests at
  the server that holds it.
* LMCache's `remote_time_*` are in milliseconds, its other times in seconds.
* A worker of Dynamo writes its own `dynamo_component_*` beside its engine's names; the label
  `dynamo_component` is its role.
* NIXL's failed transfers include its failed notifications since vLLM 0.33, which keeps the count of these
  beside them; versions before, which have no notifications after the expiry, count both apart.
* Parsers of tool calls are counted for each choice of a whole answer, and for each piece of a streamed one:
  only the first are read.
* Without the feature, these names are absent, so that its metrics stay unknown. Counters that every page has,
  used or not, are read as unknown while they are 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

from msgspec import Struct

from sparktop.engines.exposition import Family, Page
from sparktop.engines.lanes import (
    Keep,
    LanePage,
    bound,
    label,
    lane_order,
    only,
    positive,
    requests,
    share,
    total,
    total_or_none,
    where,
)
from sparktop.model.engine import POSITION
from sparktop.model.text import clean

Extras: TypeAlias = Sequence[tuple[str, tuple[str, ...], Callable[[Family], float | None]]]
"""(key in `counts` or `gauges`, metric names, function from the samples of a lane to the value). The values
of all the names that are on the page are added up."""

_POSITION_NAME = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
OLDER = "|older"
"""End of a key whose value counts only if the page has none under the key without it: newer versions report
both."""
_HTTP = {"http_requests_total": "status", "sglang:http_responses_total": "status_code"}
"""Counters of HTTP answers, each with its label of the status."""
_MOST_POSITIONS = 16
"""Positions in a draft of which the accepted tokens are read."""


def _lora(name: str) -> Callable[[Family], float | None]:
    """Return a function that counts the adapters which the newest sample lists in its label `name`."""

    def count(family: Family) -> float | None:
        newest = max(family, key=lambda labels: family[labels], default=())
        listed = label(newest, name)
        return None if listed is None else float(len([one for one in listed.split(",") if one.strip()]))

    return count


def _lora_max(family: Family) -> float | None:
    return positive(label(max(family, key=lambda labels: family[labels], default=()), "max_lora"))


def _totals(prefix: str, *names: str) -> tuple[str, ...]:
    """Return the spellings of counters: with `_total`, as on all pages but those of some Rust servers."""
    return tuple(f"{prefix}{name}_total" for name in names)


def _unhealthy(family: Family) -> float | None:
    """Return how many processes report 0 for their health, of a gauge that is 1 for a healthy one."""
    known = total(family) is not None
    return float(sum(value == 0 for value in family.values())) if known else None


DYNAMO_IN_FLIGHT = "dynamo_component_inflight_requests"
SHARED_COUNTS: Extras = (("worker_errors", _totals("dynamo_component_", "errors"), total),)
"""Counters that may stand on the page of any engine."""
SHARED_GAUGES: Extras = (
    ("in_flight", (DYNAMO_IN_FLIGHT,), only("dynamo_endpoint", "generate", combine=requests)),
)
"""Gauges that may stand on the page of any engine."""
_STAGES, _REASONS = "vllm:num_requests_kv_fetch_by_stage", "vllm:num_requests_waiting_by_reason"
_OFFLOADED = "vllm:kv_offload_total_bytes_total"
_LORA_INFO = "vllm:lora_requests_info"
_CACHED = _totals("vllm:", "prompt_tokens_cached_by_source")
_NIXL_LATE = "nixl_num_notifications_after_expiry"
_NIXL_NOTICES = "nixl_failed_notifications"
"""Key of failed notifications until it is known whether they are among the failed transfers."""
_TOOLS = _totals("vllm:", "tool_call_parser_invocations")
_WHOLE = ("non_streaming", None)


def _tool_calls(*outcomes: str) -> Callable[[Family], float | None]:
    """Return a function that sums parsed whole answers with one of these outcomes, or with any."""

    def read(family: Family) -> float | None:
        whole = where(family, "mode", *_WHOLE)
        return total_or_none(where(whole, "outcome", *outcomes) if outcomes else whole)

    return read


def _of_histogram(key: str, name: str) -> Extras:
    """Return the rows for the sum and the count of a histogram, from which a mean is computed."""
    return (
        (f"{key}_sum", (f"{name}_sum",), total_or_none),
        (f"{key}_count", (f"{name}_count",), total_or_none),
    )


COUNTS: Extras = (
    ("refused", _totals("vllm:", "admission_rejections"), total),
    ("corrupted", _totals("vllm:", "corrupted_requests"), total),
    ("cached_elsewhere", _CACHED, only("source", "host", "p2p", "disk", combine=total_or_none)),
    (
        "kv_transfer_bytes",
        ("vllm:nixl_bytes_transferred_sum", "vllm:mooncake_bytes_transferred_sum"),
        total,
    ),
    ("kv_transfer_s", ("vllm:nixl_xfer_time_seconds_sum", "vllm:mooncake_xfer_time_seconds_sum"), total),
    ("kv_transfers", ("vllm:nixl_xfer_time_seconds_count", "vllm:mooncake_xfer_time_seconds_count"), total),
    (
        "kv_failures",
        _totals(
            "vllm:",
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
    (_NIXL_NOTICES, _totals("vllm:", "nixl_num_failed_notifications"), total),
    ("kv_late_notices", _totals("vllm:", _NIXL_LATE), total),
    ("kv_expired", _totals("vllm:", "nixl_num_kv_expired_reqs", "mooncake_num_kv_expired_reqs"), total),
    ("offload_loaded", _totals("vllm:", "kv_offload_load_bytes"), total),
    ("offload_stored", _totals("vllm:", "kv_offload_store_bytes"), total),
    (
        "offload_failures",
        _totals("vllm:", "kv_offload_allocation_failure", "kv_offload_tiering_promotion_allocation_failures"),
        total,
    ),
    (
        "tier_failures",
        _totals(
            "vllm:", "kv_offload_tiering_promotion_job_failures", "kv_offload_tiering_cascade_job_failures"
        ),
        total,
    ),
    ("tier_dropped", _totals("vllm:", "kv_offload_tiering_backpressure_stores_dropped"), total),
    ("tier_read_bytes", _totals("vllm:", "kv_offload_tiering_read_bytes"), total),
    ("tier_written_bytes", _totals("vllm:", "kv_offload_tiering_write_bytes"), total),
    ("tier_hits", _totals("vllm:", "kv_offload_tiering_chunk_hits"), total),
    ("tier_lookups", _totals("vllm:", "kv_offload_tiering_chunk_queries"), total),
    *_of_histogram("prefill_kv", "vllm:request_prefill_kv_computed_tokens"),
    *_of_histogram("request_preemptions", "vllm:request_num_preemptions"),
    *_of_histogram("block_life", "vllm:kv_block_lifetime_seconds"),
    *_of_histogram("block_idle", "vllm:kv_block_idle_before_evict_seconds"),
    *_of_histogram("block_gap", "vllm:kv_block_reuse_gap_seconds"),
    ("tool_answers", _TOOLS, _tool_calls()),
    ("tool_calls", _TOOLS, _tool_calls("tool_call")),
    ("tool_failures", _TOOLS, _tool_calls("error", "failure", "failed", "parse_error", "parser_failure")),
    ("lmcache_hits", _totals("lmcache:", "num_hit_tokens"), total),
    ("lmcache_lookups", _totals("lmcache:", "num_requested_tokens"), total),
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
    (f"offload_loaded{OLDER}", (_OFFLOADED,), only("transfer_type", "CPU_to_GPU", combine=total)),
    (f"offload_stored{OLDER}", (_OFFLOADED,), only("transfer_type", "GPU_to_CPU", combine=total)),
    *(
        (f"{POSITION}{index}", (_POSITION_NAME,), only("position", str(index), combine=total))
        for index in range(_MOST_POSITIONS)
    ),
)
"""Counters on the page of a vLLM server, those of LMCache inside it included."""
GAUGES: Extras = (
    ("kv_fetch_waiting", (_STAGES,), only("stage", "waiting_to_start", combine=requests)),
    ("kv_fetching", (_STAGES,), only("stage", "in_progress", combine=requests)),
    ("deferred", (_REASONS,), only("reason", "deferred", combine=requests)),
    ("sleep_operations", ("vllm:sleep_mode_operations_in_flight",), requests),
    ("weight_updates", ("vllm:rl_weight_update_operations_in_flight",), requests),
    ("offload_cache", ("vllm:kv_offload_cpu_cache_usage_perc",), share),
    ("offload_pending", ("vllm:simple_kv_offload_pending_store_blocks",), total),
    ("lmcache_local_bytes", ("lmcache:local_cache_usage",), total),
    ("lmcache_remote_bytes", ("lmcache:remote_cache_usage",), total),
    ("lmcache_unhealthy", ("lmcache:lmcache_is_healthy",), _unhealthy),
    ("lora_running", (_LORA_INFO,), _lora("running_lora_adapters")),
    ("lora_waiting", (_LORA_INFO,), _lora("waiting_lora_adapters")),
    ("lora_max", (_LORA_INFO,), _lora_max),
)
"""Gauges on the page of a vLLM server, those of LMCache inside it included."""


class ExtraReader:
    """Reads the counters and gauges of two tables, and the HTTP server's answers, from metrics pages."""

    def __init__(self, counts: Extras, gauges: Extras) -> None:
        """Prepare to fill `LaneSample.counts` from the table `counts`, and `LaneSample.gauges` likewise."""
        self._rows: dict[str, list[tuple[str, str, Callable[[Family], float | None]]]] = {
            name: [] for name in _HTTP
        }
        for field, table in (("counts", counts), ("gauges", gauges)):
            for key, names, combine in table:
                for name in names:
                    self._rows.setdefault(name, []).append((field, key, combine))
        self.names = frozenset(self._rows)
        """Every metric name that is read here."""

    def add(
        self,
        families: Mapping[str, Family],
        lanes: Mapping[str, dict[str, Any]],
        lane_label: str | None = None,
        keep: Keep | None = None,
    ) -> None:
        """Add what a page reports to the fields of each lane (engine core); `lanes` has these by lane.

        A sample without a lane's label, such as one of the HTTP server, belongs to the first lane. The last
        two arguments are those of `LanePage`.
        """
        page = Page.of(families)
        key = ("extras", id(self), *lanes)
        plan = page.kept(key, lambda: self._plan(page, lanes, lane_label, keep))
        if not plan:
            return
        for lane, found in page.own(key, lambda: _Found(plan)).read(page).items():
            for field, values in found.items():
                lanes[lane][field] = dict(values)

    def _plan(
        self, page: Page, lanes: Mapping[str, dict[str, Any]], lane_label: str | None, keep: Keep | None
    ) -> dict[str, list[_Entry]]:
        """Return the entries to read from each metric of these tables that is on the page."""
        plan: dict[str, list[_Entry]] = {}
        split = LanePage(page, lane_label=lane_label, model_label="", keep=keep)
        first = min(lanes, key=lane_order, default=None)
        for name in self._rows if first is not None else ():
            if name in _HTTP and name in page:
                counts = partial(_http_counts, status=_HTTP[name])
                plan[name] = [_Entry(first or "", "counts", None, bound(counts, page.places[name]))]
            elif name in page:
                plan[name] = [
                    _Entry(lane if lane in lanes else first or "", field, key, bound(combine, places))
                    for lane, places in split.lanes(name).items()
                    for field, key, combine in self._rows[name]
                ]
        return plan


class _Entry(Struct, frozen=True):
    """An entry of `LaneSample.counts` or `.gauges`, or several, and how it is read from a page's values."""

    lane: str
    field: str
    key: str | None
    """None if `combine` returns several values by key."""
    read: Callable[[Sequence[float]], object]


class _Found:
    """The entries of one server's newest page."""

    def __init__(self, plan: Mapping[str, Sequence[_Entry]]) -> None:
        """Start without values."""
        self._plan = plan
        self._turn = 0
        self._read: dict[str, list[tuple[_Entry, Any]]] = {}
        self._found: dict[str, dict[str, dict[str, float]]] = {}

    def read(self, page: Page) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
        """Return the values by lane, field and key; compute those again whose metrics have changed."""
        names = [name for name in page.changed_since(self._turn) if name in self._plan]
        self._turn = page.turn
        if not names:
            return self._found
        values = page.values_read
        for name in names:
            self._read[name] = [(entry, entry.read(values)) for entry in self._plan[name]]
        self._found = {}
        for name in self._plan:
            for entry, value in self._read[name]:
                self._add(entry, value)
        for found in self._found.values():
            _settle(found.get("counts", {}))
        return self._found

    def _add(self, entry: _Entry, value: float | Mapping[str, float] | None) -> None:
        if value is None:
            return
        found = self._found.setdefault(entry.lane, {}).setdefault(entry.field, {})
        if entry.key is None:
            found.update(cast("Mapping[str, float]", value))
        else:
            found[entry.key] = found.get(entry.key, 0.0) + cast("float", value)


def _settle(counts: dict[str, float]) -> None:
    """Move each count under an older name to its key, unless the page has one there."""
    notices = counts.pop(_NIXL_NOTICES, None)
    if notices is not None and "kv_late_notices" not in counts:
        counts["kv_failures"] = counts.get("kv_failures", 0.0) + notices
    for key in [key for key in counts if key.endswith(OLDER)]:
        counts.setdefault(key.removesuffix(OLDER), counts.pop(key))


def _http_counts(family: Family, status: str = "status") -> dict[str, float]:
    """Return the numbers of answers to POST requests: all, and those with an error in their label `status`.

    Return {} if one of them is not valid.
    """
    if not family:
        return {}
    found = dict.fromkeys(("http_answers", "http_4xx", "http_5xx", "http_errors"), 0.0)
    for labels, value in where(family, "method", "POST").items():
        kind = (label(labels, status) or "")[:1]
        if not (kind and 0 <= value < math.inf):
            return {}
        found["http_answers"] += value
        if kind in "45":
            found[f"http_{kind}xx"] += value
            found["http_errors"] += value
    return found


def dynamo_role(families: Mapping[str, Family]) -> str | None:
    """Return the role of a Dynamo worker: "prefill", "decode" or its component's clean name.

    None if the page is not one of a Dynamo worker, or names several components.
    """
    if DYNAMO_IN_FLIGHT not in families:
        return None
    components = {
        text for labels in families[DYNAMO_IN_FLIGHT] if (text := label(labels, "dynamo_component"))
    }
    if len(components) != 1:
        return None
    (component,) = components
    known = (role for role in ("prefill", "decode") if role in component.lower())
    return next(known, None) or clean(component, 40) or None


VLLM = ExtraReader((*SHARED_COUNTS, *COUNTS), (*SHARED_GAUGES, *GAUGES))
