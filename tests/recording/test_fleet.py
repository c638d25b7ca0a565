"""What came through a Prometheus, recorded and read again."""

from __future__ import annotations

from datetime import UTC, datetime

from sparktop.model.instant import Instant
from sparktop.model.router import Fleet, FleetServer, Scrape
from sparktop.model.targets import BackendTarget, PrometheusTarget, Watch
from sparktop.recording.records import call_of, first_head, read_target, record_of, target_fields
from sparktop.store import SourceKey, Store
from sparktop.store.store import Call, Change
from tests.known import known

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
