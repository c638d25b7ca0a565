"""Servers through a Prometheus: each counts once, old samples are no figures."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.analysis.wall import wall_of, wall_of_fleet
from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import Fleet, FleetNode, FleetServer, FleetView, Scrape, Sum, Totals
from sparktop.model.snapshot import BackendState, BackendView, Snapshot
from sparktop.model.targets import BackendTarget, PrometheusTarget, StateThresholds, Watch
from sparktop.report.json_snapshot import fleets_json
from sparktop.report.tables import scraped_groups_table, without_stale
from sparktop.store import SourceKey
from sparktop.store.tracks import totals
from tests.known import known
from tests.store.conftest import World

SERVERS = tuple(
    FleetServer(f"h:{port}", f"http://h:{port}/", "g", 90.0, running=2.0, waiting=1.0, generation_tps=100.0)
    for port in range(8000, 8087)
)
WALL = FleetView("prom", "http://p:9090", Fleet(100.0, 15.0, SERVERS))
REFUSED = Failure(FailureKind.REFUSED, "connection refused", 90.0)


def summed(*sums: tuple[float | None, int], of: int) -> Totals:
    """Return totals of `of` servers: tokens/s, prompt tokens/s, running, waiting; each (sum, known)."""
    return Totals(*(Sum(value, known, of) for value, known in sums))


def polled(url: str, running: float) -> BackendView:
    """Return a server that answers."""
    return BackendView(url, url, "g", age_s=0.5, running=running, generation_tps=40.0)


def test_a_sum_is_that_of_the_wall_and_what_is_polled_beside_it() -> None:
    """Eight of 87 are read sample by sample, one more server is polled: each counts once."""
    closely = [polled(f"http://h:{port}", 9.0) for port in range(8000, 8008)]
    alone = polled("http://other:8000", 5.0)
    expected = summed((8740.0, 88), (None, 0), (179.0, 88), (87.0, 87), of=88)
    assert totals([*closely, alone], [WALL]) == expected


def test_a_stale_server_on_the_wall_is_in_no_sum_and_does_not_count() -> None:
    """Its newest sample is old, or there never was one, although the Prometheus answers: as on the wall."""
    some = (replace(SERVERS[0], at=62.4), replace(SERVERS[1], at=None, running=None), *SERVERS[2:4])
    fleet = replace(known(WALL.fleet), servers=some)
    found = replace(WALL, fleet=fleet)
    assert totals([], [found]) == summed((200.0, 2), (None, 0), (4.0, 2), (2.0, 2), of=4)
    servers = fleets_json([found], 100.0, StateThresholds())[0]["servers"]
    assert isinstance(servers, list)
    assert servers[0]["state"] == "stale"
    assert "stale" in wall_of_fleet(fleet).groups[0].states


def test_a_sum_that_lacks_a_server_is_a_lower_bound() -> None:
    """Three of six report their rate: the sum has a sign, and says of how many it is."""
    some = [polled(f"http://h:{port}", 2.0) for port in range(6)]
    partly = [replace(one, generation_tps=None) for one in some[:3]] + some[3:]
    rate = totals(partly).generation_tps
    assert (rate, rate.sign) == (Sum(120.0, 3, 6), "≥")
    assert totals(some).generation_tps.sign == ""
    dead = [replace(some[0], failure=REFUSED), *some[1:]]
    assert totals(dead).running == Sum(10.0, 5, 6)


# Two Prometheus that scrape the same servers: each server is on one wall and counts once.

FOUR_SERVERS = tuple(replace(one, at=100.0, waiting=None, generation_tps=10.0) for one in SERVERS[:4])
NODES = (FleetNode("n1", 100.0, power_w=40.0), FleetNode("n2", 100.0, power_w=40.0))
BOTH = Fleet(100.0, 15.0, FOUR_SERVERS, nodes=NODES)


class Pair(World):
    """A store with two Prometheus."""

    def __init__(self) -> None:
        targets = tuple(PrometheusTarget(name, f"http://{name}:9090") for name in ("one", "two"))
        super().__init__(Watch(prometheus=targets, source="test"), at=100.0)

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
    shown = pair.accept("two", replace(BOTH, servers=(*FOUR_SERVERS, more)))
    assert names(shown) == [[*(one.name for one in FOUR_SERVERS), "n1", "n2"], ["h:9000"]]
    second = known(shown.fleets[1].fleet)
    assert second.note == "4 of its servers are shown by another Prometheus"
    assert shown.totals.running == Sum(9, 5, 5)
    assert [row[1] for row in scraped_groups_table(shown.fleets).rows] == ["4", "1"]
    assert pair.store.snapshot().fleets[1].fleet is second


def test_the_other_takes_over_what_does_not_answer_through_the_first() -> None:
    """A server that is down only in the first counts in the second; then the first fails, and comes back."""
    pair = Pair()
    pair.accept("one", replace(BOTH, servers=(replace(FOUR_SERVERS[0], down=True), *FOUR_SERVERS[1:])))
    shown = pair.accept("two", BOTH)
    assert [len(one) for one in names(shown)] == [5, 1]
    assert shown.totals.running.known == 4
    shown = pair.accept("one", Failure(FailureKind.REFUSED, "connection refused", 101.0))
    assert [len(one) for one in names(shown)] == [0, 6]
    assert shown.totals.running[:2] == (8, 4)
    assert [len(one) for one in names(pair.accept("one", BOTH))] == [6, 0]


def test_equal_addresses_and_names_of_two_sites_stay_apart() -> None:
    """Pods of two clusters may have one address, and machines of two sites one name; each server counts."""
    pair = Pair()
    pair.accept("one", BOTH)
    pods = tuple(replace(one, name=f"pod-{one.name}", running=3.0) for one in FOUR_SERVERS)
    shown = pair.accept("two", replace(BOTH, servers=pods))
    assert [len(one) for one in names(shown)] == [6, 6]
    assert shown.totals.running == Sum(20.0, 8, 8)


# Where all servers of a Prometheus are read sample by sample, its wall and the title sum the rows.

# Servers read from a Prometheus whose newest sample is old: no figure stands for now, and why is named.

MAIN = SourceKey.prometheus("main")


class Scene(World):
    """A store with a server through a Prometheus, and one that is polled; both were sampled at 0."""

    def __init__(self, every_s: float = 15.0) -> None:
        scrape = Scrape("main", every_s)
        watch = Watch(
            backends=(
                BackendTarget("far", "http://f", scrape=scrape, group="g"),
                BackendTarget("near", "http://n"),
            ),
            prometheus=(PrometheusTarget("main", "http://p:9090"),),
            source="test",
        )
        super().__init__(watch, at=0.0)
        self.sample("far", 0.0)
        self.sample("near", 0.0)
        servers = (FleetServer("far", "http://f", "g", 0.0, running=5.0, waiting=2.0),)
        self.store.accept(MAIN, Fleet(0.0, every_s, servers), 1.0)

    def sample(self, name: str, at: float) -> None:
        """Deliver a sample with 5 running and 2 waiting requests."""
        lane = LaneSample("0", running=5.0, waiting=2.0, generation_tokens=100 * at)
        self.store.accept(SourceKey.backend(name), EngineSample(at, "vllm", lanes=(lane,)), 1.0)

    def fleet(self) -> Fleet:
        """Return what the Prometheus shows now."""
        return known(self.snapshot().fleets[0].fleet)

    def pass_to(self, at: float) -> None:
        """Fail the Prometheus each second, while the other server is polled, until `at`."""
        while self.at < at:
            self.at += 1.0
            self.sample("near", self.at)
            self.store.accept(MAIN, replace(REFUSED, at=self.at))
            self.store.judge()


@pytest.mark.parametrize(("every_s", "limit_s"), [(15.0, 37.0), (1.0, 30.0)])
def test_old_samples_are_no_figures(every_s: float, limit_s: float) -> None:
    """After two and a half scrapes, 30 s at least: stale, in no sum, null in reports, the reason named."""
    scene = Scene(every_s)
    scene.pass_to(limit_s)
    shown = scene.store.snapshot()
    assert shown.backends[0].ok
    assert shown.totals.running.value == 10
    scene.pass_to(limit_s + 1)
    shown = scene.store.snapshot()
    far = shown.backends[0]
    assert (far.state, far.state_text) == (BackendState.STALE, "stale")
    assert known(far.failure).message == "no new sample through main: connection refused"
    assert (shown.totals.running.value, shown.totals.waiting.value) == (5, 2)
    assert {group.name: group.running.value for group in wall_of(shown).groups}["g"] is None
    reported = without_stale(shown).backends[0]
    assert (reported.running, reported.generation_tps, reported.scrape) == (None, None, far.scrape)


def test_only_the_prometheus_has_an_alert() -> None:
    """There is one alert for all servers of a Prometheus."""
    scene = Scene()
    scene.pass_to(120.0)
    assert [alert.subject for alert in scene.store.snapshot().alerts] == ["main"]


def test_the_wall_of_a_prometheus_that_fails_has_no_figures() -> None:
    """Its servers are stale once the newest scrape of all is too old."""
    scene = Scene()
    scene.pass_to(37.0)
    assert wall_of_fleet(scene.fleet()).groups[0].running.value == 5
    scene.pass_to(38.0)
    fleet = scene.fleet()
    (group,) = wall_of_fleet(fleet).groups
    assert (group.states, group.running.value, group.waiting.value) == (["stale"], None, None)
    assert fleet.servers[0].running is None
    assert scene.fleet() is fleet
    fresh = (FleetServer("far", "http://f", "g", 39.0, running=4.0),)
    scene.store.accept(MAIN, Fleet(40.0, 15.0, fresh), 1.0)
    assert wall_of_fleet(scene.fleet()).groups[0].running.value == 4
