"""Connections of the load generator: opened in advance, with timestamps that are taken before any parsing.

Also here: a server's address resolved for them, short JSON requests over them, and the limit of open files.

Data that is read from a socket gets a timestamp and is stored in a queue (`Inbox`). It is parsed only after
all sockets that were ready have been read. So if 256 first tokens arrive together, the last one is
timestamped after 256 reads (2 µs each), and not after parsing 255 tokens.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import ssl
from collections import deque
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol, cast
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from sparktop import __version__
from sparktop.files import raise_open_files
from sparktop.model.plain import hide_in_repr
from sparktop.model.targets import server_path
from sparktop.model.text import host_port
from sparktop.net.failure import AnswerError, Trust, host_and_port, key_problem, no_answer, not_http
from sparktop.net.parser import BrokenAnswerError, HttpAnswer
from sparktop.sweep.generator.wire import WorkerTarget
from sparktop.sweep.terms.request_errors import (
    TLS,
    UNREACHABLE,
    RequestFailedError,
    connect_failure,
    request_failure,
)

_AT_ONCE = 64
"""Maximum connections that are being opened at the same time: a listening socket's backlog is often 128."""

LONGEST_IDLE_S = 2.0
"""Seconds after which an idle connection is not used again: some servers close it after 5 s, some after 2."""
_NEW_S = 0.1
"""Seconds after its opening from which on a connection that carried nothing yet counts as idle."""
_PARSED_AT_ONCE = 16
"""Reads that are parsed before the sockets are read again: at 5 µs each, they delay a timestamp little."""
_BEHIND_S = 0.005
"""Age of the oldest unparsed read from which on parsing goes before reading."""


class Receiver(Protocol):
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
        _, oldest_at, _, _ = waiting[0]
        if count > _PARSED_AT_ONCE and perf_counter() - oldest_at < _BEHIND_S:
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
        self.reader: Receiver | None = None
        self.open = False
        self.used = False
        """True if an answer came over it: the server may close it whenever it is idle."""
        self.idle_since = perf_counter()
        """When it was opened or its newest answer was complete, in monotonic seconds."""
        self._inbox = inbox
        self._transport: asyncio.Transport | None = None
        self._descriptor: int | None = None
        """File descriptor of the socket, to write without the transport's buffer; None with TLS."""

    @property
    def was_idle(self) -> bool:
        """Whether the server may have closed it for being idle."""
        return self.used or perf_counter() - self.idle_since > _NEW_S

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
        sent_at = perf_counter()
        sent_bytes = 0
        if self._descriptor is not None:
            # The transport reports a broken connection, as everywhere else.
            with suppress(OSError):
                sent_bytes = os.write(self._descriptor, request)
        if sent_bytes < len(request):
            transport.write(request[sent_bytes:])
        return sent_at

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

    async def fill(self, count: int) -> None:
        """Replace all idle connections by `count` new ones, less those that do not open."""
        self.close()
        turn = asyncio.Semaphore(_AT_ONCE)

        async def add() -> None:
            async with turn:
                await self.add()

        await asyncio.gather(*(add() for _ in range(count)))

    async def add(self) -> None:
        """Open an idle connection, if that is possible."""
        with suppress(OSError):
            self._idle.append(await self.open())

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


# A server's address: the URL is parsed and the host name resolved once, before the measurement.


_PATH_CHARACTERS = "/:@!$&'()*+,;=-._~%"
"""Characters of a path that are sent as they are; others are percent-encoded."""


@hide_in_repr("api_key", "headers")
class Endpoint(Struct, frozen=True):
    """A server's address, ready to connect to."""

    where: str
    """Host and port without control characters, for messages."""
    host: str
    path: str
    """Path of the URL in front of /v1, without a slash at its end; "" if there is none."""
    addresses: tuple[tuple[int, str, int], ...]
    """(address family, numeric address, port), in the resolver's order of preference."""
    tls: ssl.SSLContext | None
    api_key: str | None
    host_header: str
    headers: tuple[tuple[str, str], ...] = ()
    """(name, value) of further headers of each request, whose values may be secrets."""

    def head(self, method: str, path: str, body_bytes: int) -> bytes:
        """Return the head of an HTTP request as bytes, including the empty line at its end."""
        fields = {
            "Host": self.host_header,
            "User-Agent": f"sparktop/{__version__}",
            "Accept-Encoding": "identity",
        }
        if self.api_key is not None:
            fields["Authorization"] = f"Bearer {self.api_key}"
        if method == "POST":
            fields |= {"Content-Type": "application/json", "Content-Length": str(body_bytes)}
        given_names = {name.lower() for name, _ in self.headers}
        other_fields = [(name, value) for name, value in fields.items() if name.lower() not in given_names]
        lines = [f"{name}: {value}" for name, value in (*other_fields, *self.headers)]
        return "\r\n".join([f"{method} {self.path}{path} HTTP/1.1", *lines, "", ""]).encode("ascii")


