"""Sends the GETs of a group of sources over connections that are kept open between polls.

Polls with aiohttp took half as much CPU time again, and 10 MiB more memory.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from sparktop import __version__
from sparktop.files import connections_that_fit
from sparktop.sources.http.address import Address, parse_address, same_page
from sparktop.sources.http.connection import OK, Connection, Exchange
from sparktop.sources.http.failure import (
    NOT_FOUND,
    REDIRECTS,
    AnswerError,
    no_name_server,
    timeout_error,
    too_many_connections,
    transport_error,
    unusable_address,
)
from sparktop.sources.http.lookup import look_up
from sparktop.values import dataclass, replace

_KEPT_ALIVE_S = 120.0
"""Seconds that an idle connection is kept, longer than usual poll intervals; servers may close it earlier."""
_TIDY_EVERY_S = 60.0
"""Seconds between two searches for connections that were idle for too long."""
_CONNECT_S = 3.0
"""Seconds that a connection may take, with TLS: a page may take longer, a host that is down may not."""
_HAPPY_EYEBALLS_S = 0.25
"""Seconds after which the next address of a host is tried beside one that does not answer (RFC 8305)."""
_AGE_DIGITS = 9
_FIELDS = f"Accept: */*\r\nUser-Agent: sparktop/{__version__}\r\nAccept-Encoding: identity\r\n"

_Place = tuple[str, int, ssl.SSLContext | None]


@dataclass(frozen=True, slots=True)
class Request:
    """One GET."""

    url: str
    where: str
    """Host and port, which name the server in messages."""
    token: str | None = None
    """Sent as a bearer token."""
    query: str = ""
    """Appended to the URL, percent-encoded, with its question mark."""
    tls: ssl.SSLContext | None = None
    """What an https:// server's certificate is checked against; None for the system's certificates."""
    header: str = ""
    """Name of a further header, whose value is 1."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer to a GET."""

    status: int
    body: bytes
    """Complete and unpacked; of a status other than 200 the beginning at most, b"" if packed or late."""
    at: float
    """When the headers arrived, in seconds on the caller's clock."""
    location: str
    """The Location header."""
    age_s: float | None = None
    """The Age header: seconds for which a cache has held the answer; None without a valid one."""


