"""The simulated servers over real HTTP, with the test's clock."""

from __future__ import annotations

import json

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from sparktop.demo.server import SimulatedServer, make_engines


class Clock:
    """Monotonic seconds that only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Give the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> SimulatedServer:
    return SimulatedServer(make_engines(1, seed=0)[0], clock, 1_700_000_000.0)


async def test_the_answers_are_those_of_a_vllm_server(server: SimulatedServer) -> None:
    """Metrics, models, version and health answer 200 with what vLLM's clients look for."""
    async with TestServer(server.application()) as http, aiohttp.ClientSession() as session:
        got: dict[str, bytes] = {}
        for path in ("/metrics", "/v1/models", "/version", "/health"):
            async with session.get(http.make_url(path)) as response:
                assert response.status == 200
                got[path] = await response.read()
    assert b"vllm:num_requests_running{" in got["/metrics"]
    (model,) = json.loads(got["/v1/models"])["data"]
    assert (model["id"], model["max_model_len"]) == ("openai/gpt-oss-120b", 8192)
    assert "simulated" in json.loads(got["/version"])["version"]


def test_the_page_moves_with_the_clock_alone(server: SimulatedServer, clock: Clock) -> None:
    """Two pages at one time are the same; ten seconds later more tokens are counted."""
    first = server.page()
    assert server.page() == first
    before = server._engine.tally.generation_tokens
    clock.now += 10.0
    assert server.page() != first
    assert server._engine.tally.generation_tokens > before > 0


def test_hours_of_suspend_are_not_made_up_for(server: SimulatedServer, clock: Clock) -> None:
    """After a long silence one page costs at most some seconds of steps."""
    server.page()
    steps = server._engine.tally.step_tokens.cumulative[-1]
    clock.now += 86_400.0
    server.page()
    assert server._engine.tally.step_tokens.cumulative[-1] - steps < 1000
