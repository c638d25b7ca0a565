"""The HTTP client of all that polls, on connections of aiohttp, and the thread that reads long answers.

It bounds the bytes of an answer, packed and unpacked, and its time. It follows no redirect to another host,
and uses no proxy, no netrc and no cookies. What goes wrong is an `AnswerError`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote
from weakref import WeakSet

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import Struct, field
from msgspec.structs import replace
from yarl import URL

from sparktop import __version__
from sparktop.files import connections_that_fit
from sparktop.model.failure import FailureKind
from sparktop.model.text import clean
from sparktop.net import failure
from sparktop.net.failure import (
    NOT_FOUND,
    REDIRECTS,
    AnswerError,
    Trust,
    forget_frames,
    host_and_port,
    is_of_proxy,
    key_problem,
    look_up,
    same_page,
    server_words,
    status_error,
    timeout_error,
)

if TYPE_CHECKING:
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

OK = 200
BODY_CAP_BYTES = 4 * 1024 * 1024
"""4 MiB. A vLLM page is 35 to 60 kB; even 64 data-parallel ranks stay below this."""

_PLAIN = frozenset({"", "identity"})
_ZLIB = frozenset({"gzip", "x-gzip", "deflate"})
_ZLIB_OR_GZIP_HEADER = 32 + zlib.MAX_WBITS
_KEPT_ALIVE_S = 120.0
"""Seconds that an idle connection is kept, longer than usual poll intervals; servers may close it earlier."""
_CONNECT_S = 3.0
"""Seconds that a connection may take, with TLS: a page may take longer, a host that is down may not."""
_ERROR_BODY_BYTES = 4096
"""Bytes read of an error's body, of which one line is shown."""
_ERROR_BODY_S = 0.5
"""Seconds that an error's body may take after its head."""
_LONGEST_FIELD_BYTES = 64 << 10
"""Most bytes of a header."""
_AGE_DIGITS = 9
"""Most digits of an Age header that is read: 31 years."""
_ZONE = re.compile(r"(//[^/]*\[[^/\]%]*)%25")
"""An IPv6 address up to its zone (RFC 6874), which yarl wants without the escape."""
_KEPT_IN_QUERIES = "%/:=&?~+!$,;'@()*[]-._"
"""Characters of a query that are sent as they are."""
_TLS_ALERT, _SHOWN_TLS_ALERT = b"\x15\x03\x03", rb"\x15\x03"
"""How a TLS alert begins, and how aiohttp shows it in messages."""

_end: ContextVar[tuple[str, int] | None] = ContextVar("_end", default=None)
"""(host, port) of this program's end of the connection that the present task used last."""
_sockets: WeakSet[socket.socket] = WeakSet()
"""Sockets of all connections of this program."""


class Request(Struct, frozen=True):
    """One GET, or one POST of a form."""

    url: str
    where: str
    """Host and port, which name the server in messages."""
    token: str | None = None
    """Sent as a bearer token."""
    query: str = ""
    """Appended to the URL, percent-encoded, with its question mark."""
    tls: ssl.SSLContext | None = None
    """What an https:// server's certificate is checked against; None for the system's certificates."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers."""
    form: Mapping[str, str] | None = None
    """Sent by POST; None for a GET."""


class Response(Struct, frozen=True):
    """An answer of any status."""

    status: int
    body: bytes
    """Complete and unpacked; of another status than 200 the beginning at most, b"" if it is late."""
    at: float
    """When the headers arrived, in seconds on the caller's clock."""
    headers: Mapping[str, str]
    """By name of any case."""
    end: tuple[str, int] | None = None
    """(host, port) of this program's end of the connection."""
    answer_ms: float = 0.0
    """Milliseconds from the request to the last byte, as far as a source measures it."""

    @property
    def age_s(self) -> float | None:
        """Seconds for which a cache has held it (the Age header); None where no cache says so."""
        age = self.headers.get("Age", "").strip()
        return float(age) if age.isascii() and age.isdigit() and len(age) <= _AGE_DIGITS else None


