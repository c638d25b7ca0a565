"""The demo's own load: clients at the proxy, over real HTTP, each with one request in flight at a time.

The clients of some scenarios are agents, which pause between their calls.
The load pauses while other clients send requests, which the servers report to `LoadPause`.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import aiohttp

from sparktop.demo.engine_requests import answer_words, tokenize_chat
from sparktop.demo.scenario import QUIET_S, WAVE_S, Scenario, lengths_of
from sparktop.model.text import lines_of

MARK = "X-Sparktop-Demo-Load"
"""Name of the request header that marks requests of the demo's own load."""
MARKED = {MARK: "1"}
"""Headers that the demo's load adds to its requests."""
PATIENCE_S = 3.0
"""Seconds after which the load's requests in flight are aborted when another client's request arrives."""


class LoadPause:
    """Decides when the demo's load may send requests.

    The load must not send while requests of other clients run, nor for `quiet_s` seconds afterwards, nor in
    the pauses of a sweep that is under way.
    """

    def __init__(self, *, quiet_s: float = QUIET_S, patience_s: float = PATIENCE_S) -> None:
        """Start without requests of other clients.

        The load's requests that are still in flight `patience_s` seconds after a pause began are aborted.
        """
        self._quiet_s = quiet_s
        self._patience_s = patience_s
        self._external = 0
        self._may_send = asyncio.Event()
        self._may_send.set()
        self._resume_timer: asyncio.TimerHandle | None = None
        self._abort_timer: asyncio.TimerHandle | None = None
        self.on_abort: Callable[[], object] = lambda: None
        """Function called when the load should abort its requests in flight."""
        self.is_swept: Callable[[], bool] = lambda: False
        """Function that returns whether a sweep of the servers is under way."""

    @property
    def paused(self) -> bool:
        """True while the load must not send."""
        return not self._may_send.is_set()

    async def wait(self) -> None:
        """Wait until the load may send."""
        await self._may_send.wait()

    @contextmanager
    def during(self, headers: Mapping[str, str]) -> Iterator[None]:
        """Let the load pause while a request with these headers runs, unless it is one of the load's own."""
        if MARK in headers:
            yield
            return
        loop = asyncio.get_running_loop()
        self._external += 1
        if self._resume_timer is not None:
            self._resume_timer.cancel()
        if not self.paused:
            self._may_send.clear()
            self._abort_timer = loop.call_later(self._patience_s, self.on_abort)
        try:
            yield
        finally:
            self._external -= 1
            if not self._external:
                self._resume_timer = loop.call_later(self._quiet_s, self._resume)

    def _resume(self) -> None:
        if self.is_swept():
            self._resume_timer = asyncio.get_running_loop().call_later(self._quiet_s, self._resume)
            return
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        self._may_send.set()


_AGAIN_S = 0.1
"""Seconds that a client waits after a failure."""
_READ_S = 120.0
"""Seconds without any data after which a request has failed."""
_AROUND_CHANGE_S = 4.0
"""Seconds without requests before and after a change of a server's engine: this process starts later."""
_OK = 200
_END = b"data: [DONE]\n\n"
"""How a complete answer ends."""
_AROUND = len(tokenize_chat([("user", "")]))
"""Tokens that a chat with one message has in addition to the tokens of the message's text."""


class Driver:
    """Keeps a scenario's number of requests in flight at one server."""

    def __init__(self, url: str, scenario: Scenario, *, seed: int, pause: LoadPause | None = None) -> None:
        """Prepare to send the load of `scenario` to the server at `url`.

        `pause` stops the load while other clients send requests (None: never); `seed` fixes random lengths.
        """
        self._url = f"{url}/v1/chat/completions"
        self._scenario = scenario
        self._lengths = lengths_of(scenario)
        self._seed = seed
        # Load needs no cryptographic randomness.
        self._random = random.Random(f"load/{seed}")  # noqa: S311
        self.done = self.failed = 0
        """Numbers of requests that were completed, and that failed although the load did not abort them."""
        self._pause = pause or LoadPause()
        self._began_s = 0.0
        self._in_flight: set[asyncio.Timeout] = set()
        """The timeouts of the requests in flight, by which they are aborted."""
        self._awake = asyncio.Event()
        """Clear while the scenario rests."""
        self._awake.set()
        self._pause.on_abort = self._abort_requests

    async def run(self) -> None:
        """Send requests until the task is cancelled; none while the scenario rests or changes an engine."""
        self._began_s = asyncio.get_running_loop().time()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=_READ_S)
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
            asyncio.TaskGroup() as clients,
        ):
            for number in range(self._scenario.load):
                clients.create_task(self._client(session, number))
            if self._scenario.rests is not None:
                every_s, rest_s = self._scenario.rests
                while True:  # until the task is cancelled
                    await self._rest(every_s - rest_s, rest_s)
            restarts = self._scenario.restarts
            if restarts is not None and restarts.then is not None:
                # While a server gets another engine: a request that failed would be what is seen first.
                before_s = restarts.every_s - restarts.down_s - _AROUND_CHANGE_S
                await self._rest(before_s, restarts.down_s + 2 * _AROUND_CHANGE_S)

    async def _rest(self, after_s: float, for_s: float) -> None:
        """Abort all requests after `after_s` seconds, and send none for `for_s` seconds."""
        await asyncio.sleep(after_s)
        self._awake.clear()
        self._abort_requests()
        await asyncio.sleep(for_s)
        self._awake.set()

    async def _client(self, session: aiohttp.ClientSession, number: int) -> None:
        scenario, agent = self._scenario, None
        if scenario.agents:
            agent = DemoAgent(scenario.profile.model, seed=self._seed, number=number, dated=scenario.dated)
        while True:
            if agent is not None:
                await asyncio.sleep(agent.pause_s())
            await self._awake.wait()
            if (pause_s := self._pause_of_turn_s(number)) > 0:
                await asyncio.sleep(pause_s)
                continue
            await self._pause.wait()
            if agent is not None:
                complete = await agent.call(partial(self._request_answer, session))
            else:
                complete = await self._request_answer(session, self._request_body()) is not None
            if complete:
                self.done += 1
            elif self._awake.is_set() and not self._pause.paused:
                self.failed += 1
                await asyncio.sleep(_AGAIN_S)

    def _pause_of_turn_s(self, number: int) -> float:
        """Return the seconds to the end of this wave if the client takes no part in it; else 0."""
        waves = self._scenario.waves
        turn, into_s = divmod(asyncio.get_running_loop().time() - self._began_s, WAVE_S)
        if not waves or number < waves[int(turn) % len(waves)]:
            return 0.0
        return WAVE_S - into_s

    def _abort_requests(self) -> None:
        """Abort the requests in flight."""
        for limit in self._in_flight:
            limit.reschedule(asyncio.get_running_loop().time())
        self._in_flight.clear()  # a timeout that expires cannot be set again

    async def _request_answer(self, session: aiohttp.ClientSession, body: dict[str, object]) -> str | None:
        """Send one request and read its streamed response; return its text, None if it is not complete.

        Only agents need the text; for other loads it is empty.
        """
        ending, chunks = b"", []
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._in_flight.add(limit)
                async with session.post(self._url, json=body, headers=MARKED) as response:
                    async for part in response.content.iter_any():
                        ending = (ending + part)[-len(_END) :]
                        if self._scenario.agents:
                            chunks.append(part)
                    is_complete = ending == _END and response.status == _OK
                    return streamed_text(b"".join(chunks)) if is_complete else None
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None
        finally:
            self._in_flight.discard(limit)

    def _request_body(self) -> dict[str, object]:
        prompt_tokens, output_tokens = self._lengths(self._random)
        words = answer_words(self._random.getrandbits(62), max(1, prompt_tokens - _AROUND))
        return {
            "model": self._scenario.profile.model,
            "messages": [{"role": "user", "content": "".join(words)}],
            "max_tokens": output_tokens,
            "ignore_eos": True,
            "stream": True,
        }


