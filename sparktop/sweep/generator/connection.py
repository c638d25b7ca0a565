"""The generator's connections: opened ahead, stamped as they are written, stamped before a read is looked at.

A read is stamped and put into the inbox; what is in it is taken apart once all sockets that were ready have
been read. So the last of 256 first tokens that arrive together is stamped after 256 reads (2 µs each), not
after 256 times the work that a token makes.
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
"""Connections opened at the same time: a listener's queue often holds 128."""


class Reader(Protocol):
    """Whoever waits for an answer on a connection."""

    def take(self, at: float, data: bytes) -> None:
        """Take in a read that came at `at`."""

    def lost(self, at: float, error: Exception | None) -> None:
        """Hear that the connection is gone."""


class Inbox:
    """Reads in the order in which they came, with their stamps."""

    def __init__(self) -> None:
        """Begin empty."""
        self._waiting: deque[tuple[Connection, float, bytes | None, Exception | None]] = deque()
        self._loop = asyncio.get_running_loop()

    def add(
        self, connection: Connection, at: float, data: bytes | None, error: Exception | None = None
    ) -> None:
        """Keep a read, or with None the end of a connection."""
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
                    connection.abort()  # spoke without being asked, or is gone
                elif data is None:
                    reader.lost(at, error)
                else:
                    reader.take(at, data)
        finally:
            if waiting:  # a fault of ours in one answer must not silence the others
                self._loop.call_soon(self._drain)


class Connection(asyncio.Protocol):
    """One connection; whoever uses it is its reader."""

    def __init__(self, inbox: Inbox) -> None:
        """Belong to an inbox."""
        self.reader: Reader | None = None
        self.open = False
        self._inbox = inbox
        self._transport: asyncio.Transport | None = None
        self._descriptor: int | None = None
        """Of a plain connection: written to without the transport's queue."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open."""
        self._transport = cast("asyncio.Transport", transport)
        self.open = True
        if transport.get_extra_info("sslcontext") is None:
            self._descriptor = cast("socket.socket", transport.get_extra_info("socket")).fileno()

    def data_received(self, data: bytes) -> None:
        """Stamp a read."""
        self._inbox.add(self, perf_counter(), data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stamp the end."""
        self.open = False
        self._descriptor = None
        self._transport = None
        self._inbox.add(self, perf_counter(), None, exc)

    def send(self, request: bytes) -> float:
        """Write a request; give the moment at which that was done.

        uvloop's transports write at the end of the loop's turn: in a burst the stamps would be as much too
        early as the rest of the burst takes. So a plain socket is written to here, and the transport gets
        what the socket did not take.
        """
        transport = self._transport
        assert transport is not None  # noqa: S101 - only open connections are handed out
        at = perf_counter()
        sent = 0
        if self._descriptor is not None:
            # A broken connection is told by the transport, as everywhere else.
            with suppress(OSError):
                sent = os.write(self._descriptor, request)
        if sent < len(request):
            transport.write(request[sent:])
        return at

    def abort(self) -> None:
        """Close at once, whatever is on its way."""
        self.reader = None
        self.open = False
        self._descriptor = None
        if self._transport is not None:
            self._transport.abort()


class ConnectionPool:
    """The open connections to one endpoint."""

    def __init__(self, endpoint: Endpoint, connect_s: float) -> None:
        """Begin with none; a connection may take `connect_s` to open, its TLS handshake included."""
        self.endpoint = endpoint
        self.connect_ms: list[float] = []
        """How long each opening took."""
        self._connect_s = connect_s
        self._inbox = Inbox()
        self._idle: deque[Connection] = deque()

    async def open(self) -> Connection:
        """Open one more.

        Raises:
            OSError: it cannot be opened; TimeoutError is one of them.
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
        """Have `count` open connections, all of them new; give why those that are missing did not open."""
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
        """Give an open connection that nobody uses, None when there is none."""
        while self._idle:
            connection = self._idle.popleft()
            if connection.open:
                return connection
        return None

    def give_back(self, connection: Connection) -> None:
        """Take back a connection whose answer is whole."""
        connection.reader = None
        if connection.open:
            self._idle.append(connection)

    def close(self) -> None:
        """Close all that nobody uses."""
        while self._idle:
            self._idle.popleft().abort()
