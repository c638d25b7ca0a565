"""The page of `sparktop export`: values, units, labels, unknown values, sweeps, and limits of its size."""

from __future__ import annotations

import math
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.agent.exposition import LABEL_LIMIT
from sparktop.export.metrics import (
    KEPT_S,
    MOST_KINDS,
    MOST_LEVELS,
    MOST_SUBJECTS,
    EventCounts,
    NewestSweep,
    label_of,
)
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import Event, Phase, Severity
from sparktop.model.router import RouterView, SelfView
from sparktop.model.snapshot import BackendState, BackendView, NodeView, Snapshot
from sparktop.sweep.plan.plan import TargetKind
from sparktop.sweep.result.results import (
    Latency,
    LevelResult,
    LimitSide,
    PlanResult,
    Rate,
    Requests,
    SweepResult,
    TargetResult,
)
from sparktop.sweep.result.store import save
from tests.export.snapshots import (
    MODEL,
    NOW,
    URL,
    alert,
    backend,
    group,
    node,
    series,
    silent,
    snapshot,
    text,
    values,
)
from tests.sources.installed import page_complaints

SERVERS = {"group": "spark-a", "scope": "servers"}


def about(found: dict[tuple[str, frozenset[tuple[str, str]]], float], prefix: str, **labels: str) -> set[str]:
    """Return the names of the series that begin with `prefix` and have these labels."""
    wanted = set(labels.items())
    return {name for name, own in found if name.startswith(prefix) and wanted <= own}


def test_values_are_those_of_the_snapshot_in_base_units() -> None:
    """Values are in base units (seconds, ratios, bytes); a word is a label of a series with the value 1."""
    found = values(text(snapshot()))
    expected = {
        series("backend_state", backend="spark-a", state="stuck"): 1,
        series("backend_limit", backend="spark-a", limit="memory bandwidth"): 1,
        series("backend_standstill", backend="spark-a", word="stuck"): 1,
        series("backend_no_progress_seconds", backend="spark-a"): 130,
        series("backend_loading_left_seconds", backend="spark-a"): 60,
        series("backend_step_seconds", backend="spark-a"): 0.025,
        series("backend_tokens_per_step", backend="spark-a"): 3.5,
        series("backend_batch_per_step", backend="spark-a"): 3.5,
        series("backend_read_bytes_per_second", backend="spark-b"): 200e9,
        series("backend_roofline_ratio", backend="spark-b"): 0.73,
        series("backend_own_best_ratio", backend="spark-b"): 0.62,
        series("backend_published_ratio", backend="spark-b"): 0.71,
        series("backend_bandwidth_limit_ratio", backend="spark-b"): 0.4,
        series("backend_kv_fullest_ratio", backend="spark-b"): 0.5,
        series("backend_ttft_p50_seconds", backend="spark-a", bound="exact"): 0.25,
        series("backend_queue_p95_seconds", backend="spark-a", bound="above"): 2,
        series("group_word", **SERVERS, word="oscillating"): 1,
        series("group_bad", **SERVERS): 0,  # no router is known
        series("group_period_seconds", **SERVERS): 10,
        series("group_lost_ratio", **SERVERS): 0.2,
        series("group_lead_changes_per_second", **SERVERS): 0.1,
        series("group_starved_ratio", **SERVERS, member="spark-b"): 0.4,
        series("group_request_share_ratio", **SERVERS, member="spark-b"): 0.5,
        series("node_speed", node="spark-a", word="slow clock"): 1,
        series("node_headroom_slope_bytes_per_second", node="spark-a"): -1024,
        series("node_headroom_end_seconds", node="spark-a"): 120,
        series("node_throttled_ratio", node="spark-a", reason="brake"): 0.25,
        series("alert", kind="stuck", subject="spark-a", severity="critical"): 1,
        series("alert", kind="oscillating", subject="spark-a", severity="warning"): 1,
        series("events_total", kind="stuck"): 3,
        series("self_up"): 1,
        series("self_last_look_seconds"): 0.5,
        series("self_poll_seconds", source="backend:spark-a"): 0.012,
        series("self_cpu_ratio"): 0.015,
        series("self_left_out"): 0,
    }
    assert {key: found.get(key) for key in expected} == pytest.approx(expected)


