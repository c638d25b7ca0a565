"""Hostile clients get a clean refusal, and a viewer is served at the same time."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sparktop.agent.access import open_tls
from sparktop.agent.gate import Limits
from sparktop.model.node import NodeSample, SensorReading
from tests.agent.conftest import StartAgent
from tests.agent.raw_client import Client, ask, connect, request, watching
from tests.known import known
from tests.waiting import until

TOKEN = "a-token-of-more-than-16-characters"  # noqa: S105 - known to the tests only
QUICK = Limits(request_s=1.5, handshake_s=1.5, answer_s=1.5, check_s=0.05)
"""The same bounds, sooner."""


@pytest.fixture
async def clients() -> AsyncIterator[list[Client]]:
    """Collect the connections that a test leaves open, and close them after it."""
    opened: list[Client] = []
    yield opened
    for client in opened:
        client.close()


@pytest.fixture(autouse=True)
def no_word_in_the_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that clients cause no warning or error in the log, which they could otherwise fill."""
    caplog.set_level(logging.WARNING)
    yield
    assert [one.getMessage() for one in caplog.records] == []


async def sent(start_agent: StartAgent, data: bytes) -> list[int]:
    """Send bytes while a viewer is served; return the statuses of all responses until the agent closes."""
    agent, statuses = await start_agent(TOKEN), list[int]()
    async with watching(agent.port, TOKEN) as viewer:
        client = await connect(agent.port)
        await client.send(data)
        client.writer.write_eof()
        while (answer := await client.answer()) is not None:
            statuses.append(answer.status)
        client.close()
    assert viewer.was_served()
    return statuses


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\n no: fold\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost\xff: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xaa" * 64 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 2000 + b"\r\n",
    ],
    ids=lambda data: repr(data[:24]),
)
async def test_broken_http_is_refused_and_closed(start_agent: StartAgent, data: bytes) -> None:
    """A request that is not valid HTTP gets at most one response, a refusal, and the connection is closed."""
    statuses = await sent(start_agent, data)
    assert all(400 <= one < 500 for one in statuses)
    assert len(statuses) <= 1


async def test_a_huge_query_is_refused(start_agent: StartAgent) -> None:
    """A request line beyond 4 kB is refused, also with the right token."""
    agent = await start_agent(TOKEN)
    answer = await ask(agent.port, f"/v1/sample?since={'9' * 20_000}", token=TOKEN)
    assert answer.status in {400, 431}
    assert agent.machine.taken == []


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("header", "body"),
    [
        ("Content-Length: 99999999999", b"x" * 1000),
        ("Transfer-Encoding: chunked", b"5\r\nhallo\r\n" * 100),
        ("Expect: 100-continue", b""),
    ],
)
async def test_no_body_is_taken(start_agent: StartAgent, method: str, header: str, body: bytes) -> None:
    """A request with a body is refused before the body is read, and the connection is closed."""
    head = request("/v1/sample", header, "Connection: close", method=method)
    expected = {401} if method == "GET" and not body else {405, 413, 431}
    assert set(await sent(start_agent, head + body)) <= expected


async def test_a_peer_that_asks_too_often_is_refused(start_agent: StartAgent) -> None:
    """A hundred requests of an address are served at once, later ones get 429; others are unaffected."""
    agent = await start_agent(limits=Limits(requests_per_s=0.001))
    async with watching(agent.port) as viewer:
        statuses = [(await ask(agent.port, "/healthz", source="127.0.0.9")).status for _ in range(110)]
    assert statuses == [200] * 100 + [429] * 10
    assert viewer.was_served()


async def test_guessing_the_token_locks_nobody_out(start_agent: StartAgent) -> None:
    """Wrong tokens use up a limit of their own; a viewer at the same address with the token is served."""
    agent = await start_agent(TOKEN, limits=Limits(requests_per_s=0.001))
    async with watching(agent.port, TOKEN) as viewer:
        statuses = [
            (await ask(agent.port, "/v1/sample", token=f"{'x' * 16}{number}")).status for number in range(110)
        ]
    assert statuses == [401] * 100 + [429] * 10
    assert viewer.was_served()


