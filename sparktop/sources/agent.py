"""A machine that another one watches: its agent, asked over HTTP."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.targets import NodeTarget
from sparktop.model.text import clean
from sparktop.sources.http_address import host_and_port
from sparktop.sources.http_body import BodyCollector
from sparktop.sources.http_failure import AnswerError, status_error, timeout_error, transport_error
from sparktop.sources.http_session import SharedSession
from sparktop.sources.node_replies import NodeReplies
from sparktop.sources.server_words import server_words
from sparktop.wire import MOST_BYTES, Reply, WireError, decode

SAMPLE_PATH = "/v1/sample"
_OK = 200
_ERROR_BODY_BYTES = 2048
_ERROR_BODY_S = 0.5
_LONGEST_TOKEN = 4096
_SHORTEST_S = 0.01


class AgentSource:
    """Polls one agent; what it missed since the poll before comes with the sample."""

    def __init__(
        self,
        target: NodeTarget,
        *,
        session: SharedSession | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Watch `target` over `session` (shared by several sources; one of its own without)."""
        self.name = target.name
        self.show_processes = False
        """Whether to ask for the process table too."""
        self.interval_s: float | None = None
        """How often the node should take samples; None leaves that to it."""
        self._url = target.url or ""
        self._where = host_and_port(self._url)
        self._credentials = _Credentials(target)
        self._session = session or SharedSession()
        self._session.join()
        self._clock = clock
        self._sleep = sleep
        self._replies = NodeReplies()
        self._closed = False

    @property
    def identity(self) -> NodeIdentity | None:
        """Who the machine is; None before the first answer."""
        return self._replies.identity

    async def poll(self, deadline_s: float) -> NodeSample | Failure:
        """Give the newest sample, and the ones before it that were not seen yet."""
        end = asyncio.get_running_loop().time() + deadline_s

        async def ask() -> tuple[Reply, float]:
            return await self._ask(end)

        try:
            return await self._replies.poll(ask, end, self._sleep)
        except (AnswerError, WireError) as error:
            return Failure(error.kind, clean(str(error)), self._clock())

    async def close(self) -> None:
        """Leave the session."""
        if not self._closed:
            self._closed = True
            await self._session.leave()

    async def _ask(self, end: float) -> tuple[Reply, float]:
        """Ask once; a token that is refused is read again, as it may have been changed."""
        used = self._credentials.token(self._where)
        try:
            body, at = await self._get(used, end)
        except AnswerError as error:
            self._credentials.forget()
            if error.kind is not FailureKind.UNAUTHORIZED:
                raise
            token = self._credentials.token(self._where)
            if token == used:
                raise
            body, at = await self._get(token, end)
        async with self._session.turn:
            await asyncio.sleep(0)  # what else is ready comes first: a key press, the other answers' stamps
            return decode(body), at

    async def _get(self, token: str | None, end: float) -> tuple[bytes, float]:
        """Give the body of an answer and when it began to come."""
        left_s = max(_SHORTEST_S, end - asyncio.get_running_loop().time())
        status: int | None = None
        collector: BodyCollector | None = None
        try:
            # Cancelling closes the connection, so a slow answer never stays behind on a kept-alive one.
            async with (
                asyncio.timeout(left_s),
                self._session.get().get(
                    self._url + SAMPLE_PATH,
                    params=self._query(),
                    headers={"Authorization": f"Bearer {token}"} if token else None,
                    ssl=self._credentials.trust(self._where) or True,
                    allow_redirects=False,
                ) as response,
            ):
                at, status = self._clock(), response.status
                if status != _OK:
                    raise _refusal(response, await _error_body(response), self._where, token)
                collector = BodyCollector(response.headers.get("Content-Encoding", ""), MOST_BYTES)
                if (response.content_length or 0) > MOST_BYTES:
                    raise collector.too_large()
                async for chunk in response.content.iter_any():
                    collector.feed(chunk)
                return collector.finish(), at
        except TimeoutError as error:
            came = collector.raw_bytes if collector else 0
            raise timeout_error(self._where, left_s, answering=status is not None, body_bytes=came) from error
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            raise self._no_answer(error) from error

    def _query(self) -> dict[str, str]:
        asked: dict[str, str] = {}
        if self._replies.since is not None:
            asked["since"] = repr(self._replies.since)
        if self.show_processes:
            asked["processes"] = "1"
        if self.interval_s is not None:
            asked["interval_s"] = f"{self.interval_s:g}"
        return asked

    def _no_answer(self, error: Exception) -> AnswerError:
        """Say what to do where nobody answered."""
        found = transport_error(error, self._where)
        if found.kind is FailureKind.REFUSED:
            message = f"no agent at {self._where}: start `sparktop agent` there (connection refused)"
            return AnswerError(FailureKind.REFUSED, message)
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return AnswerError(found.kind, f"{found.message}: {self._credentials.about_trust()}")
        return found


