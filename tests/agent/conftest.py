"""Fixtures of an agent that runs in this process, and of a certificate."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from sparktop.agent.access import bind
from sparktop.agent.reader import Sampler
from sparktop.agent.server import AgentServer
from tests.agent.fake_machine import FakeMachine
from tests.agent.raw_client import Agent

StartAgent = Callable[..., Awaitable[Agent]]


@pytest.fixture
async def start_agent() -> AsyncIterator[StartAgent]:
    """Return a function that starts an agent on a free port of loopback."""
    agents: list[Agent] = []

    async def start(token: str | None = None, *, tls: ssl.SSLContext | None = None, **how: Any) -> Agent:  # noqa: ANN401 - of a server
        loop = asyncio.get_running_loop()
        machine = FakeMachine(loop.time)
        server = AgentServer(Sampler(machine, clock=loop.time), token=token, clock=loop.time, **how)
        listeners = bind("127.0.0.1", 0)
        server.start(listeners, tls=tls)
        agents.append(Agent(listeners[0].getsockname()[1], server, machine))
        return agents[-1]

    yield start
    for agent in agents:
        await agent.server.close()