async def test_slowloris_ends_in_time(start_agent: StartAgent, clients: list[Client]) -> None:
    """100 clients that send a byte now and then hold at most 64 connections, each for a limited time."""
    agent = await start_agent(TOKEN, limits=QUICK)
    over = asyncio.Event()

    async def drip(client: Client) -> None:
        await client.send(b"GET /v1/sample HTTP/1.1\r\nX: ")
        while not over.is_set() and not client.reader.at_eof():
            await client.send(b"x")
            await asyncio.sleep(0.02)

    async with watching(agent.port, TOKEN) as viewer:
        for _ in range(100):
            clients.append(await connect(agent.port))
            assert agent.server.connections <= 64
        dripping = [asyncio.ensure_future(drip(one)) for one in clients]
        ends = await asyncio.gather(*(one.closed() for one in clients))
        over.set()
        await asyncio.gather(*dripping)
    assert set(ends) <= {b""}
    assert agent.server.connections <= 1
    assert viewer.was_served()


async def test_viewers_keep_their_places(start_agent: StartAgent, clients: list[Client]) -> None:
    """Connections that were served with the token outlive any number of unknown clients."""
    agent = await start_agent(TOKEN)
    viewers = [await connect(agent.port) for _ in range(3)]
    for _ in range(2):
        for one in viewers:
            await one.send(request("/v1/sample", token=TOKEN))
            answer = known(await one.answer())
            assert answer.status == 200
        clients += [await connect(agent.port) for _ in range(100)]
    for one in viewers:
        one.close()


async def test_when_all_are_being_served_a_newcomer_is_told(
    start_agent: StartAgent, clients: list[Client]
) -> None:
    """If every connection has a request in progress, the next client gets 503 at once."""
    agent = await start_agent(limits=Limits(connections=4))
    agent.machine.free.clear()
    for _ in range(4):
        client = await connect(agent.port)
        clients.append(client)
        await client.send(request("/v1/sample"))
    gate = known(agent.server._gate)
    await until(lambda: [one.busy for one in gate._connections.values()] == [True] * 4)
    newcomer = await connect(agent.port)
    assert (await newcomer.closed()).startswith(b"HTTP/1.1 503 ")
    newcomer.close()
    agent.machine.free.set()
    answers = [await one.answer() for one in clients]
    assert [one.status for one in answers if one] == [200] * 4


async def test_an_answer_that_nobody_reads_ends_its_connection(start_agent: StartAgent) -> None:
    """A client that requests megabytes and reads nothing is disconnected, and delays no other client."""
    agent = await start_agent(limits=QUICK)
    sensors = tuple(SensorReading(f"sensor {number}", 40.0, 90.0) for number in range(200_000))
    agent.machine.sample = NodeSample(0.0, sensors=sensors)
    client = await connect(agent.port)
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport of both ways
    await client.send(request("/v1/sample"))
    await until(lambda: bool(agent.machine.taken) and agent.server.connections == 0)
    assert (await ask(agent.port, "/healthz")).status == 200
    client.close()


async def test_a_handshake_that_stalls_ends(
    start_agent: StartAgent, clients: list[Client], certificate: tuple[Path, Path]
) -> None:
    """At most 8 handshakes of one address stay open, each for a limited time, and a viewer is served."""
    cert, key = certificate
    agent = await start_agent(TOKEN, limits=QUICK, tls=open_tls(str(cert), str(key)))
    for number in range(100):
        clients.append(await connect(agent.port))
        await clients[-1].send(b"\x16\x03\x01" if number % 2 else b"")
        assert agent.server.connections <= 64
    await until(lambda: agent.server.connections <= 8)
    trusting = ssl.create_default_context(cafile=str(cert))
    assert (await ask(agent.port, "/v1/sample", token=TOKEN, tls=trusting)).status == 200
    assert {await one.closed() for one in clients} <= {b""}
