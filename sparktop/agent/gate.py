"""Accepts connections, and bounds their number, rate, size and time.

The number is limited before any TLS handshake. When the limit is reached, a new connection replaces an idle
one: first one that has not yet sent an authenticated request, and only then one of a viewer that has. aiohttp
limits a line and a header field, but not the total size of a request's head, nor the time that a client may
take to send a request or to read the response.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import cast

from msgspec import Struct

from sparktop.net.failure import forget_frames


class Rates:
    """A token bucket for each client, for a limited number of clients."""

    def __init__(
        self, per_s: float, burst: float, clock: Callable[[], float], *, most_peers: int = 1024
    ) -> None:
        """Admit `burst` requests of a client at once, and `per_s` requests per second in the long run.

        `clock` returns seconds. At most `most_peers` clients are remembered: those with the newest requests.
        """
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._most_peers = most_peers
        self._buckets: dict[object, tuple[float, float]] = {}
        """(Tokens left, time of the last request) by client, the client with the oldest request first."""

    def __len__(self) -> int:
        """Return the number of clients that have a token bucket."""
        return len(self._buckets)

    def take(self, peer: object) -> bool:
        """Return whether a request of the client `peer` is admitted now.

        If so, remove a token from its bucket.
        """
        now_s = self._clock()
        tokens_left, at = self._buckets.pop(peer, (self._burst, now_s))
        tokens_left = min(self._burst, tokens_left + (now_s - at) * self._per_s)
        is_admitted = tokens_left >= 1.0
        self._buckets[peer] = (tokens_left - is_admitted, now_s)
        if len(self._buckets) > self._most_peers:
            # The peer with the oldest request has the fullest bucket, so forgetting it gives away least.
            del self._buckets[next(iter(self._buckets))]
        return is_admitted


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
    check_s: float = 1.0
    """Seconds between checks whether clients are too slow."""


def refusal(status: str, text: str) -> bytes:
    """Return a complete HTTP response with the body `text` and a status such as "503 Service Unavailable".

    The caller writes it to the socket itself, without aiohttp.
    """
    body = f"{text}\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}"
    return f"{head}\r\nConnection: close\r\n\r\n{body}".encode()


_TOO_LARGE = refusal("431 Request Header Fields Too Large", "the request is too large")


class ClientConnection(asyncio.Protocol):
    """A client's connection.

    Enforces the limits and forwards accepted data to `inner`, aiohttp's protocol.
    """

    def __init__(
        self,
        inner: asyncio.Protocol,
        peer: str,
        limits: Limits,
        clock: Callable[[], float],
        gone: Callable[[ClientConnection], None],
    ) -> None:
        """Track a connection from the address `peer` that was just accepted.

        `clock` returns seconds; `gone` is called with this object when the connection closes.
        """
        self.inner = inner
        self.peer = peer
        self.opened_at = clock()
        self.idle_since = self.opened_at
        self.is_authenticated = False
        """True after a request with the correct token, or after any request if no token is required."""
        self.busy = False
        """True while a request is being answered."""
        self._limits = limits
        self._clock = clock
        self._on_close = gone
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._request_since: float | None = self.opened_at
        """Time since when the client should complete the request that it began; None while there is no such
        request."""
        self._unread_since: float | None = None
        """Time since when sent data has been waiting for the client to read it; None if the client has read
        all."""
        self._bytes = 0
        self._refused = False

    def set_opening_task(self, task: asyncio.Task[None]) -> None:
        """Store the task that opens the connection, so that `abort` can cancel a slow TLS handshake."""
        self._task = task

    @property
    def connected(self) -> bool:
        """True once the connection is open, including the TLS handshake."""
        return self._transport is not None

    def begin_request(self) -> None:
        """Record that a complete request arrived."""
        self.busy = True
        self._request_since = None
        self._bytes = 0

    def end_request(self) -> None:
        """Record that the response was passed to aiohttp.

        Data that has arrived since `begin_request` belongs to the next request.
        """
        self.busy = False
        self.idle_since = self._clock()
        if self._bytes:
            self._request_since = self.idle_since

    def check_speed(self, now: float) -> None:
        """Abort the connection if the client is too slow to send its request or to read the response.

        `now` is the current time in seconds.
        """
        if self._transport is None:
            return  # the handshake has a time-out of its own
        unread = self._transport.get_write_buffer_size() > 0
        if not unread:
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        owes = self._request_since is not None and now - self._request_since >= self._limits.request_s
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
        self._request_since = self._clock()
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Forward received data to `inner`; refuse a request that exceeds the size limit."""
        if self._refused:
            return
        self._bytes += len(data)
        if self._bytes > self._limits.request_bytes:
            self._refuse()
            return
        if self._request_since is None and not self.busy:
            self._request_since = self._clock()
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Forward to `inner` that the client will send no more data."""
        return self.inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the `gone` callback and `inner` that the connection is closed."""
        self._on_close(self)
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


_log = logging.getLogger(__name__)

_BACKLOG = 128
"""Connections that wait to be accepted."""
_BREATH_S = 0.5
"""Seconds to wait after the system could not accept a connection, usually because descriptors or memory ran
out."""
_OF_ONE_CLIENT = frozenset({errno.ECONNABORTED, errno.EPROTO, errno.EHOSTUNREACH, errno.ENETUNREACH})
"""Errors of a connection that ended before it was accepted; accepting the next connection may succeed."""
_FULL = refusal("503 Service Unavailable", "too many connections")


