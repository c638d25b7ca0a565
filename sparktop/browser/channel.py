"""A page at one width as a stream of server-sent events, encoded once for all of its viewers."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncGenerator, Mapping

from sparktop.browser.drawing import Orders
from sparktop.browser.picture import Picture

GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""The beginning of a gzip stream (RFC 1952) without name and time."""
_LEVEL = 5


class Channel:
    """The newest picture of a page, and its viewers.

    With gzip, each event is compressed on its own (a full flush), so that a viewer may join at any of them.
    """

    def __init__(self, picture: Picture, at: float, orders: Orders | None = None) -> None:
        """Start with a picture that was drawn at the monotonic time `at`, and the orders of its rows."""
        self.orders = orders or Orders()
        self.viewers = 0
        self.picture = picture
        self.drawn_at = at
        """Monotonic time of the newest picture."""
        self._version = 1
        self._change: dict[str, object] | None = None
        """What the newest picture changed; None if it differs in more than texts from the one before."""
        self._encoded: dict[tuple[str, bool], bytes] = {}
        """By name of the event and whether it is compressed: the newest events, encoded."""
        self._news = asyncio.Event()

    def show(self, picture: Picture, at: float) -> None:
        """Replace the picture by one that was drawn at the monotonic time `at`; wake all viewers."""
        before, self.picture = self.picture, picture
        self._change = picture.changes(before)
        self.drawn_at = at
        self._version += 1
        self._encoded.clear()
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def events(self, *, compressed: bool) -> AsyncGenerator[bytes, None]:
        """Yield the whole picture, then changes, for one viewer.

        A viewer that has missed a picture, because it reads slowly, gets the whole one again.
        """
        seen = 0
        if compressed:
            yield GZIP_HEAD
        while True:
            news = self._news
            if self._version != seen:
                follows = self._version == seen + 1 and self._change is not None
                seen = self._version
                yield self._event("change" if follows else "whole", compressed=compressed)
            else:
                await news.wait()

    def _event(self, name: str, *, compressed: bool) -> bytes:
        """Return the newest event `name`, encoded once for all viewers."""
        key = (name, compressed)
        found = self._encoded.get(key)
        if found is None:
            found = self._encoded[key] = self._encode(name, compressed=compressed)
        return found

    def _encode(self, name: str, *, compressed: bool) -> bytes:
        data = self._change if name == "change" and self._change is not None else self.picture.whole()
        event = encoded_event(name, data)
        if not compressed:
            return event
        packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        return packer.compress(event) + packer.flush(zlib.Z_FULL_FLUSH)


def encoded_event(name: str, data: Mapping[str, object]) -> bytes:
    """Return a server-sent event; its data is JSON on one line."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return f"event: {name}\ndata: {text}\n\n".encode()