class _Credentials:
    """What the agent is to know us by, and we it."""

    def __init__(self, target: NodeTarget) -> None:
        self._given = target.token
        self._file = target.token_file
        self._ca = target.tls_ca
        self._token: str | None = None
        self._trust: ssl.SSLContext | None = None

    def token(self, where: str) -> str | None:
        """Give the token, from the file's first line where there is a file; None without any."""
        if self._token is None:
            self._token = self._given if self._file is None else _first_line(self._file, where)
        token = self._token
        if token is None or (token.isascii() and token.isprintable()):
            return token
        message = f"the token for {where} holds characters that no HTTP header may hold"
        raise AnswerError(FailureKind.UNAUTHORIZED, message)

    def trust(self, where: str) -> ssl.SSLContext | None:
        """Give whom to trust where `tls_ca` says; None leaves that to the system's certificates."""
        if self._ca is None:
            return None
        if self._trust is None:
            try:
                self._trust = ssl.create_default_context(cafile=str(Path(self._ca).expanduser()))
            except (OSError, ssl.SSLError) as error:
                why = "holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror
                message = f"tls_ca of {where}: {clean(self._ca, 80)} cannot be used: {why or 'unreadable'}"
                raise AnswerError(FailureKind.TLS, message) from None
        return self._trust

    def about_trust(self) -> str:
        """Say what to look at when a certificate is refused."""
        if self._ca is None:
            return "name the file that signs it with tls_ca in the config"
        return "is it signed by what tls_ca names?"

    def forget(self) -> None:
        """Read the files again at the next question."""
        self._token = self._trust = None


def _first_line(file: str, where: str) -> str | None:
    try:
        with Path(file).expanduser().open("rb") as opened:
            line = opened.readline(_LONGEST_TOKEN)
    except OSError as error:
        why = error.strerror or type(error).__name__
        message = f"token_file of {where}: {clean(file, 80)} cannot be read: {why}"
        raise AnswerError(FailureKind.UNAUTHORIZED, message) from None
    return line.decode("utf-8", "replace").strip() or None


async def _error_body(response: aiohttp.ClientResponse) -> bytes:
    """Read the beginning of an error's body; whatever goes wrong there, the status is what counts."""
    try:
        async with asyncio.timeout(_ERROR_BODY_S):
            return await response.content.read(_ERROR_BODY_BYTES)
    except (aiohttp.ClientError, OSError):  # TimeoutError is one
        return b""


def _refusal(response: aiohttp.ClientResponse, body: bytes, where: str, token: str | None) -> AnswerError:
    """Tell what a status other than 200 means of an agent."""
    words = server_words(body, token)
    quoted = f": {words}" if words else ""
    match response.status:
        case 401 | 403 if token:
            message = f"the agent at {where} refuses the token: look at token_env or token_file in the config"
            return AnswerError(FailureKind.UNAUTHORIZED, message)
        case 401 | 403:
            message = f"the agent at {where} wants a token: set token_env or token_file in the config"
            return AnswerError(FailureKind.UNAUTHORIZED, message)
        case 404:
            message = f"404: no sparktop agent answers at {where}: is the URL right?"
            return AnswerError(FailureKind.NOT_FOUND, message)
        case 429:
            return AnswerError(FailureKind.HTTP, f"429: the agent at {where} is asked too often{quoted}")
        case 503:
            # Not LOADING: that would count as being well.
            return AnswerError(FailureKind.HTTP, f"503: the agent at {where} has no sample{quoted}")
        case status:
            location = response.headers.get("Location", "")
            return status_error(status, where, location=location, words=words, has_key=token is not None)
