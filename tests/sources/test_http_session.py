"""Facts about GETs over kept-alive connections, against real sockets."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
from collections.abc import AsyncIterator

import pytest

from sparktop.model.failure import FailureKind
from sparktop.net import client as client_module
from sparktop.net.client import Request, Response, SharedSession
from sparktop.net.failure import AnswerError
from tests.sources.conftest import Handler, RawServer, Serve, answer

PAGE = b"x" * 3000


@pytest.fixture
async def session() -> AsyncIterator[SharedSession]:
    shared = SharedSession()
    shared.join()
    yield shared
    await shared.leave()


async def get(session: SharedSession, request: Request | str, deadline_s: float = 5.0) -> Response:
    """Send one GET."""
    asked = Request(request, "server:80") if isinstance(request, str) else request
    return await session.get(asked, deadline_s=deadline_s, clock=time.monotonic, cap_bytes=100_000)


def each(*pieces: bytes, close: bool = False) -> Handler:
    """Answer each request with `pieces`, a moment after each other."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if close:
                return

    return talk


async def test_a_connection_that_is_not_opened_says_how_long_it_was_waited_for(
    serve: Serve, session: SharedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that accepts and says no word of TLS costs the limit of a connection, which is named."""

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    monkeypatch.setattr(client_module, "_CONNECT_S", 0.05)
    server = await serve(silent)
    with pytest.raises(AnswerError, match=r"no answer from server:80 within 0\.05 s") as caught:
        await get(session, server.url.replace("http:", "https:"), deadline_s=30.0)
    assert caught.value.kind is FailureKind.TIMEOUT


@pytest.mark.outside
async def test_names_and_ipv6_addresses_are_connected_to(session: SharedSession) -> None:
    """A host may be a name or an IPv6 address in brackets."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hosts.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[1])
        writer.write(answer(PAGE))
        await writer.drain()
        writer.close()

    hosts: list[bytes] = []
    for bound, host in (("127.0.0.1", "localhost"), ("::1", "[::1]")):
        try:
            server = await asyncio.start_server(talk, bound, 0)
        except OSError:
            continue  # this machine has no IPv6
        async with server:
            port = server.sockets[0].getsockname()[1]
            assert (await get(session, f"http://{host}:{port}/")).body == PAGE
            assert hosts.pop() == f"Host: {host}:{port}".encode()


async def test_a_dead_first_address_costs_a_moment_also_of_a_name_that_ends_in_a_digit(
    serve: Serve, session: SharedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next address of "spark1" is tried beside the first, which does not answer."""
    server: RawServer = await serve(each(answer(PAGE)))
    with socket.socket() as dead, socket.socket() as first, socket.socket() as second:
        dead.bind(("127.0.0.2", server.port))
        dead.listen(0)
        for waiting in (first, second):  # with these its queue is full
            waiting.settimeout(0)
            waiting.connect_ex(dead.getsockname())
        real = socket.getaddrinfo

        def resolve(host: str, port: int, *options: int, **named: int) -> list[object]:
            hosts = ["127.0.0.2", "127.0.0.1"] if host == "spark1" else [host]
            return [found for one in hosts for found in real(one, port, *options, **named)]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        assert (await get(session, f"http://spark1:{server.port}/")).body == PAGE


async def test_name_servers_that_do_not_answer_hold_up_nothing_else(
    session: SharedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that read files stay free, and the end of the program waits for no thread."""
    answered = threading.Event()

    def hang(host: str, port: int, **_: int) -> list[object]:
        answered.wait()
        raise socket.gaierror(socket.EAI_AGAIN, f"{host}:{port}")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    before = set(threading.enumerate())
    try:
        asked = (get(session, f"http://spark{number}/", 0.05) for number in range(100))
        failures = await asyncio.gather(*asked, return_exceptions=True)
        assert {getattr(one, "kind", one) for one in failures} == {FailureKind.DNS}
        assert all(thread.daemon for thread in set(threading.enumerate()) - before)
        async with asyncio.timeout(300):
            assert await asyncio.to_thread(int, "1") == 1
        waiting = asyncio.create_task(get(session, "http://spark0/"))
        await asyncio.sleep(0)
    finally:
        answered.set()
    with pytest.raises(AnswerError) as caught:
        await waiting
    assert caught.value.kind is FailureKind.DNS


@pytest.mark.parametrize("reply", [None, b"", b"garbage\r\n", answer(PAGE)[:-1]])
async def test_a_failure_leaves_no_garbage(reply: bytes | None, serve: Serve, session: SharedSession) -> None:
    """Otherwise tracebacks and the exceptions that they hold would wait for a garbage collection."""
    server: RawServer = await serve(each(reply or b"", close=bool(reply)))
    if reply is None:
        await server.stop()

    async def ask() -> None:
        with pytest.raises(AnswerError):
            await get(session, server.url, 0.1)
        await asyncio.sleep(0.01)  # both ends close

    await ask()
    gc.collect()
    gc.disable()
    try:
        await ask()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        # A closed transport of asyncio refers to itself.
        assert not {"AnswerError", "Exchange", "Future", "frame"} & {type(one).__name__ for one in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
