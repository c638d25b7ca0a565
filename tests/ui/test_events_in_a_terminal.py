"""The viewer in a terminal: bell, notification, hook and webhook for a server that does not answer."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.known import known
from tests.ui.pseudo_terminal import Terminal

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]
NOTIFIED = re.compile(rb"\x07\x1b\]9;sparktop: gone: ([^\x1b\x07]*)\x07")
SECRET = "canary-token"  # noqa: S105 - a canary


class Posts:
    """A server that keeps what is posted to it."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.seen: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request and accept it."""
        head = await reader.readuntil(b"\r\n\r\n")
        found = known(re.search(rb"content-length: (\d+)", head.lower()))
        self.seen.put_nowait(head + await reader.readexactly(int(found[1])))
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()


async def test_a_server_that_does_not_answer_reaches_a_person(tmp_path: Path) -> None:
    """One bell and one complete notification, and the same JSON to hook and webhook, hold no secret."""
    posts = Posts()
    server = await asyncio.start_server(posts.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    hook = tmp_path / "on-event"
    hook.write_text('#!/bin/sh\ncat > "$1.part" && env >> "$1.env" && mv "$1.part" "$1"\n', encoding="utf-8")
    hook.chmod(0o755)
    (tmp_path / "events.toml").write_text(
        f"""
[events]
bell = true
notify = "osc9"
hook = ["./on-event", "{tmp_path}/got"]
webhook = "http://127.0.0.1:{port}/secret-path"
webhook_token_env = "ALERT_TOKEN"
[[backends]]
name = "gone"
url = "http://127.0.0.1:9"
""",
        encoding="utf-8",
    )
    terminal = Terminal(tmp_path, (80, 24))
    terminal.env["ALERT_TOKEN"] = SECRET
    async with terminal.running("--config", "events.toml") as process:
        while NOTIFIED.search(terminal.seen) is None:
            await terminal.more()
        posted = await posts.seen.get()
        terminal.type(b"q")
        assert await process.wait() == 0
    server.close()
    head, _, body = posted.partition(b"\r\n\r\n")
    assert f"authorization: bearer {SECRET}".encode() in head.lower()
    document = json.loads(body)
    assert json.loads((tmp_path / "got").read_text(encoding="utf-8")) == document
    said = (document["schema"], document["kind"], document["phase"])
    assert said == ("sparktop.event/1", "unreachable", "begin")
    assert terminal.seen.count(b"\x1b]9;") == 1
    assert b"Traceback" not in terminal.seen
    shown = terminal.seen.decode(errors="replace") + (tmp_path / "got.env").read_text(encoding="utf-8")
    assert SECRET not in shown + terminal.logs()
    assert "secret-path" not in shown + terminal.logs()
