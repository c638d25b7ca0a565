"""Clients of an agent for tests: raw sockets that send any bytes, and a viewer that polls meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from sparktop.agent.server import AgentServer
from tests.agent.fake_machine import FakeMachine
from tests.known import known

AMPLE_S = 100.0
"""More than any answer takes on a busy machine: ends what hangs."""
_PACE_S = 0.1


@dataclass(slots=True)
class Agent:
    """An agent that runs in this process."""

    port: int
    server: AgentServer
    machine: FakeMachine


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    """Names in small letters."""
    body: bytes


class Client:
    """One connection to an agent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send bytes; ignore that the agent may have closed the connection."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()

    async def answer(self) -> Answer | None:
        """Read one response with its body; None if the agent has closed the connection."""
        async with asyncio.timeout(AMPLE_S):
            try:
                head = await self.reader.readuntil(b"\r\n\r\n")
                first, *lines = head.decode().split("\r\n")
                headers = {
                    name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)
                }
                body = await self.reader.readexactly(int(headers.get("content-length", "0")))
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
        return Answer(int(first.split(" ")[1]), headers, body)

    async def closed(self) -> bytes:
        """Wait until the agent has closed the connection; return the bytes received before."""
        async with asyncio.timeout(AMPLE_S):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    def close(self) -> None:
        """Abort the connection."""
        self.writer.transport.abort()


async def connect(port: int, *, tls: ssl.SSLContext | None = None, source: str | None = None) -> Client:
    """Open a connection, from the loopback address `source` if it is given."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=tls, local_addr=None if source is None else (source, 0)
    )
    return Client(reader, writer)


def request(path: str, *headers: str, method: str = "GET", token: str | None = None) -> bytes:
    """Return the head of a request."""
    bearer = [] if token is None else [f"Authorization: Bearer {token}"]
    host = [] if any(one.startswith("Host: ") for one in headers) else ["Host: spark"]
    lines = [f"{method} {path} HTTP/1.1", *host, *bearer, *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


async def ask(
    port: int,
    path: str,
    *headers: str,
    method: str = "GET",
    token: str | None = None,
    tls: ssl.SSLContext | None = None,
    source: str | None = None,
    body: bytes = b"",
) -> Answer:
    """Send one request on a connection of its own, as `connect` opens it, and return the response."""
    client = await connect(port, tls=tls, source=source)
    try:
        await client.send(request(path, *headers, method=method, token=token) + body)
        return known(await client.answer())
    finally:
        client.close()


@dataclass(slots=True)
class Viewer:
    """The responses to the polls of a viewer."""

    statuses: list[int] = field(default_factory=list)

    def was_served(self) -> bool:
        """Return whether there were several polls and each got its sample."""
        return len(self.statuses) > 1 and set(self.statuses) == {200}


@contextlib.asynccontextmanager
async def watching(port: int, token: str | None = None) -> AsyncIterator[Viewer]:
    """Poll while the context runs, on one kept-alive connection, and once more after it."""
    viewer = Viewer()
    over = asyncio.Event()
    client = await connect(port)

    async def poll() -> None:
        while True:
            last = over.is_set()
            await client.send(request("/v1/sample", token=token))
            answer = await client.answer()
            viewer.statuses.append(0 if answer is None else answer.status)
            if last or answer is None:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), _PACE_S)

    polling = asyncio.ensure_future(poll())
    try:
        yield viewer
    finally:
        over.set()
        await polling
        client.close()
