"""The demo's own load: clients that keep a number of requests in flight at the proxy, over real HTTP.

The load pauses while other clients send requests, which the servers report.
"""

from __future__ import annotations

import asyncio
import random

import aiohttp

from sparktop.demo.engine.tokens import answer_words, tokenize_chat
from sparktop.demo.scenario import Rests, Scenario, lengths_of
from sparktop.demo.visitors import MARKED, GivingWay
from sparktop.values import dataclass

_AGAIN_S = 0.1
"""Seconds that a client waits after a failure."""
_READ_S = 120.0
_OK = 200
_AROUND = len(tokenize_chat([("user", "")]))
"""Tokens that a chat with one message has in addition to the tokens of the message's text."""


@dataclass(slots=True)
class Totals:
    """Numbers of requests that the load has completed, failed and aborted."""

    done: int = 0
    failed: int = 0
    broken_off: int = 0
    """Requests aborted because another client sends requests."""


class Driver:
    """Keeps a scenario's number of requests in flight at one server."""

    def __init__(self, url: str, scenario: Scenario, *, seed: int, way: GivingWay | None = None) -> None:
        """Prepare to send the load of `scenario` to the server at `url`.

        `way` pauses the load while other clients send requests (None: never); `seed` fixes random lengths.
        """
        self._url = f"{url}/v1/chat/completions"
        self._scenario = scenario
        self._lengths = lengths_of(scenario)
        # Load needs no cryptographic randomness.
        self._random = random.Random(f"load/{seed}")  # noqa: S311
        self.totals = Totals()
        self._way = way
        self._asking: set[asyncio.Timeout] = set()
        self._present = asyncio.Event()
        self._present.set()
        if way is not None:
            way.on_impatience = self._hang_up

    async def run(self) -> None:
        """Send requests until the task is cancelled."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=_READ_S)
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
            asyncio.TaskGroup() as clients,
        ):
            for _ in range(self._scenario.load):
                clients.create_task(self._client(session))
            if self._scenario.rests is not None:
                await self._rest(self._scenario.rests)

    async def _rest(self, rests: Rests) -> None:
        """Abort all requests and send none, for the last part of each period; never return."""
        while True:
            await asyncio.sleep(rests.every_s - rests.for_s)
            self._present.clear()
            self._hang_up()
            await asyncio.sleep(rests.for_s)
            self._present.set()

    async def _client(self, session: aiohttp.ClientSession) -> None:
        while True:
            await self._present.wait()
            if self._way is not None:
                await self._way.wait()
            if await self._ask(session):
                self.totals.done += 1
            elif self._way is not None and self._way.paused:
                self.totals.broken_off += 1
            else:
                self.totals.failed += 1
                await asyncio.sleep(_AGAIN_S)

    def _hang_up(self) -> None:
        """Abort the requests in flight."""
        for limit in self._asking:
            limit.reschedule(asyncio.get_running_loop().time())

    async def _ask(self, session: aiohttp.ClientSession) -> bool:
        """Send one request and read its streamed response; return True if the response was complete."""
        complete = False
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._asking.add(limit)
                async with session.post(self._url, json=self._body(), headers=MARKED) as response:
                    async for part in response.content.iter_any():
                        complete = part.endswith(b"data: [DONE]\n\n")
                    return complete and response.status == _OK
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False
        finally:
            self._asking.discard(limit)

    def _body(self) -> dict[str, object]:
        prompt_tokens, output_tokens = self._lengths(self._random)
        words = answer_words(self._random.getrandbits(62), max(1, prompt_tokens - _AROUND))
        return {
            "model": self._scenario.profile.model,
            "messages": [{"role": "user", "content": "".join(words)}],
            "max_tokens": output_tokens,
            "ignore_eos": True,
            "stream": True,
        }
