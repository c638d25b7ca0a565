"""A headless Chromium, controlled by its DevTools protocol: pages, console, requests and screenshots."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_LEAST_PARTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-port=0",
)
_WITHIN_S = 100.0
_LOOK_S = 0.1


class Tab:
    """One page of the browser."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        """Wrap the connection `socket` to a page."""
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.complaints: list[str] = []
        """Errors and warnings of the console, and exceptions."""
        self.requests: list[str] = []
        """Addresses of all requests."""
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            if message.type is not WSMsgType.TEXT:
                continue
            data = message.json()
            if "id" in data:
                answer = self._answers.pop(data["id"], None)
                if answer is not None and not answer.done():
                    answer.set_result(data)
            else:
                self._hear(data["method"], data.get("params", {}))

    def _hear(self, method: str, found: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(found["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(found["exceptionDetails"]))
        elif method == "Log.entryAdded" and found["entry"]["level"] in {"error", "warning"}:
            self.complaints.append(f"{found['entry']['text']} {found['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(str(found.get("args")))

    async def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        found = await asyncio.wait_for(answer, _WITHIN_S)
        if "error" in found:
            raise AssertionError(f"{method}: {found['error']}")
        result: dict[str, Any] = found["result"]
        return result

    async def begin(self, width: int, height: int, *, is_phone: bool = False, scheme: str = "dark") -> None:
        """Enable the events of the page; set the size of the window and the preferred colour scheme."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        # Pages in a background tab pause.
        await self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        await self.resize(width, height, is_phone=is_phone)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await self.call("Emulation.setEmulatedMedia", features=[feature])

    async def resize(self, width: int, height: int, *, is_phone: bool = False) -> None:
        """Set the size of the window."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if is_phone else 1,
            mobile=is_phone,
        )

    async def open(self, address: str) -> None:
        """Load a page."""
        await self.call("Page.navigate", url=address)
        await self.until("document.readyState === 'complete'")

    async def value(self, expression: str) -> Any:  # noqa: ANN401 - whatever the page returns
        """Return the value of an expression in the page."""
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression in the page is true; a page that is just being left is not asked."""

        async def holds() -> bool:
            try:
                return bool(await self.value(expression))
            except AssertionError as error:
                if "navigated" in str(error):
                    return False
                raise

        await until(holds, expression)

    async def press(self, key: str, code: int = 0) -> None:
        """Press a key."""
        text = key if len(key) == 1 else "\r" if key == "Enter" else ""
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, text=text, windowsVirtualKeyCode=code
            )

    async def printed(self) -> bytes:
        """Return the printed page as PDF."""
        return base64.b64decode((await self.call("Page.printToPDF", printBackground=True))["data"])

    async def close(self) -> None:
        """Close the connection to the page."""
        self._reading.cancel()
        with suppress(asyncio.CancelledError):
            await self._reading
        await self._socket.close()


async def until(done: Callable[[], Awaitable[object]], what: str) -> None:
    """Wait until `done` returns something true."""
    try:
        async with asyncio.timeout(_WITHIN_S):
            while not await done():  # noqa: ASYNC110 - a browser has no event for its tests
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise AssertionError(f"not within {_WITHIN_S:g} s: {what}") from None


NewTab = Callable[[], Awaitable[Tab]]


@asynccontextmanager
async def chromium() -> AsyncIterator[NewTab]:
    """Start a browser; yield a function that opens tabs."""
    assert PROGRAM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            PROGRAM,
            *_LEAST_PARTS,
            f"--user-data-dir={folder}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        tabs: list[Tab] = []
        try:
            async with ClientSession() as session:
                port = await _port(Path(folder))

                async def new_tab() -> Tab:
                    async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as answer:
                        address = (await answer.json())["webSocketDebuggerUrl"]
                    tabs.append(Tab(await session.ws_connect(address, max_msg_size=0)))
                    return tabs[-1]

                yield new_tab
                for tab in tabs:
                    await tab.close()
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def _port(folder: Path) -> int:
    file = folder / "DevToolsActivePort"

    async def is_there() -> bool:
        return file.exists() and bool(file.read_text(encoding="ascii").strip())

    await until(is_there, "the browser has started")
    return int(file.read_text(encoding="ascii").split()[0])
