"""A snapshot as JSON: schema "sparktop.snapshot/1".

Every key is always present. Unknown values are null, and so are all measured values of a source whose `ok` is
false. The `deployments` of a router are null if it reported none; a null value in them stands for a
deployment that is not a watched backend.

Latencies are objects in milliseconds. If a histogram only shows that a quantile lies below its first bucket
edge or beyond its last one, the quantile is null, and the additional key `bounds` has the bound. A quantile
in a bucket whose upper edge is at least twice the lower one is interpolated, and the additional key
`in_bucket` has both edges. Otherwise the keys are absent. Examples:

    {"p50": null, ..., "bounds": {"p50": "<10"}}
    {"p50": 1700.0, ..., "in_bucket": {"p50": [1000.0, 2500.0]}}
"""

from __future__ import annotations

from sparktop import __version__
from sparktop.analysis.state import verdict, wall_of
from sparktop.events import event_json
from sparktop.model.counter_figures import COUNTER_FIGURES
from sparktop.model.event import Alert
from sparktop.model.plain import json_time, plain
from sparktop.model.progress import ProgressView
from sparktop.model.router import RouterView
from sparktop.model.snapshot import BackendView, LaneView, Latency, Quantile, Snapshot
from sparktop.report.current import current
from sparktop.report.fleets import fleets_json
from sparktop.report.json_balance import balance_json
from sparktop.report.json_node import fields_of, node_json
from sparktop.report.large import groups_json, worst_json
from sparktop.report.ranks import ranks_json

SCHEMA = "sparktop.snapshot/1"

_FIGURE_KEYS = (
    "prompt_tps",
    "generation_tps",
    "rate_window_s",
    "live_window_s",
    "requests_per_s",
    "preemptions_per_s",
    "prefix_cache_hit_percent",
    "spec_decode_accept_percent",
    "estimated_read_gb_per_s",
    "waiting_for_capacity",
    "prompt_cached_tps",
    "spec_accepted_per_draft",
    "spec_drafts_per_s",
    "tokens_per_step",
    "steps_per_s",
    "roofline_percent",
    "roofline_tps",
    "restarts",
    "uptime_s",
    "state_rule",
    "state_window_s",
    "in_sweep",
)
_ABOUT_1_S = 2.0
"""A rate over more seconds is not named one of 1 s."""
_LOADING_KEYS = (
    "phase",
    "step",
    "steps",
    "elapsed_s",
    "phase_s",
    "left_s",
    "expected_s",
    "basis",
    "warm",
    "memory_bytes",
    "node",
    "pid",
    "words",
)
_ROUTER_KEYS = (
    *("cooldown_s", "cooldowns_disabled", "failures", "cooldowns", "refusals", "deployment_troubles"),
    *("queued", "in_flight", "sent", "slow"),
)
_QUANTILES = ("p50", "p90", "p95", "p99")


def to_json(snapshot: Snapshot) -> dict[str, object]:
    """Return a snapshot as values that `json.dumps(..., allow_nan=False)` accepts."""
    snapshot = current(snapshot)
    cost, wall = snapshot.self_cost, wall_of(snapshot)
    body = {
        "schema": SCHEMA,
        "taken_at": json_time(snapshot.taken_at),
        "sparktop": __version__,
        "interval_s": snapshot.interval_s,
        "simulated": snapshot.simulated,
        "groups": groups_json(wall),
        "worst_lists": worst_json(wall),
        "nodes": [node_json(node) for node in snapshot.nodes],
        "backends": [_backend(backend) for backend in snapshot.backends],
        "routers": [_router(router) for router in snapshot.routers],
        "prometheus": fleets_json(snapshot.fleets, snapshot.at, snapshot.thresholds),
        "balance": [balance_json(balance, json_time) for balance in snapshot.balance],
        "verdict": _verdict(snapshot),
        "alerts": [_alert(alert, snapshot.at) for alert in snapshot.alerts],
        "events": [event_json(event) for event in snapshot.events],
        "self": {
            "cpu_percent": cost.cpu_percent,
            "rss_bytes": cost.rss_bytes,
            "terminal_bytes_per_s": cost.terminal_bytes_per_s,
            "poll_ms": cost.poll_ms,
        },
    }
    return {key: plain(value) for key, value in body.items()}


def _verdict(snapshot: Snapshot) -> dict[str, str | None]:
    """Return the verdict on all that is watched: severity (None if all is well), words, and hint or None."""
    found = verdict(snapshot)
    severity = None if found.severity is None else found.severity.value
    return {"severity": severity, "words": found.words, "hint": found.hint or None}


def _count(value: float | None) -> float | None:
    """Return a count as an integer if it has no fraction (metrics pages write 3.0 for 3); None stays None."""
    return int(value) if value is not None and value.is_integer() else value


_ALWAYS = ("external_cache_hit_percent", "media_cache_hit_percent")
"""Names in `COUNTER_FIGURES` that each backend has as keys; the others are in "also_reported" if known."""


