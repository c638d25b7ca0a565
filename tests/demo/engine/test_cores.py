"""A simulated server with several engine cores: distribution of requests, and its page."""

from __future__ import annotations

from sparktop.demo.engine import LiveCores
from sparktop.demo.engine_page import engine_page
from sparktop.engines import read_page
from sparktop.model.load import EndReason
from sparktop.simulation.engine import SimulatedRequest
from sparktop.simulation.routers import RouterSettings, make_router
from tests.demo.quick_engines import Clock, live_engine


def request(number: int) -> SimulatedRequest:
    return SimulatedRequest(f"r{number}", 16, 64, EndReason.LENGTH)


def cores_of(clock: Clock, settings: RouterSettings) -> LiveCores:
    return LiveCores(
        [live_engine(clock) for _ in range(2)], make_router("least-busy", 2, settings), clock=clock
    )


def running(cores: LiveCores) -> dict[str, float | None]:
    """Return the number of running requests by lane, as it is read from the text of the server's page."""
    page = engine_page(cores.cores, 5.0)
    return {lane.lane: lane.running for lane in read_page(page, at=0.0, answer_ms=1.0).lanes}


async def test_a_page_has_a_lane_for_each_core_and_requests_are_spread() -> None:
    """With current counts, requests alternate between the cores, and each core is a lane on the page."""
    clock = Clock()
    cores = cores_of(clock, RouterSettings())
    for number in range(6):
        cores.submit(request(number))
    clock.now += 0.001
    cores.catch_up()
    assert running(cores) == {"0": 3.0, "1": 3.0}
    for number in range(6):
        cores.cancel(f"r{number}")
    assert running(cores) == {"0": 0.0, "1": 0.0}


async def test_old_counts_send_all_requests_to_one_core() -> None:
    """While counts are outdated, all requests go to the same core."""
    clock = Clock()
    cores = cores_of(clock, RouterSettings(poll_s=3.0))
    for number in range(6):
        cores.submit(request(number))
    clock.now += 0.001
    cores.catch_up()
    assert sorted(running(cores)) == ["0", "1"]
    assert sorted(one or 0.0 for one in running(cores).values()) == [0.0, 6.0]
    for number in range(6):
        cores.cancel(f"r{number}")
