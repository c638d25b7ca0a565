"""A running server of `sparktop export` in this process."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparktop.agent.access import bind
from sparktop.export.metrics import NewestSweep
from sparktop.export.server import ExportServer
from sparktop.model.targets import BackendTarget, Watch
from sparktop.store import Store


@dataclass(frozen=True)
class Served:
    """A running server, its port and its store."""

    port: int
    server: ExportServer
    store: Store


StartServer = Callable[..., Awaitable[Served]]


@pytest.fixture
async def start_server(tmp_path: Path) -> AsyncIterator[StartServer]:
    """Return a function that serves a store with one server "b" on a free port of loopback."""
    started: list[Served] = []

    async def start(
        token: str | None = None, *, names: Collection[str] | None = None, tls: ssl.SSLContext | None = None
    ) -> Served:
        clock = asyncio.get_running_loop().time
        store = Store(Watch(backends=(BackendTarget("b", "http://b:8000"),)), clock=clock)
        server = ExportServer(store, NewestSweep(tmp_path), token=token, names=names, clock=clock)
        listeners = bind("127.0.0.1", 0)
        server.start(listeners, tls=tls)
        started.append(Served(listeners[0].getsockname()[1], server, store))
        return started[-1]

    yield start
    for one in started:
        await one.server.close()