class BodyCollector:
    """Collects the body of one response.

    Raises `AnswerError` as soon as the body is too large or cannot be decompressed.
    """

    def __init__(self, encoding: str = "", cap_bytes: int = BODY_CAP_BYTES) -> None:
        """Prepare for a body with the Content-Encoding `encoding` and at most `cap_bytes` bytes.

        Raises:
            AnswerError: the encoding is not supported.
        """
        self._cap_bytes = cap_bytes
        self._chunks: list[bytes] = []
        self.unpacked_bytes = 0
        """Bytes of the body so far, after decompression."""
        self.raw_bytes = 0
        """Bytes received so far, before decompression."""
        word = encoding.strip().lower()
        if word not in _PLAIN | _ZLIB:
            message = f"the answer is packed as {clean(word, 20)}, which sparktop cannot unpack"
            raise AnswerError(FailureKind.UNSUPPORTED, message)
        self._unpacker = zlib.decompressobj(_ZLIB_OR_GZIP_HEADER) if word in _ZLIB else None

    def feed(self, chunk: bytes) -> None:
        """Decompress a chunk of the body where needed, and append it.

        Raises:
            AnswerError: the body is over the limit or cannot be decompressed.
        """
        self.raw_bytes += len(chunk)
        if self.raw_bytes > self._cap_bytes:
            raise self.too_large()
        if self._unpacker is not None:
            chunk = self._unpack(self._unpacker, chunk)
        self.unpacked_bytes += len(chunk)
        if self.unpacked_bytes > self._cap_bytes:
            raise self.too_large()
        self._chunks.append(chunk)

    def finish(self) -> bytes:
        """Return the complete, decompressed body.

        Raises:
            AnswerError: a compressed body ended early.
        """
        if self._unpacker is not None and not self._unpacker.eof:
            raise AnswerError(FailureKind.MALFORMED, "the packed answer broke off in the middle")
        return self.so_far()

    def so_far(self) -> bytes:
        """Return the beginning of the body, as far as it was fed."""
        return b"".join(self._chunks)

    def _unpack(self, unpacker: zlib._Decompress, chunk: bytes) -> bytes:
        # One byte over the remaining room shows that the limit is passed, without inflating a bomb.
        room = self._cap_bytes - self.unpacked_bytes + 1
        try:
            unpacked = unpacker.decompress(chunk, room)
        except zlib.error as error:
            raise AnswerError(FailureKind.MALFORMED, "the packed answer cannot be unpacked") from error
        if unpacker.unused_data:
            message = "the packed answer has more data after its end"
            raise AnswerError(FailureKind.MALFORMED, message)
        return unpacked

    def too_large(self) -> AnswerError:
        """Return, without raising it, the error for a body over the size limit."""
        cap_mib = self._cap_bytes / 1024 / 1024
        message = f"the answer is larger than {cap_mib:g} MiB: no metrics page is; is the port right?"
        return AnswerError(FailureKind.TOO_LARGE, message)


class SharedSession:
    """Connections of several sources, with a count of these; they close when the last source leaves."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """Held while a page is parsed, so that one iteration of the event loop parses one page at most:
        with 64 servers answering at once, a key press would otherwise wait for all of them."""
        self._users = 0
        self._session: aiohttp.ClientSession | None = None
        self._resolver = _Resolver()
        self._moved: dict[str, str] = {}
        """For URLs that redirect to the same path with or without its last slash: the URL that answers."""

    def join(self) -> None:
        """Add one to the count of users; each caller of `join()` must call `leave()` later."""
        self._users += 1

    async def leave(self) -> None:
        """Subtract one from the count of users; close the connections when no user is left."""
        self._users -= 1
        if self._users <= 0 and self._session is not None:
            session, self._session = self._session, None
            await session.close()
            await asyncio.sleep(0)  # asyncio closes the sockets now

    async def get(
        self, request: Request, *, deadline_s: float, clock: Callable[[], float], cap_bytes: int
    ) -> Response:
        """Send a request and return the answer of any status, with a body of at most `cap_bytes` bytes.

        A redirect that adds or removes the last slash of the path is followed on the same host (`same_page`).

        Raises:
            AnswerError: a network error, a missed deadline, or an unusable body.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline_s
        moved_to = self._moved.get(request.url)
        request_sent = request if moved_to is None else replace(request, url=moved_to)
        response = await self._send(request_sent, deadline_s, clock, cap_bytes)
        location = response.headers.get("Location", "")
        goal = same_page(request_sent.url, location) if response.status in REDIRECTS else None
        if goal is not None:
            left_s = max(0.01, end - loop.time())
            second_response = await self._send(replace(request, url=goal), left_s, clock, cap_bytes)
            if second_response.status == OK:
                self._moved[request.url] = goal
            if second_response.status != NOT_FOUND and second_response.status not in REDIRECTS:
                return second_response
        if response.status != OK:
            self._moved.pop(request.url, None)
        return response

    async def _send(
        self, request: Request, deadline_s: float, clock: Callable[[], float], cap_bytes: int
    ) -> Response:
        """Send a request and return the answer; parameters and errors as of `get`."""
        where, url, at = request.where, _url(request), 0.0
        response: aiohttp.ClientResponse | None = None
        collector: BodyCollector | None = None
        try:
            async with (
                asyncio.timeout(deadline_s),
                self._open_session().request(
                    "GET" if request.form is None else "POST",
                    url,
                    data=request.form,
                    headers=_headers(request),
                    allow_redirects=False,
                    ssl=request.tls or True,
                ) as response,
            ):
                at = clock()
                if response.status != OK:
                    return Response(response.status, await _beginning(response), at, response.headers)
                collector = BodyCollector(response.headers.get("Content-Encoding", ""), cap_bytes)
                if (response.content_length or 0) > cap_bytes:
                    raise collector.too_large()
                async for chunk in response.content.iter_any():
                    collector.feed(chunk)
                return Response(response.status, collector.finish(), at, response.headers, _end.get())
        except aiohttp.ConnectionTimeoutError as error:
            raise timeout_error(where, _CONNECT_S, answering=False, body_bytes=0) from forget_frames(error)
        except TimeoutError as error:
            # An error status is an answer even if its body is late.
            if response is not None and response.status != OK:
                return Response(response.status, b"", at, response.headers)
            forget_frames(error)
            if response is None and (url.raw_host, url.port) in self._resolver.pending:
                raise failure.no_name_server(where, deadline_s) from error
            came = 0 if collector is None else collector.raw_bytes
            raise timeout_error(where, deadline_s, answering=response is not None, body_bytes=came) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: a host that cannot be one
            raise _transport_error(error, where) from error

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=_Connector(
                    limit=0,
                    keepalive_timeout=_KEPT_ALIVE_S,
                    resolver=self._resolver,
                    ttl_dns_cache=0,  # a name is looked up for each connection, by one thread at a time
                    socket_factory=_open_socket,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
                headers={"User-Agent": f"sparktop/{__version__}", "Accept-Encoding": "identity"},
                max_field_size=_LONGEST_FIELD_BYTES,
            )
        return self._session


