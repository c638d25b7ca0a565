"""Hostile servers beside a healthy one, from the socket to the screen and the JSON."""

from __future__ import annotations

import asyncio
import json
import unicodedata
from collections.abc import Awaitable, Callable

from sparktop.model.snapshot import BackendState, Snapshot
from sparktop.model.targets import Watch
from sparktop.panels.board.layout import Boxes
from sparktop.panels.board.scene import Scene, flatten
from sparktop.panels.board.view import Preset, View
from sparktop.panels.parts.text import row_text, row_width
from sparktop.report.json_snapshot import to_json
from sparktop.report.text_snapshot import render
from sparktop.store import Store
from sparktop.watch.monitor import Monitor
from tests.sources.conftest import RawServer, Serve, answer

EVIL = "\x1b[31mred\x1b]0;title\x07 \u202egnp.exe [red]bold[/red] \u2066x"
HEALTHY = """\
# TYPE vllm:num_requests_running gauge
process_start_time_seconds 1.0
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 1.0
vllm:generation_tokens_total{engine="0",model_name="tiny"} 50.0
"""

ANSWERS = {
    "healthy": answer(HEALTHY.encode()),
    "evil-name": answer(HEALTHY.replace("tiny", EVIL.replace("\x1b", "\\u001b")).encode()),
    "evil-bytes": answer(HEALTHY.replace("tiny", EVIL).encode()),
    "html": answer(f"<html><body>{EVIL}</body></html>".encode()),
    "garbage": answer(bytes(range(256)) * 20),
    "error": answer(f'{{"error": {{"message": "{EVIL}"}}}}'.encode(), "500 Internal Server Error"),
    "locked": answer(b"", "401 Unauthorized"),
    "moved": answer(b"", "302 Found", f"Location: http://[red]{'x' * 900}/"),
    "numbers": answer(HEALTHY.replace("3.0", "NaN").replace("50.0", "-7").encode()),
    "twice": answer((HEALTHY + HEALTHY).encode()),
}


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Accept the request and never answer."""
    await reader.read()


def replying(
    data: bytes,
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """Answer every request of a connection with `data`, then close it."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()

    return reply


async def watched(servers: dict[str, RawServer]) -> Snapshot:
    """Watch all servers until each of them has answered or failed, the healthy one twice."""
    watch = Watch(
        backends=tuple(s.target(name) for name, s in servers.items()), interval_s=0.25, timeout_s=2.0
    )
    store = Store(watch)
    monitor = Monitor(watch, store)
    await monitor.start()
    try:
        async with asyncio.timeout(20):
            while True:
                snapshot = store.snapshot()
                views = {view.name: view for view in snapshot.backends}
                settled = all(v.failure or v.age_s is not None for v in views.values())
                if settled and views["healthy"].generation_tps is not None:
                    return snapshot
                await asyncio.sleep(0.05)
    finally:
        await monitor.stop()


def printable(text: str) -> bool:
    """Return whether no character of `text` can move a cursor or reverse a line."""
    return all(unicodedata.category(char) not in {"Cc", "Cf", "Zl", "Zp"} for char in text)


async def test_hostile_servers_cost_one_clean_line_each(serve: Serve) -> None:
    """Each hostile server ends as one clean line on screen and in reports; the healthy one goes on."""
    servers = {name: await serve(replying(data)) for name, data in ANSWERS.items()}
    servers["silent"] = await serve(silent)
    snapshot = await watched(servers)
    views = {view.name: view for view in snapshot.backends}
    assert views["healthy"].running == 3.0
    assert views["healthy"].state is BackendState.QUEUEING
    assert views["silent"].failure is not None
    for name in ("html", "garbage", "error", "locked", "moved"):
        assert views[name].failure is not None, name
    assert views["numbers"].running is None
    for view in snapshot.backends:
        if view.failure is not None:
            assert printable(view.failure.message)
            assert len(view.failure.message) <= 200
    for preset in Preset:
        scene = Scene(snapshot, 80, 22, View(preset=preset, boxes=Boxes(events=True)))
        rows = flatten(scene.draw(), 80, scene.layout.height)
        assert {row_width(row) for row in rows} == {80}
        assert all(printable(row_text(row)) for row in rows)
    report = json.loads(json.dumps(to_json(snapshot), allow_nan=False))
    errors = {backend["name"]: backend["error"] for backend in report["backends"]}
    assert all(error is None or "\n" not in error for error in errors.values())
    assert errors["healthy"] is None
    assert all(printable(line) for line in render(snapshot, 100).splitlines())
