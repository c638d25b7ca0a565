"""An HTTP/1.1 response on a connection whose reads are timed: llhttp (httptools) parses what was read before.

aiohttp is not used there: it passes data on through tasks and queues, so that the load generator could
timestamp the data only after a delay.
"""

from __future__ import annotations

import zlib

import httptools

from sparktop.model.text import clean

_LARGEST_HEAD_BYTES = 64 << 10
"""Most bytes of the headers of an answer."""
_UNPACKED_AT_ONCE_BYTES = 1 << 20
_LARGEST_UNPACKED_BYTES = 64 << 20
"""Maximum bytes that the data of one read may decompress to: a larger expansion is an attack."""
_ZLIB_OR_GZIP_HEADER = 32 + zlib.MAX_WBITS
_PACKED = frozenset({"gzip", "x-gzip", "deflate"})
_SWITCHING = 101
"""The interim status after which no other answer follows."""
_FINAL, _REDIRECTING = 200, 300
"""Smallest status of a final answer, and of one elsewhere."""


class BrokenAnswerError(Exception):
    """The data is not a valid HTTP/1.1 response, or cannot be decompressed; the message states the fault."""


class HttpAnswer:
    """Parses one HTTP response from data in pieces of any size, and returns its body in pieces."""

    __slots__ = (
        "_ends_with_connection",
        "_fields",
        "_head_bytes",
        "_is_upgraded",
        "_parser",
        "_pieces",
        "_unpacker",
        "done",
        "headers",
        "reusable",
        "status",
    )

    def __init__(self) -> None:
        self.status: int | None = None
        """HTTP status; None until the head is complete."""
        self.headers: dict[str, str] = {}
        """Header values by lower-case name; of a repeated header, the last value."""
        self.reusable = True
        """True when the connection may carry another request after this response."""
        self.done = False
        """True when the response is complete, including its body."""
        self._head_bytes = 0
        self._fields: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._ends_with_connection = False
        self._is_upgraded = False
        self._unpacker: zlib._Decompress | None = None
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        # What servers are known to send: lines without a carriage return, spaces around names and sizes, a
        # length beside chunks, data after an answer that ends its connection.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_chunked_length=True,
            lenient_data_after_close=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )

    @property
    def is_ok(self) -> bool:
        """Whether the status says that the request was served."""
        return self.status is not None and _FINAL <= self.status < _REDIRECTING

    def feed(self, data: bytes) -> bytes:
        """Parse the next data of the connection; return the part of the body in it.

        Raises:
            BrokenAnswerError: the data is not a valid response.
        """
        if self._parser is None:
            self.reusable = self.reusable and not data  # data beyond the response that was requested
            return b""
        if self._is_upgraded:
            return b""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._is_upgraded = True
            self.reusable = False
        except httptools.HttpParserError as error:
            if not self.done:
                raise BrokenAnswerError(f"the answer is not HTTP/1.1: {error}") from error
            self.reusable = False
        if self.status is None:
            self._head_bytes += len(data)
            if self._head_bytes > _LARGEST_HEAD_BYTES:
                raise BrokenAnswerError("the head of the answer has no end")
            return b""
        if self.done:
            self._parser = None  # it refers to this object
        body_pieces, self._pieces = self._pieces, []
        body = body_pieces[0] if len(body_pieces) == 1 else b"".join(body_pieces)
        return self._unpack(body) if body and self.headers.get("content-encoding") else body

    def close(self) -> bool:
        """Record that the connection was closed; return whether the response is complete."""
        self._parser = None
        self.done = self.done or self._ends_with_connection
        return self.done

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; httptools calls it, for trailers too."""
        if self.status is None:
            self._fields[name.rstrip().decode("latin-1").lower()] = value.strip().decode("utf-8", "replace")

    def on_headers_complete(self) -> None:
        """Keep status and framing of the final answer; httptools calls it for each interim answer, too."""
        parser, fields, self._fields = self._parser, self._fields, {}
        assert parser is not None  # noqa: S101 - it calls
        status = parser.get_status_code()
        if self.done or (status < _FINAL and status != _SWITCHING):
            return
        self.status, self.headers = status, fields
        self.reusable = parser.should_keep_alive()
        chunked = fields.get("transfer-encoding", "").lower().endswith("chunked")
        self._ends_with_connection = not (chunked or "content-length" in fields)

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body; httptools calls it."""
        if not self.done:
            self._pieces.append(body)

    def on_message_begin(self) -> None:
        """Note that another answer begins, which nobody asked for; httptools calls it."""
        if self.done:
            self.reusable = False

    def on_message_complete(self) -> None:
        """End the answer unless it is an interim one; httptools calls it."""
        self.done = self.status is not None

    def _unpack(self, body: bytes) -> bytes:
        """Return the next part of a body, decompressed where it was sent so."""
        packed = self.headers["content-encoding"].strip().lower()
        if packed == "identity":
            return body
        if packed not in _PACKED:
            raise BrokenAnswerError(f"the answer is packed as {clean(packed, 20)!r}, which was not asked for")
        self._unpacker = unpacker = self._unpacker or zlib.decompressobj(_ZLIB_OR_GZIP_HEADER)
        unpacked, total = [], 0
        try:
            while body and not unpacker.eof:
                unpacked.append(unpacker.decompress(body, _UNPACKED_AT_ONCE_BYTES))
                total += len(unpacked[-1])
                if total > _LARGEST_UNPACKED_BYTES:
                    raise BrokenAnswerError("the packed answer unpacks without end")
                body = unpacker.unconsumed_tail
        except zlib.error as error:
            raise BrokenAnswerError("the packed answer cannot be unpacked") from error
        return b"".join(unpacked)
