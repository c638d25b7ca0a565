"""A snapshot as JSON: schema "sparktop.snapshot/1".

Every key is always present. Unknown values are null, and so are all measured values of a source whose `ok` is
false. Objects have the fields of the records of `sparktop.model` and their names, but for those that are
written here. The `deployments` of a router are null if it reported none; a null value in them stands for a
deployment that is not a watched backend. `workloads` of a node is null where an older agent reads it,
`processes` unless the process table is on screen when the snapshot is taken.

Latencies are objects in milliseconds. If a histogram only shows that a quantile lies below its first bucket
edge or beyond its last one, the quantile is null, and the additional key `bounds` has the bound. A quantile
in a bucket whose upper edge is at least twice the lower one is interpolated, and the additional key
`in_bucket` has both edges. Otherwise the keys are absent. Examples:

    {"p50": null, ..., "bounds": {"p50": "<10"}}
    {"p50": 1700.0, ..., "in_bucket": {"p50": [1000.0, 2500.0]}}

A balance is judged over a time window that ends now. `verdict` is the announced verdict, `verdict_now` the
verdict on the newest window; `reasons`, `hint` and all values are of that window. Shares are 0 to 1. The
the plot of the evidence (autocorrelation) is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparktop import __version__
from sparktop.analysis.balance.rules import RULES, RuleCheck
from sparktop.analysis.state import scraped_state
from sparktop.analysis.summary import verdict
from sparktop.analysis.wall import MOST_LISTED, Stated, Top, Wall, wall_of
from sparktop.events import event_json
from sparktop.model.balance import Balance, StepTime
from sparktop.model.event import Alert, kind_of
from sparktop.model.explained import ALERTS
from sparktop.model.figures import COUNTER_FIGURES
from sparktop.model.node import NodeSample
from sparktop.model.plain import fields_of, json_values
from sparktop.model.ranks import RanksView
from sparktop.model.router import Fleet, FleetNode, FleetServer, FleetView, RouterView
from sparktop.model.snapshot import BackendView, Latency, NodeView, Quantile, Snapshot
from sparktop.model.targets import StateThresholds
from sparktop.rates import LATENCIES
from sparktop.report.tables import without_stale

SCHEMA = "sparktop.snapshot/1"
_ABOUT_1_S = 2.0
"""A rate over more seconds is not named one of 1 s."""
_QUANTILES = ("p50", "p90", "p95", "p99")
_COUNTERS = ("prompt_tokens", "generation_tokens", "preemptions")
_MOST_RANKS = 64
"""Most ranks of a communicator, and most communicators."""


def to_json(snapshot: Snapshot) -> dict[str, object]:
    """Return a snapshot as values that `json.dumps(..., allow_nan=False)` accepts."""
    snapshot = without_stale(snapshot)
    wall, judged = wall_of(snapshot), verdict(snapshot)
    body = {
        "schema": SCHEMA,
        "taken_at": snapshot.taken_at,
        "sparktop": __version__,
        "interval_s": snapshot.interval_s,
        "watched_s": snapshot.watched_s,
        "simulated": snapshot.simulated,
        "groups": groups_json(wall),
        "worst_lists": worst_json(wall),
        "nodes": [node_json(node) for node in snapshot.nodes],
        "backends": [_backend_json(backend) for backend in snapshot.backends],
        "routers": [_router_json(router) for router in snapshot.routers],
        "prometheus": fleets_json(snapshot.fleets, snapshot.at, snapshot.thresholds),
        "balance": [balance_json(balance) for balance in snapshot.balance],
        "verdict": {"severity": judged.severity, "words": judged.words, "hint": judged.hint or None},
        "alerts": [
            {
                **fields_of(alert, "since_s"),
                "duration_s": None if alert.since_s is None else max(0.0, snapshot.at - alert.since_s),
                "remedies": _remedies(snapshot, alert),
            }
            for alert in snapshot.alerts
        ],
        "events": [event_json(event) for event in snapshot.events],
        "self": snapshot.self_cost,
    }
    return {key: json_values(value) for key, value in body.items()}


def _remedies(snapshot: Snapshot, alert: Alert) -> list[str]:
    """Return what to do about an alert: of a finding its advice, else what helps with its kind."""
    finding = snapshot.finding_of(alert)
    if finding is not None:
        return [finding.fix] if finding.fix else []
    explained = ALERTS.get(kind_of(alert.id))
    return [] if explained is None else [*explained.all_remedies]


def _source_json(view: BackendView | NodeView | RouterView | FleetView) -> dict[str, object]:
    """Return what all sources have: whether they answer, and why not."""
    return {"ok": view.ok, "error": view.failure.message if view.failure else None, "age_s": view.age_s}


def _as_integer(value: float | None) -> float | None:
    """Return a count as an integer if it has no fraction (metrics pages write 3.0 for 3); None stays None."""
    return int(value) if value is not None and value.is_integer() else value


_ALWAYS = ("external_cache_hit_percent", "media_cache_hit_percent")
"""Names in `COUNTER_FIGURES` that each backend has as keys; the others are in "also_reported" if known."""


_LEFT_OUT = (
    *("history", "load", "start_memory", "lanes_balance", "version", "failure", "failing_since", "client"),
    *("yardstick_basis", "counter_figures", "finished", "spec_accept_by_position", *_COUNTERS, *LATENCIES),
)
"""Fields of a backend that are not written, or under other keys."""


def _backend_json(view: BackendView) -> dict[str, object]:
    figures = view.counter_figures
    progress = view.progress
    return {
        **fields_of(view, *_LEFT_OUT),
        **_source_json(view),
        "engine_version": view.version,
        "loading": None if view.loading is None else {**fields_of(view.loading), "words": view.loading.words},
        "progress": None if progress is None else {**fields_of(progress), "why": progress.why or None},
        "lanes": [
            {
                "engine": lane.lane,
                "running": _as_integer(lane.running),
                "waiting": _as_integer(lane.waiting),
                "kv_cache_percent": lane.kv_cache_percent,
            }
            for lane in view.lanes
        ],
        "running": _as_integer(view.running),
        "waiting": _as_integer(view.waiting),
        "kv_capacity_tokens": _as_integer(view.kv_capacity_tokens),
        "generation_tps_1s": None if (view.live_window_s or 0.0) > _ABOUT_1_S else view.generation_tps_1s,
        "generation_tps_live": view.generation_tps_1s,
        "batch_per_step": view.tokens_per_step,  # the older name
        **{name: figures.get(name) for name in _ALWAYS},
        "spec_accept_by_position_percent": view.spec_accept_by_position or None,
        "ranks": _ranks_json(view.ranks),
        "also_reported": {
            figure.name: value
            for figure in COUNTER_FIGURES
            if figure.name not in _ALWAYS and (value := figures.get(figure.name)) is not None
        },
        **{f"{name}_ms": _latency_json(getattr(view, name)) for name in LATENCIES},
        "counters": {
            **{name: _as_integer(getattr(view, name)) for name in _COUNTERS},
            "finished": {reason: _as_integer(number) for reason, number in view.finished.items()},
        },
    }


def _latency_json(latency: Latency) -> dict[str, object]:
    quantiles: dict[str, Quantile | None] = {name: getattr(latency, name) for name in _QUANTILES}
    known_quantiles = {name: quantile for name, quantile in quantiles.items() if quantile is not None}
    bounds = {
        name: f"{quantile.bound_sign}{quantile.seconds * 1000:g}"
        for name, quantile in known_quantiles.items()
        if quantile.bound_sign
    }
    buckets = {
        name: [1000 * edge for edge in quantile.bucket_s]
        for name, quantile in known_quantiles.items()
        if quantile.bucket_s
    }
    return {
        "mean": _milliseconds(latency.mean_s),
        **{
            name: _milliseconds(quantile.seconds) if quantile and name not in bounds else None
            for name, quantile in quantiles.items()
        },
        "count": _as_integer(latency.count),
        "window_s": latency.window_s,
        **({"bounds": bounds} if bounds else {}),
        **({"in_bucket": buckets} if buckets else {}),
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def _router_json(view: RouterView) -> dict[str, object]:
    left_out = ("at", "strategy", "deployments", "cooled", "troubles", "answered", "cpu_s", "answer_ms")
    fields = fields_of(
        view, "failure", "failing_since", "answering_since", "running", "sample", "trouble_severity"
    )
    return {**fields, **fields_of(view.sample, *left_out), **_source_json(view)}


def node_json(node: NodeView) -> dict[str, object]:
    """Return a node as a mapping with every key of the schema; unknown values are None."""
    sample, identity = node.sample or NodeSample(at=0.0), node.identity
    table = sample.processes
    return {
        "name": node.name,
        "via": node.via,
        **_source_json(node),
        **fields_of(identity, "cpu", "addresses", "hostname", "sparktop", "simulated"),
        "processor": identity.cpu,
        **fields_of(sample, "at", "missed", "cost_ms"),
        "memory": fields_of(sample.memory, "huge_pages"),
        "headroom": node.headroom,
        "speed": {**fields_of(node.speed), "reason": node.speed.reason or None},
        "gpus_lost": node.gpus_lost,
        "throttled_60s_percent": node.throttled_percent,
        "processes": table and {**fields_of(table, "processes"), "largest": table.processes},
        "engine_processes": node.engine_processes,
        "findings": node.findings,
    }


def balance_json(balance: Balance) -> dict[str, object]:
    """Return a group's balance as a mapping of JSON keys."""
    return {
        **fields_of(balance, "word", "word_now", "pace"),
        "verdict": balance.word,
        "verdict_now": balance.word_now,
        "step_time": _step_time_json(balance.pace.common),
        "step_times": {name: _step_time_json(step) for name, step in balance.pace.own.items()},
        "swing": None if balance.swing is None else fields_of(balance.swing, "autocorrelation"),
        "rules": [_rule_json(rule(balance)) for rule in RULES],
    }


