"""Two Prometheus that scrape the same servers: each server is on one wall and counts once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import Fleet, FleetNode, FleetServer, Sum
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import PrometheusTarget, Watch
from sparktop.report.tables import scraped_groups_table
from sparktop.store import SourceKey, Store

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SERVERS = tuple(
    FleetServer(f"h:{port}", f"http://h:{port}", "g", 100.0, running=2.0, generation_tps=10.0)
    for port in range(8000, 8004)
)
NODES = (FleetNode("n1", 100.0, power_w=40.0), FleetNode("n2", 100.0, power_w=40.0))
BOTH = Fleet(100.0, 15.0, SERVERS, nodes=NODES)


class Pair:
    """A store with two Prometheus."""

    def __init__(self) -> None:
        self.at = 100.0
        targets = tuple(PrometheusTarget(name, f"http://{name}:9090") for name in ("one", "two"))
        watch = Watch(prometheus=targets, source="test")
        self.store = Store(watch, clock=lambda: self.at, now=lambda: EPOCH + timedelta(seconds=self.at))

    def accept(self, name: str, reading: Fleet | Failure) -> Snapshot:
        """Deliver a reading of one of them; return the picture."""
        self.store.accept(SourceKey.prometheus(name), reading, 1.0)
        return self.store.snapshot()


def names(shown: Snapshot) -> list[list[str]]:
    """Return the names of servers and machines on each wall."""
    return [
        [*(one.name for one in view.fleet.servers), *(one.name for one in view.fleet.nodes)]
        for view in shown.fleets
        if view.fleet is not None
    ]


def test_each_server_stands_on_one_wall() -> None:
    """It is on the first one's wall; the second says so, and equal answers stay the same objects."""
    pair = Pair()
    pair.accept("one", BOTH)
    more = FleetServer("h:9000", "http://h:9000", "g", 100.0, running=1.0)
    shown = pair.accept("two", replace(BOTH, servers=(*SERVERS, more)))
    assert names(shown) == [[*(one.name for one in SERVERS), "n1", "n2"], ["h:9000"]]
    second = shown.fleets[1].fleet
    assert second is not None
    assert second.note == "4 of its servers are shown by another Prometheus"
    assert shown.totals.running == Sum(9, 5, 5)
    assert [row[1] for row in scraped_groups_table(shown.fleets).rows] == ["4", "1"]
    assert pair.store.snapshot().fleets[1].fleet is second


def test_the_other_takes_over_what_does_not_answer_through_the_first() -> None:
    """A server that is down only in the first counts in the second; then the first fails, and comes back."""
    pair = Pair()
    pair.accept("one", replace(BOTH, servers=(replace(SERVERS[0], down=True), *SERVERS[1:])))
    shown = pair.accept("two", BOTH)
    assert [len(one) for one in names(shown)] == [5, 1]
    assert shown.totals.running.known == 4
    shown = pair.accept("one", Failure(FailureKind.REFUSED, "connection refused", 101.0))
    assert [len(one) for one in names(shown)] == [0, 6]
    assert shown.totals.running[:2] == (8, 4)
    assert [len(one) for one in names(pair.accept("one", BOTH))] == [6, 0]


def test_equal_addresses_and_names_of_two_sites_stay_apart() -> None:
    """Pods of two clusters may have one address, and machines of two sites one name."""
    pair = Pair()
    pair.accept("one", BOTH)
    pods = tuple(replace(one, name=f"pod-{one.name}") for one in SERVERS)
    assert [len(one) for one in names(pair.accept("two", replace(BOTH, servers=pods)))] == [6, 6]
