"""An HTTP server on the running loop, with one handler, for the duration of a block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def answering(
    route: str, handler: Callable[[web.Request], Awaitable[web.Response]], method: str = "*"
) -> AsyncIterator[str]:
    """Answer requests of a route on a free port of loopback; yield the URL of the server."""
    app = web.Application()
    app.router.add_route(method, route, handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