class Gate:
    """Accepts connections on listening sockets, and limits how many are open."""

    def __init__(
        self,
        make_inner: Callable[[], asyncio.Protocol],
        limits: Limits,
        *,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float],
    ) -> None:
        """Handle each connection with a protocol that `make_inner` returns; `clock` returns seconds."""
        self._make_inner = make_inner
        self._limits = limits
        self._tls = tls
        self._clock = clock
        self._connections: dict[object, ClientConnection] = {}
        """By aiohttp's protocol object, in the order in which the connections were accepted."""
        self._opening: dict[asyncio.Task[None], ClientConnection] = {}
        """Connections that are not open yet, by the task that opens each, oldest first."""
        self._listeners: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._connections)

    def connection_of(self, inner: object) -> ClientConnection | None:
        """Return the connection that the aiohttp protocol `inner` handles.

        None once the connection has closed.
        """
        return self._connections.get(inner)

    def open(self, listeners: Sequence[socket.socket]) -> None:
        """Listen on the bound sockets `listeners` and accept connections; `close` closes these sockets."""
        loop = asyncio.get_running_loop()
        for listener in listeners:
            listener.setblocking(False)  # noqa: FBT003 - the parameter has no name
            listener.listen(_BACKLOG)
            self._listeners.append(listener)
            self._accepting.append(loop.create_task(self._accept(listener)))

    async def close(self) -> None:
        """Stop listening and cancel handshakes in progress; connections that are already open stay open."""
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for listener in self._listeners:
            listener.close()
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._opening):
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)

    def abort(self) -> None:
        """Close all connections that are still open at once, discarding unsent data."""
        for connection in list(self._connections.values()):
            connection.abort()

    async def _accept(self, listener: socket.socket) -> None:
        """Accept connections from `listener` until cancelled.

        At most one is accepted per turn of the event loop, so that a flood cannot delay open connections.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, address = await loop.sock_accept(listener)
            except OSError as error:
                if error.errno not in _OF_ONE_CLIENT:
                    _log.warning("no connection can be accepted: %s", error)
                    await asyncio.sleep(_BREATH_S)
            else:
                self._admit(client, str(address[0]))
            await asyncio.sleep(0)

    def _admit(self, client: socket.socket, peer: str) -> None:
        """Open a connection for a client that was accepted, or refuse the client if the gate is full.

        The gate is full if the limit is reached and each open connection has a request in progress. A refused
        client gets a 503 response; with TLS, its socket is only closed.
        """
        if len(self._connections) >= self._limits.connections and not self._make_room():
            with contextlib.suppress(OSError), client:
                if self._tls is None:
                    client.send(_FULL)
            return
        if self._tls is not None:
            self._limit_handshakes(peer)
        inner = self._make_inner()
        connection = ClientConnection(inner, peer, self._limits, self._clock, self._remove)
        self._connections[inner] = connection
        task = asyncio.get_running_loop().create_task(self._connect(connection, client))
        connection.set_opening_task(task)
        self._opening[task] = connection
        task.add_done_callback(lambda ended: self._after_opening(ended, connection, client))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._limits.check_s, self._check_speeds)

    def _limit_handshakes(self, peer: str) -> None:
        """Break off the oldest handshake of an address that has too many, so that `peer` may begin another.

        A half handshake takes 300 KiB. Where there are too many of all addresses, the one with the most loses
        its oldest.
        """
        waiting = [connection for connection in self._opening.values() if not connection.connected]
        by_peer: dict[str, list[ClientConnection]] = {}
        for connection in waiting:
            by_peer.setdefault(connection.peer, []).append(connection)
        of_this_peer = by_peer.get(peer, [])
        if len(of_this_peer) >= self._limits.peer_handshakes:
            candidates = of_this_peer
        elif len(waiting) >= self._limits.handshakes:
            candidates = max(by_peer.values(), key=len)
        else:
            return
        self._remove(candidates[0])
        candidates[0].abort()

    async def _connect(self, connection: ClientConnection, client: socket.socket) -> None:
        """Attach the socket to the connection's protocol, after the TLS handshake if TLS is used."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                client,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else self._limits.handshake_s,
            )
        except (OSError, TimeoutError) as error:
            # A failed handshake is the client's problem, not an error of ours.
            forget_frames(error)
        except asyncio.CancelledError as error:
            forget_frames(error)
            raise

    def _after_opening(
        self, task: asyncio.Task[None], connection: ClientConnection, client: socket.socket
    ) -> None:
        """Clean up after the task `task`, which ran `_connect`, has ended.

        Log an unexpected error of the task. If the connection did not open, close its socket and remove the
        connection.
        """
        self._opening.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("a connection could not be opened", exc_info=error)
        if not connection.connected:
            client.close()
            self._remove(connection)

    def _make_room(self) -> bool:
        """Close the least valuable idle connection; return False if all have a request in progress.

        The oldest connection without an authenticated request is closed first. If there is none, the one that
        has been idle longest is closed. So clients that send no requests lose their connections first.
        """
        waiting = [connection for connection in self._connections.values() if not connection.busy]
        strangers = [connection for connection in waiting if not connection.is_authenticated]
        if not waiting:
            return False
        # `strangers` is in the order of acceptance.
        oldest = strangers[0] if strangers else min(waiting, key=lambda connection: connection.idle_since)
        self._remove(oldest)
        oldest.abort()
        return True

    def _remove(self, connection: ClientConnection) -> None:
        self._connections.pop(connection.inner, None)

    def _check_speeds(self) -> None:
        """Abort connections whose clients are too slow.

        Schedule the next check while any connection is open.
        """
        self._timer = None
        now_s = self._clock()
        for connection in list(self._connections.values()):
            connection.check_speed(now_s)
        if self._connections:
            self._timer = asyncio.get_running_loop().call_later(self._limits.check_s, self._check_speeds)