SendRequest = Callable[[dict[str, object]], Awaitable[str | None]]
"""Sends the body of a request; returns the text of the answer, None where it failed or broke off."""
_SHARED, _OWN = 6000, 2000
"""Tokens of the start that all conversations share, and of each one's own context."""
_REQUESTS, _STEPS = 3, 7
"""A person's requests in a conversation, and calls for each of them, with its tools."""
_PER_TURN = 600
"""Tokens that each earlier call of a conversation that is under way would have left in its prompt."""
_HUMAN_S = 5.0
"""Seconds that a person thinks between two requests."""
_DATA = "data: "


class DemoAgent:
    """Sends the calls of one agent; its lengths and pauses are those of the workload "coder-quick"."""

    def __init__(self, model: str, *, seed: int, number: int, dated: bool = False) -> None:
        """Prepare agent `number`; the same seed gives the same conversations.

        If it is `dated`, each call begins with a line of its own, as prompts with the time of day do: then no
        prefix is cached.
        """
        self._model, self._dated = model, dated
        # Load needs no cryptographic randomness.
        self._random = random.Random(f"agent/{seed}/{number}")  # noqa: S311
        self._turn = self._random.randrange(_REQUESTS * _STEPS)
        """Number of the next call in its conversation: the first conversation is under way."""
        self._messages: list[dict[str, str]] = []

    def pause_s(self) -> float:
        """Return the seconds until the next call: a tool runs, or a person thinks."""
        return _HUMAN_S if self._turn % _STEPS == 0 else self._draw_lognormal(0.3, 1.5, 10.0)

    async def call(self, send: SendRequest) -> bool:
        """Send the next call and keep its answer; return True if it was complete."""
        new_tokens = round(self._draw_lognormal(400, 1.0, 4000))
        if not self._messages:
            shared = "".join(answer_words("shared", _SHARED))
            self._messages = [{"role": "system", "content": shared}]
            new_tokens += _OWN + self._turn * _PER_TURN
        words = answer_words(self._random.getrandbits(62), max(1, new_tokens))
        self._messages.append({"role": "user", "content": "".join(words)})
        tokens = max(1, round(self._draw_lognormal(120, 0.8, 512)))
        body: dict[str, object] = {"model": self._model, "messages": self._messages, "max_tokens": tokens}
        if self._dated:
            line = "".join(answer_words(self._random.getrandbits(62), 8))
            body["messages"] = [{"role": "system", "content": line}, *self._messages]
        answer = await send(body | {"ignore_eos": True, "stream": True})
        self._turn = (self._turn + 1) % (_REQUESTS * _STEPS) if answer is not None else 0
        if self._turn == 0:
            self._messages = []
        elif answer is not None:
            self._messages.append({"role": "assistant", "content": answer})
        return answer is not None

    def _draw_lognormal(self, median: float, sigma: float, most: float) -> float:
        return min(most, self._random.lognormvariate(math.log(median), sigma))


def streamed_text(stream: bytes) -> str:
    """Return the text of a streamed chat answer."""
    parts = []
    for line in lines_of(stream.decode(errors="replace")):
        if line.startswith(_DATA + "{"):
            choices = json.loads(line.removeprefix(_DATA)).get("choices") or [{}]
            parts.append((choices[0].get("delta") or {}).get("content") or "")
    return "".join(parts)
