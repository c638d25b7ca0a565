"""One small question to a server over the generator's own connections: lists of models, lengths of texts."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from sparktop.sweep.generator.connection import ConnectionPool
from sparktop.sweep.generator.http_answer import BrokenAnswerError, HttpAnswer

_MOST_BYTES = 16 << 20
_OK = 200


class NoAnswerError(Exception):
    """No whole answer came."""


class _Collector:
    """Reads a whole answer."""

    def __init__(self) -> None:
        self.answer = HttpAnswer()
        self.body = bytearray()
        self.whole: asyncio.Future[None] = asyncio.get_running_loop().create_future()

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
        if self.whole.done():
            return
        if error is None:
            self.whole.set_result(None)
        else:
            self.whole.set_exception(error)


async def ask_json(pool: ConnectionPool, path: str, question: object, deadline_s: float) -> Any | None:  # noqa: ANN401 - JSON of any shape
    """GET a page, or POST a question to it; give its JSON, None for anything but a good answer.

    Raises:
        OSError: no connection could be opened; TimeoutError also when the answer took too long.
    """
    connection = pool.take() or await pool.open()
    body = b"" if question is None else json.dumps(question).encode()
    collector = _Collector()
    connection.reader = collector
    is_whole = False
    try:
        connection.send(pool.endpoint.head("GET" if question is None else "POST", path, len(body)) + body)
        async with asyncio.timeout(deadline_s):
            await collector.whole
        is_whole = True
    except NoAnswerError:
        return None
    finally:
        if is_whole and collector.answer.reusable:
            pool.give_back(connection)
        else:
            connection.abort()
    if collector.answer.status != _OK:
        return None
    try:
        return json.loads(bytes(collector.body))
    except (ValueError, RecursionError):
        return None