def test_what_is_unknown_has_no_series() -> None:
    """An unknown value has no series: no 0 and no NaN."""
    nothing = snapshot(
        backends=(
            BackendView("a", "http://a", MODEL),
            BackendView("b", "http://b", MODEL, state=BackendState.UNKNOWN),
        ),
        nodes=(NodeView("n", "ssh"),),
        balance=(Balance(MODEL, ("a", "b")),),
        alerts=(),
        self_cost=SelfView(),
    )
    found = values(text(nothing))
    assert about(found, "backend_") == {"backend_state"}
    assert about(found, "backend_", backend="b") == set()
    assert about(found, "group_") == {"group_bad"}
    assert about(found, "node_") == set()
    assert about(found, "self_") == {"self_info", "self_up", "self_simulated", "self_left_out"}
    nan = snapshot(backends=(backend("a"),), nodes=(), self_cost=SelfView(math.nan))
    assert "NaN" not in text(nan)
    assert series("self_cpu_ratio") not in values(text(nan))


def test_a_group_without_answers_has_no_verdict() -> None:
    """If no server of a group answers, its newest verdict and its alert are left out."""
    cores = group("spark-a DP ranks", ("spark-a/0", "spark-a/1"), lanes_of="spark-a")
    verdicts = (group(), cores, group("other", ("spark-c",)))
    views = (silent("spark-a"), silent("spark-b"), backend("spark-c", "other"))
    found = values(text(snapshot(backends=views, balance=verdicts)))
    assert about(found, "group_", group="spark-a") == set()
    assert about(found, "group_", group="spark-a cores") == set()
    assert "group_word" in about(found, "group_", group="spark-c")
    assert about(found, "alert", kind="oscillating") == set()
    assert about(found, "alert", kind="stuck") == {"alert"}
    found = values(text(snapshot(backends=(silent("spark-a"), backend("spark-b")), balance=verdicts)))
    assert "group_word" in about(found, "group_", group="spark-a")
    assert about(found, "group_", group="spark-a cores") == set()
    assert about(found, "alert", kind="oscillating") == {"alert"}


def test_labels_hold_no_url_no_model_and_no_message() -> None:
    """Labels have no URL, model or error message; a group without a router is named by its first server."""
    page = text(snapshot(backends=(backend("spark-a"), silent("spark-b"))))
    for word in (MODEL, "gpt-oss", "http", "secret", "message", "nothing listens"):
        assert word not in "\n".join(line for line in page.splitlines() if not line.startswith("#"))


def test_a_name_that_is_a_url_is_its_host_and_port() -> None:
    """Of a name that is a URL, scheme, user and query are left out."""
    assert label_of("http://user:secret@10.0.0.1:8000/v1?key=secret") == "10.0.0.1:8000/v1"
    assert label_of("https://[::1]:8000/") == "[::1]:8000"
    assert label_of("backend:http://10.0.0.1:8000") == "10.0.0.1:8000"
    assert label_of("spark-a/0") == "spark-a/0"
    assert len(label_of("x" * 500)) <= LABEL_LIMIT
    named = snapshot(backends=(backend(URL),), nodes=(), balance=(group(members=(URL, "b")),), alerts=())
    assert "secret" not in text(named)
    assert series("backend_state", backend="10.0.0.1:8000", state="stuck") in values(text(named))
    twins = (f"{URL}/?a", f"{URL}/?b")
    assert values(text(snapshot(backends=(), balance=(group(members=twins),))))


