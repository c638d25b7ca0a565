"""One-shot requests over httpx: events to a webhook. What polls uses `client.py`, whose connections last."""

from __future__ import annotations

import asyncio
import ssl

import httpx

from sparktop import __version__
from sparktop.net import failure
from sparktop.net.failure import AnswerError, timeout_error


async def post(url: str, document: bytes, *, where: str, deadline_s: float, token: str | None) -> int:
    """Post a JSON document on a connection of its own, within `deadline_s` seconds; return the HTTP status.

    `token` is sent as a bearer token; `where` (host and port) names the server in messages. No redirect is
    followed, and no proxy, cookie or netrc is used.

    Raises:
        AnswerError: no answer arrived.
    """
    headers = {"Content-Type": "application/json", "User-Agent": f"sparktop/{__version__}"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        async with asyncio.timeout(deadline_s):
            # Loading the system's certificates is slow, and needless for http://.
            is_secure = url.startswith("https:")
            trust = (
                await asyncio.to_thread(ssl.create_default_context)
                if is_secure
                else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            )
            async with (
                httpx.AsyncClient(trust_env=False, timeout=None, verify=trust) as client,  # noqa: S113 - limited above
                client.stream("POST", url, headers=headers, content=document) as response,
            ):
                return response.status_code
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:  # OSError: also TimeoutError
        raise _answer_error(error, where, deadline_s) from error


def _answer_error(error: Exception, where: str, deadline_s: float) -> AnswerError:
    """Return the `AnswerError` for an exception of httpx or of the operating system, which httpx may wrap."""
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return timeout_error(where, deadline_s, answering=False, body_bytes=0)
    cause: BaseException | None = error
    os_error: OSError | None = None
    while cause is not None:
        # httpx wraps "connection refused" in an OSError without a number.
        if isinstance(cause, OSError) and (os_error is None or os_error.errno is None):
            os_error = cause
        cause = cause.__cause__ or cause.__context__
    match os_error or error:
        case httpx.InvalidURL() | httpx.UnsupportedProtocol():
            return failure.unusable_address(where)
        # httpx distinguishes an answer that is no HTTP from none only in its text.
        case httpx.RemoteProtocolError() if "without sending" in str(error):
            return failure.no_answer(where)
        case httpx.RemoteProtocolError():
            return failure.not_http(where, b"")
        case cause_found:
            return failure.transport_error(cause_found, where)
