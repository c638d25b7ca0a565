"""Split a byte stream, received in pieces of any size, into server-sent events (SSE).

Follows the WHATWG HTML standard, 9.2: lines end in LF, CR or CRLF; an empty line ends an event; the data
lines of an event are joined by LF; a line that begins with a colon is a comment. Only data fields and errors
are used. Bytes are not decoded before an event is complete, so a piece may end within a UTF-8 character.
"""

from __future__ import annotations

LARGEST_EVENT_BYTES = 8 << 20
"""Maximum size of an event. vLLM sends the token ids of the prompt in its first event: 7 MB for a million
tokens."""
_BOM = b"\xef\xbb\xbf"
_KEEP_ALIVE = frozenset({b"ping", b"keepalive", b"keep-alive", b"heartbeat"})
"""Names of events that keep a connection alive and are no part of an answer."""


class EventTooLargeError(Exception):
    """An event of the stream is larger than `LARGEST_EVENT_BYTES`."""


class EventSplitter:
    """Accepts a stream in pieces, and returns the data of each SSE event once the event is complete."""

    __slots__ = ("_buffer", "_last_was_cr", "_searched", "_started")

    def __init__(self) -> None:
        """Start at the beginning of a stream."""
        self._buffer = bytearray()
        self._searched = 0
        """Number of bytes at the start of the buffer that are known to contain no end of an event."""
        self._last_was_cr = False
        self._started = False

    @property
    def is_between_events(self) -> bool:
        """True if the stream so far ends with a complete event, and the next piece begins with another."""
        return self._started and not self._buffer and not self._last_was_cr

    def feed(self, data: bytes) -> list[bytes]:
        """Add a piece of the stream; return the data of the events that it completes.

        Raises:
            EventTooLargeError: an event is larger than `LARGEST_EVENT_BYTES`.
        """
        if self.is_between_events:
            # The usual case is complete events with LF: one pass in C without a buffer.
            if data.endswith(b"\n\n") and b"\r" not in data:
                return _events(data[:-2])
        elif not self._started:
            return self._begin(data)
        return self._feed_any(data)

    def rest(self) -> list[bytes]:
        """Return the data of a last event whose empty line is missing; empty if there is none."""
        whole = bytes(self._buffer).strip(b"\n")
        return _events(whole) if whole else []

    def _begin(self, data: bytes) -> list[bytes]:
        """Skip a byte order mark at the start of the stream, and parse the data after it.

        Return the data of the events that it completes.
        """
        self._buffer += data
        if len(self._buffer) < len(_BOM) and _BOM.startswith(self._buffer):
            return []
        self._started = True
        whole = bytes(self._buffer)
        self._buffer.clear()
        return self.feed(whole.removeprefix(_BOM))

    def _feed_any(self, data: bytes) -> list[bytes]:
        if self._last_was_cr and data:
            # The CR has already ended its line; an LF after it belongs to the same line end.
            data = data.removeprefix(b"\n")
            self._last_was_cr = False
        if b"\r" in data:
            self._last_was_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        buffer = self._buffer
        buffer += data
        end = buffer.rfind(b"\n\n", self._searched)
        if end < 0:
            # The end of an event may begin with the last byte.
            self._searched = max(0, len(buffer) - 1)
            if len(buffer) > LARGEST_EVENT_BYTES:
                raise EventTooLargeError
            return []
        whole = bytes(buffer[:end])
        del buffer[: end + 2]
        self._searched = max(0, len(buffer) - 1)
        return _events(whole)


def _events(text: bytes) -> list[bytes]:
    """Return the data of each event in `text`, which uses LF only and ends with a complete event."""
    found = []
    for block in text.split(b"\n\n"):
        if block.startswith(b"data: {") and b"\n" not in block:
            found.append(block[6:])
        elif (data := _data(block)) is not None:
            found.append(data)
    return found


def _data(block: bytes) -> bytes | None:
    """Return the data of the event `block`; None for an event without data, or one that keeps alive.

    llama.cpp sends an error in a field named "error", some servers in an event named "error". Both are
    converted to what other servers send: a JSON object with the key "error".
    """
    lines: list[bytes] = []
    is_error = False
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            lines.append(value)
        elif name == b"error":
            lines, is_error = [value], True
        elif name == b"event" and value == b"error":
            is_error = True
        elif name == b"event" and value.strip().lower() in _KEEP_ALIVE:
            return None
    data = b"\n".join(lines)
    if not data.strip():
        return None
    if is_error and b'"error"' not in data:
        return b'{"error":' + data + b"}"
    return data
