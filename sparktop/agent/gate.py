"""Accepts connections, and limits their number before any TLS handshake.

When the limit is reached, a new connection replaces an idle one: first one that has not yet sent an
authenticated request, and only then one of a viewer that has.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence

from sparktop.agent.connection import Connection, Limits, refusal
from sparktop.net.failure import forget_frames

_log = logging.getLogger(__name__)

_BACKLOG = 128
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
        self._connections: dict[object, Connection] = {}
        """By aiohttp's protocol object, in the order in which the connections were accepted."""
        self._opening: dict[asyncio.Task[None], Connection] = {}
        """Connections that are not open yet, by the task that opens each, oldest first."""
        self._listeners: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._connections)

    def connection_of(self, inner: object) -> Connection | None:
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
        connection = Connection(inner, peer, self._limits, self._clock, self._forget)
        self._connections[inner] = connection
        task = asyncio.get_running_loop().create_task(self._connect(connection, client))
        connection.opened_by(task)
        self._opening[task] = connection
        task.add_done_callback(lambda ended: self._opened(ended, connection, client))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._limits.look_s, self._look)

    def _limit_handshakes(self, peer: str) -> None:
        """Break off the oldest handshake of an address that has too many, so that `peer` may begin another.

        A half handshake takes 300 KiB. Where there are too many of all addresses, the one with the most loses
        its oldest.
        """
        waiting = [one for one in self._opening.values() if not one.connected]
        by_peer: dict[str, list[Connection]] = {}
        for one in waiting:
            by_peer.setdefault(one.peer, []).append(one)
        own = by_peer.get(peer, [])
        if len(own) >= self._limits.peer_handshakes:
            most = own
        elif len(waiting) >= self._limits.handshakes:
            most = max(by_peer.values(), key=len)
        else:
            return
        self._forget(most[0])
        most[0].abort()

    async def _connect(self, connection: Connection, client: socket.socket) -> None:
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

    def _opened(self, task: asyncio.Task[None], connection: Connection, client: socket.socket) -> None:
        """Clean up after the task `task`, which ran `_connect`, has ended.

        Log an unexpected error of the task. If the connection did not open, close its socket and remove the
        connection.
        """
        self._opening.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a connection could not be opened", exc_info=error)
        if not connection.connected:
            client.close()
            self._forget(connection)

    def _make_room(self) -> bool:
        """Close the least valuable idle connection; return False if all have a request in progress.

        The oldest connection without an authenticated request is closed first. If there is none, the one that
        has been idle longest is closed. So clients that send no requests lose their connections first.
        """
        waiting = [connection for connection in self._connections.values() if not connection.busy]
        strangers = [connection for connection in waiting if not connection.proven]
        if not waiting:
            return False
        # `strangers` is in the order of acceptance.
        least = strangers[0] if strangers else min(waiting, key=lambda connection: connection.idle_since)
        self._forget(least)
        least.abort()
        return True

    def _forget(self, connection: Connection) -> None:
        self._connections.pop(connection.inner, None)

    def _look(self) -> None:
        """Abort connections whose clients are too slow.

        Schedule the next check while any connection is open.
        """
        self._timer = None
        now = self._clock()
        for connection in list(self._connections.values()):
            connection.look(now)
        if self._connections:
            self._timer = asyncio.get_running_loop().call_later(self._limits.look_s, self._look)
