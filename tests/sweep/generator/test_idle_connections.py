"""Servers that close idle connections, each after another time: none of that is a failure of theirs."""

from __future__ import annotations

import asyncio
from collections import Counter

from sparktop.model.load import LoadMode, RequestStarted
from sparktop.sweep.generator.wire import OpenLoop, RunLoad, WorkerTarget
from sparktop.sweep.result.measure import collect
from sparktop.sweep.terms.request_errors import count_errors
from tests.sweep.conftest import QUICK, InProcess
from tests.sweep.stream_server import Asked, StreamServer
from tests.sweep.wire_behaviours import Behaviour

SERVERS = 10
SHORTEST_S, LONGEST_S = 0.05, 1.0
"""A tenth of what servers are set to (0.5 to 10 s), beside gaps between requests of a tenth as well."""


async def test_idle_times_of_any_length_cost_no_request(server: StreamServer) -> None:
    """Servers whose connections live for 0.05 to 1 s, with requests at random times: all are answered."""
    step_s = (LONGEST_S - SHORTEST_S) / (SERVERS - 1)
    idle_s = {f"idle-{number}": SHORTEST_S + number * step_s for number in range(SERVERS)}
    server.behaviours = {
        name: Behaviour("closes idle connections", idle_s=one) for name, one in idle_s.items()
    }
    server.has_tokenize = False
    arrivals = OpenLoop("poisson", 2.0, None, 0.0, 3.0, 60.0, "seed")

    async def load(name: str) -> Counter[str]:
        target = WorkerTarget(f"{server.url}/{name}", "tiny")
        command = RunLoad(name, target, 64, 40, 4, LoadMode.OPEN, open_loop=arrivals, timeouts=QUICK)
        loaded = await InProcess(server).load(load=command)
        return Counter("failed" if end.error is not None else "answered" for end in loaded.ends)

    ended = sum(await asyncio.gather(*map(load, idle_s)), Counter[str]())
    assert ended["failed"] == 0
    assert ended["answered"] >= SERVERS


async def break_off(asked: Asked) -> None:
    """Answer the first request, and close the connection of the second one without a byte."""
    if asked.number == 1:
        asked.close = True
    else:
        await asked.stream()


async def test_a_request_on_a_closed_connection_is_sent_again_once(in_process: InProcess) -> None:
    """It is one request, no failure, counted apart, and its latencies are those of the second time."""
    loaded = await in_process.load(break_off, mode=LoadMode.STEADY, concurrency=1, requests=3)
    assert [end.error for end in loaded.ends] == [None] * 3
    assert in_process.server.asked == 4
    traces = collect(loaded.events)
    assert [trace.resent for trace in traces] == [False, True, False]
    starts = [event for event in loaded.events if isinstance(event, RequestStarted)]
    assert [event.resent for event in starts] == [False, False, True, False]
    assert traces[1].start == starts[2].at > starts[1].at
    assert traces[1].ttft_s == traces[1].arrivals[0][0] - starts[2].at


async def test_a_request_that_the_server_gave_up_later_is_a_failure(in_process: InProcess) -> None:
    """A server that had a request for longer than the news of a closed connection takes gets it only once."""

    async def give_up(asked: Asked) -> None:
        if asked.number == 1:
            await asyncio.sleep(2.1)
        await break_off(asked)

    loaded = await in_process.load(give_up, mode=LoadMode.STEADY, concurrency=1, requests=3)
    assert count_errors(loaded.events) == {"disconnected": 1}
    assert in_process.server.asked == 3
