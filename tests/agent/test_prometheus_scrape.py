"""A real Prometheus scrapes the real agent: every scrape succeeds and has the agent's own readings."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from sparktop.model.node import PREFIX, NodeSample
from sparktop.model.targets import NodeTarget
from sparktop.sources.agent import AgentSource
from tests.agent.agent_process import running
from tests.prometheus.prometheus_server import Prometheus, prometheus
from tests.sources.installed import installed

SECONDS = float(os.environ.get("SPARKTOP_SCRAPE_SECONDS", "12"))
"""How long it is scraped, once a second."""
MOST_MISSED = 9
"""Scrapes that the window may lack: Prometheus looks for targets every 5 s, and the machine may be busy."""

FIGURES: dict[str, Callable[[NodeSample], float | None]] = {
    "memory_total_bytes": lambda one: one.memory.total_bytes,
    "memory_available_bytes": lambda one: one.memory.available_bytes,
    "memory_used_bytes": lambda one: one.memory.used_bytes,
    "cpu_cores": lambda one: one.cpu.cores,
    "load1": lambda one: one.cpu.load1,
    "cpu_usage_ratio": lambda one: None if one.cpu.percent is None else one.cpu.percent / 100,
    "sample_cost_seconds": lambda one: None if one.cost_ms is None else one.cost_ms * 1e-3,
}


async def watched(source: AgentSource, seconds: float) -> list[NodeSample]:
    """Return every sample that the agent takes in this time; each poll waits for the next sample."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    samples: list[NodeSample] = []
    while loop.time() < end:
        reading = await source.poll(5.0)
        assert isinstance(reading, NodeSample), reading
        samples += (*reading.missed, reading)
    return samples


async def scraped(url: str) -> dict[str, list[tuple[float, ...]]]:
    """Return the scraped values of each series in order, by the name of the series."""
    found: dict[str, list[tuple[float, ...]]] = {}
    async with aiohttp.ClientSession() as session:
        asked = Prometheus(url, session)
        at_ms = round(time.time() * 1000)
        for one in await asked.raw('{server="spark"}', SECONDS + 60, at_ms):
            found.setdefault(one.labels["__name__"], []).append(one.values)
    return found


@pytest.mark.process
@pytest.mark.timeout(SECONDS + 120)
async def test_a_real_prometheus_scrapes_the_agent(tmp_path: Path) -> None:
    """`up` is 1 throughout, and each value that Prometheus stored is one that the agent had read."""
    installed("prometheus", "prometheus")
    with running(tmp_path) as agent:
        url = f"http://127.0.0.1:{agent.port}"
        source = AgentSource(NodeTarget("spark", "agent", url))
        samples = await watched(source, 0.0)
        with prometheus({"spark": url}, tmp_path) as server:
            samples += await watched(source, SECONDS)  # with samples taken while Prometheus started
            found = await scraped(server)
        samples += await watched(source, 0.0)
        await source.close()
    (ups,) = found["up"]
    assert set(ups) == {1.0}
    assert len(ups) >= SECONDS - MOST_MISSED
    for name, read in FIGURES.items():
        (values,) = found[PREFIX + name]
        own = {read(one) for one in samples}
        assert len(values) >= len(ups) - MOST_MISSED
        assert not [value for value in values if value not in own], name
    assert len({*found[f"{PREFIX}sample_cost_seconds"][0]}) > 1
