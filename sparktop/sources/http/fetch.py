"""One HTTP GET over aiohttp with a deadline and a size limit.

The result is an `Answer`, or an `AnswerError` with the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache

import aiohttp
from yarl import URL

from sparktop.sources.http.body import BODY_CAP_BYTES, BodyCollector
from sparktop.sources.http.failure import AnswerError, status_error, timeout_error, transport_error
from sparktop.sources.server_words import server_words
from sparktop.values import dataclass

_OK = 200
_KEPT_URLS = 4096
"""Parsed URLs that are kept: with hundreds of servers, yarl's own cache is too small."""
_ERROR_BODY_BYTES = 2048
"""Bytes read of an error's body, of which one line is shown."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete HTTP response with status 200."""

    body: bytes
    at: float
    """When its headers arrived, in seconds on the caller's clock."""
    answer_ms: float
    """Milliseconds from the request to the last byte."""


class Fetcher:
    """One HTTP GET.

    Keeps the status and the number of bytes received, for the message about a missed deadline.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        *,
        where: str,
        api_key: str | None,
        clock: Callable[[], float],
    ) -> None:
        """Prepare a GET of `url`; `where` (host and port) names the server in messages."""
        self._session = session
        self._url = url
        self._where = where
        self._api_key = api_key
        self._clock = clock
        self._status: int | None = None
        self._location = ""
        self._body_bytes = 0

    async def fetch(self, deadline_s: float) -> Answer:
        """Send the request and return the answer with status 200.

        Raises:
            AnswerError: a network error, another status, a missed deadline, or an unusable body.
        """
        began = self._clock()
        headers = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else None
        try:
            # Cancelling closes the connection, so a late body cannot linger on a kept-alive one.
            async with (
                asyncio.timeout(deadline_s),
                self._session.get(_parsed(self._url), headers=headers, allow_redirects=False) as response,
            ):
                at = self._clock()
                self._status = response.status
                self._location = response.headers.get("Location", "")
                if response.status != _OK:
                    raise self._status_error(await self._error_body(response))
                body = await self._body(response)
        except TimeoutError as error:
            if self._status not in {None, _OK}:
                raise self._status_error(b"") from error
            raise timeout_error(
                self._where, deadline_s, answering=self._status is not None, body_bytes=self._body_bytes
            ) from error
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            raise transport_error(error, self._where) from error
        return Answer(body, at, (self._clock() - began) * 1000)

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        collector = BodyCollector(response.headers.get("Content-Encoding", ""))
        if (response.content_length or 0) > BODY_CAP_BYTES:
            raise collector.too_large()
        async for chunk in response.content.iter_any():
            collector.feed(chunk)
            self._body_bytes = collector.raw_bytes
        return collector.finish()

    async def _error_body(self, response: aiohttp.ClientResponse) -> bytes:
        """Return up to `_ERROR_BODY_BYTES` of the body of an error response.

        Return b"" where the body is compressed or cannot be read: the caller's message then has the status
        only.
        """
        body = b""
        try:
            while len(body) < _ERROR_BODY_BYTES and (chunk := await response.content.read(_ERROR_BODY_BYTES)):
                body += chunk
        except (aiohttp.ClientError, OSError):
            return b""
        packed = response.headers.get("Content-Encoding", "identity") != "identity"
        return b"" if packed else body[:_ERROR_BODY_BYTES]

    def _status_error(self, body: bytes) -> AnswerError:
        return status_error(
            self._status or 0,
            self._where,
            location=self._location,
            words=server_words(body, self._api_key),
            has_key=bool(self._api_key),
        )


@lru_cache(_KEPT_URLS)
def _parsed(url: str) -> URL | str:
    """Return `url` parsed; one that is not valid as it is, for aiohttp to say what is wrong with it."""
    try:
        return URL(url)
    except ValueError:
        return url
