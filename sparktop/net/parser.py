"""An incremental parser for one HTTP/1.1 response (RFC 9112): its head, then its body without the framing.

aiohttp is not used: it passes data on through tasks and queues, so that the load generator could timestamp
the data only after a delay, and for polls it takes 10 MiB of memory. This parser has no part in reading from
the socket.
"""

from __future__ import annotations

import re
import zlib
from enum import Enum, auto

_LARGEST_HEAD_BYTES = 64 << 10
_LONGEST_SIZE_LINE_BYTES = 4096
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?")
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
"""Also of a server that ends its lines without the carriage return (RFC 9112, 2.2)."""
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
_UNPACKED_AT_ONCE_BYTES = 1 << 20
_LARGEST_UNPACKED_BYTES = 64 << 20
"""Maximum bytes that the data of one read may decompress to: a larger expansion is an attack."""
_ZLIB_OR_GZIP_HEADER = 32 + zlib.MAX_WBITS
_PACKED = frozenset({"gzip", "x-gzip", "deflate"})
_NO_BODY = frozenset({204, 304})
_SWITCHING = 101
"""The interim status after which no other answer follows."""
_FINAL = 200
"""Smallest status of a final answer."""


class BrokenAnswerError(Exception):
    """The data is not a valid HTTP/1.1 response, or cannot be decompressed; the message states the fault."""


class _Part(Enum):
    HEAD = auto()
    SIZED = auto()
    """Body with a Content-Length."""
    CHUNK_SIZE = auto()
    CHUNK = auto()
    CHUNK_END = auto()
    TRAILER = auto()
    UNTIL_CLOSE = auto()
    DONE = auto()


_HEAD, _SIZED, _CHUNK_SIZE, _CHUNK, _CHUNK_END, _TRAILER, _UNTIL_CLOSE, _DONE = _Part
_USUAL_SIZES: dict[bytes, int] = {}
"""Chunk sizes under 4 KiB by their lines; filled for the first chunked answer, because they take 0.6 MiB."""
_USUAL_SIZE_LINE_BYTES = 5
"""Maximum length of these lines, which most servers send before a chunk with a token."""


