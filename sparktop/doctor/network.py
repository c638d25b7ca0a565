"""Network access of the doctor: name resolution, port tests and single GETs."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

import httpx

from sparktop import __version__
from sparktop.model.failure import FailureKind
from sparktop.model.text import clean
from sparktop.sources.http_body import BodyCollector
from sparktop.sources.http_failure import AnswerError, timeout_error, transport_error

RESOLVE_TIMEOUT_S = 5.0
"""mDNS waits this long, in seconds, before it gives up."""
CONNECT_TIMEOUT_S = 3.0
GET_TIMEOUT_S = 5.0
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Resolved:
    """The addresses of a host name, and the seconds that resolving took."""

    addresses: tuple[str, ...]
    took_s: float


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's answer, with any status."""

    status: int
    body: bytes = b""
    date: str | None = None
    """The Date header."""
    location: str = ""
    asked_at: float = 0.0
    """Our Unix time just before the request."""
    answered_at: float = 0.0
    """Our Unix time when the answer's headers arrived."""
    took_ms: float = 0.0
    """Milliseconds from the request to the last byte."""


@dataclass(frozen=True, slots=True)
class Place:
    """Host and port of a URL."""

    host: str
    port: int

    @property
    def shown(self) -> str:
        """Host and port for messages, without control characters."""
        host = clean(self.host, 80)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def place_of(url: str) -> Place | None:
    """Return host and port of a URL; None if it has no host, or no port for its scheme."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    return Place(parts.hostname, port) if parts.hostname and port else None


class Network(Protocol):
    """The network operations that checks need."""

    async def resolve(self, host: str) -> Resolved:
        """Return the addresses of `host`.

        Raises:
            OSError: the name does not resolve.
        """
        ...

    async def connect(self, place: Place) -> None:
        """Open and close a connection.

        Raises:
            AnswerError: the connection failed.
        """
        ...

    async def get(self, url: str, *, api_key: str | None = None) -> Reply:
        """Send one GET without following redirects.

        Raises:
            AnswerError: no complete answer came.
        """
        ...


class RealNetwork:
    """The network of this machine."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        get_timeout_s: float = GET_TIMEOUT_S,
    ) -> None:
        """Send GETs through `client`; both time limits are in seconds."""
        self._client = client
        self._connect_timeout_s = connect_timeout_s
        self._get_timeout_s = get_timeout_s

    async def resolve(self, host: str) -> Resolved:
        """Resolve a name with the system's resolver."""
        began = time.monotonic()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except UnicodeError as error:  # a label too long for the encoding of host names
            raise OSError(str(error)) from error
        addresses = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
        return Resolved(addresses, time.monotonic() - began)

    async def connect(self, place: Place) -> None:
        """Open a TCP connection and close it at once."""
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                transport, _ = await asyncio.get_running_loop().create_connection(
                    asyncio.Protocol, place.host, place.port
                )
        except TimeoutError as error:
            raise timeout_error(
                place.shown, self._connect_timeout_s, answering=False, body_bytes=0
            ) from error
        except (OSError, UnicodeError) as error:
            raise transport_error(error, place.shown) from error
        transport.abort()

    async def get(self, url: str, *, api_key: str | None = None) -> Reply:
        """Send one GET with a deadline and a limit on the answer's size."""
        place = place_of(url)
        where = place.shown if place else clean(url, 80)
        if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
            message = (
                "the key holds characters that no HTTP header may hold: look at api_key_env in the config"
            )
            raise AnswerError(FailureKind.UNAUTHORIZED, message)
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            async with asyncio.timeout(self._get_timeout_s):
                return await self._exchange(url, headers)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise timeout_error(where, self._get_timeout_s, answering=False, body_bytes=0) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
            raise _answer_error(error, where) from error

    async def _exchange(self, url: str, headers: dict[str, str]) -> Reply:
        began, asked_at = time.monotonic(), time.time()
        async with self._client.stream("GET", url, headers=headers) as response:
            answered_at = time.time()
            collector = BodyCollector(response.headers.get("content-encoding", ""))
            async for chunk in response.aiter_raw():
                collector.feed(chunk)
            return Reply(
                status=response.status_code,
                body=collector.finish(),
                date=response.headers.get("date"),
                location=response.headers.get("location", ""),
                asked_at=asked_at,
                answered_at=answered_at,
                took_ms=(time.monotonic() - began) * 1000,
            )


def _answer_error(error: Exception, where: str) -> AnswerError:
    """Convert an exception of httpx into an error, by its underlying OSError where there is one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):  # includes ssl.SSLError
            return transport_error(cause, where)
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
        message = f"{where} is not a usable address: write http://host:port or https://host:port"
        return AnswerError(FailureKind.UNSUPPORTED, message)
    if isinstance(error, httpx.RemoteProtocolError):
        # httpx distinguishes these cases only in its text.
        if "complete message" in str(error):
            return AnswerError(FailureKind.MALFORMED, f"the answer of {where} broke off in the middle")
        if "without sending" in str(error):
            message = f"{where} closed the connection without an answer: does it want https://?"
            return AnswerError(FailureKind.UNREACHABLE, message)
        return AnswerError(
            FailureKind.MALFORMED, f"{where} does not answer in proper HTTP: is the port right?"
        )
    return AnswerError(FailureKind.UNREACHABLE, f"the connection to {where} was lost: {clean(error, 80)}")


@asynccontextmanager
async def open_network(*, secure: bool, get_timeout_s: float = GET_TIMEOUT_S) -> AsyncIterator[RealNetwork]:
    """Open a client for single GETs; `secure` loads the system's certificates for https."""
    # Loading certificates is slow, and needless if only http:// URLs are requested.
    verify = ssl.create_default_context() if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    async with httpx.AsyncClient(
        trust_env=False,
        follow_redirects=False,
        timeout=None,  # noqa: S113 - the deadline covers the whole exchange
        verify=verify,
        # A connection per request: the server may close a kept-alive one just as it is used again.
        limits=httpx.Limits(max_keepalive_connections=0),
        headers={"User-Agent": f"sparktop/{__version__}", "Accept-Encoding": "identity"},
    ) as client:
        yield RealNetwork(client, get_timeout_s=get_timeout_s)