AT_ONCE_BYTES = 64 << 10
"""An answer up to this size is read at once: a page of vLLM with one engine takes a millisecond."""
_READER = ThreadPoolExecutor(1, "reader")
"""Reads answers one after the other: two of one server never at the same time, even if the first caller has
given up. So keys and other sources never wait for a page of megabytes, nor for what is computed of 10,000
series of a Prometheus."""
Outcome = TypeVar("Outcome")


async def in_reader(work: Callable[[], Outcome]) -> Outcome:
    """Return `work()`, which is computed in a thread of its own, after what others wait for there."""
    return await asyncio.get_running_loop().run_in_executor(_READER, work)


async def read_beside(
    read: Callable[[], Outcome], size: int, *, at_once: int = AT_ONCE_BYTES, turn: asyncio.Lock | None = None
) -> Outcome:
    """Return `read()`, which reads an answer of `size` bytes; a longer one than `at_once` in a thread.

    Only one thread reads, and in the order of the calls. A caller that is cancelled does not wait for it.
    `turn` is held while a short answer is read.
    """
    if size > at_once:
        return await in_reader(read)
    if turn is None:
        return read()
    async with turn:
        await asyncio.sleep(0)  # yield first: a key press or another answer's time stamp comes before
        return read()


class HttpSource:
    """One polled address, over connections that several sources may share."""

    def __init__(
        self,
        name: str,
        url: str,
        tls_ca: str | None,
        session: SharedSession | None,
        clock: Callable[[], float],
        key: str | None = None,
    ) -> None:
        """Poll `url` over `session` (None: a private one); `tls_ca` is a file of certificates to trust.

        `key` is sent as bearer token.
        """
        self.name = name
        self._url = url
        self._where = host_and_port(url)
        self._key, self._key_problem = key, key_problem(key)
        self._trust = Trust(tls_ca, self._where)
        self._session = session or SharedSession()
        self._session.join()
        self._clock = clock
        self._closed = False

    async def _get(self, path: str, deadline_s: float) -> Response:
        """Request `path` within `deadline_s` seconds.

        Raises:
            AnswerError: there is no usable answer with status 200, or no header can hold the key.
        """
        key = self._key
        if self._key_problem is not None:
            raise AnswerError(FailureKind.UNAUTHORIZED, self._key_problem)
        request = Request(self._url + path, self._where, key, tls=self._trust.context())
        began = self._clock()
        try:
            response = await self._session.get(
                request, deadline_s=round(deadline_s, 2), clock=self._clock, cap_bytes=BODY_CAP_BYTES
            )
        except AnswerError as error:
            if error.kind is FailureKind.TLS:
                self._trust.forget()
            raise
        if response.status != OK:
            location, words = response.headers.get("Location", ""), server_words(response.body, key)
            program = clean(response.headers.get("Server", ""), 60) if response.status == NOT_FOUND else ""
            raise status_error(
                response.status,
                f"{self._where} ({program})" if program else self._where,
                location=location,
                words=words,
                has_key=bool(key),
                by_proxy=is_of_proxy(response.body),
            )
        return replace(response, answer_ms=(self._clock() - began) * 1000)

    async def close(self) -> None:
        """Release the shared session."""
        if not self._closed:
            self._closed = True
            await self._session.leave()