def test_no_more_than_512_servers_groups_and_machines_have_series() -> None:
    """Servers, groups and machines beyond 512 have no series, but are counted."""
    servers = tuple(backend(f"s{index}") for index in range(600))
    crowd = snapshot(backends=servers, self_cost=SelfView(poll_ms={f"backend:{i}": 1.0 for i in range(900)}))
    found = values(text(crowd))
    named = {dict(labels).get("backend") for name, labels in found if name == "backend_state"}
    assert named == {f"s{index}" for index in range(MOST_SUBJECTS)}
    assert found[series("self_left_out")] == 600 + 1 + 1 - MOST_SUBJECTS
    assert about(found, "group_") == set()
    assert sum(name == "self_poll_seconds" for name, _ in found) == MOST_SUBJECTS
    assert len(found) <= 25 * MOST_SUBJECTS + 1000


def test_alerts_and_kinds_of_events_are_bounded() -> None:
    """512 alerts are exported, most severe first, by watched names; 64 kinds of events, then "other"."""
    many = (
        *(alert(f"kind-{index}", "spark-a") for index in range(600)),
        alert("x", "spark-b", Severity.CRITICAL),
    )
    found = values(text(snapshot(alerts=many)))
    alerts = [dict(labels) for name, labels in found if name == "alert"]
    assert len(alerts) == 512
    assert {"kind": "x", "subject": "spark-b", "severity": "critical"} in alerts
    router = RouterView("proxy", "http://r")
    subjects = snapshot(alerts=(alert("stuck", "http://10.0.0.9"), alert("down", "proxy")), routers=(router,))
    named = {dict(labels)["subject"] for name, labels in values(text(subjects)) if name == "alert"}
    assert named == {"other", "proxy"}
    counts = EventCounts()
    for index in range(200):
        counts.add(Event(NOW, Severity.INFO, "s", "m", about=f"backend:s:made-up-{index}"))
    counts.add(Event(NOW, Severity.INFO, "s", "m"))
    counts.add(Event(NOW, Severity.INFO, "s", "m", about="backend:s:stuck", phase=Phase.BEGIN))
    counts.add(Event(NOW, Severity.INFO, "s", "m", about="backend:s:stuck/3", phase=Phase.WORSE))
    counts.add(Event(NOW, Severity.INFO, "s", "m", about="backend:s:stuck", phase=Phase.END))
    kinds = dict(counts.items())
    assert len(kinds) == MOST_KINDS
    assert (kinds["stuck"], kinds["note"], kinds["kv-full"]) == (2, 1, 0)
    assert sum(kinds.values()) == 203


@given(st.text(max_size=30), st.text(max_size=30))
def test_hostile_names_stay_labels(first: str, second: str) -> None:
    """Hostile names cannot break out of their label, and no series is repeated."""
    found = snapshot(
        backends=(backend(first), backend(second)),
        balance=(group(members=(first, second)),),
        nodes=(node(first),),
    )
    assert values(text(found))


@pytest.mark.outside
def test_promtool_has_no_complaint() -> None:
    """Debian's promtool reports no problem on the page of a full, an empty and a balanced snapshot."""
    empty = Snapshot(NOW, 100.0, 1.0, 2.0)
    balanced = snapshot(
        balance=(Balance("g", ("spark-a", "spark-b"), word=BalanceWord.BALANCED, router="p"),)
    )
    for found in (snapshot(), empty, balanced):
        assert page_complaints(text(found).encode()) == b""


STARTED = datetime(2026, 1, 15, 9, 0, 0, tzinfo=UTC)
LABELS = {"target": "spark-a", "load": "c8", "prompt_tokens": "512", "depth": "0"}


