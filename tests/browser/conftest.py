"""Snapshots with hostile names, and a running server of `sparktop serve` in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparktop.agent.access import bind, own_names
from sparktop.agent.gate import Limits
from sparktop.browser.drawing import ResultPages
from sparktop.browser.renderer import PageRenderer
from sparktop.browser.server import LIMITS, BrowserServer, Sessions
from sparktop.model.event import Alert, Event, Severity
from sparktop.model.snapshot import Snapshot
from tests.export.snapshots import NOW, backend, snapshot

HOSTILE = "<script>alert('x')</script>\" & \x1b[31m\u202eevil\u2066 \U0001f600漢字\x07"
"""A name with markup, quotes, an escape sequence, bidi marks, wide characters and a bell."""
TOKEN = "0123456789abcdef0123"  # noqa: S105 - a token of a test


def hostile_snapshot() -> Snapshot:
    """Return a snapshot in which every name and message is hostile, as if it had not been cleaned."""
    known = snapshot()
    backends = tuple(
        replace(backend(f"{HOSTILE}{index}", HOSTILE), model=HOSTILE, url=f"http://{HOSTILE}")
        for index in (1, 2)
    )
    nodes = tuple(replace(node, name=HOSTILE) for node in known.nodes)
    return replace(
        known,
        backends=backends,
        nodes=nodes,
        alerts=(Alert(f"backend:{HOSTILE}:unreachable", Severity.CRITICAL, HOSTILE, HOSTILE, NOW),),
        events=(Event(NOW, Severity.WARNING, HOSTILE, HOSTILE),),
    )


@dataclass
class Served:
    """A running server, its port, its studio, and the snapshot that it draws."""

    port: int
    server: BrowserServer
    studio: PageRenderer
    now: Snapshot


StartServer = Callable[..., Awaitable[Served]]


@pytest.fixture
async def start_server(tmp_path: Path) -> AsyncIterator[StartServer]:
    """Return a function that serves a snapshot on a free port of loopback."""
    started: list[tuple[Served, asyncio.Task[None]]] = []

    async def start(
        token: str | None = None, shown: Snapshot | None = None, limits: Limits = LIMITS
    ) -> Served:
        listeners = bind("127.0.0.1", 0)
        port = int(listeners[0].getsockname()[1])
        studio = PageRenderer(lambda: served.now, ResultPages(tmp_path))
        server = BrowserServer(
            studio,
            theme="spark-dark",
            names=own_names("spark"),
            token=token,
            sessions=None if token is None else Sessions(token, port),
            limits=limits,
        )
        served = Served(port, server, studio, shown or snapshot())
        server.start(listeners)
        started.append((served, asyncio.create_task(studio.run())))
        return served

    yield start
    for served, drawing in started:
        drawing.cancel()
        with suppress(asyncio.CancelledError):
            await drawing
        await served.server.close()