def _backend(backend: BackendView) -> dict[str, object]:
    return {
        "name": backend.name,
        "url": backend.url,
        "engine": backend.engine,
        "engine_version": backend.version,
        "ok": backend.ok,
        "error": backend.failure.message if backend.failure else None,
        "age_s": backend.age_s,
        "scrape": None if backend.scrape is None else fields_of(backend.scrape, ("source", "every_s")),
        "page_note": backend.page_note,
        "page_every_s": backend.page_every_s,
        "state": backend.state.value,
        "loading": None if backend.loading is None else fields_of(backend.loading, _LOADING_KEYS),
        "model": backend.model,
        "max_model_len": backend.max_model_len,
        "nodes": backend.nodes,
        "role": backend.role,
        "slots": backend.slots,
        "lanes": [_lane(lane) for lane in backend.lanes],
        "running": _count(backend.running),
        "waiting": _count(backend.waiting),
        "kv_cache_percent": backend.kv_cache_percent,
        "kv_capacity_tokens": _count(backend.kv_capacity_tokens),
        "progress": _progress(backend.progress),
        "generation_tps_1s": None
        if (backend.live_window_s or 0.0) > _ABOUT_1_S
        else backend.generation_tps_1s,
        "generation_tps_live": backend.generation_tps_1s,
        **fields_of(backend, _FIGURE_KEYS),
        "batch_per_step": backend.tokens_per_step,  # the older name
        "limited_by": None if backend.limited_by is None else backend.limited_by.as_json(),
        **{name: backend.counter_figures.get(name) for name in _ALWAYS},
        "spec_accept_by_position_percent": backend.spec_accept_by_position or None,
        "spec_verdict": backend.spec_verdict,
        "ranks": ranks_json(backend.ranks),
        "also_reported": {
            one.name: value
            for one in COUNTER_FIGURES
            if one.name not in _ALWAYS and (value := backend.counter_figures.get(one.name)) is not None
        },
        "ttft_ms": _latency(backend.ttft),
        "itl_ms": _latency(backend.itl),
        "e2e_ms": _latency(backend.e2e),
        "queue_ms": _latency(backend.queue),
        "tpot_ms": _latency(backend.tpot),
        "prefill_ms": _latency(backend.prefill),
        "decode_ms": _latency(backend.decode),
        "counters": {
            "prompt_tokens": _count(backend.prompt_tokens),
            "generation_tokens": _count(backend.generation_tokens),
            "preemptions": _count(backend.preemptions),
            "finished": {reason: _count(number) for reason, number in backend.finished.items()},
        },
    }


def _progress(progress: ProgressView | None) -> dict[str, object] | None:
    """Return a standstill; None while the engine makes progress or holds no request."""
    if progress is None:
        return None
    return {
        "word": progress.word.value,
        "seconds": progress.seconds,
        "why": progress.why or None,
        "evidence": progress.evidence,
    }


def _router(router: RouterView) -> dict[str, object]:
    return {
        "name": router.name,
        "url": router.url,
        "ok": router.ok,
        "error": router.failure.message if router.failure else None,
        "age_s": router.age_s,
        "kind": router.kind,
        "strategy": router.strategy,
        "backends": router.backends,
        "deployments": router.deployments,
        "stuck": router.stuck,
        **fields_of(router, _ROUTER_KEYS),
    }


def _lane(lane: LaneView) -> dict[str, object]:
    return {
        "engine": lane.lane,
        "running": _count(lane.running),
        "waiting": _count(lane.waiting),
        "kv_cache_percent": lane.kv_cache_percent,
    }


def _latency(latency: Latency) -> dict[str, object]:
    quantiles: dict[str, Quantile | None] = {name: getattr(latency, name) for name in _QUANTILES}
    result: dict[str, object] = {"mean": _ms(latency.mean_s)}
    result.update({name: _exact_ms(quantile) for name, quantile in quantiles.items()})
    result.update(count=_count(latency.count), window_s=latency.window_s)
    bounds = {
        name: f"{'<' if one.below else '>'}{one.seconds * 1000:g}"
        for name, one in quantiles.items()
        if one is not None and (one.below or one.above)
    }
    if bounds:
        result["bounds"] = bounds
    buckets = {
        name: [edge_s * 1000 for edge_s in one.bucket_s]
        for name, one in quantiles.items()
        if one is not None and one.bucket_s
    }
    if buckets:
        result["in_bucket"] = buckets
    return result


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def _exact_ms(quantile: Quantile | None) -> float | None:
    return None if quantile is None or quantile.below or quantile.above else quantile.seconds * 1000


def _alert(alert: Alert, at: float) -> dict[str, object]:
    """Return an alert as a mapping of JSON keys, with its duration up to `at` (monotonic seconds)."""
    return {
        "id": alert.id,
        "severity": alert.severity.value,
        "subject": alert.subject,
        "message": alert.message,
        "since": json_time(alert.since),
        "duration_s": None if alert.since_s is None else max(0.0, at - alert.since_s),
        "values": alert.values,
    }
