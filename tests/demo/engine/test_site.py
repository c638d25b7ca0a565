"""A simulated server's address over its restarts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import aiohttp
import pytest

from sparktop.demo.engine import EngineSite
from sparktop.demo.machine import MachineReader
from sparktop.demo.scenario import SCENARIOS, Restarts
from sparktop.engines import read_page

pytestmark = pytest.mark.outside

PATIENCE_S = 100.0
STEADY = SCENARIOS["steady"]


@pytest.fixture
def reader() -> MachineReader:
    now = time.monotonic()
    return MachineReader(STEADY.thermal_of(0, start_s=now), STEADY.machine_of(0, start_s=now), name="spark-a")


@pytest.fixture
async def site(reader: MachineReader) -> AsyncIterator[EngineSite]:
    """Yield an open site."""
    made = EngineSite(STEADY.servers(1)[0], [reader.thermal], [reader], seed="1")
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
    before, used = await start_time(http, site), reader.look().memory.used_bytes
    await site.shut()
    assert await start_time(http, site) is None
    assert (reader.look().memory.used_bytes or 0) < (used or 0) - 80 * 2**30
    port = site.port
    await site.open()
    after = await start_time(http, site)
    assert site.port == port
    assert before is not None
    assert after is not None
    assert after > before


async def test_shutting_breaks_requests_off(http: aiohttp.ClientSession, site: EngineSite) -> None:
    """Shutting down cuts streams in progress."""
    body = {"prompt": "a", "max_tokens": 3000, "ignore_eos": True, "stream": True}
    async with http.post(f"http://127.0.0.1:{site.port}/v1/completions", json=body) as response:
        await response.content.readany()
        await site.shut()
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()


async def test_it_can_restart_again_and_again(http: aiohttp.ClientSession, site: EngineSite) -> None:
    """With restarts configured, it comes back with later start times until it is closed."""
    site.keep_restarting(Restarts(0, every_s=0.2, down_s=0.1))
    starts: set[float] = set()
    async with asyncio.timeout(PATIENCE_S):
        while len(starts) < 3:
            told = await start_time(http, site)
            starts |= set() if told is None else {told}
    await site.close()
    assert await start_time(http, site) is None
