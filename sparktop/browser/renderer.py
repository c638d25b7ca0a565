"""Draws pages that have viewers: each page once an interval at each width, however many viewers it has."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import zlib
from collections.abc import AsyncGenerator, Callable

from sparktop import __version__
from sparktop.browser.drawing import Orders, ResultPages, draw, notice_section, page_picture
from sparktop.browser.page import PageKind, WebPage
from sparktop.browser.picture import Picture
from sparktop.model.snapshot import Snapshot

GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""The beginning of a gzip stream (RFC 1952) without name and time."""
_LEVEL = 5
"""Compression level of events."""


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
        sent_version = 0
        if compressed:
            yield GZIP_HEAD
        while True:
            news = self._news
            if self._version != sent_version:
                follows = self._version == sent_version + 1 and self._change is not None
                sent_version = self._version
                yield self._event("change" if follows else "whole", compressed=compressed)
            else:
                await news.wait()

    def _event(self, name: str, *, compressed: bool) -> bytes:
        """Return the newest event `name`, encoded once for all viewers; its data is JSON on one line."""
        key = (name, compressed)
        if key not in self._encoded:
            data = self._change if name == "change" else self.picture.whole()
            text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            event = f"event: {name}\ndata: {text}\n\n".encode()
            if compressed:
                packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
                event = packer.compress(event) + packer.flush(zlib.Z_FULL_FLUSH)
            self._encoded[key] = event
        return self._encoded[key]


_log = logging.getLogger(__name__)

LEAST_TICK_S = 1.0
"""Least seconds between two pictures of a page."""
BUSY_SHARE = 0.1
"""Largest share of the time that is spent on drawing: where many different pages take longer, ticks are
longer."""
FRESH_S = 0.5
"""A picture that is at most this many seconds old is sent again to a new viewer."""
_PHASE = 0.35
"""Pictures are drawn after this share of an interval: by then most answers to its polls have arrived."""
_OF_RESULTS = frozenset({PageKind.SWEEPS, PageKind.SWEEP})


class PageRenderer:
    """All channels: those with viewers are drawn at each tick, others are forgotten."""

    def __init__(
        self,
        take: Callable[[], Snapshot],
        results: ResultPages,
        *,
        show_processes: Callable[[tuple[str, ...]], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Draw the snapshots that `take` returns, and the stored results of `results`.

        `show_processes` is called with the names of the nodes whose pages have viewers, each time these names
        change: their process tables are read meanwhile.
        """
        self._take = take
        self._results = results
        self._clock = clock
        self._channels: dict[tuple[WebPage, int], Channel] = {}
        self._wanted = asyncio.Event()
        self._making = asyncio.Lock()
        self._interval_s = LEAST_TICK_S
        self._show_processes = show_processes
        self._processes_of: tuple[str, ...] = ()

    @property
    def viewers(self) -> int:
        """Number of viewers of all pages."""
        return sum(channel.viewers for channel in self._channels.values())

    async def picture(self, page: WebPage, width: int) -> Picture:
        """Return a picture that is at most `FRESH_S` seconds old, or the newest one while others watch it."""
        return (await self._channel(page, width)).picture

    async def watch(self, page: WebPage, width: int, *, compressed: bool) -> AsyncGenerator[bytes, None]:
        """Yield the server-sent events of a page at one width, until the viewer goes."""
        channel = await self._channel(page, width)
        channel.viewers += 1
        self._wanted.set()
        try:
            async for event in channel.events(compressed=compressed):
                yield event
        finally:
            channel.viewers -= 1

    async def run(self) -> None:
        """Draw what has viewers at each tick until cancelled; without viewers, wait for one."""
        while True:
            if not self.viewers:
                self._report_processes()
                self._wanted.clear()
                await self._wanted.wait()
            began = self._clock()
            await self._draw_watched()
            spent = self._clock() - began
            interval = max(LEAST_TICK_S, self._interval_s)
            wait_s = interval - (self._clock() - _PHASE * interval) % interval
            await asyncio.sleep(max(wait_s, spent / BUSY_SHARE - spent))

    async def _draw_watched(self) -> None:
        """Draw all channels with viewers from one snapshot."""
        self._forget_unwatched()
        self._report_processes()
        if any(page.kind in _OF_RESULTS for page, _ in self._channels):
            await self._results.refresh()
        snapshot = self._take_snapshot()
        for key, channel in list(self._channels.items()):
            if channel.viewers:
                channel.show(await self._draw(*key, snapshot, channel.orders), self._clock())
            await asyncio.sleep(0)  # polls and other viewers come between two pages

    def _report_processes(self) -> None:
        channels = self._channels.items()
        watched = {
            page.name for (page, _), channel in channels if page.kind is PageKind.NODE and channel.viewers
        }
        names = tuple(sorted(watched))
        if names != self._processes_of:
            self._processes_of = names
            self._show_processes(names)

    def _take_snapshot(self) -> Snapshot:
        snapshot = self._take()
        self._interval_s = snapshot.interval_s
        return snapshot

    async def _channel(self, page: WebPage, width: int) -> Channel:
        """Return the channel of a page at one width, with a picture that is not too old."""
        key = (page, width)
        async with self._making:
            self._forget_unwatched()
            channel = self._channels.get(key)
            if channel is None:
                if page.kind in _OF_RESULTS:
                    await self._results.refresh()
                orders = Orders()
                picture = await self._draw(page, width, self._take_snapshot(), orders)
                channel = Channel(picture, self._clock(), orders)
                self._channels[key] = channel
            return channel

    def _forget_unwatched(self) -> None:
        """Forget the channels without viewers whose pictures are too old to be sent again."""
        now = self._clock()
        for key, channel in list(self._channels.items()):
            if not channel.viewers and now - channel.drawn_at > FRESH_S:
                del self._channels[key]

    async def _draw(self, page: WebPage, width: int, snapshot: Snapshot, orders: Orders) -> Picture:
        """Draw a page; one that cannot be drawn is logged and says so, and the others go on."""
        try:
            if page.kind in _OF_RESULTS:
                return await self._results.draw(page, snapshot, width)
            return draw(page, snapshot, width, orders)
        except Exception:  # noqa: BLE001 - a bug in one panel must not end the pages of all viewers
            _log.exception("the page %s could not be drawn", page.path)
            words = f"this page could not be drawn: a bug in sparktop {__version__}; its log has more"
            band = (notice_section(words, width),)
            return page_picture([band], snapshot, width, title="not drawn")
