"""Sums over all servers: each once, whether it is polled, on the wall of a Prometheus, or both."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.analysis.wall import wall_of_fleet
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.fleet import Fleet, FleetServer, FleetView, Sum, Totals
from sparktop.model.snapshot import BackendView
from sparktop.model.targets import StateThresholds
from sparktop.report.fleets import fleets_json
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


def test_two_prometheus_servers_that_scrape_the_same_servers_count_them_once() -> None:
    """Servers with the same address count once."""
    expected = summed((8700.0, 87), (None, 0), (174.0, 87), (87.0, 87), of=87)
    assert totals([], [WALL, replace(WALL, name="other")]) == expected


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


def test_old_answers_of_a_dead_prometheus_do_not_count() -> None:
    """Servers that are read sample by sample and are still fresh do count."""
    view = replace(WALL, failure=REFUSED)
    expected = summed((40.0, 1), (None, 0), (9.0, 1), (None, 0), of=1)
    assert totals([polled("http://h:8000", 9.0)], [view]) == expected


def test_a_sum_that_lacks_a_server_is_a_lower_bound() -> None:
    """Three of six report their rate: the sum has a sign, and says of how many it is."""
    some = [polled(f"http://h:{port}", 2.0) for port in range(6)]
    partly = [replace(one, generation_tps=None) for one in some[:3]] + some[3:]
    rate = totals(partly).generation_tps
    assert (rate, rate.sign) == (Sum(120.0, 3, 6), "≥")
    assert totals(some).generation_tps.sign == ""
    dead = [replace(some[0], failure=REFUSED), *some[1:]]
    assert totals(dead).running == Sum(10.0, 5, 6)


FIGURES = st.one_of(st.none(), st.floats(0, 1e6))
URLS = st.sampled_from([f"http://h:{port}" for port in range(8000, 8006)])
SCRAPED = st.builds(
    FleetServer,
    URLS,
    URLS,
    st.just("g"),
    st.sampled_from([None, 0.5, 0.9, -99.0]),
    st.booleans(),
    running=FIGURES,
    generation_tps=FIGURES,
    prompt_tps=FIGURES,
)
FLEETS = st.lists(
    st.lists(SCRAPED, max_size=6).map(
        lambda some: FleetView("prom", "http://p", Fleet(1.0, 15.0, tuple(some)))
    ),
    max_size=2,
)


@given(
    st.lists(FLEETS, min_size=2, max_size=2), st.lists(st.builds(polled, URLS, st.floats(0, 9)), max_size=3)
)
def test_sums_of_an_answer_that_is_shown_again_are_to_the_digit(
    turns: list[list[FleetView]], backends: list[BackendView]
) -> None:
    """The sums equal those of adding each value anew, whatever was summed before."""
    for fleets in (turns[0], turns[0], turns[1], turns[0]):
        by_url = {one.url: one for view in fleets if view.fleet is not None for one in view.fleet.servers}
        others = [one for one in backends if one.url not in by_url]
        known = [one for one in by_url.values() if not one.down and one.at is not None and one.at > 0]
        found = totals(backends, fleets)
        for name in ("running", "generation_tps", "prompt_tps"):
            scraped, direct = (
                [value for one in some if (value := getattr(one, name)) is not None]
                for some in (known, others)
            )
            sums = [sum(values) for values in (scraped, direct) if values]
            expected = (sum(sums) if sums else None, len(scraped) + len(direct), len(by_url) + len(others))
            assert getattr(found, name) == expected