class SharedSession:
    """Connections of several sources, with a count of these; idle ones close when the last source leaves."""

    _connecting = 0
    """Number of connections of this program that are being opened."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """Held while a page is parsed, so that one iteration of the event loop parses one page at most:
        with 64 servers answering at once, a key press would otherwise wait for all of them."""
        self._users = 0
        self._idle: dict[_Place, list[Connection]] = {}
        self._trust: ssl.SSLContext | None = None
        """The system's certificates, loaded for the first https:// URL."""
        self._moved: dict[str, str] = {}
        """For URLs that redirect to the same path with or without its last slash: the URL that answers."""
        self._tidied_at = 0.0
        """When idle connections were last searched for old ones, in seconds of the event loop's clock."""

    def join(self) -> None:
        """Add one to the count of users; each caller of `join()` must call `leave()` later."""
        self._users += 1

    async def leave(self) -> None:
        """Subtract one from the count of users; close the idle connections when no user is left."""
        self._users -= 1
        if self._users <= 0:
            for connection in self.idle:
                connection.abort()
            self._idle.clear()
            await asyncio.sleep(0)  # asyncio closes the sockets now

    @property
    def idle(self) -> list[Connection]:
        """All connections that wait for a request."""
        return [connection for connections in self._idle.values() for connection in connections]

    async def get(
        self, request: Request, *, deadline_s: float, clock: Callable[[], float], cap_bytes: int
    ) -> Response:
        """Send a GET and return the answer, whatever its status, with a body of at most `cap_bytes` bytes.

        A redirect that adds or removes the last slash of the path is followed on the same host (`same_page`).

        Raises:
            AnswerError: a network error, a missed deadline, or an unusable body.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline_s
        known = self._moved.get(request.url)
        asked = request if known is None else replace(request, url=known)
        response = await self._get(asked, deadline_s, clock, cap_bytes)
        if response.status in REDIRECTS and (goal := same_page(asked.url, response.location)) is not None:
            left_s = max(0.01, end - loop.time())
            again = await self._get(replace(request, url=goal), left_s, clock, cap_bytes)
            if again.status == OK:
                self._moved[request.url] = goal
            if again.status != NOT_FOUND and again.status not in REDIRECTS:
                return again
        if response.status != OK:
            self._moved.pop(request.url, None)
        return response

    async def _get(
        self, request: Request, deadline_s: float, clock: Callable[[], float], cap_bytes: int
    ) -> Response:
        """Send a GET and return the answer; parameters and errors as of `get`."""
        exchange = Exchange(request.where, clock, cap_bytes)
        body = b""
        try:
            async with asyncio.timeout(deadline_s):
                body = await self._send(_address(request), request, exchange)
        except TimeoutError as error:
            # A status counts even where the words that explain it are late.
            if exchange.status in {None, OK}:
                if exchange.is_resolving:
                    raise no_name_server(request.where, deadline_s) from error
                answering, came = exchange.status is not None, exchange.body_bytes
                raise timeout_error(
                    request.where, deadline_s, answering=answering, body_bytes=came
                ) from error
        except (OSError, UnicodeError) as error:
            raise transport_error(error, request.where) from error
        status, at = exchange.status, exchange.at
        assert status is not None  # noqa: S101 - otherwise it was a failure
        assert at is not None  # noqa: S101 - as above
        headers = exchange.headers
        return Response(status, body, at, headers.get("location", ""), _age_s(headers.get("age", "")))

    async def _send(self, address: Address, request: Request, exchange: Exchange) -> bytes:
        """Send a GET, and return the body of its answer.

        Use an idle connection, or a new one where there is none, or where the server closes the idle one.
        """
        tls = (request.tls or await self._system_trust()) if address.secure else None
        place, head = (address.host, address.port, tls), _head(address, request)
        connection = self._take(place)
        if connection is not None:
            try:
                return await self._run(connection, place, head, exchange)
            except AnswerError:
                if not exchange.is_untouched:
                    raise
            exchange.restart()
        return await self._run(await self._connect(place, exchange), place, head, exchange)

    async def _connect(self, place: _Place, exchange: Exchange) -> Connection:
        """Return a new connection, if this program may open another one.

        Raises:
            AnswerError: its limit of open files is reached.
            OSError, UnicodeError: as of `_connect`.
        """
        fit = connections_that_fit()
        if Connection.opened + SharedSession._connecting >= fit:
            raise too_many_connections(exchange.where, fit)
        SharedSession._connecting += 1
        try:
            return await _connect(place, exchange)
        finally:
            SharedSession._connecting -= 1

    async def _run(self, connection: Connection, place: _Place, head: bytes, exchange: Exchange) -> bytes:
        try:
            connection.send(head, exchange)
            body = await exchange.result()
        except BaseException:
            connection.abort()  # otherwise a late body could arrive on it
            raise
        if exchange.leaves_connection and self._users > 0:
            self._keep(connection, place)
        else:
            connection.abort()
        return body

    def _take(self, place: _Place) -> Connection | None:
        """Remove an idle connection and return it; None if there is none."""
        connections = self._idle.get(place, ())
        while connections:
            connection = connections.pop()
            if connection.is_open:
                return connection
        return None

    def _keep(self, connection: Connection, place: _Place) -> None:
        """Keep a connection for the next request; close those that were idle for too long."""
        now = asyncio.get_running_loop().time()
        connection.become_idle(now)
        self._idle.setdefault(place, []).append(connection)
        if now - self._tidied_at < _TIDY_EVERY_S:
            return
        self._tidied_at = now
        for one, connections in list(self._idle.items()):
            fresh = [one for one in connections if one.is_open and now - one.idle_since < _KEPT_ALIVE_S]
            for old in set(connections).difference(fresh):
                old.abort()
            self._idle[one] = fresh
            if not fresh:
                del self._idle[one]

    async def _system_trust(self) -> ssl.SSLContext:
        if self._trust is None:
            trust = await asyncio.to_thread(ssl.create_default_context)
            self._trust = self._trust or trust  # another request may have loaded them meanwhile
        return self._trust


def _address(request: Request) -> Address:
    try:
        return parse_address(request.url)
    except UnicodeError:
        raise
    except ValueError:
        raise unusable_address(request.where) from None


def _head(address: Address, request: Request) -> bytes:
    """Return a request as it is sent."""
    authorization = f"Bearer {request.token}" if request.token else address.basic
    secret = f"Authorization: {authorization}\r\n" if authorization else ""
    more = f"{request.header}: 1\r\n" if request.header else ""
    line = f"GET {address.target}{request.query} HTTP/1.1\r\nHost: {address.host_field}\r\n"
    return f"{line}{_FIELDS}{more}{secret}\r\n".encode("ascii")


async def _connect(place: _Place, exchange: Exchange) -> Connection:
    """Return a new connection.

    Raises:
        OSError: it cannot be opened; ssl.SSLError included.
        UnicodeError: the host cannot be a name of a host.
    """
    loop = asyncio.get_running_loop()
    host, port, tls = place
    address, delay_s = host, None
    if ":" not in host and not host.rpartition(".")[2].isdigit():  # a name, "spark1" included
        exchange.is_resolving = True
        found = await look_up(host, port)
        exchange.is_resolving = False
        if len(found) > 1:
            # Not with one address: each refused connection would leave cycles of garbage.
            delay_s = _HAPPY_EYEBALLS_S
        elif found[0][0] is socket.AF_INET:
            address = str(found[0][4][0])
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, connection = await loop.create_connection(
                Connection,
                address,
                port,
                ssl=tls,
                flags=socket.AI_ADDRCONFIG,
                server_hostname=host.rstrip(".") if tls is not None else None,
                happy_eyeballs_delay=delay_s,
            )
    except TimeoutError as error:
        raise timeout_error(exchange.where, _CONNECT_S, answering=False, body_bytes=0) from error
    return connection


def _age_s(header: str) -> float | None:
    """Return the value of an Age header, None if it is none."""
    digits = header.strip()
    return float(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _AGE_DIGITS else None
