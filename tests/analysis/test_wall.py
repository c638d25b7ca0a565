"""Groups of hundreds of servers: order, outdated figures, filter, lists."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.analysis.state import LoadFigures, Wall, backend_state, wall_of, wall_of_fleet
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import Alert, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import GpuReading, NodeSample
from sparktop.model.router import Fleet, FleetServer, Scrape, Sum
from sparktop.model.snapshot import (
    BackendState,
    BackendView,
    NodeView,
    Snapshot,
    SpeedState,
)
from sparktop.model.targets import StateThresholds

NOW = datetime(2026, 1, 1, tzinfo=UTC)
REFUSED = Failure(FailureKind.REFUSED, "connection refused", 90.0)


def server(name: str, group: str, **fields: object) -> BackendView:
    """Return a server that answers."""
    view = BackendView(name, f"http://{name}:8000", group, age_s=0.5, state=BackendState.BUSY)
    return replace(view, **fields)  # type: ignore[arg-type]  # each test names fields


def wall(*views: BackendView, words: str = "", **fields: object) -> Wall:
    """Return the wall of these servers."""
    shown = Snapshot(NOW, 100.0, 1.0, 2.0, backends=views, **fields)  # type: ignore[arg-type]  # as above
    return wall_of(shown, words)


def names(found: Wall) -> list[str]:
    """Return the names of the groups in their order."""
    return [group.name for group in found.groups]


def test_down_then_a_bad_verdict_then_full_then_waiting() -> None:
    """Groups come in the order down, bad verdict, full, waiting; equal ones by name."""
    bad = Balance("swings", ("s",), BalanceWord.OSCILLATING, BalanceWord.OSCILLATING, router="proxy")
    found = wall(
        server("a", "calm"),
        server("w", "waits", waiting=9.0),
        server("f", "full", state=BackendState.KV_FULL),
        server("s", "swings"),
        server("d", "dead", state=BackendState.UNREACHABLE, failure=REFUSED),
        server("b", "also calm"),
        balance=(bad,),
    )
    assert names(found) == ["dead", "swings", "full", "waits", "also calm", "calm"]


def test_servers_of_a_group_stand_with_the_worst_first() -> None:
    """Within a group: down first, then queueing by waiting requests, busy by load, idle."""
    found = wall(
        server("idle", "g", state=BackendState.IDLE),
        server("busy", "g", running=3.0),
        server("busier", "g", running=9.0),
        server("queue", "g", state=BackendState.QUEUEING, waiting=1.0),
        server("longer", "g", state=BackendState.QUEUEING, waiting=7.0),
        server("dead", "g", state=BackendState.ENGINE_DEAD),
    )
    order = [one.server.name for one in found.groups[0].servers]
    assert order == ["dead", "longer", "queue", "busier", "busy", "idle"]


def test_old_figures_are_stale_not_idle() -> None:
    """Old figures are stale: after three polls and 5 s, or after two and a half scrapes."""
    found = wall(
        server("fresh", "g", state=BackendState.IDLE, age_s=4.0),
        server("old", "g", state=BackendState.IDLE, age_s=6.0),
        server("scraped", "g", state=BackendState.IDLE, age_s=30.0, scrape=Scrape("main", 15.0)),
        server("late", "g", state=BackendState.IDLE, age_s=40.0, scrape=Scrape("main", 15.0)),
        server("down", "g", state=BackendState.UNREACHABLE, age_s=60.0, failure=REFUSED),
    )
    states = {one.server.name: one.state for one in found.groups[0].servers}
    expected = {"fresh": "idle", "scraped": "idle", "old": "stale", "late": "stale", "down": "unreachable"}
    assert states == expected


def test_old_samples_of_a_prometheus_are_stale() -> None:
    """Samples of a Prometheus are stale by the time of its answer; one without a time is unknown."""
    servers = (
        FleetServer("fresh", "u", "g", at=90.0, running=0.0),
        FleetServer("old", "u", "g", at=50.0, running=0.0),
        FleetServer("down", "u", "g", at=50.0, down=True),
        FleetServer("mute", "u", "g"),
    )
    found = wall_of_fleet(Fleet(100.0, 15.0, servers))
    assert [one.state for one in found.groups[0].servers] == ["unreachable", "stale", "idle", "unknown"]


def test_unknown_figures_stay_unknown() -> None:
    """Without a known value a sum is None, with a server that is down a lower bound, as in the top line."""
    silent = wall(server("a", "g"), server("b", "g")).groups[0]
    assert (silent.kv_percent, silent.ttft_p95_s) == (None, None)
    assert (silent.running, silent.generation_tps) == (Sum(None, 0, 2), Sum(None, 0, 2))
    down = server("a", "g", state=BackendState.UNREACHABLE, running=30.0)
    assert wall(down, server("b", "g", running=2.0)).groups[0].running == Sum(2.0, 1, 2)


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("alpha", {"a1"}),
        ("GREEN", {"a1", "b1"}),
        ("qwen", {"b1"}),
        ("queueing", {"b1"}),
        ("green idle", set()),
    ],
)
def test_the_filter_finds_name_group_model_and_state(words: str, kept: set[str]) -> None:
    """All words of the filter must occur, in any letter case; the total before filtering stays known."""
    found = wall(
        server("a1", "green", url="http://alpha"),
        server("b1", "green", model="Qwen3", state=BackendState.QUEUEING),
        server("c1", "red"),
        words=words,
    )
    assert {one.server.name for group in found.groups for one in group.servers} == kept
    assert (found.count, found.total) == (len(kept), 3)


def node(name: str, use: float | None = 50.0, **fields: object) -> NodeView:
    """Return a machine with a GPU."""
    sample = NodeSample(99.0, gpus=(GpuReading(0, utilization_percent=use, sm_clock_mhz=711),))
    return replace(NodeView(name, "agent", sample, age_s=1.0), **fields)  # type: ignore[arg-type]  # as above


def test_machines_stand_with_the_worst_first() -> None:
    """Machines come worst first, by alert, clock and use; those with a slow clock have a list."""
    nodes = (
        node("idle", 0.0),
        node("mute", None),
        node("busy"),
        node("slow", speed=SpeedState("slow clock", "711 of 3003 MHz")),
        node("short"),
        node("gone", failure=REFUSED),
    )
    alert = Alert("node:short:headroom", Severity.CRITICAL, "short", "1 GiB left", NOW)
    found = wall(nodes=nodes, alerts=(alert,))
    expected = [
        ("gone", "unreachable"),
        ("short", "low memory"),
        ("slow", "slow clock"),
        ("busy", "busy"),
        ("idle", "idle"),
        ("mute", "unknown"),
    ]
    assert [(one.name, one.state) for one in found.nodes] == expected
    assert [one.name for one in found.slow_nodes] == ["slow"]


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(st.none(), st.integers(0, 20)),
    st.one_of(st.none(), st.integers(0, 4)),
    st.one_of(st.none(), st.floats(0, 100)),
    st.one_of(st.none(), st.sampled_from([0.0, 0.2, 3.0])),
)
def test_a_wall_and_a_list_have_one_rule(
    running: int | None, waiting: int | None, kv_percent: float | None, preemptions: float | None
) -> None:
    """The state of a scraped server is that of a polled one with a single sample in its window."""
    one = FleetServer(
        "a",
        "u",
        "g",
        at=90.0,
        running=running,
        waiting=waiting,
        kv_cache_percent=kv_percent,
        preemptions_per_s=preemptions,
    )
    load = LoadFigures(
        seen=True,
        running=running,
        waiting=waiting,
        waiting_share=float(bool(waiting)),
        kv_cache_percent=kv_percent,
        preemptions=None if preemptions is None else 15 * preemptions,
        preempted_s=15.0,
    )
    expected = backend_state(load, StateThresholds()).state.value
    assert wall_of_fleet(Fleet(100.0, 15.0, (one,))).groups[0].servers[0].state == expected
