"""Limits for a client's connection, enforced between the socket and aiohttp's protocol.

aiohttp limits a line and a header field, but not the total size of a request's head, nor the time that a
client may take to send a request or to read the response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from msgspec import Struct

from sparktop.agent.rate import Bucket

_LINGER_S = 1.0
"""Seconds to keep a connection open after refusing its oversized request, so that the client can read the
refusal."""


class Limits(Struct, frozen=True):
    """Limits that an agent enforces on its clients: counts, seconds, bytes and rates."""

    connections: int = 64
    request_s: float = 5.0
    """Seconds for a client to send a complete request, excluding the TLS handshake."""
    handshake_s: float = 5.0
    handshakes: int = 32
    """TLS handshakes in progress at once, and those of one client address."""
    peer_handshakes: int = 8
    answer_s: float = 10.0
    """Seconds for a client to read a complete answer."""
    keep_alive_s: float = 75.0
    """Seconds that an idle connection is kept, longer than any sample interval."""
    request_bytes: int = 16_384
    """Most bytes that a client may send before its current request is answered."""
    line_bytes: int = 4096
    """Most bytes of the request line, and of each header field."""
    requests_per_s: float = 50.0
    """Most requests per second from one client address."""
    request_burst: float = 100.0
    connection_requests_per_s: float = 20.0
    """Most requests per second on one connection. The number is lower than for an address, so that one
    client cannot use up what other clients at the same address may send."""
    connection_request_burst: float = 40.0
    look_s: float = 1.0
    """Seconds between checks whether clients are too slow."""


def refusal(status: str, text: str) -> bytes:
    """Return a complete HTTP response with the body `text` and a status such as "503 Service Unavailable".

    The caller writes it to the socket itself, without aiohttp.
    """
    body = f"{text}\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}"
    return f"{head}\r\nConnection: close\r\n\r\n{body}".encode()


_TOO_LARGE = refusal("431 Request Header Fields Too Large", "the request is too large")


class Connection(asyncio.Protocol):
    """A client's connection.

    Enforces the limits and forwards accepted data to `inner`, aiohttp's protocol.
    """

    def __init__(
        self,
        inner: asyncio.Protocol,
        peer: str,
        limits: Limits,
        clock: Callable[[], float],
        gone: Callable[[Connection], None],
    ) -> None:
        """Track a connection from the address `peer` that was just accepted.

        `clock` returns seconds; `gone` is called with this object when the connection closes.
        """
        self.inner = inner
        self.peer = peer
        self.opened_at = clock()
        self.idle_since = self.opened_at
        self.proven = False
        """True after a request with the correct token, or after any request if no token is required."""
        self.busy = False
        """True while a request is being answered."""
        self._limits = limits
        self._clock = clock
        self._gone = gone
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._owed_since: float | None = self.opened_at
        """Time since when the client should complete the request that it began; None while there is no such
        request."""
        self._unread_since: float | None = None
        """Time since when sent data has been waiting for the client to read it; None if the client has read
        all."""
        self._bytes = 0
        self._refused = False
        self._bucket = Bucket(
            limits.connection_requests_per_s, limits.connection_request_burst, self.opened_at
        )

    def opened_by(self, task: asyncio.Task[None]) -> None:
        """Store the task that opens the connection, so that `abort` can cancel a slow TLS handshake."""
        self._task = task

    @property
    def connected(self) -> bool:
        """True once the connection is open, including the TLS handshake."""
        return self._transport is not None

    def begin(self) -> bool:
        """Record that a complete request arrived.

        Return False if this connection exceeds its request rate.
        """
        self.busy = True
        self._owed_since = None
        self._bytes = 0
        return self._bucket.take(self._clock())

    def end(self) -> None:
        """Record that the response was passed to aiohttp.

        Data that has arrived since `begin` belongs to the next request.
        """
        self.busy = False
        self.idle_since = self._clock()
        if self._bytes:
            self._owed_since = self.idle_since

    def look(self, now: float) -> None:
        """Abort the connection if the client is too slow to send its request or to read the response.

        `now` is the current time in seconds.
        """
        if self._transport is None:
            return  # the handshake has a time-out of its own
        unread = self._transport.get_write_buffer_size() > 0
        self._unread_since = None if not unread else now if self._unread_since is None else self._unread_since
        owes = self._owed_since is not None and now - self._owed_since >= self._limits.request_s
        reads_slowly = self._unread_since is not None and now - self._unread_since >= self._limits.answer_s
        if owes or reads_slowly:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once, discarding unsent data."""
        if self._transport is not None:
            self._transport.abort()
        elif self._task is not None:
            self._task.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Record the open transport and pass it to `inner`."""
        self._transport = cast("asyncio.Transport", transport)
        self._owed_since = self._clock()
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Forward received data to `inner`; refuse a request that exceeds the size limit."""
        if self._refused:
            return
        self._bytes += len(data)
        if self._bytes > self._limits.request_bytes:
            self._refuse()
            return
        if self._owed_since is None and not self.busy:
            self._owed_since = self._clock()
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Forward to `inner` that the client will send no more data."""
        return self.inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the `gone` callback and `inner` that the connection is closed."""
        self._gone(self)
        self.inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Forward to `inner` that the client reads more slowly than the agent writes."""
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """Forward to `inner` that the client has caught up."""
        self.inner.resume_writing()

    def _refuse(self) -> None:
        """Respond with 431 (request too large) and close the connection a moment later.

        If a response is being written, close the connection at once instead.
        """
        self._refused = True
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self.busy:
            transport.abort()
            return
        transport.write(_TOO_LARGE)
        if transport.can_write_eof():
            transport.write_eof()
        # Closing with unread data would reset the connection, and the client would never see the answer.
        asyncio.get_running_loop().call_later(_LINGER_S, transport.abort)