class HttpAnswer:
    """Parses one HTTP response from data in pieces of any size, and returns its body in pieces."""

    __slots__ = (
        "_buffer",
        "_is_chunked",
        "_left",
        "_part",
        "_unpack_body",
        "_unpacker",
        "done",
        "headers",
        "reusable",
        "status",
    )

    def __init__(self, *, unpack: bool = True) -> None:
        """Start before the head of the response; `unpack` decompresses its body."""
        self.status: int | None = None
        """HTTP status; None until the head is complete."""
        self.headers: dict[str, str] = {}
        """Header values by lower-case name; of a repeated header, the last value."""
        self.reusable = True
        """True when the connection may carry another request after this response."""
        self.done = False
        """True when the response is complete, including its body."""
        self._part = _HEAD
        self._is_chunked = False
        self._buffer = b""
        self._left = 0
        self._unpack_body = unpack
        self._unpacker: zlib._Decompress | None = None

    @property
    def announced_bytes(self) -> int:
        """Bytes of the body, or of its present chunk, that were announced and have not arrived yet."""
        return self._left

    def feed(self, data: bytes) -> bytes:
        """Parse the next data of the connection; return the part of the body in it.

        Raises:
            BrokenAnswerError: the data is not a valid response.
        """
        if self._part is _HEAD:
            data = self._read_head(data)
            if self._part is _HEAD:
                return b""
        body = self._read_chunks(data) if self._is_chunked else self._read_body(data)
        if self._unpacker is not None and body:
            return self._unpack(self._unpacker, body)
        return body

    def close(self) -> bool:
        """Record that the connection was closed; return whether the response is complete."""
        if self._part is _UNTIL_CLOSE:
            self._finish(b"")
        return self.done

    def _read_head(self, data: bytes) -> bytes:
        """Parse the next data of the head (status line and headers).

        Return the data that follows the head; b"" while the head is incomplete.
        """
        self._buffer += data
        while True:
            found = _END_OF_HEAD.search(self._buffer)
            end = found.start() if found is not None else len(self._buffer)
            if end > _LARGEST_HEAD_BYTES:
                raise BrokenAnswerError("the head of the answer has no end")
            if found is None:
                if not b"HTTP/1.".startswith(self._buffer[:7]):
                    raise BrokenAnswerError("the answer is not HTTP/1.1")
                return b""
            lines, self._buffer = self._buffer[:end].split(b"\n"), self._buffer[found.end() :]
            status = self._read_status(lines[0].removesuffix(b"\r"))
            if status >= _FINAL or status == _SWITCHING:
                break
        self.status = status
        for line in lines[1:]:
            name, colon, value = line.partition(b":")
            if colon:
                key = name.rstrip().decode("latin-1").lower()
                self.headers[key] = value.strip().decode("utf-8", "replace")
        self._choose_framing()
        rest, self._buffer = self._buffer, b""
        return rest

    def _read_status(self, line: bytes) -> int:
        found = _STATUS_LINE.fullmatch(line)
        if found is None:
            raise BrokenAnswerError("the answer is not HTTP/1.1")
        if line.startswith(b"HTTP/1.0"):
            self.reusable = False
        return int(found[1])

    def _choose_framing(self) -> None:
        headers = self.headers
        if "close" in headers.get("connection", "").lower():
            self.reusable = False
        if self._unpack_body:
            self._choose_unpacker(headers.get("content-encoding", "identity").strip().lower())
        if self.status in _NO_BODY:
            self._finish(b"")
        elif headers.get("transfer-encoding", "").lower().endswith("chunked"):
            self._part = _CHUNK_SIZE
            self._is_chunked = True
            if not _USUAL_SIZES:
                _USUAL_SIZES.update({b"%x\r\n" % size: size for size in range(1, 1 << 12)})
        elif (length := headers.get("content-length")) is not None:
            if not (length.isascii() and length.isdigit() and len(length) < 16):  # noqa: PLR2004 - petabytes
                raise BrokenAnswerError("the length of the answer is not a number")
            self._left = int(length)
            self._part = _SIZED
            if not self._left:
                self._finish(b"")
        else:
            self.reusable = False
            self._part = _UNTIL_CLOSE

    def _choose_unpacker(self, packed: str) -> None:
        if packed in _PACKED:
            self._unpacker = zlib.decompressobj(_ZLIB_OR_GZIP_HEADER)
        elif packed not in {"", "identity"}:
            raise BrokenAnswerError("the answer is packed in a way that was not asked for")

    def _read_body(self, data: bytes) -> bytes:
        if self._part is _SIZED:
            body = data[: self._left]
            self._left -= len(body)
            if not self._left:
                self._finish(data[len(body) :])
            return body
        if self._part is _UNTIL_CLOSE:
            return data
        self._finish(data)
        return b""

    def _read_chunks(self, data: bytes) -> bytes:
        if self._buffer:
            data, self._buffer = self._buffer + data, b""
        pieces: list[bytes] = []
        at, length = 0, len(data)
        while at < length:
            if self._part is _CHUNK_SIZE:
                # Nearly every read is whole chunks of a usual size, most reads one.
                begin = data.find(b"\n", at, at + _USUAL_SIZE_LINE_BYTES) + 1
                end = begin + _USUAL_SIZES.get(data[at:begin], length)
                if data[end : end + 2] == b"\r\n":
                    pieces.append(data[begin:end])
                    at = end + 2
                    continue
            if self._part is _CHUNK:
                piece = data[at : at + self._left] if at or self._left < length else data
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if self._left:
                    break
                self._part = _CHUNK_END
            elif self._part is _DONE:
                self._finish(data[at:])
                break
            else:
                end = data.find(b"\r\n", at)
                if end < 0:
                    self._keep(data[at:])
                    break
                self._read_line(data[at:end])
                at = end + 2
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read_line(self, line: bytes) -> None:
        """Parse a line of the chunked framing (chunk size, end of a chunk, or trailer), without its CRLF."""
        if self._part is _CHUNK_SIZE:
            size = line.partition(b";")[0].strip()
            if _SIZE.fullmatch(size) is None:
                raise BrokenAnswerError("the size of a chunk is not a number")
            self._left = int(size, 16)
            self._part = _CHUNK if self._left else _TRAILER
        elif self._part is _CHUNK_END:
            if line:
                raise BrokenAnswerError("a chunk is longer than its size")
            self._part = _CHUNK_SIZE
        elif not line:
            self._finish(b"")

    def _keep(self, rest: bytes) -> None:
        if len(rest) > _LONGEST_SIZE_LINE_BYTES:
            raise BrokenAnswerError("the size of a chunk has no end")
        self._buffer = rest

    def _finish(self, rest: bytes) -> None:
        self._part = _DONE
        self.done = True
        if rest:
            self.reusable = False  # data beyond the response that was requested

    def _unpack(self, unpacker: zlib._Decompress, body: bytes) -> bytes:
        pieces, total = [], 0
        try:
            while body and not unpacker.eof:
                pieces.append(unpacker.decompress(body, _UNPACKED_AT_ONCE_BYTES))
                total += len(pieces[-1])
                if total > _LARGEST_UNPACKED_BYTES:
                    raise BrokenAnswerError("the packed answer unpacks without end")
                body = unpacker.unconsumed_tail
        except zlib.error as error:
            raise BrokenAnswerError("the packed answer cannot be unpacked") from error
        return b"".join(pieces)
