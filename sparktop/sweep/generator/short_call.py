"""Short JSON requests over the load generator's own connections, such as for models or token counts."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from sparktop.sources.http.parser import BrokenAnswerError, HttpAnswer
from sparktop.sweep.generator.connection import ConnectionPool

_MOST_BYTES = 16 << 20
_OK = 200


class NoAnswerError(Exception):
    """No complete HTTP response arrived; the message states why."""


class _Collector:
    """Collects an HTTP response; the future `complete` is done when it is complete or has failed."""

    def __init__(self) -> None:
        self.answer = HttpAnswer()
        self.body = bytearray()
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, at: float, data: bytes) -> None:  # noqa: ARG002 - nothing is timed here
        try:
            self.body += self.answer.feed(data)
        except BrokenAnswerError as error:
            self._end(NoAnswerError(str(error)))
        if len(self.body) > _MOST_BYTES:
            self._end(NoAnswerError("the answer is too large"))
        elif self.answer.done:
            self._end(None)

    def lost(self, at: float, error: Exception | None) -> None:  # noqa: ARG002 - as above
        self._end(None if self.answer.close() else NoAnswerError("the connection was closed"))

    def _end(self, error: NoAnswerError | None) -> None:
        if self.complete.done():
            return
        if error is None:
            self.complete.set_result(None)
        else:
            self.complete.set_exception(error)


async def ask_json(pool: ConnectionPool, path: str, question: object, deadline_s: float) -> Any | None:  # noqa: ANN401 - JSON of any shape
    """Send `question` as JSON by POST, or send a GET request if it is None; return the response's JSON.

    `path` is the path of the URL. Return None if the response is incomplete, not HTTP, not JSON, or has a
    status other than 200.

    Raises:
        OSError: no connection could be opened.
        TimeoutError: the response took longer than `deadline_s` seconds.
    """
    connection = pool.take() or await pool.open()
    body = b"" if question is None else json.dumps(question).encode()
    collector = _Collector()
    connection.reader = collector
    is_complete = False
    try:
        connection.send(pool.endpoint.head("GET" if question is None else "POST", path, len(body)) + body)
        async with asyncio.timeout(deadline_s):
            await collector.complete
        is_complete = True
    except NoAnswerError:
        return None
    finally:
        if is_complete and collector.answer.reusable:
            pool.give_back(connection)
        else:
            connection.abort()
    if collector.answer.status != _OK:
        return None
    try:
        return json.loads(bytes(collector.body))
    except (ValueError, RecursionError):
        return None
