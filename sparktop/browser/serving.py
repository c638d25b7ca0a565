"""Operation of `sparktop serve`: watch without a screen, and serve the board until a signal arrives."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from sparktop.agent.access import Service, own_names
from sparktop.browser.server import BrowserServer
from sparktop.browser.sessions import Sessions
from sparktop.browser.shelf import Shelf
from sparktop.browser.studio import Studio
from sparktop.ending import stopped_by_signals
from sparktop.model.targets import Watch
from sparktop.store import Store
from sparktop.watch.monitor import Monitor


class Place(Struct, frozen=True):
    """Where the board is served: bound sockets with token and TLS, and the names of the server."""

    service: Service
    host: str
    """The host that the user gave to listen on."""
    names: Collection[str] = ()
    """Further names under which browsers address the server, such as that of a proxy."""


async def serve(
    place: Place, watch: Watch, sweeps: Path, *, ready: Callable[[], None], simulated: bool = False
) -> int:
    """Watch the targets of `watch` and serve the board until a signal arrives; return the exit code.

    `sweeps` is the folder of stored sweeps. `ready` is called once the server accepts connections.
    `simulated` marks the figures as simulated.
    """
    service = place.service
    store = Store(watch, simulated=simulated)
    monitor = Monitor(watch, store)
    studio = Studio(store.snapshot, Shelf(sweeps), show_processes=monitor.show_processes)
    port = int(service.listeners[0].getsockname()[1])
    server = BrowserServer(
        studio,
        theme=watch.theme,
        names=own_names(place.host, place.names),
        token=service.token,
        sessions=None if service.token is None else Sessions(service.token, port),
        is_tls=service.tls is not None,
    )
    with stopped_by_signals() as stop:
        server.start(service.listeners, tls=service.tls)
        ready()
        await monitor.start()
        drawing = asyncio.get_running_loop().create_task(studio.run())
        # The start-up objects live until the end: excluding them makes garbage collection cheaper.
        gc.collect()
        gc.freeze()
        try:
            return await stop
        finally:
            drawing.cancel()
            with suppress(asyncio.CancelledError):
                await drawing
            await monitor.stop()
            await server.close()
