"""Servers for the tests: raw sockets that answer with whatever a test says, and a clock that a test moves."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from sparktop.model.failure import Failure
from sparktop.model.node import NodeSample
from sparktop.model.router import RouterSample
from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget
from sparktop.sources.agent import AgentSource
from sparktop.sources.router import RouterSource
from sparktop.sources.source import Source
from tests.known import known

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Serve = Callable[..., Awaitable["RawServer"]]
AgentAt = Callable[..., AgentSource]
"""Makes a source for a URL and whatever else a target has."""
OpenRouter = Callable[..., Awaitable[tuple["RawServer", RouterSource]]]

AMPLE_S = 20.0
"""The deadline where no test is about it."""
HEALTHY_PAGE = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="tiny"} 2.0
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="tiny"} 1200.0
# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.7e+09
"""


def answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """Return one well-formed HTTP answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class RawServer:
    """A TCP server on an ephemeral port whose handler reads and writes bytes."""

    def __init__(self, handler: Handler, tls: ssl.SSLContext | None) -> None:
        self._handler = handler
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0
        self.connections = 0
        self.heads: list[bytes] = []
        """The head of every request, as `read_head` saw it."""

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        """The path of every request."""
        return [head.split(b" ")[1].decode() for head in self.heads]

    def target(self, name: str = "server", *, api_key: str | None = None) -> BackendTarget:
        """Return the server as a backend to watch."""
        return BackendTarget(name, self.url, api_key=api_key)

    async def read_head(self, reader: asyncio.StreamReader) -> bytes:
        """Read one request; b"" when the client has gone."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        self.heads.append(head)
        return head

    async def start(self, port: int = 0) -> None:
        """Listen; port 0 is any free one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and drop every connection."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = known(asyncio.current_task())
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            await self._handler(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Return a function that starts a server: it takes bytes, a table of bytes by path, or a handler."""
    servers: list[RawServer] = []

    async def start(
        reply: bytes | dict[str, bytes] | Handler, *, tls: ssl.SSLContext | None = None, port: int = 0
    ) -> RawServer:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """Answer every request of a kept-alive connection; plain bytes are sent once, then it closes."""
            while head := await server.read_head(reader):
                path = head.split(b" ")[1].decode()
                if isinstance(reply, dict):
                    writer.write(reply.get(path, answer(b"Not Found", "404 Not Found")))
                elif isinstance(reply, bytes):
                    writer.write(reply)
                await writer.drain()
                if isinstance(reply, bytes):
                    return

        server = RawServer(reply if callable(reply) else talk, tls)
        await server.start(port)
        servers.append(server)
        return server

    yield start
    for server in servers:
        await server.stop()


class FakeClock:
    """A clock that moves only when a test moves it, with the sleep that belongs to it."""

    def __init__(self) -> None:
        self.now = 1200.0  # a multiple of every interval that the tests name: the first instant is now
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def __call__(self) -> float:
        """Return the time, in seconds."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was moved that far."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Move on by `seconds`; sleepers wake at their own times, and everything they start runs."""
        end = self.now + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            wake, _, future = heapq.heappop(self._sleepers)
            self.now = max(self.now, wake)
            if not future.done():
                future.set_result(None)
                await self.settle()
        self.now = end
        await self.settle()

    async def jump(self, seconds: float) -> None:
        """Move on at once, as after a suspend: no sleeper woke in between."""
        self.now += seconds
        await self.advance(0.0)

    async def settle(self) -> None:
        """Run all tasks that can run now: no test here has a chain of more than a few steps."""
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def agent_at(clock: FakeClock) -> AsyncIterator[AgentAt]:
    """Return a function that makes a source for the URL of an agent; all are closed at the end."""
    sources: list[AgentSource] = []

    def make(url: str, **how: Any) -> AgentSource:  # noqa: ANN401 - fields of a target
        target = NodeTarget("n", "agent", url, **how)
        sources.append(AgentSource(target, clock=clock, sleep=lambda _: asyncio.sleep(0)))
        return sources[-1]

    yield make
    for source in sources:
        await source.close()


@pytest.fixture
async def router(serve: Serve, clock: FakeClock) -> AsyncIterator[OpenRouter]:
    """Return a function that starts a server as `serve` does, and returns it and a router source for it."""
    sources: list[RouterSource] = []

    async def start(
        reply: dict[str, bytes] | Handler, key: str | None = None
    ) -> tuple[RawServer, RouterSource]:
        server = await serve(reply)
        sources.append(RouterSource(RouterTarget("proxy", server.url, api_key=key), clock=clock))
        return server, sources[-1]

    yield start
    for source in sources:
        await source.close()


async def poll_router(source: RouterSource) -> RouterSample:
    """Poll once for a sample."""
    reading = await source.poll(2.0)
    assert isinstance(reading, RouterSample), reading
    return reading


async def sample_of(source: Source, deadline_s: float = AMPLE_S) -> NodeSample:
    reading = await source.poll(deadline_s)
    assert isinstance(reading, NodeSample), reading
    return reading


async def failure_of(source: Source, deadline_s: float = AMPLE_S) -> Failure:
    reading = await source.poll(deadline_s)
    assert isinstance(reading, Failure), reading
    assert reading.message.isprintable()
    return reading
