"""Servers that close idle connections, each after another time: none of that is a failure of theirs."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from sparktop.model.load import LoadMode
from sparktop.sweep.generator.wire.messages import OpenLoop, RunLoad, WorkerTarget
from tests.sweep.conftest import QUICK, InProcess
from tests.sweep.stream_server import StreamServer
from tests.sweep.wire_behaviours import Behaviour

SERVERS = 100
SHORTEST_S, LONGEST_S = 0.05, 1.0
"""A tenth of what servers are set to (0.5 to 10 s), beside gaps between requests of a tenth as well."""


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_idle_times_of_any_length_cost_no_request(server: StreamServer) -> None:
    """100 servers whose connections live for 0.05 to 1 s, with requests at random times: all are answered."""
    step_s = (LONGEST_S - SHORTEST_S) / (SERVERS - 1)
    idle_s = {f"idle-{number}": SHORTEST_S + number * step_s for number in range(SERVERS)}
    server.behaviours = {
        name: Behaviour("closes idle connections", idle_s=one) for name, one in idle_s.items()
    }
    server.has_tokenize = False
    arrivals = OpenLoop("poisson", 2.0, None, 0.0, 3.0, 60.0, "seed")
    turn = asyncio.Semaphore(50)

    async def load(name: str) -> Counter[str]:
        target = WorkerTarget(f"{server.url}/{name}", "tiny")
        command = RunLoad(name, target, 64, 40, 4, LoadMode.OPEN, open_loop=arrivals, timeouts=QUICK)
        async with turn:
            loaded = await InProcess(server).load(load=command)
        return Counter("failed" if end.error is not None else "answered" for end in loaded.ends)

    ended = sum(await asyncio.gather(*map(load, idle_s)), Counter[str]())
    assert ended["failed"] == 0
    assert ended["answered"] >= SERVERS
