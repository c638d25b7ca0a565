"""What came through a Prometheus, recorded and read again.

The summary of a minute in the head of a frame.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sparktop.engines import read_page
from sparktop.model.instant import Instant
from sparktop.model.router import Fleet, FleetServer, Scrape
from sparktop.model.targets import BackendTarget, PrometheusTarget, Watch
from sparktop.recording.records import (
    announcements,
    call_of,
    first_head,
    read_target,
    record_of,
    target_fields,
)
from sparktop.store import SourceKey, Store
from sparktop.store.store import Call, Change
from tests.known import known
from tests.recording.conftest import instant

NOW = Instant(100.0, datetime(2026, 1, 1, tzinfo=UTC))


def test_the_wall_is_read_as_it_was_recorded() -> None:
    """All figures, unknown ones too; control characters are cleaned."""
    servers = (
        FleetServer("a", "http://a", "g", 95.0, running=2.0),
        FleetServer("b\x1b", "http://b", "g", down=True),
    )
    fleet = Fleet(99.0, 15.0, servers, "partial answer", 12.0)
    record = known(record_of(NOW, Call(Change.ACCEPT, (SourceKey.prometheus("main"), fleet, 12.0))))
    call = known(call_of(record))
    key, read, took_ms = call.arguments
    assert (key, took_ms) == (SourceKey.prometheus("main"), 12.0)
    assert isinstance(read, Fleet)
    assert read.servers[0] == servers[0]
    assert read.servers[1].name == "b"
    assert (read.every_s, read.note) == (15.0, "partial answer")


def test_targets_are_recorded_without_secrets() -> None:
    """Neither token nor headers; a server keeps where it is read from, and its group."""
    target = PrometheusTarget("main", "http://p:9090", bearer="secret", headers={"X-Scope-OrgID": "team"})
    fields = target_fields(target)
    assert "secret" not in str(fields)
    assert "team" not in str(fields)
    assert read_target(fields) == PrometheusTarget("main", "http://p:9090")
    server = BackendTarget("a", "http://a", "vllm", scrape=Scrape("main", 15.0), group="g")
    assert read_target(target_fields(server)) == server


def test_a_replica_of_ray_keeps_which_one_it_is() -> None:
    """Its URL's fragment is that of the wall's server; user and password are left out, as of others."""
    replica = BackendTarget("h:1/q3v8", "http://me:pw@h:1#q3v8", scrape=Scrape("main", 15.0))
    assert target_fields(replica)["url"] == "http://h:1#q3v8"
    assert target_fields(BackendTarget("h:1", "http://h:1#token"))["url"] == "http://h:1"


def test_a_head_has_what_changed_of_a_known_server() -> None:
    """Whoever begins to read there sees the machines and the group of the newer job, as the store does."""
    old = BackendTarget("h:1", "http://h:1", nodes=("a",), group="old")
    watch = Watch(backends=(old,), source="test")
    store = Store(watch)
    newer = BackendTarget("h:1", "http://h:1", nodes=("b",), group="new")
    head = first_head(watch, store).after(Call(Change.ADD, (newer,)))
    store.add(newer)
    assert head.targets[SourceKey.backend("h:1")] == newer
    assert store.targets() == (newer,)


RATE_TPS, RUNNING = 100, 4


def page_at(at: float) -> bytes:
    """Return the page of a server that generates `RATE_TPS` tokens a second."""
    return b"""
vllm:num_requests_running{engine="0",model_name="m"} %d
vllm:num_requests_waiting{engine="0",model_name="m"} 0
vllm:generation_tokens_total{engine="0",model_name="m"} %d
process_start_time_seconds 100
""" % (RUNNING, RATE_TPS * at)


@pytest.mark.parametrize(
    ("interval_s", "offsets_s"),
    [(0.25, (0.0,)), (0.5, (0.0,)), (1.0, (0.0,)), (2.0, (0.0, 1.0)), (5.0, (0.0, 1.5)), (90.0, (0.0,))],
)
def test_a_summary_has_the_sum_of_what_each_server_does(
    interval_s: float, offsets_s: tuple[float, ...]
) -> None:
    """It depends neither on how often servers are polled nor on which of them are polled together."""
    names = [f"server-{number}" for number in range(len(offsets_s))]
    targets = tuple(BackendTarget(name, "http://127.0.0.1:1") for name in names)
    now_s = 0.0
    store = Store(
        Watch(interval_s=interval_s, backends=targets), clock=lambda: now_s, now=lambda: instant(now_s).wall
    )
    polls = sorted(
        (1000.0 + offset + turn * interval_s, name)
        for turn in range(max(3, round(90 / interval_s)))
        for name, offset in zip(names, offsets_s, strict=True)
    )
    for now_s, name in polls:
        store.accept(SourceKey.backend(name), read_page(page_at(now_s), at=now_s, engine="vllm"))
        store.judge()
    summary = announcements(store.snapshot()).summary
    shown = {name: (shown.least, shown.mean, shown.most) for name, shown in summary.items()}
    assert shown["generation_tps"] == pytest.approx((RATE_TPS * len(names),) * 3)
    assert shown["requests"] == pytest.approx((RUNNING * len(names),) * 3)
