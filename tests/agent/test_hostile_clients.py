"""Hostile clients get a clean refusal, and a viewer is served at the same time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sparktop.agent.access import open_tls
from sparktop.agent.gate import Limits
from sparktop.model.node import NodeSample, SensorReading
from tests.agent.conftest import StartAgent
from tests.agent.raw_client import Answer, Client, ask, connect, request, until, watching

TOKEN = "a-token-of-more-than-16-characters"  # noqa: S105 - known to the tests only
QUICK = Limits(request_s=0.3, handshake_s=0.3, answer_s=0.3, look_s=0.05)
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


async def all_answers(client: Client) -> list[Answer]:
    """Read responses until the agent closes the connection."""
    answers = []
    while (answer := await client.answer()) is not None:
        answers.append(answer)
    return answers


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\n no: fold\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nBad Header: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhallo",
        b"GET /\xff\xfe HTTP/1.1\r\nHost\xff: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xaa" * 64 + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT example:443 HTTP/1.1\r\nHost: example\r\n\r\n" + b"\x16\x03\x01",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 2000 + b"\r\n",
    ],
    ids=lambda data: repr(data[:24]),
)
async def test_broken_http_is_refused_and_closed(start_agent: StartAgent, data: bytes) -> None:
    """A request that is not valid HTTP gets at most one response, a refusal, and the connection is closed."""
    agent = await start_agent(TOKEN)
    async with watching(agent.port, TOKEN) as viewer:
        client = await connect(agent.port)
        await client.send(data)
        client.writer.write_eof()
        answers = await all_answers(client)
        client.close()
    assert all(400 <= one.status < 500 for one in answers)
    assert len(answers) <= 1
    assert viewer.was_served()


@pytest.mark.parametrize("size", [5_000, 20_000, 1_000_000])
async def test_a_huge_query_is_refused(start_agent: StartAgent, size: int) -> None:
    """A request line beyond 4 kB is refused, also with the right token."""
    agent = await start_agent(TOKEN)
    answer = await ask(agent.port, f"/v1/sample?since={'9' * size}", token=TOKEN)
    assert answer.status in {400, 431}
    assert agent.machine.taken == []


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
@pytest.mark.parametrize(
    ("header", "body"),
    [
        ("Content-Length: 1000000", b"x" * 1_000_000),
        ("Content-Length: 99999999999", b"x" * 1000),
        ("Transfer-Encoding: chunked", b"5\r\nhallo\r\n" * 100),
        ("Expect: 100-continue", b""),
    ],
)
async def test_no_body_is_taken(start_agent: StartAgent, method: str, header: str, body: bytes) -> None:
    """A request with a body is refused before the body is read, and the connection is closed."""
    agent = await start_agent(TOKEN)
    async with watching(agent.port, TOKEN) as viewer:
        client = await connect(agent.port)
        await client.send(request("/v1/sample", header, "Connection: close", method=method) + body)
        answers = await all_answers(client)
        client.close()
    expected = {401} if method == "GET" and not body else {405, 413, 431}
    assert {one.status for one in answers} <= expected
    assert viewer.was_served()


async def test_a_pipeline_of_requests_is_cut(start_agent: StartAgent) -> None:
    """Of hundreds of pipelined requests some are answered, the next is refused, and the connection is closed.

    The rate limit of a connection is set to nearly 0 per second, so that the number of answered requests does
    not depend on the speed of the machine.
    """
    agent = await start_agent(limits=Limits(connection_requests_per_s=0.001))
    async with watching(agent.port) as viewer:
        client = await connect(agent.port)
        await client.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" * 400)
        answers = await all_answers(client)
        client.close()
    assert [one.status for one in answers] == [200] * 40 + [429]
    assert viewer.was_served()


async def test_a_pipeline_that_is_too_long_is_refused(start_agent: StartAgent) -> None:
    """20,000 pipelined requests get one response, a refusal, and the connection is closed.

    The agent's first read already has more than the 16 kB that a client may send before a response: the
    kernel passes on more of the client's one write at once. So none of the requests is answered.
    """
    agent = await start_agent()
    async with watching(agent.port) as viewer:
        client = await connect(agent.port)
        await client.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n" * 20_000)
        answers = await all_answers(client)
        client.close()
    assert [one.status for one in answers] == [431]
    assert answers[0].headers["connection"] == "close"
    assert viewer.was_served()


async def test_a_peer_that_asks_too_often_is_refused(start_agent: StartAgent) -> None:
    """A hundred requests of an address are served at once, later ones get 429; others are unaffected."""
    agent = await start_agent(limits=Limits(requests_per_s=0.001))
    async with watching(agent.port) as viewer:
        statuses = []
        for _ in range(110):
            client = await connect(agent.port, source="127.0.0.9")
            await client.send(request("/healthz"))
            answer = await client.answer()
            client.close()
            statuses.append(None if answer is None else answer.status)
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
    """200 clients that send a byte now and then hold at most 64 connections, each for a limited time."""
    agent = await start_agent(TOKEN, limits=QUICK)
    over = asyncio.Event()

    async def drip(client: Client) -> None:
        await client.send(b"GET /v1/sample HTTP/1.1\r\nX: ")
        while not over.is_set() and not client.reader.at_eof():
            await client.send(b"x")
            await asyncio.sleep(0.02)

    async with watching(agent.port, TOKEN) as viewer:
        for _ in range(200):
            clients.append(await connect(agent.port))
            assert agent.server.connections <= 64
        dripping = [asyncio.ensure_future(drip(one)) for one in clients]
        ends = await asyncio.gather(*(one.closed() for one in clients))
        over.set()
        await asyncio.gather(*dripping)
    assert set(ends) <= {b""}
    assert agent.server.connections <= 1
    assert viewer.was_served()


async def test_connections_that_say_nothing_end(start_agent: StartAgent, clients: list[Client]) -> None:
    """A client that sends no request, or half of one, is disconnected after the time limit."""
    agent = await start_agent(TOKEN, limits=QUICK)
    for data in (b"", b"GET /v1/sample HT", b"\r\n"):
        clients.append(await connect(agent.port))
        await clients[-1].send(data)
    half_closed = await connect(agent.port)
    clients.append(half_closed)
    await half_closed.send(b"GET /v1/sample HTTP/1.1\r\n")
    half_closed.writer.write_eof()
    assert {await one.closed() for one in clients} == {b""}
    assert agent.server.connections == 0


async def test_a_second_request_must_come_in_time_too(start_agent: StartAgent) -> None:
    """A connection that was served may stay idle, but half a second request must be completed in time."""
    agent = await start_agent(limits=QUICK)
    idle = await connect(agent.port)
    half = await connect(agent.port)
    for client in (idle, half):
        await client.send(request("/healthz"))
        assert await client.answer() is not None
    await half.send(b"GET /healthz HTTP/1.1\r\nX: ")
    assert await half.closed() == b""
    await idle.send(request("/healthz"))
    assert await idle.answer() is not None
    for client in (idle, half):
        client.close()


async def test_an_idle_connection_is_not_kept_for_ever(start_agent: StartAgent) -> None:
    """A client that was served and sends no further request is disconnected after a while."""
    agent = await start_agent(limits=Limits(keep_alive_s=0.1))
    client = await connect(agent.port)
    await client.send(request("/healthz"))
    assert await client.answer() is not None
    assert await client.closed() == b""
    client.close()


async def test_half_a_request_behind_another_must_come_in_time_too(start_agent: StartAgent) -> None:
    """Half a request that arrives while another is being answered has the same time limit."""
    agent = await start_agent(limits=QUICK)
    agent.machine.free.clear()
    client = await connect(agent.port)
    await client.send(request("/v1/sample"))
    await until(lambda: bool(agent.machine.taken))
    await client.send(b"GET /v1/sample HTTP/1.1\r\nX: ")
    await ask(agent.port, "/healthz")  # by then the half has arrived
    agent.machine.free.set()
    assert await client.answer() is not None
    assert await client.closed() == b""
    client.close()


async def test_a_crowd_at_the_door_leaves_turns_to_those_inside(start_agent: StartAgent) -> None:
    """Of many connections that wait at once, at most one is accepted in each turn of the event loop."""
    agent = await start_agent()
    await asyncio.sleep(0)
    crowd = [socket.create_connection(("127.0.0.1", agent.port)) for _ in range(50)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert 0 < agent.server.connections <= 10
    await until(lambda: agent.server.connections == 50)
    for one in crowd:
        one.close()


async def test_a_viewer_finds_a_place_among_strangers(start_agent: StartAgent, clients: list[Client]) -> None:
    """If all connections are held by clients that send nothing, a new viewer replaces the oldest of them."""
    agent = await start_agent(TOKEN)
    clients += [await connect(agent.port) for _ in range(64)]
    assert (await ask(agent.port, "/v1/sample", token=TOKEN)).status == 200
    assert await clients[0].closed() == b""
    assert not any(one.reader.at_eof() for one in clients[1:])


async def test_viewers_keep_their_places(start_agent: StartAgent, clients: list[Client]) -> None:
    """Connections that were served with the token outlive any number of unknown clients."""
    agent = await start_agent(TOKEN)
    viewers = [await connect(agent.port) for _ in range(3)]
    for _ in range(2):
        for one in viewers:
            await one.send(request("/v1/sample", token=TOKEN))
            answer = await one.answer()
            assert answer is not None
            assert answer.status == 200
        clients += [await connect(agent.port) for _ in range(200)]
    for one in viewers:
        one.close()


async def test_idle_viewers_give_way_to_new_ones(start_agent: StartAgent, clients: list[Client]) -> None:
    """If all connections are held by idle viewers, a new one replaces the one idle for longest."""
    agent = await start_agent(limits=Limits(connections=4))
    for _ in range(5):
        client = await connect(agent.port)
        clients.append(client)
        await client.send(request("/v1/sample"))
        assert await client.answer() is not None
    assert await clients[0].closed() == b""
    assert agent.server.connections == 4


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
    gate = agent.server._gate
    assert gate is not None
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
    """TLS clients that never finish the handshake are counted and disconnected like other unknown clients."""
    cert, key = certificate
    agent = await start_agent(TOKEN, limits=QUICK, tls=open_tls(str(cert), str(key)))
    for number in range(100):
        clients.append(await connect(agent.port))
        await clients[-1].send(b"\x16\x03\x01" if number % 2 else b"")
        assert agent.server.connections <= 64
    trusting = ssl.create_default_context(cafile=str(cert))
    viewer = await connect(agent.port, tls=trusting)
    await viewer.send(request("/v1/sample", token=TOKEN))
    answer = await viewer.answer()
    assert answer is not None
    assert answer.status == 200
    assert {await one.closed() for one in clients} <= {b""}
    viewer.close()


async def test_half_handshakes_are_few_and_leave_nothing(
    start_agent: StartAgent, clients: list[Client], certificate: tuple[Path, Path]
) -> None:
    """At most 8 handshakes of one address are open, and one that fails or is broken off is no garbage."""
    cert, key = certificate
    agent = await start_agent(TOKEN, tls=open_tls(str(cert), str(key)))

    def open_handshakes() -> int:
        return sum(isinstance(one, SSLProtocol) for one in gc.get_objects())

    hello = _client_hello()
    gc.collect()
    gc.disable()
    try:
        for begin in (b"", hello[:7], hello, b"GET / HTTP/1.1\r\n\r\n"):
            for _ in range(50):
                clients.append(await connect(agent.port))
                await clients[-1].send(begin)
            await until(lambda: agent.server.connections <= 8)
            assert open_handshakes() <= 16
        for one in clients:
            one.close()
        await until(lambda: agent.server.connections == 0)
        assert open_handshakes() == 0
    finally:
        gc.enable()
    viewer = await connect(agent.port, tls=ssl.create_default_context(cafile=str(cert)))
    await viewer.send(request("/v1/sample", token=TOKEN))
    answer = await viewer.answer()
    assert answer is not None
    assert answer.status == 200
    viewer.close()


async def test_no_address_can_take_all_handshakes(
    start_agent: StartAgent, clients: list[Client], certificate: tuple[Path, Path]
) -> None:
    """Half handshakes of many addresses are 32 at most, and a viewer of another one still gets through."""
    cert, key = certificate
    agent = await start_agent(TOKEN, tls=open_tls(str(cert), str(key)))
    clients += [await connect(agent.port, source=f"127.0.1.{1 + number % 10}") for number in range(80)]
    await until(lambda: agent.server.connections <= 32)
    viewer = await connect(agent.port, tls=ssl.create_default_context(cafile=str(cert)))
    await viewer.send(request("/v1/sample", token=TOKEN))
    answer = await viewer.answer()
    assert answer is not None
    assert answer.status == 200
    viewer.close()


def _client_hello() -> bytes:
    """Return what a client of TLS sends first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()