def _rule_json(checks: Sequence[RuleCheck]) -> dict[str, object]:
    """Return a rule as a mapping: its name, whether it holds, and its checks with their values and limits."""
    return {
        "name": checks[0].code,
        "holds": all(check.holds for check in checks),
        "checks": [
            {
                "name": check.name,
                "value": check.value,
                "error": check.error,
                "unit": check.unit or None,
                "at_least": check.limit,
                "holds": check.holds,
                "missing": check.but or None,
            }
            for check in checks
        ],
    }


def _step_time_json(step: StepTime | None) -> dict[str, object] | None:
    if step is None:
        return None
    return {
        "base_ms": 1000 * step.base_s,
        "per_request_ms": 1000 * step.per_request_s,
        "pairs": step.pairs,
    }


def _ranks_json(view: RanksView | None) -> dict[str, object] | None:
    """Return the verdict, and the counts of all ranks that answered; None if NCCL was not asked."""
    if view is None:
        return None
    judged, answer = view.verdict, view.answer

    def place(host: str | None) -> str | None:
        return None if host is None else view.place(host)

    return {
        **fields_of(judged, "word", "least", "most", "missing"),
        "verdict": judged.word,
        "warning": view.warning,
        "age_s": view.age_s,
        "asking": view.asking,
        "asked_on": view.node,
        "nccl": None if answer is None else answer.nccl,
        "behind": None if judged.least is None else judged.least.rank,
        "ahead": None if judged.most is None else judged.most.rank,
        "missing": [rank_verdict.rank for rank_verdict in judged.missing],
        "communicators": [
            {
                "hash": comm.hash or None,
                "size": comm.size,
                "ranks": [
                    {
                        "rank": rank.rank,
                        "count": rank.many,
                        "machine": place(rank.host),
                        "pid": rank.pid,
                        "gpu": rank.device,
                        "status": rank.status,
                        "error": rank.error,
                        "launched": rank.counts,
                    }
                    for rank in comm.ranks[:_MOST_RANKS]
                ],
                "missing_ranks": [
                    {
                        "rank": rank.rank,
                        "machine": place(rank.host),
                        "pid": rank.pid,
                        "gpu": rank.device,
                        "dead": rank.dead,
                    }
                    for rank in comm.missing[:_MOST_RANKS]
                ],
            }
            for comm in (answer.communicators if answer else ())[:_MOST_RANKS]
        ],
    }


