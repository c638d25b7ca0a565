"""The HTTP session that the sources of a group share."""

from __future__ import annotations

import asyncio

import aiohttp

from sparktop import __version__

_KEPT_ALIVE_S = 120.0
"""How long an idle connection is kept: longer than sensible poll intervals. Servers may close it earlier."""


class SharedSession:
    """One kept-alive HTTP session, opened at first use and closed when its last user leaves."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """Held while a page is read, so that one iteration of the event loop reads one page: with 64 servers
        answering at once a key press would else wait for all of their pages, several times over."""
        self._session: aiohttp.ClientSession | None = None
        self._users = 0

    def join(self) -> None:
        """Count one more user."""
        self._users += 1

    async def leave(self) -> None:
        """Count one user less; the last one closes the session."""
        self._users -= 1
        if self._users <= 0 and self._session is not None:
            session, self._session = self._session, None
            await session.close()

    def get(self) -> aiohttp.ClientSession:
        """The session, opened now if it is not yet; needs a running event loop."""
        if self._session is None:
            self._session = _open()
        return self._session


def _open() -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(
        limit=0,  # with a limit, servers that never answer would hold the places of healthy ones
        keepalive_timeout=_KEPT_ALIVE_S,
        # aiohttp prefers aiodns where that is installed, and aiodns knows no mDNS: `.local` names would fail.
        resolver=aiohttp.ThreadedResolver(),
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        # Bodies are unpacked under a cap of ours, and the deadline covers the whole exchange.
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None),
        headers={"User-Agent": f"sparktop/{__version__}", "Accept-Encoding": "identity"},
    )
