"""Server-sent events cut out of a byte stream, however the network split it.

After the WHATWG HTML standard, 9.2: lines end in LF, CR or CRLF; an empty line ends an event; the data lines
of an event are joined by LF; a line that begins with a colon is a comment. Only the data matter here. Bytes
are never decoded before an event is whole, so UTF-8 may be split anywhere.
"""

from __future__ import annotations

LARGEST_EVENT_BYTES = 8 << 20
"""The token ids of a prompt of a million tokens, which vLLM tells in its first event, are 7 MB."""
_BOM = b"\xef\xbb\xbf"


class EventTooLargeError(Exception):
    """An event without an end."""


class EventSplitter:
    """Takes a stream in pieces and gives the data of each event once it is whole."""

    __slots__ = ("_buffer", "_last_was_cr", "_searched", "_started")

    def __init__(self) -> None:
        """Begin at the beginning of a stream."""
        self._buffer = bytearray()
        self._searched = 0
        """Bytes of the buffer that hold no end of an event."""
        self._last_was_cr = False
        self._started = False

    def feed(self, data: bytes) -> list[bytes]:
        """Take in a piece; give the data of the events that it completes.

        Raises:
            EventTooLargeError: an event grew beyond any sense.
        """
        if self._started and not self._buffer and not self._last_was_cr:
            # What servers really send: whole events with LF. One pass in C instead of a buffer.
            if data.endswith(b"\n\n") and b"\r" not in data:
                return _events(data[:-2])
        elif not self._started:
            return self._begin(data)
        return self._feed_any(data)

    def _begin(self, data: bytes) -> list[bytes]:
        """Drop a byte order mark, which may come in pieces too."""
        self._buffer += data
        if len(self._buffer) < len(_BOM) and _BOM.startswith(self._buffer):
            return []
        self._started = True
        whole = bytes(self._buffer)
        self._buffer.clear()
        return self.feed(whole.removeprefix(_BOM))

    def _feed_any(self, data: bytes) -> list[bytes]:
        if self._last_was_cr and data:
            # The CR has already ended its line; an LF after it belongs to the same end.
            data = data.removeprefix(b"\n")
            self._last_was_cr = False
        if b"\r" in data:
            self._last_was_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        buffer = self._buffer
        buffer += data
        end = buffer.rfind(b"\n\n", self._searched)
        if end < 0:
            # An end may begin with the last byte.
            self._searched = max(0, len(buffer) - 1)
            if len(buffer) > LARGEST_EVENT_BYTES:
                raise EventTooLargeError
            return []
        whole = bytes(buffer[:end])
        del buffer[: end + 2]
        self._searched = max(0, len(buffer) - 1)
        return _events(whole)


def _events(text: bytes) -> list[bytes]:
    """Give the data of the events in text that has only LF and whose last event is whole."""
    found = []
    for block in text.split(b"\n\n"):
        if block.startswith(b"data: ") and b"\n" not in block:
            found.append(block[6:])
        elif (data := _data(block)) is not None:
            found.append(data)
    return found


def _data(block: bytes) -> bytes | None:
    """Give the data of one event's lines, None for an event without any.

    An error is told by llama.cpp as a field of its own and by others as the event's name: both become the
    JSON object that the rest of the world sends.
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
    if not lines:
        return None
    data = b"\n".join(lines)
    if is_error and b'"error"' not in data:
        return b'{"error":' + data + b"}"
    return data