def fleets_json(
    views: Sequence[FleetView], at: float, thresholds: StateThresholds
) -> list[dict[str, object]]:
    """Return each Prometheus with all its servers as values for JSON; `at` is now, in monotonic seconds.

    The states of servers are judged by `thresholds`.
    """

    def age(part: FleetServer | FleetNode) -> float | None:
        return None if part.at is None else max(0.0, at - part.at)

    def server(part: FleetServer, late_at: float) -> dict[str, object]:
        return {
            **fields_of(part, "at", "down", "ttft_p95_s", "itl_p95_s"),
            "state": scraped_state(part, late_at, thresholds),
            "age_s": age(part),
            "ttft_p95_ms": _milliseconds(part.ttft_p95_s),
            "itl_p95_ms": _milliseconds(part.itl_p95_s),
        }

    def body(fleet: Fleet | None) -> dict[str, object]:
        if fleet is None:
            return {"scrape_s": None, "answer_ms": None, "note": None, "servers": [], "nodes": []}
        return {
            "scrape_s": fleet.every_s,
            "answer_ms": fleet.answer_ms,
            "note": fleet.note,
            "servers": [server(part, fleet.late_at) for part in fleet.servers],
            "nodes": [{**fields_of(part, "at", "down"), "age_s": age(part)} for part in fleet.nodes],
        }

    return [{"name": view.name, "url": view.url, **_source_json(view), **body(view.fleet)} for view in views]


