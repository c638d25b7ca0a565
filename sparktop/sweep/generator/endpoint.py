"""A server's address: the URL is parsed and the host name resolved once, before the measurement."""

from __future__ import annotations

import asyncio
import socket
import ssl
from urllib.parse import quote, urlsplit

from msgspec import Struct

from sparktop import __version__
from sparktop.model.structs import hide_in_repr
from sparktop.model.targets import server_path
from sparktop.net.failure import AnswerError
from sparktop.net.server import Trust, host_and_port, key_problem
from sparktop.sweep.generator.wire.messages import WorkerTarget
from sparktop.sweep.terms.request_errors import (
    TLS,
    UNREACHABLE,
    RequestFailure,
    connect_failure,
    request_failure,
)

_PATH_CHARACTERS = "/:@!$&'()*+,;=-._~%"


class EndpointError(Exception):
    """A URL or API key cannot be used, or a host name does not resolve; `failure` has the reason."""

    def __init__(self, failure: RequestFailure) -> None:
        """Keep `failure`, and use its message as the message of this exception."""
        super().__init__(failure.message)
        self.failure = failure


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
        own = {name.lower() for name, _ in self.headers}
        kept = [(name, value) for name, value in fields.items() if name.lower() not in own]
        lines = [f"{name}: {value}" for name, value in (*kept, *self.headers)]
        return "\r\n".join([f"{method} {self.path}{path} HTTP/1.1", *lines, "", ""]).encode("ascii")


async def resolve(target: WorkerTarget, at: float) -> Endpoint:
    """Return the endpoint of a target, with its host name resolved.

    `at` is the present time, which becomes the time of a failure.

    Raises:
        EndpointError: the URL, the key or the certificate file cannot be used, or the name does not resolve.
    """
    url = target.url
    where = host_and_port(url)
    problem = key_problem(target.api_key)
    if problem is not None:
        raise EndpointError(request_failure(UNREACHABLE, problem, at))
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
        parts = urlsplit("")
    if host is None or parts.scheme not in {"http", "https"}:
        message = f"{where} is not a usable address: write http://host:port or https://host:port"
        raise EndpointError(request_failure(UNREACHABLE, message, at))
    is_tls = parts.scheme == "https"
    port = port or (443 if is_tls else 80)
    loop = asyncio.get_running_loop()
    try:
        name = host if host.isascii() else host.encode("idna").decode("ascii")
        found = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise EndpointError(connect_failure(error, at, where=where)) from None
    try:
        tls = (Trust(target.tls_ca, where).context() or ssl.create_default_context()) if is_tls else None
    except AnswerError as error:
        raise EndpointError(request_failure(TLS, error.message, at)) from None
    path = quote(server_path(parts.path), safe=_PATH_CHARACTERS)
    return Endpoint(
        where=where,
        host=name,
        path=path,
        addresses=tuple((int(family), str(address[0]), port) for family, _, _, _, address in found),
        tls=tls,
        api_key=target.api_key,
        host_header=f"[{name}]:{port}" if ":" in name else f"{name}:{port}",
        headers=target.headers,
    )
