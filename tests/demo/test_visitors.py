"""The demo's own load makes way for requests of others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from aiohttp.test_utils import TestServer
from msgspec.structs import replace

from sparktop.demo.engine import EngineServer, LiveCores, LiveEngine
from sparktop.demo.load import Driver, LoadPause
from sparktop.demo.scenario import SCENARIOS, Scenario
from tests.demo.quick_engines import live_engine
from tests.waiting import until

pytestmark = pytest.mark.outside

PATIENCE_S = 100.0
LONG_S = 1e6
MODEL = "openai/gpt-oss-120b"
SCENARIO = replace(SCENARIOS["oscillation"], load=3, prompt_tokens=50, output_tokens=8)
ENDLESS = {"model": MODEL, "prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": True}


@asynccontextmanager
async def served(live: LiveEngine, pause: LoadPause | None = None) -> AsyncIterator[str]:
    server = EngineServer(LiveCores([live], None), started_unix_s=0.0, pause=pause, aborts=True)
    http = TestServer(server.application(), handler_cancellation=True)
    await http.start_server()
    yield str(http.make_url("")).rstrip("/")
    live.close()
    await http.close()


@asynccontextmanager
async def loaded(
    url: str, scenario: Scenario = SCENARIO, pause: LoadPause | None = None
) -> AsyncIterator[Driver]:
    driver = Driver(url, scenario, seed=1, pause=pause)
    running = asyncio.ensure_future(driver.run())
    try:
        yield driver
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_the_load_pauses_for_a_stranger_and_comes_back(http: aiohttp.ClientSession) -> None:
    """While another client's answer streams or a sweep pauses, nothing is in flight; then it continues."""
    live = live_engine(time.monotonic)
    pause = LoadPause(quiet_s=0.0, patience_s=LONG_S)
    async with served(live, pause) as url, loaded(url, pause=pause) as driver:
        await until(lambda: driver.done >= 3)
        async with http.post(f"{url}/v1/completions", json=ENDLESS) as stranger:
            await stranger.content.readany()
            await until(lambda: len(live.engine.in_flight) == 1)
            assert pause.paused
            before, asked = driver.done, list[bool]()

            def is_swept() -> bool:
                asked.append(True)
                return True

            pause.is_swept = is_swept
            stranger.close()
        await until(lambda: len(asked) > 2)
        assert pause.paused
        pause.is_swept = lambda: False
        await until(lambda: driver.done >= before + 6)
    assert driver.failed == 0
