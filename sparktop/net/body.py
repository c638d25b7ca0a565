"""Collects the chunks of a response body, with one size limit for the raw and for the decompressed bytes."""

from __future__ import annotations

import zlib

from sparktop.model.failure import FailureKind
from sparktop.model.text import clean
from sparktop.net.failure import AnswerError

BODY_CAP_BYTES = 4 * 1024 * 1024
"""4 MiB. A vLLM page is 35 to 60 kB; even 64 data-parallel ranks stay below this."""

_PLAIN = frozenset({"", "identity"})
_ZLIB = frozenset({"gzip", "x-gzip", "deflate"})
_ZLIB_OR_GZIP_HEADER = 32 + zlib.MAX_WBITS


class BodyCollector:
    """Collects the body of one response.

    Raises `AnswerError` as soon as the body is too large or cannot be decompressed.
    """

    def __init__(self, encoding: str = "", cap_bytes: int = BODY_CAP_BYTES) -> None:
        """Prepare for a body with the Content-Encoding `encoding` and at most `cap_bytes` bytes.

        Raises:
            AnswerError: the encoding is not supported.
        """
        self._cap_bytes = cap_bytes
        self._chunks: list[bytes] = []
        self.unpacked_bytes = 0
        """Bytes of the body so far, after decompression."""
        self.raw_bytes = 0
        """Bytes received so far, before decompression."""
        word = encoding.strip().lower()
        if word not in _PLAIN | _ZLIB:
            message = f"the answer is packed as {clean(word, 20)}, which sparktop cannot unpack"
            raise AnswerError(FailureKind.UNSUPPORTED, message)
        self._unpacker = zlib.decompressobj(_ZLIB_OR_GZIP_HEADER) if word in _ZLIB else None

    def feed(self, chunk: bytes) -> None:
        """Decompress a chunk of the body where needed, and append it.

        Raises:
            AnswerError: the body is over the limit or cannot be decompressed.
        """
        self.raw_bytes += len(chunk)
        if self.raw_bytes > self._cap_bytes:
            raise self.too_large()
        if self._unpacker is not None:
            chunk = self._unpack(self._unpacker, chunk)
        self.unpacked_bytes += len(chunk)
        if self.unpacked_bytes > self._cap_bytes:
            raise self.too_large()
        self._chunks.append(chunk)

    def finish(self) -> bytes:
        """Return the complete, decompressed body.

        Raises:
            AnswerError: a compressed body ended early.
        """
        if self._unpacker is not None and not self._unpacker.eof:
            raise AnswerError(FailureKind.MALFORMED, "the packed answer broke off in the middle")
        return self.so_far()

    def so_far(self) -> bytes:
        """Return the beginning of the body, as far as it was fed."""
        return b"".join(self._chunks)

    def _unpack(self, unpacker: zlib._Decompress, chunk: bytes) -> bytes:
        # One byte over the remaining room shows that the limit is passed, without inflating a bomb.
        room = self._cap_bytes - self.unpacked_bytes + 1
        try:
            unpacked = unpacker.decompress(chunk, room)
        except zlib.error as error:
            raise AnswerError(FailureKind.MALFORMED, "the packed answer cannot be unpacked") from error
        if unpacker.unused_data:
            message = "the packed answer has more data after its end"
            raise AnswerError(FailureKind.MALFORMED, message)
        return unpacked

    def too_large(self) -> AnswerError:
        """Return, without raising it, the error for a body over the size limit."""
        cap_mib = self._cap_bytes / 1024 / 1024
        message = f"the answer is larger than {cap_mib:g} MiB: no metrics page is; is the port right?"
        return AnswerError(FailureKind.TOO_LARGE, message)
