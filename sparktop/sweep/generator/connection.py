"""Connections of the load generator: opened in advance, with timestamps that are taken before any parsing.

Data that is read from a socket gets a timestamp and is stored in a queue (`Inbox`). It is parsed only after
all sockets that were ready have been read. So if 256 first tokens arrive together, the last one is
timestamped after 256 reads (2 µs each), and not after parsing 255 tokens.
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
"""Maximum connections that are being opened at the same time: a listening socket's backlog is often 128."""

LONGEST_IDLE_S = 2.0
"""Seconds after which an idle connection is not used again: some servers close it after 5 s, some after 2."""
_PARSED_AT_ONCE = 16
"""Reads that are parsed before the sockets are read again: at 5 µs each, they delay a timestamp little."""
_BEHIND_S = 0.005
"""Age of the oldest unparsed read from which on parsing goes before reading."""


class Reader(Protocol):
    """Receiver of the data that arrives on a connection."""

    def take(self, at: float, data: bytes) -> None:
        """Process data that was read at the time `at`."""

    def lost(self, at: float, error: Exception | None) -> None:
        """Handle the end of the connection at the time `at`; `error` is None if it was closed regularly."""


class Inbox:
    """Queue of received data with timestamps; passes the data to the connections' readers in order."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self) -> None:
        """Start with an empty queue."""
        self._waiting: deque[tuple[Connection, float, bytes | None, Exception | None]] = deque()
        self._loop = asyncio.get_running_loop()

    def add(
        self, connection: Connection, at: float, data: bytes | None, error: Exception | None = None
    ) -> None:
        """Append `data` that arrived at the time `at`; None stands for the end of the connection."""
        if not self._waiting:
            self._loop.call_soon(self._drain)
        self._waiting.append((connection, at, data, error))

    def _drain(self) -> None:
        """Pass on a part of the data, so that sockets are read again before all of it is parsed.

        If that falls behind, pass on all of it: the sockets then hold more data for each read.
        """
        waiting = self._waiting
        count = len(waiting)
        if count > _PARSED_AT_ONCE and perf_counter() - waiting[0][1] < _BEHIND_S:
            count = _PARSED_AT_ONCE
        try:
            for _ in range(count):
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
    """An HTTP connection; its `reader` receives the data that arrives."""

    __slots__ = ("_descriptor", "_inbox", "_transport", "idle_since", "open", "reader", "used")

    def __init__(self, inbox: Inbox) -> None:
        """Create a connection that puts everything it receives into the queue `inbox`."""
        self.reader: Reader | None = None
        self.open = False
        self.used = False
        """True if an answer came over it: the server may close it whenever it is idle."""
        self.idle_since = perf_counter()
        """When it was opened or its newest answer was complete, in monotonic seconds."""
        self._inbox = inbox
        self._transport: asyncio.Transport | None = None
        self._descriptor: int | None = None
        """File descriptor of the socket, to write without the transport's buffer; None with TLS."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport; called by asyncio once the connection is open."""
        self._transport = cast("asyncio.Transport", transport)
        self.open = True
        if transport.get_extra_info("sslcontext") is None:
            self._descriptor = cast("socket.socket", transport.get_extra_info("socket")).fileno()

    def data_received(self, data: bytes) -> None:
        """Put received data with the present time into the inbox; called by asyncio."""
        self._inbox.add(self, perf_counter(), data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Mark the connection as closed, and put its timestamped end into the inbox; called by asyncio."""
        self.open = False
        self._descriptor = None
        self._transport = None
        self._inbox.add(self, perf_counter(), None, exc)

    def send(self, request: bytes) -> float:
        """Write a request; return the time at which the write began.

        A socket without TLS is written to directly, and the transport gets only what the socket did not
        accept. The reason: uvloop's transports write at the end of the loop's iteration, so in a burst the
        returned times would be earlier than the actual writes.
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
        """Close the connection at once; discard data that is not yet written or read."""
        self.reader = None
        self.open = False
        self._descriptor = None
        if self._transport is not None:
            self._transport.abort()


class ConnectionPool:
    """The idle open connections to one endpoint, kept for reuse."""

    def __init__(self, endpoint: Endpoint, connect_s: float) -> None:
        """Start without connections; `connect_s` limits the seconds to open one, TLS handshake included."""
        self.endpoint = endpoint
        self.connect_ms: list[float] = []
        """Milliseconds that it took to open each connection, in order."""
        self.paced = False
        """True if requests are sent at intervals, so that connections opened in advance may be idle for long:
        they are not used after `LONGEST_IDLE_S` either."""
        self._connect_s = connect_s
        self._inbox = Inbox()
        self._idle: deque[Connection] = deque()

    async def open(self) -> Connection:
        """Open and return a new connection, which is not one of the idle ones.

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

        async def add() -> OSError | None:
            async with turn:
                return await self.add()

        errors = await asyncio.gather(*(add() for _ in range(count)))
        return [error for error in errors if error is not None]

    async def add(self) -> OSError | None:
        """Open an idle connection; return the error if it does not open."""
        try:
            self._idle.append(await self.open())
        except OSError as error:
            return error
        return None

    def has_fresh(self) -> bool:
        """Return whether `take` would return a connection; close those that are too old for it."""
        connection = self.take()
        if connection is not None:
            self._idle.append(connection)
        return connection is not None

    def take(self) -> Connection | None:
        """Remove an open idle connection from the pool and return it; None if there is none.

        The one that has been idle for the shortest time is taken. Close those that have been idle too long.
        """
        while self._idle:
            connection = self._idle.pop()
            if not connection.open:
                continue
            if (self.paced or connection.used) and perf_counter() - connection.idle_since > LONGEST_IDLE_S:
                connection.abort()
                continue
            return connection
        return None

    def give_back(self, connection: Connection) -> None:
        """Return a connection to the pool for reuse after its answer is complete; ignore a closed one."""
        connection.reader = None
        if connection.open:
            connection.used = True
            connection.idle_since = perf_counter()
            self._idle.append(connection)

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.popleft().abort()