def level(concurrency: int, *, limit: str = "slots", error: str | None = None) -> LevelResult:
    """Return a level with all exported figures."""
    return LevelResult(
        concurrency=concurrency,
        error=error,
        sustained_tps=Rate.of_runs([130.0]),
        decode_tps=Rate.of_runs([120.0, 130.0]),
        output_tps=Rate.of_runs([100.0, 110.0]),
        ttft_ms=Latency.of_values([100.0 + index for index in range(40)]),
        tpot_ms=Latency.of_values([20.0]),
        requests=Requests(ok=40, failed=2),
        limited_by=LimitSide(kind=limit, reason="16 of 16 run"),
    )


def result(*levels: LevelResult) -> SweepResult:
    """Return a sweep of one target."""
    target = TargetResult(name="spark-a", url="http://10.0.0.1:8000", kind=TargetKind.ENGINE, levels=levels)
    return SweepResult(started_at=STARTED, sparktop="0", plan=PlanResult(pp=512), targets=(target,))


def stored(folder: Path, name: str, found: SweepResult, at: float) -> None:
    """Write a result with this modification time."""
    save(folder / name, found)
    os.utime(folder / name, (at, at))


def test_levels_appear_as_they_end(tmp_path: Path) -> None:
    """Each finished level of the newest result has its figures in base units; a refused one has none."""
    sweep = NewestSweep(tmp_path, wall=lambda: 1000.0)
    sweep.refresh()
    assert list(sweep.levels) == []
    stored(tmp_path, "b.json", result(level(1)), 900.0)
    sweep.refresh()
    assert len(sweep.levels) == 1
    stored(tmp_path, "b.json", result(level(1), level(8), level(16, error="too long")), 950.0)
    sweep.refresh()
    found = values(text(snapshot(), sweep.levels))
    expected = {
        series("sweep_level_sustained_tokens_per_second", **LABELS): 130,
        series("sweep_level_decode_tokens_per_second", **LABELS): 125,
        series("sweep_level_output_tokens_per_second", **LABELS): 105,
        series("sweep_level_ttft_p50_seconds", **LABELS): 0.1195,
        series("sweep_level_tpot_mean_seconds", **LABELS): 0.02,
        series("sweep_level_failed_requests", **LABELS): 2,
        series("sweep_level_doubts", **LABELS): 0,
        series("sweep_level_limit", **LABELS, limit="slots"): 1,
    }
    assert {key: round(found[key], 6) for key in expected} == expected
    assert {dict(own)["load"] for name, own in found if name.startswith("sweep")} == {"c1", "c8"}
    assert "10.0.0.1" not in text(snapshot(), sweep.levels)


def test_old_and_damaged_results_have_no_series(tmp_path: Path) -> None:
    """Levels are removed a day after the last one; older and unreadable files are ignored."""
    now = [1000.0]
    sweep = NewestSweep(tmp_path, wall=lambda: now[0])
    stored(tmp_path, "new.json", result(level(8)), 990.0)
    stored(tmp_path, "old.json", result(level(1), level(2)), 500.0)
    sweep.refresh()
    assert [level.concurrency for _, level in sweep.levels] == [8]
    (tmp_path / "damaged.json").write_text("{")
    os.utime(tmp_path / "damaged.json", (999.0, 999.0))
    sweep.refresh()
    assert [level.concurrency for _, level in sweep.levels] == [8]
    now[0] += KEPT_S
    assert sweep.levels == ()


def test_the_number_of_levels_and_the_words_of_limits_are_bounded(tmp_path: Path) -> None:
    """At most 64 levels are exported, and an unknown limit is left out."""
    sweep = NewestSweep(tmp_path, wall=lambda: 1000.0)
    levels = [level(number, limit="http://a/word/of/another/version") for number in range(1, 200)]
    stored(tmp_path, "big.json", result(*levels), 990.0)
    sweep.refresh()
    assert len(sweep.levels) == MOST_LEVELS
    found = values(text(snapshot(), sweep.levels))
    assert not [name for name, _ in found if name == "sweep_level_limit"]
    assert sum(name.startswith("sweep_level") for name, _ in found) <= 9 * MOST_LEVELS
