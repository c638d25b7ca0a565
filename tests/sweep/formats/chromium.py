"""A headless Chromium that opens pages from disk, and what it had to say about them."""

from __future__ import annotations

import asyncio
import base64
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

PROGRAM = shutil.which("chromium") or shutil.which("google-chrome")
LIMIT_S = 100.0
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


@dataclass
class Tab:
    """A page in the browser."""

    session: str
    socket: aiohttp.ClientWebSocketResponse
    requests: list[str] = field(default_factory=list)
    """Addresses that the page asked for, its own included."""
    messages: list[str] = field(default_factory=list)
    """Errors, warnings and lines of the console."""
    _loaded: bool = False
    _count: int = 0

    async def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command and return its answer, noting what the page reports meanwhile."""
        self._count += 1
        session = {"sessionId": self.session} if self.session else {}
        await self.socket.send_json({"id": self._count, "method": method, "params": parameters, **session})
        while True:
            message = await self._next()
            if message.get("id") == self._count:
                assert "error" not in message, message
                answer: dict[str, Any] = message["result"]
                return answer

    async def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = await self.socket.receive_json(timeout=LIMIT_S)
        parameters = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Log.entryAdded":
                self.messages.append(parameters["entry"]["text"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self.messages.append(str(parameters))
            case "Page.loadEventFired":
                self._loaded = True
            case _:
                pass
        return message

    async def open(self, address: str, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Open a page of a size and colour scheme, and wait until it is complete."""
        for part in ("Page", "Network", "Log", "Runtime"):
            await self.call(f"{part}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._loaded = False
        await self.call("Page.navigate", url=address)
        while not self._loaded:
            await self._next()

    async def ask(self, expression: str) -> object:
        """Evaluate a JavaScript expression in the page; return its value."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    async def picture(self) -> bytes:
        """Return the whole page as a PNG."""
        answer = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    async def pdf(self) -> bytes:
        """Return the page as printed on A4."""
        answer = await self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False)
        return base64.b64decode(answer["data"])


@asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[Tab]:
    """Run a browser with one empty tab."""
    assert PROGRAM is not None
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        *OPTIONS,
        f"--user-data-dir={profile}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            address = await _address(process)
        async with aiohttp.ClientSession() as client, client.ws_connect(address, max_msg_size=0) as socket:
            whole = Tab("", socket)
            target = await whole.call("Target.createTarget", url="about:blank")
            attached = await whole.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
            yield Tab(attached["sessionId"], socket, _count=1000)
            await whole.call("Browser.close")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    while True:
        line = (await process.stderr.readline()).decode(errors="replace")
        assert line, "the browser ended"
        if found := re.search(r"DevTools listening on (ws://\S+)", line):
            return found[1]
