"""Connections of the load generator: opened in advance; writes and reads are timestamped before any parsing.

A read is timestamped and put into the inbox, and parsed only after all sockets that were ready have been
read. So the last of 256 first tokens that arrive together is stamped after 256 reads (2 µs each), not after
256 times the work of parsing a token.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from contextlib import suppress
from time import perf_counter
from typing import Protocol, cast

from sparktop.sweep.generator.endpoint import Endpoint

_AT_ONCE = 64
"""Connections opened at the same time: the backlog of a listening socket is often 128."""


class Reader(Protocol):
    """The object that receives the answer on a connection."""

    def take(self, at: float, data: bytes) -> None:
        """Process data that was read at the time `at`."""

    def lost(self, at: float, error: Exception | None) -> None:
        """React to the end of the connection at the time `at`; `error` is None if it was closed regularly."""


class Inbox:
    """Queue of reads in order of arrival, with their timestamps."""

    def __init__(self) -> None:
        """Start with an empty queue."""
        self._waiting: deque[tuple[Connection, float, bytes | None, Exception | None]] = deque()
        self._loop = asyncio.get_running_loop()

    def add(
        self, connection: Connection, at: float, data: bytes | None, error: Exception | None = None
    ) -> None:
        """Queue a read; `data` is None for the end of the connection."""
        if not self._waiting:
            self._loop.call_soon(self._drain)
        self._waiting.append((connection, at, data, error))

    def _drain(self) -> None:
        waiting = self._waiting
        try:
            while waiting:
                connection, at, data, error = waiting.popleft()
                reader = connection.reader
                if reader is None:
                    connection.abort()  # unsolicited data, or the reader is gone
                elif data is None:
                    reader.lost(at, error)
                else:
                    reader.take(at, data)
        finally:
            if waiting:  # an exception in one answer must not hold up the others
                self._loop.call_soon(self._drain)


class Connection(asyncio.Protocol):
    """An HTTP connection; its `reader` receives what arrives."""

    def __init__(self, inbox: Inbox) -> None:
        """Put everything that arrives into `inbox`."""
        self.reader: Reader | None = None
        self.open = False
        self._inbox = inbox
        self._transport: asyncio.Transport | None = None
        self._descriptor: int | None = None
        """File descriptor of a connection without TLS, which is written to directly, past the transport's
        buffer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the connection that was opened."""
        self._transport = cast("asyncio.Transport", transport)
        self.open = True
        if transport.get_extra_info("sslcontext") is None:
            self._descriptor = cast("socket.socket", transport.get_extra_info("socket")).fileno()

    def data_received(self, data: bytes) -> None:
        """Queue a read with its timestamp."""
        self._inbox.add(self, perf_counter(), data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Queue the end of the connection with its timestamp."""
        self.open = False
        self._descriptor = None
        self._transport = None
        self._inbox.add(self, perf_counter(), None, exc)

    def send(self, request: bytes) -> float:
        """Write a request; return the time at which the write began.

        uvloop's transports write at the end of the loop's iteration: in a burst the timestamps would be too
        early by the rest of the burst. So a plain socket is written to directly, and the transport gets the
        remainder that the socket did not accept.
        """
        transport = self._transport
        assert transport is not None  # noqa: S101 - only open connections are handed out
        at = perf_counter()
        sent = 0
        if self._descriptor is not None:
            # The transport reports a broken connection, as everywhere else.
            with suppress(OSError):
                sent = os.write(self._descriptor, request)
        if sent < len(request):
            transport.write(request[sent:])
        return at

    def abort(self) -> None:
        """Close the connection at once and discard what is in transit."""
        self.reader = None
        self.open = False
        self._descriptor = None
        if self._transport is not None:
            self._transport.abort()


class ConnectionPool:
    """The open connections to one endpoint."""

    def __init__(self, endpoint: Endpoint, connect_s: float) -> None:
        """Start without connections; opening one may take `connect_s` seconds, TLS handshake included."""
        self.endpoint = endpoint
        self.connect_ms: list[float] = []
        """Milliseconds that opening each connection took."""
        self._connect_s = connect_s
        self._inbox = Inbox()
        self._idle: deque[Connection] = deque()

    async def open(self) -> Connection:
        """Open and return another connection.

        Raises:
            OSError: the connection cannot be opened; TimeoutError included.
        """
        loop = asyncio.get_running_loop()
        endpoint = self.endpoint
        began = perf_counter()
        problem: OSError = OSError(errno.EADDRNOTAVAIL, "no address")
        async with asyncio.timeout(self._connect_s):
            for family, address, port in endpoint.addresses:
                try:
                    _, connection = await loop.create_connection(
                        lambda: Connection(self._inbox),
                        address,
                        port,
                        family=family,
                        ssl=endpoint.tls,
                        server_hostname=endpoint.host if endpoint.tls is not None else None,
                    )
                except OSError as error:
                    problem = error
                    continue
                self.connect_ms.append(1000 * (perf_counter() - began))
                return connection
        raise problem

    async def fill(self, count: int) -> list[OSError]:
        """Replace all idle connections by `count` new ones; return the errors of those that did not open."""
        self.close()
        turn = asyncio.Semaphore(_AT_ONCE)
        errors: list[OSError] = []

        async def add() -> None:
            async with turn:
                try:
                    self._idle.append(await self.open())
                except OSError as error:
                    errors.append(error)

        await asyncio.gather(*(add() for _ in range(count)))
        return errors

    def take(self) -> Connection | None:
        """Return an open idle connection; None if there is none."""
        while self._idle:
            connection = self._idle.popleft()
            if connection.open:
                return connection
        return None

    def give_back(self, connection: Connection) -> None:
        """Make a connection idle again after its answer is complete."""
        connection.reader = None
        if connection.open:
            self._idle.append(connection)

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.popleft().abort()