_SUMS = ("running", "waiting", "generation_tps")


def groups_json(wall: Wall) -> list[dict[str, object]]:
    """Return the groups of all servers as values for JSON, the worst first, with the number in each state."""
    return [
        {
            "name": group.name,
            "servers": len(group.servers),
            "states": dict(group.counts),
            **{name: getattr(group, name).value for name in _SUMS},
            "counted": {name: getattr(group, name).known for name in _SUMS},
            "kv_cache_percent": group.kv_percent,
            "ttft_p95_ms": _milliseconds(group.ttft_p95_s),
            "balance": None if group.balance is None else group.balance.word,
        }
        for group in wall.groups
    ]


def worst_json(wall: Wall) -> dict[str, list[dict[str, object]]]:
    """Return the lists of a wall's worst servers and machines as values for JSON, the worst first.

    Each has at most `MOST_LISTED`. A TTFT whose quantile is only known to be above or below its figure has
    the sign of that as its `bound`.
    """

    def entries_of(top: Top, key: str, scale: float = 1) -> list[dict[str, object]]:
        return [
            {
                "name": ranked.server.name,
                "group": ranked.server.group,
                "state": ranked.state,
                key: scale * value,
            }
            for ranked, value in wall.tops.get(top, ())
        ]

    slowest = entries_of(Top.TTFT, "ttft_p95_ms", 1000)
    return {
        "waiting": entries_of(Top.WAITING, "waiting"),
        "kv_cache": entries_of(Top.KV, "kv_cache_percent"),
        "ttft_p95": [
            {**row, "bound": _bound_sign(stated)}
            for row, (stated, _) in zip(slowest, wall.tops.get(Top.TTFT, ()), strict=True)
        ],
        "slow_clock": [
            {"name": stated.name, "state": stated.state, "sm_clock_mhz": stated.sm_clock_mhz}
            for stated in wall.slow_nodes[:MOST_LISTED]
        ],
    }


def _bound_sign(stated: Stated) -> str | None:
    quantile = None if isinstance(stated.server, FleetServer) else stated.server.ttft.p95
    if quantile is None:
        return None
    return quantile.bound_sign or ("in bucket" if quantile.bucket_s else None)
