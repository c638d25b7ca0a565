"""Short JSON requests over the load generator's own connections, such as for models or token counts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from sparktop.net.failure import no_answer, not_http
from sparktop.net.parser import BrokenAnswerError, HttpAnswer
from sparktop.sweep.generator.connection import ConnectionPool

_MOST_BYTES = 16 << 20
_OK = 200


class NoAnswerError(Exception):
    """No complete HTTP response arrived; the message states why."""


class ShortAnswer(Struct, frozen=True):
    """A complete HTTP response."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes

    def json(self) -> Any | None:  # noqa: ANN401 - JSON of any shape
        """Return the body's JSON; None if the status is not 200, or the body is not JSON."""
        try:
            return json.loads(self.body) if self.status == _OK else None
        except (ValueError, RecursionError):
            return None


class _Collector:
    """Collects an HTTP response; the future `complete` is done when it is complete or has failed."""

    def __init__(self, where: str) -> None:
        self.answer = HttpAnswer()
        self.body = bytearray()
        self._where = where
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, at: float, data: bytes) -> None:  # noqa: ARG002 - nothing is timed here
        try:
            self.body += self.answer.feed(data)
        except BrokenAnswerError:
            self._end(NoAnswerError(not_http(self._where, data).message))
        if len(self.body) > _MOST_BYTES:
            self._end(NoAnswerError(f"the answer of {self._where} is too large"))
        elif self.answer.done:
            self._end(None)

    def lost(self, at: float, error: Exception | None) -> None:  # noqa: ARG002 - as above
        self._end(None if self.answer.close() else NoAnswerError(no_answer(self._where).message))

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
    connection = pool.take() or await pool.open()
    body = b"" if question is None else json.dumps(question).encode()
    collector = _Collector(pool.endpoint.where)
    connection.reader = collector
    is_complete = False
    try:
        connection.send(pool.endpoint.head("GET" if question is None else "POST", path, len(body)) + body)
        async with asyncio.timeout(deadline_s):
            await collector.complete
        is_complete = True
    finally:
        if is_complete and collector.answer.reusable:
            pool.give_back(connection)
        else:
            connection.abort()
    return ShortAnswer(collector.answer.status or 0, collector.answer.headers, bytes(collector.body))


async def ask_json(pool: ConnectionPool, path: str, question: object, deadline_s: float) -> Any | None:  # noqa: ANN401 - JSON of any shape
    """Return the JSON of the response to `question`, see `ask`; None if there is none.

    Raises:
        OSError: no connection could be opened.
        TimeoutError: the response took longer than `deadline_s` seconds.
    """
    try:
        return (await ask(pool, path, question, deadline_s)).json()
    except NoAnswerError:
        return None
