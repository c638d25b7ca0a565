"""Sources of agents for the tests, and what they read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from sparktop.model.failure import Failure
from sparktop.model.node import NodeSample
from sparktop.model.targets import NodeTarget
from sparktop.sources.agent import AgentSource
from tests.sources.conftest import FakeClock

Make = Callable[..., AgentSource]
"""Makes a source for a URL and whatever else a target has."""


class Waits:
    """A sleep that takes no time and stores the requested durations."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        """Store the duration and let other tasks run."""
        self.seconds.append(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def agent_sources(clock: FakeClock, waits: Waits) -> AsyncIterator[Make]:
    """Return a function that makes sources; all of them are closed at the end."""
    sources: list[AgentSource] = []

    def make(url: str, **how: Any) -> AgentSource:  # noqa: ANN401 - fields of a target
        source = AgentSource(NodeTarget("n", "agent", url, **how), clock=clock, sleep=waits)
        sources.append(source)
        return source

    try:
        yield make
    finally:
        for source in sources:
            await source.close()


async def sample_of(source: AgentSource) -> NodeSample:
    reading = await source.poll(5.0)
    assert isinstance(reading, NodeSample), reading
    return reading


async def failure_of(source: AgentSource, deadline_s: float = 5.0) -> Failure:
    reading = await source.poll(deadline_s)
    assert isinstance(reading, Failure), reading
    assert reading.message.isprintable()
    return reading