async def resolve(target: WorkerTarget, at: float) -> Endpoint:
    """Return the endpoint of a target, with its host name resolved.

    `at` is the present time, which becomes the time of a failure.

    Raises:
        RequestFailedError: the URL, key or certificate file cannot be used, or the name does not resolve.
    """
    url = target.url
    where = host_and_port(url)
    problem = key_problem(target.api_key)
    if problem is not None:
        raise RequestFailedError(request_failure(UNREACHABLE, problem, at))
    try:
        url_parts = urlsplit(url)
        host, port = url_parts.hostname, url_parts.port
    except ValueError:
        host, port = None, None
        url_parts = urlsplit("")
    if host is None or url_parts.scheme not in {"http", "https"}:
        message = f"{where} is not a usable address: write http://host:port or https://host:port"
        raise RequestFailedError(request_failure(UNREACHABLE, message, at))
    is_tls = url_parts.scheme == "https"
    port = port or (443 if is_tls else 80)
    loop = asyncio.get_running_loop()
    try:
        name = host if host.isascii() else host.encode("idna").decode("ascii")
        addresses = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise RequestFailedError(connect_failure(error, at, where=where)) from None
    try:
        tls = (Trust(target.tls_ca, where).context() or ssl.create_default_context()) if is_tls else None
    except AnswerError as error:
        raise RequestFailedError(request_failure(TLS, error.message, at)) from None
    path = quote(server_path(url_parts.path), safe=_PATH_CHARACTERS)
    return Endpoint(
        where=where,
        host=name,
        path=path,
        addresses=tuple((int(family), str(address[0]), port) for family, _, _, _, address in addresses),
        tls=tls,
        api_key=target.api_key,
        host_header=host_port(name, port),
        headers=target.headers,
    )


# Short JSON requests over the load generator's own connections, such as for models or token counts.


_MOST_BYTES = 16 << 20
"""Maximum bytes of an answer."""


class NoAnswerError(Exception):
    """No complete HTTP response arrived; the message states why."""


class ShortAnswer:
    """Collects an HTTP response; the future `complete` is done when it is complete or has failed."""

    def __init__(self, where: str) -> None:
        """Begin without data; `where` is the server, for messages."""
        self.http = HttpAnswer()
        self.body = bytearray()
        self._where = where
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def json(self) -> Any | None:  # noqa: ANN401 - JSON of any shape
        """Return the body's JSON; None if the status is of an error, or the body is not JSON."""
        try:
            return msgspec.json.decode(self.body) if self.http.is_ok else None
        except (msgspec.DecodeError, RecursionError):
            return None

    def take(self, at: float, data: bytes) -> None:  # noqa: ARG002 - nothing is timed here
        """Add data of the response."""
        try:
            self.body += self.http.feed(data)
        except BrokenAnswerError:
            self._end(NoAnswerError(not_http(self._where, data).message))
        if len(self.body) > _MOST_BYTES:
            self._end(NoAnswerError(f"the answer of {self._where} is too large"))
        elif self.http.done:
            self._end(None)

    def lost(self, at: float, error: Exception | None) -> None:  # noqa: ARG002 - as above
        """End the response with its connection."""
        self._end(None if self.http.close() else NoAnswerError(no_answer(self._where).message))

    def _end(self, error: NoAnswerError | None) -> None:
        if self.complete.done():
            return
        if error is None:
            self.complete.set_result(None)
        else:
            self.complete.set_exception(error)


async def ask(pool: ConnectionPool, path: str, question: object, deadline_s: float) -> ShortAnswer:
    """Send `question` as JSON by POST, or send a GET request if it is None; return the response.

    `path` is the path of the URL.

    Raises:
        NoAnswerError: the response is incomplete or not HTTP.
        OSError: no connection could be opened.
        TimeoutError: the response took longer than `deadline_s` seconds.
    """
    body = b"" if question is None else json.dumps(question).encode()
    content = pool.endpoint.head("GET" if question is None else "POST", path, len(body)) + body
    connection = pool.take()
    if connection is not None:
        with suppress(NoAnswerError):  # the server may have closed it while it was idle
            return await _ask_over(connection, pool, content, deadline_s)
    return await _ask_over(await pool.open(), pool, content, deadline_s)


async def _ask_over(
    connection: Connection, pool: ConnectionPool, content: bytes, deadline_s: float
) -> ShortAnswer:
    connection.reader = answer = ShortAnswer(pool.endpoint.where)
    try:
        connection.send(content)
        async with asyncio.timeout(deadline_s):
            await answer.complete
    except BaseException:
        connection.abort()
        raise
    if answer.http.reusable:
        pool.give_back(connection)
    else:
        connection.abort()
    return answer


# The operating system's limit of open files, which limits the number of connections of this process.


_SPARE = 16
"""Number of file descriptors kept free for pipes, name resolution and short-lived files of libraries."""


def raise_limit() -> int | None:
    """Raise this process's soft limit of open files (see `raise_open_files`).

    Return how many more connections the limit allows; None if there is no limit.
    """
    soft = raise_open_files()
    try:
        opened = sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        opened = 0
    return None if soft is None else max(0, soft - opened - _SPARE)


def limit_message(connections: int, most: int) -> str:
    """Return the error message that at most `most` of the needed `connections` can be open, with remedies."""
    return (
        f"{connections} connections need more open files than are allowed here ({most} fit): raise the hard "
        "limit (`ulimit -Hn`, LimitNOFILE= of a systemd unit, nofile in limits.conf)"
    )
