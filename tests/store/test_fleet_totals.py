"""Sums over all servers: each once, whether it is polled, on the wall of a Prometheus, or both."""

from __future__ import annotations

from msgspec.structs import replace

from sparktop.analysis.state import wall_of_fleet
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import Fleet, FleetServer, FleetView, Sum, Totals
from sparktop.model.snapshot import BackendView
from sparktop.model.targets import StateThresholds
from sparktop.report.json_snapshot import fleets_json
from sparktop.store.figures import totals

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


def test_replicas_on_one_node_of_ray_each_count() -> None:
    """Their URLs differ by a fragment; a page of the whole node that is polled beside them does not count."""
    assert WALL.fleet is not None
    some = tuple(replace(one, url=f"http://ray:8085#r{number}") for number, one in enumerate(SERVERS[:3]))
    view = replace(WALL, fleet=replace(WALL.fleet, servers=some))
    rows = [polled(one.url, 2.0) for one in some]
    expected = summed((300.0, 3), (None, 0), (6.0, 3), (3.0, 3), of=3)
    assert totals([*rows, polled("http://ray:8085", 6.0)], [view]) == expected


def test_servers_without_an_answer_are_counted() -> None:
    """One server is down on the wall and a polled one refuses: the sum says that it lacks them."""
    assert WALL.fleet is not None
    some = (replace(SERVERS[0], down=True, running=None), *SERVERS[1:3])
    view = replace(WALL, fleet=replace(WALL.fleet, servers=some))
    dead = replace(polled("http://other:8000", 5.0), failure=REFUSED)
    assert totals([dead], [view]) == summed((200.0, 2), (None, 0), (4.0, 2), (2.0, 2), of=4)


def test_a_stale_server_on_the_wall_is_in_no_sum_and_does_not_count() -> None:
    """Its newest sample is old, or there never was one, although the Prometheus answers: as on the wall."""
    assert WALL.fleet is not None
    some = (replace(SERVERS[0], at=62.4), replace(SERVERS[1], at=None, running=None), *SERVERS[2:4])
    fleet = replace(WALL.fleet, servers=some)
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
