"""A simulated server's address over its restarts."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import aiohttp
import pytest

from sparktop.demo.engine import EngineSite
from sparktop.demo.machine import MachineReader
from sparktop.demo.scenario import SCENARIOS
from sparktop.engines import read_page
from tests.known import known

pytestmark = pytest.mark.outside

STEADY = SCENARIOS["steady"]


@pytest.fixture
def reader() -> MachineReader:
    now = time.monotonic()
    return MachineReader(STEADY.thermal_of(0, start_s=now), STEADY.machine_of(0, start_s=now), name="spark-a")


def test_whatever_the_pace_of_samples_one_has_the_processes_as_they_are() -> None:
    """A process that ends is seen by readings that are fresh; one is due every ten seconds."""
    now = 1000.3
    heat, machine = STEADY.thermal_of(0, start_s=now), STEADY.machine_of(0, start_s=now)
    reader = MachineReader(heat, machine, name="spark-a", clock=lambda: now)
    reader.begin_start(600.0)
    fresh = 0
    for _ in range(60):
        now += 0.73
        loads = reader.sample().workloads
        fresh += loads is not None and loads.age_s == 0.0
        for process in known(loads).processes:  # one start, whenever it was read
            assert now - known(known(loads).age_s) - known(process.age_s) == pytest.approx(1000.3, abs=2.8)
    assert fresh == 4


@pytest.fixture
async def site(reader: MachineReader) -> AsyncIterator[EngineSite]:
    """Yield an open site."""
    made = EngineSite(STEADY.servers(1)[0], [reader], seed="1")
    await made.open()
    yield made
    await made.close()


async def start_time(http: aiohttp.ClientSession, site: EngineSite) -> float | None:
    """Return the start time that the server reports; None if nothing listens."""
    try:
        async with http.get(f"http://127.0.0.1:{site.port}/metrics") as response:
            return read_page(await response.read(), at=0.0, answer_ms=0.0).start_time
    except (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError):
        return None


async def test_it_comes_back_at_the_same_address_as_another_process(
    http: aiohttp.ClientSession, site: EngineSite, reader: MachineReader
) -> None:
    """While shut down, nothing listens and its memory is free; afterwards it has a later start time."""
    before, used = await start_time(http, site), reader.sample().memory.used_bytes
    await site.shut()
    assert await start_time(http, site) is None
    assert (reader.sample().memory.used_bytes or 0) < (used or 0) - 80 * 2**30
    port = site.port
    await site.open()
    after = await start_time(http, site)
    assert site.port == port
    assert before is not None
    assert known(after) > before
