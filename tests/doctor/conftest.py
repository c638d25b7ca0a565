"""A fake network that answers as the test says, and real servers on loopback that answer raw bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest

from sparktop.doctor.network import Network, open_network, shown_address
from sparktop.model.failure import FailureKind
from sparktop.net.failure import AnswerError
from sparktop.net.once import Reply

VLLM_PAGE = b"""\
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 2.0
"""
NOT_FOUND = Reply(404)
Serve = Callable[[Mapping[str, bytes] | bytes], Awaitable["Listener"]]


def answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """Return a well-formed HTTP response."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


VLLM: dict[str, bytes] = {
    "/metrics": answer(VLLM_PAGE),
    "/version": answer(b'{"version": "0.32.0"}'),
    "/v1/models": answer(b'{"data": [{"id": "tiny", "max_model_len": 4096}]}'),
}


class FakeNetwork(Network):
    """A network whose names, ports and responses come from tables; anything else does not exist."""

    def __init__(
        self,
        *,
        names: Mapping[str, tuple[tuple[str, ...], float]] | None = None,
        pages: Mapping[str, Reply | AnswerError] | None = None,
        closed: tuple[int, ...] = (),
        other: Reply = NOT_FOUND,
    ) -> None:
        self.names = names or {}
        self.pages = pages or {}
        self.closed = closed
        self.other = other
        self.resolved: list[str] = []
        self.asked: list[tuple[str, str | None]] = []

    async def resolve(self, host: str) -> tuple[tuple[str, ...], float]:
        """Return the addresses of a name from the table; raise OSError if it has none."""
        self.resolved.append(host)
        if host not in self.names:
            raise OSError(host)
        return self.names[host]

    async def connect(self, host: str, port: int) -> None:
        """Raise if the port is one of the closed ones."""
        if port in self.closed:
            where = shown_address(host, port)
            raise AnswerError(FailureKind.REFUSED, f"nothing listens on {where} (connection refused)")

    async def get(self, url: str, *, api_key: str | None = None, tls_ca: str | None = None) -> Reply:
        """Return the response for a URL from the table, else the other; raise it if it is an error."""
        del tls_ca
        self.asked.append((url, api_key))
        found = self.pages.get(url, self.other)
        if isinstance(found, AnswerError):
            raise found
        return found


class Listener:
    """A server on loopback that answers each path with raw bytes and records the requests."""

    def __init__(self, replies: Mapping[str, bytes] | bytes) -> None:
        self._replies = replies
        self._writers: set[asyncio.StreamWriter] = set()
        self.heads: list[bytes] = []
        self.port = 0

    @property
    def url(self) -> str:
        """The URL on which it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        """The path of each request."""
        return [head.split(b" ")[1].decode() for head in self.heads]

    @property
    def methods(self) -> set[bytes]:
        """The methods of all requests."""
        return {head.split(b" ")[0] for head in self.heads}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request; for b"", send nothing until the client disconnects."""
        self._writers.add(writer)
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            path = self.paths[-1]
            fixed = self._replies if isinstance(self._replies, bytes) else None
            reply = self._replies.get(path) if isinstance(self._replies, Mapping) else fixed
            writer.write(answer(b"not here", "404 Not Found") if reply is None else reply)
            await writer.drain()
            if reply == b"":
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # a check of the port alone sends nothing
        finally:
            writer.close()

    def drop(self) -> None:
        """Abort every connection."""
        for writer in self._writers:
            writer.transport.abort()


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Return a function that starts a server."""
    started: list[tuple[asyncio.Server, Listener]] = []

    async def start(replies: Mapping[str, bytes] | bytes) -> Listener:
        listener = Listener(replies)
        server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
        listener.port = server.sockets[0].getsockname()[1]
        started.append((server, listener))
        return listener

    yield start
    for server, listener in started:
        server.close()
        listener.drop()


@pytest.fixture
async def network() -> AsyncIterator[Network]:
    """Yield the real network, with a deadline that a busy machine keeps."""
    async with open_network(secure=False, get_timeout_s=100.0) as opened:
        yield opened
