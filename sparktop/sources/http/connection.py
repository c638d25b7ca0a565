"""A connection that carries one GET after another, and the answer to one of them.

Data is parsed and limited as it arrives, without tasks, queues or timers between the socket and the answer.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import cast

from sparktop.sources.http.body import BodyCollector
from sparktop.sources.http.failure import AnswerError, broken_off, no_answer, not_http, transport_error
from sparktop.sources.http.parser import BrokenAnswerError, HttpAnswer

OK = 200
_ERROR_BODY_BYTES = 2048
"""Bytes read of an error's body, of which one line is shown."""
_ERROR_BODY_S = 0.5
"""Seconds that an error's body may take after its head."""
_SHOWN_BYTES = 64
"""First bytes of an answer that are kept, to recognise another protocol by them."""


class Exchange:
    """A GET that was sent, and its answer as it arrives."""

    __slots__ = (
        "_answer",
        "_cap_bytes",
        "_clock",
        "_collector",
        "_done",
        "_first",
        "_where",
        "_words",
        "at",
        "is_resolving",
    )

    def __init__(self, where: str, clock: Callable[[], float], cap_bytes: int) -> None:
        """Expect an answer of `where` (host and port) with a body of at most `cap_bytes` bytes."""
        self.at: float | None = None
        """When the head of the answer was complete, in seconds of `clock`; None before."""
        self.is_resolving = False
        """Whether the address of the host's name is being looked up."""
        self._done: asyncio.Future[bytes] | None = asyncio.get_running_loop().create_future()
        """What `result` waits for."""
        self._where = where
        self._clock = clock
        self._cap_bytes = cap_bytes
        self._answer = HttpAnswer(unpack=False)
        self._first = b""
        self._words = b""
        self._collector: BodyCollector | None = None

    @property
    def where(self) -> str:
        """Host and port of the server."""
        return self._where

    @property
    def status(self) -> int | None:
        """The HTTP status; None before the head of the answer is complete."""
        return self._answer.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The answer's headers by lower-case name."""
        return self._answer.headers

    @property
    def body_bytes(self) -> int:
        """Bytes of the body that have arrived, still packed."""
        return self._collector.raw_bytes if self._collector is not None else len(self._words)

    @property
    def is_untouched(self) -> bool:
        """Whether no byte of an answer has arrived."""
        return not self._first

    @property
    def _is_over(self) -> bool:
        return self._done is None or self._done.done()

    @property
    def leaves_connection(self) -> bool:
        """Whether the connection may carry another request after this answer."""
        return self._answer.done and self._answer.reusable

    def restart(self) -> None:
        """Expect the answer on another connection, after the first was lost before a byte arrived."""
        self._done = asyncio.get_running_loop().create_future()

    async def result(self) -> bytes:
        """Return the body, unpacked; of a status other than 200 the beginning, b"" if it is packed or late.

        Raises:
            AnswerError: there is no complete, usable answer.
        """
        assert self._done is not None  # noqa: S101 - it is called once for each connection
        try:
            return await self._done
        finally:
            self._done = None  # otherwise an error would refer to itself through this frame

    def take(self, data: bytes) -> None:
        """Read the next data of the connection."""
        if self._is_over:
            return
        if len(self._first) < _SHOWN_BYTES:
            self._first += data[:_SHOWN_BYTES]
        try:
            body = self._answer.feed(data)
            if self.at is None and self.status is not None:
                self._begin_body()
            if self._collector is not None:
                self._collector.feed(body)
            elif self.status is not None:
                self._words += body[:_ERROR_BODY_BYTES]
            if self._answer.done or len(self._words) >= _ERROR_BODY_BYTES:
                self._finish()
        except BrokenAnswerError:
            if self.at is None:
                self.fail(not_http(self._where, self._first))
            else:
                self.fail(broken_off(self._where, is_reset=False))
        except AnswerError as error:
            self.fail(error)

    def lost(self, error: Exception | None) -> None:
        """Record that the connection was closed, regularly if `error` is None."""
        if self._is_over:
            return
        if self._answer.close():
            self._finish()
        elif isinstance(error, ssl.SSLError) or (error is not None and self.status is None):
            self.fail(transport_error(error, self._where))
        elif self.status is None:
            self.fail(no_answer(self._where))
        elif self._collector is None:
            self._finish()
        else:
            self.fail(broken_off(self._where, is_reset=error is not None))

    def fail(self, error: AnswerError) -> None:
        """End with `error`."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)
            self._done.exception()  # asyncio would log it otherwise if the poll was just cancelled

    def _begin_body(self) -> None:
        """Prepare for the body, now that the head is complete."""
        self.at = self._clock()
        if self.status != OK:
            if not self._answer.done:
                asyncio.get_running_loop().call_later(_ERROR_BODY_S, self._end_of_words)
            return
        self._collector = BodyCollector(self.headers.get("content-encoding", ""), self._cap_bytes)
        if self._answer.announced_bytes > self._cap_bytes:
            raise self._collector.too_large()

    def _end_of_words(self) -> None:
        self._words = b""
        self._finish()

    def _finish(self) -> None:
        if self._done is None or self._done.done():
            return
        if self._collector is not None:
            try:
                self._done.set_result(self._collector.finish())
            except AnswerError as error:
                self.fail(error)
            return
        is_packed = self.headers.get("content-encoding", "identity") != "identity"
        self._done.set_result(b"" if is_packed else self._words[:_ERROR_BODY_BYTES])


class Connection(asyncio.Protocol):
    """A connection to a server; what arrives belongs to the present exchange."""

    __slots__ = ("_exchange", "_transport", "idle_since")
    opened = 0
    """Number of open connections of this program."""

    def __init__(self) -> None:
        self.idle_since = 0.0
        """When the last exchange ended, in seconds of the event loop's clock."""
        self._exchange: Exchange | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, request: bytes, exchange: Exchange) -> None:
        """Send `request`; pass the answer to `exchange`."""
        self._exchange = exchange
        if self._transport is None:
            exchange.lost(None)
        else:
            self._transport.write(request)

    def become_idle(self, now: float) -> None:
        """End the exchange at the time `now`; another may follow."""
        self._exchange = None
        self.idle_since = now

    def abort(self) -> None:
        """Close the connection at once, and discard what is still to be read or written."""
        self._exchange = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; asyncio calls it once the connection is open."""
        self._transport = cast("asyncio.Transport", transport)
        Connection.opened += 1

    def data_received(self, data: bytes) -> None:
        """Pass received data on; asyncio calls it. Data without a request ends the connection."""
        if self._exchange is None:
            self.abort()
        else:
            self._exchange.take(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the exchange; asyncio calls it."""
        self._transport = None
        Connection.opened -= 1
        if self._exchange is not None:
            self._exchange.lost(exc)
            self._exchange = None
