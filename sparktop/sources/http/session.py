"""The HTTP session shared by the sources of a group."""

from __future__ import annotations

import asyncio

import aiohttp

from sparktop import __version__

_KEPT_ALIVE_S = 120.0
"""Seconds that an idle connection is kept, longer than usual poll intervals; servers may close it earlier."""


class SharedSession:
    """An HTTP session with keep-alive and a count of its users.

    The session opens at the first `get()` and closes when the last user calls `leave()`.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """Held while a page is parsed, so that one iteration of the event loop parses one page at most:
        with 64 servers answering at once, a key press would otherwise wait for all of them."""
        self._session: aiohttp.ClientSession | None = None
        self._users = 0

    def join(self) -> None:
        """Add one to the count of users; each caller of `join()` must call `leave()` later."""
        self._users += 1

    async def leave(self) -> None:
        """Subtract one from the count of users; close the session when no user is left."""
        self._users -= 1
        if self._users <= 0 and self._session is not None:
            session, self._session = self._session, None
            await session.close()

    def get(self) -> aiohttp.ClientSession:
        """Return the session; open it first if needed. Requires a running event loop."""
        if self._session is None:
            self._session = _open()
        return self._session


def _open() -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(
        limit=0,  # a limit would let unresponsive servers block healthy ones
        keepalive_timeout=_KEPT_ALIVE_S,
        # aiohttp prefers aiodns where installed, which cannot resolve mDNS: `.local` names would fail.
        resolver=aiohttp.ThreadedResolver(),
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        # `BodyCollector` decompresses under a size limit, and `Fetcher` sets a deadline for the whole
        # exchange.
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None),
        headers={"User-Agent": f"sparktop/{__version__}", "Accept-Encoding": "identity"},
    )
