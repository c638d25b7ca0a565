"""Connections: what is written arrives whole, what is read is stamped in order, and all of them close."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from sparktop.sweep.generator.connection import ConnectionPool, resolve
from sparktop.sweep.generator.wire import WorkerTarget

pytestmark = pytest.mark.outside


class Noting:
    """A reader that stores what it receives."""

    def __init__(self) -> None:
        self.reads: list[tuple[float, bytes]] = []
        self.ended = asyncio.Event()

    def take(self, at: float, data: bytes) -> None:
        """Store a read."""
        self.reads.append((at, data))

    def lost(self, at: float, error: Exception | None) -> None:  # noqa: ARG002 - only that it came
        """Store the end."""
        self.reads.append((at, b""))
        self.ended.set()


async def listen(serve: object, tls: ssl.SSLContext | None = None) -> tuple[asyncio.Server, str]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)  # type: ignore[arg-type]  # a coroutine
    scheme = "https" if tls else "http"
    return server, f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_certificate_that_nobody_signed(certificate: tuple[Path, Path]) -> None:
    """TLS with a certificate that cannot be verified does not open; a trusted one carries requests."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    heard = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.set_result(await reader.readexactly(5))
        writer.close()

    server, url = await listen(serve, context)
    endpoint = await resolve(WorkerTarget(url), 0.0)
    with pytest.raises(ssl.SSLCertVerificationError):
        await ConnectionPool(endpoint, 5.0).open()
    assert endpoint.tls is not None
    endpoint.tls.load_verify_locations(certificate[0])
    pool = ConnectionPool(endpoint, 5.0)
    connection = await pool.open()
    connection.reader = noting = Noting()
    connection.send(b"hello")
    assert await heard == b"hello"
    await noting.ended.wait()
    assert len(pool.connect_ms) == 1
    server.close()
