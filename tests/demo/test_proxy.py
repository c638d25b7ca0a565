"""The simulated proxy over real HTTP, in front of simulated servers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from sparktop.config.watch import DEMO_KEY
from sparktop.demo.proxy import Proxy
from sparktop.model.failure import Failure
from sparktop.model.targets import RouterTarget
from sparktop.simulation.routers import Router
from sparktop.sources.router import RouterSource
from tests.demo.quick_engines import StartServer, live_engine

MODEL = "openai/gpt-oss-120b"
COMPLETIONS = "/v1/completions"
BODY = {"model": MODEL, "prompt": "a", "max_tokens": 3, "ignore_eos": True}
StartProxy = Callable[..., Awaitable[str]]


@pytest.fixture
async def start_proxy() -> AsyncIterator[StartProxy]:
    """Return a function that serves a proxy during the test and returns its URL."""
    async with AsyncExitStack() as stack:

        async def start(urls: list[str], router: Router) -> str:
            upstreams = {f"spark-{index}": url for index, url in enumerate(urls)}
            proxy = Proxy(upstreams, router, model=MODEL, seed=1)
            http = await stack.enter_async_context(TestServer(proxy.application()))
            return str(http.make_url("")).rstrip("/")

        yield start


@pytest.fixture
async def pair(start_server: StartServer) -> list[str]:
    """Return the URLs of two quick servers."""
    return [await start_server(live_engine(time.monotonic)) for _ in range(2)]


async def ask(http: aiohttp.ClientSession, url: str, **more: object) -> tuple[int, Any, Any]:
    """Return (status, headers, body) of a completion."""
    async with http.post(url + COMPLETIONS, json={**BODY, **more}) as response:
        return response.status, response.headers, await response.read()


async def test_each_answer_names_the_backend_that_gave_it(
    http: aiohttp.ClientSession, start_proxy: StartProxy, pair: list[str]
) -> None:
    """Round-robin alternates between the backends, streaming or not, and headers name the backend."""
    url = await start_proxy(pair, Router("round-robin", 2))
    served: list[str] = []
    for stream in (False, True, False, True):
        status, headers, _ = await ask(http, url, stream=stream)
        assert status == 200
        served.append(headers["x-litellm-model-id"])
        assert headers["x-litellm-model-api-base"] == pair[len(served) % 2 - 1] + "/v1"
        assert float(headers["x-litellm-overhead-duration-ms"]) >= 0
        assert headers["x-litellm-attempted-retries"] == "0"
        assert "simulated" in headers["x-litellm-version"]
    assert served == ["spark-0", "spark-1", "spark-0", "spark-1"]


async def test_sparktops_own_router_source_reads_it_as_litellm(
    start_proxy: StartProxy, pair: list[str]
) -> None:
    """The router source of sparktop reads strategy, version and deployments of the proxy."""
    url = await start_proxy(pair, Router("least-busy", 2))
    source = RouterSource(RouterTarget("proxy", url, api_key=DEMO_KEY))
    try:
        sample = await source.poll(10.0)
    finally:
        await source.close()
    assert not isinstance(sample, Failure)
    assert (sample.kind, sample.alive, sample.strategy) == ("litellm", True, "least-busy")
    assert "simulated" in (sample.version or "")
    assert sample.deployments is not None
    assert [(one.id, one.address, one.model) for one in sample.deployments] == [
        (f"spark-{place}", f"{backend}/v1", MODEL) for place, backend in enumerate(pair)
    ]


@pytest.mark.parametrize("strategy", ["least-busy", "power-of-two", "shortest-queue"])
def test_strategies_by_load_choose_the_emptier_backend(strategy: str) -> None:
    """Of two, the one without a request in flight."""
    router = Router(strategy, 2)
    router.record_start(0, 1.0)
    assert router.choose(2.0) == 1
