"""Snapshots with everything known, with nothing known, and with more than the limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from msgspec.structs import replace
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from sparktop.agent.exposition import encode_page
from sparktop.demo.machine import IDENTITY, node_sample
from sparktop.export.metrics import Named, page_families
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import Alert, Finding, FindingKind, Progress, ProgressView, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import SelfView
from sparktop.model.snapshot import (
    BackendState,
    BackendView,
    Headroom,
    Latency,
    Limit,
    LimitKind,
    Loading,
    NodeView,
    Quantile,
    Snapshot,
    SpeedState,
)
from sparktop.sweep.result.results import LevelResult

NOW = datetime(2026, 1, 15, 9, 0, 0, tzinfo=UTC)
MODEL = "openai/gpt-oss-120b"
URL = "http://user:secret@10.0.0.1:8000"
SHARES = {"own_best_percent": 62.0, "published_percent": 71.0, "limit_percent": 40.0}
LATENCY = Latency(p50=Quantile(0.25), p95=Quantile(2.0, above=True), count=9.0, window_s=60.0)
Series = tuple[str, frozenset[tuple[str, str]]]
families_of: Callable[[str], Iterable[Metric]] = text_string_to_metric_families


def backend(name: str, group: str = MODEL) -> BackendView:
    """Return a server of which every exported value is known."""
    return BackendView(
        name,
        URL,
        group,
        state=BackendState.STUCK,
        state_rule="a message with a secret",
        progress=ProgressView(Progress.STUCK, 130.0, "its GPUs draw 12 W"),
        loading=Loading(elapsed_s=10.0, left_s=60.0),
        age_s=0.5,
        model=MODEL,
        limited_by=Limit(LimitKind.BANDWIDTH, "a message"),
        kv_fullest_percent=50.0,
        rate_window_s=10.0,
        tokens_per_step=3.5,
        step_ms=25.0,
        estimated_read_gb_per_s=200.0,
        roofline_percent=73.0,
        findings=(Finding(FindingKind.YARDSTICKS, name, "", values=SHARES),),
        ttft=LATENCY,
        itl=LATENCY,
        e2e=LATENCY,
        queue=LATENCY,
    )


def silent(name: str) -> BackendView:
    """Return a server that no longer answers; the view still has its last values."""
    failure = Failure(FailureKind.REFUSED, "nothing listens there", 1.0)
    return replace(backend(name), failure=failure, state=BackendState.UNREACHABLE)


def group(name: str = MODEL, members: tuple[str, ...] = ("spark-a", "spark-b"), **more: object) -> Balance:
    """Return a judged group of which every exported value is known."""
    return Balance(
        name,
        members,
        word=BalanceWord.OSCILLATING,
        confidence=0.9,
        window_s=60.0,
        sample_hz=1.0,
        dispersion_z=12.0,
        period_s=10.0,
        lead_changes_per_min=6.0,
        lost_percent=20.0,
        skew=0.1,
        free_slot_percent=5.0,
        starved_percent=dict.fromkeys(members, 40.0),
        requests_share=dict.fromkeys(members, 0.5),
        **more,  # type: ignore[arg-type]  # fields of Balance
    )


def node(name: str, via: str = "ssh") -> NodeView:
    """Return a machine of which every exported value is known."""
    reasons = ("thermal", "power", "brake", "cap", "sync boost", "display")
    return NodeView(
        name,
        via,
        sample=node_sample(100.0, 1.0),
        identity=IDENTITY,
        age_s=1.0,
        speed=SpeedState("slow clock"),
        headroom=Headroom(-1024.0, 60.0, 120.0, 8 << 30),
        throttled_percent=dict.fromkeys(reasons, 25.0),
    )


def alert(kind: str, subject: str, severity: Severity = Severity.WARNING) -> Alert:
    """Return an alert about a server."""
    return Alert(f"backend:{subject}:{kind}", severity, subject, "a message with a secret", NOW)


def snapshot(**more: object) -> Snapshot:
    """Return a snapshot of two servers, a group and a machine, or of the parts in `more`."""
    parts: dict[str, object] = {
        "backends": (backend("spark-a"), backend("spark-b")),
        "nodes": (node("spark-a"),),
        "balance": (group(),),
        "alerts": (
            alert("stuck", "spark-a", Severity.CRITICAL),
            Alert(f"balance:{MODEL}:oscillating", Severity.WARNING, MODEL, "", NOW),
        ),
        "self_cost": SelfView(1.5, 60 << 20, None, {"backend:spark-a": 12.0}),
    }
    return Snapshot(NOW, 100.0, 1.0, 2.0, **{**parts, **more})  # type: ignore[arg-type]  # fields of Snapshot


def text(found: Snapshot, levels: Named[LevelResult] = (), stuck: int = 3) -> str:
    """Return the page; `stuck` is the number of events of the kind "stuck"."""
    families = page_families(found, [("stuck", stuck)], levels)
    return encode_page(lambda: families).decode()


def values(page: str) -> dict[Series, float]:
    """Return every value by the name and labels of its series; fail on a repeated series."""
    found: dict[Series, float] = {}
    for family in families_of(page):
        for one in family.samples:
            key = (one.name.removeprefix("sparktop_"), frozenset(one.labels.items()))
            assert key not in found, key
            found[key] = one.value
    return found


def series(name: str, **labels: str) -> Series:
    """Return the key of a sample."""
    return name, frozenset(labels.items())
