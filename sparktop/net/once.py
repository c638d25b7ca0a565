"""Single HTTP requests over httpx, for the doctor, the webhook, and to find out what listens on a port.

Sources that poll use `client.py` instead: a request on a kept-alive connection costs far less.
"""

from __future__ import annotations

import asyncio
import ssl
import time

import httpx

from sparktop import __version__
from sparktop.model.failure import FailureKind
from sparktop.net import failure
from sparktop.net.body import BodyCollector
from sparktop.net.client import Response
from sparktop.net.failure import NOT_FOUND, REDIRECTS, AnswerError, key_problem, same_page, timeout_error


class UnreadReplyError(AnswerError):
    """Raised where the headers of an answer arrived, but its body could not be read.

    `status` is the HTTP status.
    """

    def __init__(self, error: AnswerError, status: int) -> None:
        super().__init__(error.kind, error.message)
        self.status = status


def open_client(*, secure: bool, trust: ssl.SSLContext | None = None) -> httpx.AsyncClient:
    """Return a new HTTP client for single GETs, without keep-alive; the caller closes it.

    `secure` loads the certificates of `trust`, or the system's; only https:// URLs need them.
    """
    # Loading certificates is slow, and needless if only http:// URLs are requested.
    verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if secure:
        verify = trust or ssl.create_default_context()
    return httpx.AsyncClient(
        trust_env=False,
        follow_redirects=False,
        timeout=None,  # noqa: S113 - the deadline of `get` covers the whole exchange
        verify=verify,
        # A connection per request: the server may close a kept-alive one just as it is used again.
        limits=httpx.Limits(max_keepalive_connections=0),
        headers={"User-Agent": f"sparktop/{__version__}", "Accept-Encoding": "identity"},
    )


async def get(
    client: httpx.AsyncClient, url: str, *, where: str, deadline_s: float, api_key: str | None = None
) -> Response:
    """Send one GET and return the complete answer, whatever its HTTP status; its times are in Unix time.

    The exchange must end within `deadline_s` seconds, and the body's size is limited. `where` (host and port)
    names the server in messages. A redirect that adds or removes the last slash of the path is followed on
    the same host.

    Raises:
        UnreadReplyError: the headers of an answer arrived, but no complete, usable body.
        AnswerError: no headers arrived, or `api_key` cannot be sent.
    """
    reply = await _send(client, "GET", url, where=where, deadline_s=deadline_s, token=api_key)
    location = reply.headers.get("location", "")
    goal = same_page(url, location) if reply.status in REDIRECTS else None
    if goal is not None:
        again = await _send(client, "GET", goal, where=where, deadline_s=deadline_s, token=api_key)
        if again.status != NOT_FOUND and again.status not in REDIRECTS:
            return again
    return reply


async def post(
    client: httpx.AsyncClient,
    url: str,
    body: bytes,
    *,
    where: str,
    deadline_s: float,
    token: str | None = None,
) -> Response:
    """Send one POST with the JSON document `body` and return the answer, whatever its HTTP status.

    Deadline, limits and errors are those of `get`; `token` is sent as a bearer token.

    Raises:
        UnreadReplyError: the headers of an answer arrived, but no complete, usable body.
        AnswerError: no headers arrived, or `token` cannot be sent.
    """
    return await _send(client, "POST", url, body, where=where, deadline_s=deadline_s, token=token)


async def _send(
    client: httpx.AsyncClient,
    method: str,
    url: str,
    body: bytes | None = None,
    *,
    where: str,
    deadline_s: float,
    token: str | None,
) -> Response:
    """Send one request and return the answer; parameters and errors as of `get` and `post`."""
    problem = key_problem(token)
    if problem is not None:
        raise AnswerError(FailureKind.UNAUTHORIZED, problem)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    status: int | None = None
    began = time.monotonic()
    try:
        async with (
            asyncio.timeout(deadline_s),
            client.stream(method, url, headers=headers, content=body) as response,
        ):
            status, answered_at = response.status_code, time.time()
            collector = BodyCollector(response.headers.get("content-encoding", ""))
            async for chunk in response.aiter_raw():
                collector.feed(chunk)
            return Response(
                status,
                collector.finish(),
                answered_at,
                response.headers,
                answer_ms=(time.monotonic() - began) * 1000,
            )
    except AnswerError as error:  # about the body, so the headers arrived
        raise UnreadReplyError(error, status or 0) from error
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:  # OSError: also TimeoutError
        failed = _answer_error(error, where, deadline_s)
        raise (failed if status is None else UnreadReplyError(failed, status)) from error


def _answer_error(error: Exception, where: str, deadline_s: float) -> AnswerError:
    """Return the `AnswerError` for an exception of httpx or the operating system.

    If an OSError is in the exception's chain of causes, that OSError decides the kind and message.
    """
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return timeout_error(where, deadline_s, answering=False, body_bytes=0)
    cause: BaseException | None = error
    os_error: OSError | None = None
    while cause is not None:
        # httpx wraps "connection refused" in an OSError without a number.
        if isinstance(cause, OSError) and (
            os_error is None or os_error.errno is None
        ):  # includes ssl.SSLError
            os_error = cause
        cause = cause.__cause__ or cause.__context__
    match os_error or error:
        case httpx.InvalidURL() | httpx.UnsupportedProtocol():
            answer = failure.unusable_address(where)
        # httpx distinguishes the next cases only in its text.
        case httpx.RemoteProtocolError() if "complete message" in str(error):
            answer = failure.broken_off(where, is_reset=False)
        case httpx.RemoteProtocolError() if "without sending" in str(error):
            answer = failure.no_answer(where)
        case httpx.RemoteProtocolError():
            answer = failure.not_http(where, b"")
        case cause:
            answer = failure.transport_error(cause, where)
    return answer
