"""Simulated servers over real HTTP, for the duration of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from sparktop.demo.engine import EngineServer, LiveCores, LiveEngine
from tests.demo.quick_engines import StartServer

STARTED_UNIX_S = 1_700_000_000.0


@pytest.fixture
async def start_server() -> AsyncIterator[StartServer]:
    """Return a function that serves an engine over HTTP during the test and returns its URL."""
    async with AsyncExitStack() as stack:

        async def start(live: LiveEngine) -> str:
            server = EngineServer(LiveCores([live]), started_unix_s=STARTED_UNIX_S, seed=3)
            http = await stack.enter_async_context(TestServer(server.application()))
            return str(http.make_url("")).rstrip("/")

        yield start


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """Yield an HTTP client."""
    async with aiohttp.ClientSession() as session:
        yield session