class _Connector(aiohttp.TCPConnector):
    """Notes in `_end` which connection each request gets."""

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - as the base class has it
    ) -> Connection:
        """Return a connection for a request; parameters as of the base class."""
        connection = await super().connect(req, traces, timeout)
        name = connection.transport.get_extra_info("sockname") if connection.transport is not None else None
        _end.set((name[0], name[1]) if isinstance(name, tuple) else None)
        return connection


class _Resolver(AbstractResolver):
    """Looks up host names for aiohttp in threads that delay nothing else."""

    def __init__(self) -> None:
        self.pending: set[tuple[str, int]] = set()
        """(host, port) of the lookups that no name server has answered yet."""

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002 - all families
    ) -> list[ResolveResult]:
        """Return the addresses of a host; errors as of `look_up`."""
        self.pending.add((host, port))
        try:
            addresses = await look_up(host, port)
        finally:
            self.pending.discard((host, port))
        return [
            ResolveResult(
                hostname=host,
                host=address[0] if len(address) < 4 or not address[3] else f"{address[0]}%{address[3]}",  # noqa: PLR2004 - its zone
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in addresses
        ]

    async def close(self) -> None:
        """Do nothing: the threads end with the program."""


def _open_socket(info: aiohttp.AddrInfoType) -> socket.socket:
    """Return a new socket for a connection, if this program may open another one.

    Raises:
        OSError: its limit of open files is reached.
    """
    if sum(other.fileno() >= 0 for other in _sockets) >= connections_that_fit():
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    new_socket = socket.socket(*info[:3])
    _sockets.add(new_socket)
    return new_socket


def _url(request: Request) -> URL:
    try:
        has_key = "authorization" in map(str.lower, _headers(request))
        return _parsed_url(request.url + request.query, has_key=has_key)
    except ValueError as error:
        raise _transport_error(error, request.where) from None


@lru_cache(4096)
def _parsed_url(text: str, *, has_key: bool) -> URL:
    """Return an address as aiohttp takes it; a key takes the place of a user's name in it."""
    page, question_mark, query = text.partition("?")
    url = URL(_ZONE.sub(r"\1%", page))
    if has_key:
        url = url.with_user(None)
    # yarl would send another query that means the same: a "/" for "%2F".
    return URL(f"{url}?{quote(query, _KEPT_IN_QUERIES)}", encoded=True) if question_mark else url


def _headers(request: Request) -> dict[str, str]:
    secret = {"Authorization": f"Bearer {request.token}"} if request.token else {}
    return {**request.headers, **secret}


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """Return the beginning of an error's body, as far as it comes soon and can be unpacked."""
    try:
        collector = BodyCollector(response.headers.get("Content-Encoding", ""))
        async with asyncio.timeout(_ERROR_BODY_S):
            async for chunk in response.content.iter_any():
                collector.feed(chunk)
                if collector.unpacked_bytes >= _ERROR_BODY_BYTES:
                    break
    except TimeoutError:
        return b""
    except AnswerError as error:
        forget_frames(error)
        return b""
    except aiohttp.ClientError as error:
        forget_frames(error)
    return collector.so_far()[:_ERROR_BODY_BYTES]


def _transport_error(error: Exception, where: str) -> AnswerError:
    """Return, without raising it, the `AnswerError` for an exception of aiohttp or the operating system.

    `where` (host and port) names the server in the message. `error` loses its traceback.
    """
    forget_frames(error)
    match error:
        case aiohttp.ClientConnectorDNSError():
            failed = failure.unresolved(where)
        case aiohttp.ClientConnectorCertificateError():
            failed = failure.transport_error(error.certificate_error, where)
        case aiohttp.ClientSSLError():
            cause = error.os_error if isinstance(error.os_error, ssl.SSLError) else None
            failed = failure.tls_failed(where, cause)
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            failed = failure.unusable_address(where)
        case aiohttp.ClientResponseError():
            error_text = f"{error.message} {error.__cause__}".encode("utf-8", "replace")
            failed = failure.not_http(where, error_text.replace(_SHOWN_TLS_ALERT, _TLS_ALERT))
        case aiohttp.ClientPayloadError():
            # aiohttp distinguishes a reset from a short answer only in its text.
            is_reset = isinstance(error.__cause__, OSError) or "ConnectionResetError" in str(error)
            failed = failure.broken_off(where, is_reset=is_reset)
        case aiohttp.ServerDisconnectedError():
            failed = failure.no_answer(where)
        case ValueError() if not isinstance(error, UnicodeError):
            failed = failure.unusable_address(where)
        case _:
            failed = failure.transport_error(getattr(error, "os_error", None) or error, where)
    return failed
