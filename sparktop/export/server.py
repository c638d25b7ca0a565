"""HTTP server of `sparktop export`, and its operation: watch without a screen until a signal arrives.

GET /metrics    what is known now, for Prometheus
GET /healthz    liveness, without a token
"""

from __future__ import annotations

import gzip
import re
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from sparktop.agent.access import Service
from sparktop.agent.exposition import CONTENT_TYPE, encode_page
from sparktop.agent.server import WebServer, page, text
from sparktop.export.metrics import EventCounts, NewestSweep, page_families
from sparktop.model.targets import Watch
from sparktop.store import Store
from sparktop.watch.monitor import Monitor
from sparktop.watch.reachable import reporting

FRESH_S = 0.5
"""A page that is at most this many seconds old is sent again: any number of clients causes two pages a
second."""
_LEVEL = 1
"""Compression level of gzip: a higher one saves little and costs more time of the event loop."""
_GZIP = re.compile(r"(?i)(?:^|,)\s*gzip\s*(?:,|$|;(?!\s*q=0(?:\.0*)?\s*(?:,|$)))")
"""Finds gzip in an Accept-Encoding header, unless it is refused by q=0."""


class ExportServer(WebServer):
    """Serves what a store knows as a page for Prometheus."""

    command = "export"

    def __init__(
        self,
        store: Store,
        sweep: NewestSweep,
        *,
        token: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        names: Collection[str] | None = None,
    ) -> None:
        """Serve the state of `store` and the levels of `sweep`; other parameters as of `WebServer`."""
        super().__init__(token=token, clock=clock, names=names)
        self._store = store
        self._sweep = sweep
        self._events = EventCounts()
        self._newest: tuple[float, bytes, bytes] | None = None
        """Time and content of the newest page, plain and as gzip."""
        self._end_listening = store.listen_events(self._events.add)

    async def close(self) -> None:
        """Stop listening, and wait a moment for responses in progress."""
        self._end_listening()
        await super().close()

    async def respond(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Respond to a request for the route `path`; an unknown one gets 404."""
        if path != "/metrics":
            return text(404, "not found: the page is /metrics", close=True)
        plain, zipped = self._page()
        if not _GZIP.search(request.headers.get("Accept-Encoding", "")):
            return page(plain, CONTENT_TYPE)
        response = page(zipped, CONTENT_TYPE)
        response.headers.update({"Content-Encoding": "gzip", "Vary": "Accept-Encoding"})
        return response

    def _page(self) -> tuple[bytes, bytes]:
        """Return the page, plain and as gzip, which is about a tenth of it."""
        now_s = self._clock()
        if self._newest is None or now_s - self._newest[0] >= FRESH_S:
            families = page_families(self._store.snapshot(), self._events.items(), self._sweep.levels)
            body = encode_page(lambda: families)
            self._newest = (now_s, body, gzip.compress(body, _LEVEL, mtime=0))
        return self._newest[1:]


async def serve(
    service: Service,
    watch: Watch,
    sweeps: Path,
    names: Collection[str] | None,
    *,
    ready: Callable[[], None],
    report: Callable[[str], None],
) -> int:
    """Watch the targets of `watch` and serve the page until a signal arrives; return the exit code.

    `sweeps` is the folder of stored sweeps, `names` are those of the server, as for `WebServer`. `ready` is
    called once the server accepts connections. `report` receives lines on what does not answer.
    """
    store = Store(watch)
    monitor = Monitor(watch, store)
    sweep = NewestSweep(sweeps)
    server = ExportServer(store, sweep, token=service.token, names=names)

    @asynccontextmanager
    async def watching() -> AsyncIterator[None]:
        async with monitor.running(sweep.watch()), reporting(store, watch, report):
            yield

    return await server.run(service, watching(), ready=ready)
