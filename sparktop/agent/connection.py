"""One client's connection: stands between the socket and aiohttp's protocol, and holds it to its bounds.

aiohttp bounds a line and a field, but neither the whole head of a request, nor how long a client may take to
send one, nor how long it may take to read the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from sparktop.agent.rate import Bucket

_LINGER_S = 1.0
"""A client that sends too much is listened to for so long, so that it can read why it is refused."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one agent bears."""

    connections: int = 64
    request_s: float = 5.0
    """For a client to send a whole request, the TLS handshake apart."""
    handshake_s: float = 5.0
    answer_s: float = 10.0
    """For a client to read a whole answer."""
    keep_alive_s: float = 75.0
    """An idle connection is kept for so long: longer than any interval."""
    request_bytes: int = 16_384
    """Of all that a client sends until its request is answered."""
    line_bytes: int = 4096
    """Of the request line, and of each header field."""
    requests_per_s: float = 50.0
    """Of one peer address."""
    request_burst: float = 100.0
    connection_requests_per_s: float = 20.0
    """Of one connection: below the peer's, so that one client leaves something to others of its address."""
    connection_request_burst: float = 40.0
    look_s: float = 1.0
    """How often connections are looked at for those that take too long."""


def refusal(status: str, text: str) -> bytes:
    """Give a whole HTTP answer, for where aiohttp has no part in it."""
    body = f"{text}\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}"
    return f"{head}\r\nConnection: close\r\n\r\n{body}".encode()


_TOO_LARGE = refusal("431 Request Header Fields Too Large", "the request is too large")


class Connection(asyncio.Protocol):
    """What is known of a connection; hands what passes on to `inner`, aiohttp's protocol."""

    def __init__(
        self,
        inner: asyncio.Protocol,
        peer: str,
        limits: Limits,
        clock: Callable[[], float],
        gone: Callable[[Connection], None],
    ) -> None:
        """Take part in a connection from `peer` that was accepted now; `gone` is called at its end."""
        self.inner = inner
        self.peer = peer
        self.opened_at = clock()
        self.idle_since = self.opened_at
        self.proven = False
        """True after a request that had the right token (or where none is wanted)."""
        self.busy = False
        """True while a request is being answered."""
        self._limits = limits
        self._clock = clock
        self._gone = gone
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._owed_since: float | None = self.opened_at
        """Since when the client has owed us the rest of a request."""
        self._unread_since: float | None = None
        """Since when the client has not read all that was sent."""
        self._bytes = 0
        self._refused = False
        self._bucket = Bucket(
            limits.connection_requests_per_s, limits.connection_request_burst, self.opened_at
        )

    def opened_by(self, task: asyncio.Task[None]) -> None:
        """Remember the task that opens the connection: the TLS handshake can take a while."""
        self._task = task

    @property
    def connected(self) -> bool:
        """True once the connection is open, the TLS handshake included."""
        return self._transport is not None

    def begin(self) -> bool:
        """Note that a whole request has come; tell whether this connection may ask so often."""
        self.busy = True
        self._owed_since = None
        self._bytes = 0
        return self._bucket.take(self._clock())

    def end(self) -> None:
        """Note that the answer is on its way; what came meanwhile begins another request."""
        self.busy = False
        self.idle_since = self._clock()
        if self._bytes:
            self._owed_since = self.idle_since

    def look(self, now: float) -> None:
        """End the connection if the client takes too long with its request or with our answer."""
        if self._transport is None:
            return  # the handshake has a time-out of its own
        unread = self._transport.get_write_buffer_size() > 0
        self._unread_since = None if not unread else now if self._unread_since is None else self._unread_since
        owes = self._owed_since is not None and now - self._owed_since >= self._limits.request_s
        reads_slowly = self._unread_since is not None and now - self._unread_since >= self._limits.answer_s
        if owes or reads_slowly:
            self.abort()

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()
        elif self._task is not None:
            self._task.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open: both of us hear of it."""
        self._transport = cast("asyncio.Transport", transport)
        self._owed_since = self._clock()
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Hand on what came, as long as it is not too much."""
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
        """The client will send no more."""
        return self.inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed, by whomever."""
        self._gone(self)
        self.inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read as fast as we write."""
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.inner.resume_writing()

    def _refuse(self) -> None:
        """Say that it is too much, unless an answer is being written, and end the connection soon."""
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
        # Closing with data unread resets the connection, and the client would never see the answer.
        asyncio.get_running_loop().call_later(_LINGER_S, transport.abort)
