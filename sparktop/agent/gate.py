"""Lets clients in: counts connections before any TLS handshake, and makes room for who is known to be one."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence

from sparktop.agent.connection import Connection, Limits, refusal

_log = logging.getLogger(__name__)

_BACKLOG = 128
_BREATH_S = 0.5
"""After the system had no descriptor or no memory for another connection."""
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_FULL = refusal("503 Service Unavailable", "too many connections")


class Gate:
    """Accepts connections on listening sockets and keeps them within limits."""

    def __init__(
        self,
        make_inner: Callable[[], asyncio.Protocol],
        limits: Limits,
        *,
        tls: ssl.SSLContext | None = None,
        clock: Callable[[], float],
    ) -> None:
        """Have each connection served by a protocol of `make_inner`."""
        self._make_inner = make_inner
        self._limits = limits
        self._tls = tls
        self._clock = clock
        self._connections: dict[object, Connection] = {}
        """By aiohttp's protocol; the one that was accepted first comes first."""
        self._opening: set[asyncio.Task[None]] = set()
        self._listeners: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Count the connections."""
        return len(self._connections)

    def connection_of(self, inner: object) -> Connection | None:
        """Give the connection that one of aiohttp's protocols serves; None when it has gone."""
        return self._connections.get(inner)

    def open(self, listeners: Sequence[socket.socket]) -> None:
        """Accept from bound sockets; they are closed with the gate."""
        loop = asyncio.get_running_loop()
        for listener in listeners:
            listener.setblocking(False)  # noqa: FBT003 - the parameter has no name
            listener.listen(_BACKLOG)
            self._listeners.append(listener)
            self._accepting.append(loop.create_task(self._accept(listener)))

    async def close(self) -> None:
        """Stop listening; the connections are left to those that serve them."""
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
        """End every connection that is left."""
        for connection in list(self._connections.values()):
            connection.abort()

    async def _accept(self, listener: socket.socket) -> None:
        """Accept one connection in each turn of the event loop: a flood leaves turns to those inside."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, address = await loop.sock_accept(listener)
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    _log.warning("no connection can be accepted: %s", error)
                    await asyncio.sleep(_BREATH_S)
            else:
                self._admit(client, str(address[0]))
            await asyncio.sleep(0)

    def _admit(self, client: socket.socket, peer: str) -> None:
        """Let a client in, or send it away when all places are taken by those that are being served."""
        if len(self._connections) >= self._limits.connections and not self._make_room():
            with contextlib.suppress(OSError), client:
                if self._tls is None:
                    client.send(_FULL)
            return
        inner = self._make_inner()
        connection = Connection(inner, peer, self._limits, self._clock, self._forget)
        self._connections[inner] = connection
        task = asyncio.get_running_loop().create_task(self._connect(connection, client))
        connection.opened_by(task)
        self._opening.add(task)
        task.add_done_callback(lambda ended: self._opened(ended, connection, client))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._limits.look_s, self._look)

    async def _connect(self, connection: Connection, client: socket.socket) -> None:
        """Open the connection: TLS first, where there is any."""
        # What goes wrong in a handshake is the client's business.
        with contextlib.suppress(OSError, TimeoutError):
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                client,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else self._limits.handshake_s,
            )

    def _opened(self, task: asyncio.Task[None], connection: Connection, client: socket.socket) -> None:
        """Clean up after a connection that never opened."""
        self._opening.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a connection could not be opened", exc_info=error)
        if not connection.connected:
            client.close()
            self._forget(connection)

    def _make_room(self) -> bool:
        """End the connection that is worth least; False when each is being served.

        First goes the oldest that has not shown to be a viewer's, then the viewer's that has been idle for
        longest: who holds places without asking loses them, who asks keeps its own.
        """
        waiting = [one for one in self._connections.values() if not one.busy]
        strangers = [one for one in waiting if not one.proven]
        if not waiting:
            return False
        # Strangers are in the order in which they came.
        least = strangers[0] if strangers else min(waiting, key=lambda one: one.idle_since)
        self._forget(least)
        least.abort()
        return True

    def _forget(self, connection: Connection) -> None:
        self._connections.pop(connection.inner, None)

    def _look(self) -> None:
        """Look at every connection, and again in a while as long as there are any."""
        self._timer = None
        now = self._clock()
        for connection in list(self._connections.values()):
            connection.look(now)
        if self._connections:
            self._timer = asyncio.get_running_loop().call_later(self._limits.look_s, self._look)
