"""The doctor's network operations: name resolution, TCP connections and single GETs."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol
from urllib.parse import urlsplit

import httpx
from msgspec import Struct

from sparktop.model.text import clean
from sparktop.net.failure import timeout_error, transport_error
from sparktop.net.once import Reply, get, open_client
from sparktop.net.server import Trust

RESOLVE_TIMEOUT_S = 5.0
"""As long as mDNS waits before it gives up."""
CONNECT_TIMEOUT_S = 3.0
GET_TIMEOUT_S = 5.0
_PORTS = {"http": 80, "https": 443}


class Resolved(Struct, frozen=True):
    """The addresses of a host name, and how long resolving it took (seconds)."""

    addresses: tuple[str, ...]
    took_s: float


class Place(Struct, frozen=True):
    """Host and port of a URL."""

    host: str
    port: int

    @property
    def shown(self) -> str:
        """Host and port as "host:port" for messages, without control characters; IPv6 in square brackets."""
        host = clean(self.host, 80)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def place_of(url: str) -> Place | None:
    """Return host and port of a URL; without a port in the URL, the usual port of the scheme.

    None if the URL has no host, or neither a port nor a scheme with a known port.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    return Place(parts.hostname, port) if parts.hostname and port else None


class Network(Protocol):
    """Protocol of the network operations that checks need; `RealNetwork` implements it."""

    async def resolve(self, host: str) -> Resolved:
        """Return the addresses of `host`.

        Raises:
            OSError: the name does not resolve.
        """
        ...

    async def connect(self, place: Place) -> None:
        """Open a TCP connection and close it at once.

        Raises:
            AnswerError: the connection failed.
        """
        ...

    async def get(self, url: str, *, api_key: str | None = None, tls_ca: str | None = None) -> Reply:
        """Send a GET and return the response, whatever its status.

        `tls_ca` is a file that verifies the server's certificate; None: the system's certificates do. Of
        redirects only that of a last slash is followed.

        Raises:
            AnswerError: no complete response was received.
        """
        ...


class RealNetwork:
    """Network operations that the checks use, on the real network."""

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

    async def get(self, url: str, *, api_key: str | None = None, tls_ca: str | None = None) -> Reply:
        """Send a GET and return the response; its time and its size are limited."""
        place = place_of(url)
        where = place.shown if place else clean(url, 80)
        if tls_ca is not None:
            async with open_client(secure=True, trust=Trust(tls_ca, where).context()) as client:
                return await get(client, url, where=where, deadline_s=self._get_timeout_s, api_key=api_key)
        return await get(self._client, url, where=where, deadline_s=self._get_timeout_s, api_key=api_key)


@asynccontextmanager
async def open_network(*, secure: bool, get_timeout_s: float = GET_TIMEOUT_S) -> AsyncIterator[RealNetwork]:
    """Open an HTTP client, and yield network operations that use this client.

    With `secure`, the system's certificates are loaded for https; `get_timeout_s` limits each GET.
    """
    async with open_client(secure=secure) as client:
        yield RealNetwork(client, get_timeout_s=get_timeout_s)
