"""HTTP server of one simulated engine, with vLLM's routes, responses and errors."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from itertools import count

from aiohttp import web
from msgspec import Struct

from sparktop.demo.engine.asked import (
    BAD_REQUEST,
    Asked,
    RefusedError,
    check_model,
    read_body,
    read_completion,
    read_prompt,
)
from sparktop.demo.engine.chunks import DONE, Reply
from sparktop.demo.engine.cores import LiveCores
from sparktop.demo.engine.http_figures import HttpFigures
from sparktop.demo.engine.live import Answer, LiveEngine
from sparktop.demo.engine.page import VERSION
from sparktop.demo.engine.process_page import server_page
from sparktop.demo.engine.tokens import block_hashes
from sparktop.demo.visitors import Visitors
from sparktop.model.load import EndReason, RequestEnded
from sparktop.simulation.request import SimulatedRequest

SERVER = "sparktop demo (simulated)"
"""Value of the `Server` header of every response."""
MOST_BODY_BYTES = 16 << 20
_USUAL_ANSWER_TOKENS, _SPREAD = 220.0, 0.6
"""Median and log-normal spread of the tokens of an answer that may end by itself."""
_STREAM = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
_TEXT = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
_INTERNAL = 500

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _InFlight(Struct, frozen=True):
    """A request that the engine is processing."""

    request_id: str
    answer: Answer
    reply: Reply


class EngineServer:
    """HTTP server of one simulated engine."""

    def __init__(
        self,
        live: LiveEngine | LiveCores,
        *,
        started_unix_s: float,
        seed: int | str = 0,
        name: str = "spark-a",
        visitors: Visitors | None = None,
    ) -> None:
        """Serve `live`, an engine or several engine cores.

        `started_unix_s` is the start time on the metrics page (Unix time). `seed` fixes the random
        lengths of answers, `name` is part of request ids, and `visitors` is notified of requests that are not
        the demo's own load.
        """
        self.live = live
        self._visitors = visitors or Visitors()
        self._profile = live.engine.profile
        self._started_unix_s = started_unix_s
        self._figures = HttpFigures(started_unix_s)
        # Lengths of answers need no cryptographic randomness.
        self._random = random.Random(seed)  # noqa: S311
        self._name = name
        self._numbers = count(1)

    def application(self) -> web.Application:
        """Return the aiohttp application with all routes."""
        app = web.Application(middlewares=[self._guard], client_max_size=MOST_BODY_BYTES)
        app.on_response_prepare.append(_sign)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._completion)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/version", self._version)
        for path in ("/health", "/ping"):
            app.router.add_get(path, self._health)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Pass a request to `handler`, and convert errors to vLLM's format; return the response.

        Only POST requests are counted in the HTTP metrics and reported to `visitors`.
        """
        # A GET only observes the server: neither the demo's load nor vLLM's counters take it into account.
        if request.method != "POST":
            return await self._answer(request, handler)
        began = time.monotonic()
        with self._visitors.visit(request.headers):
            response = await self._answer(request, handler)
        route = request.match_info.route.resource
        path = route.canonical if route is not None else "none"
        took_s = time.monotonic() - began
        self._figures.count(request.method, path, response.status, took_s, request.content_length or 0)
        return response

    @staticmethod
    async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except RefusedError as error:
            return web.json_response(error.body(), status=error.status)
        except web.HTTPException as error:
            content = {"message": error.reason, "type": error.reason, "param": None, "code": error.status}
            return web.json_response({"error": content}, status=error.status)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, chat=True)

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        return await self._complete(request, chat=False)

    async def _complete(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        body = read_body(await request.read())
        check_model(body, self._profile.model)
        asked = read_completion(body, chat=chat, max_model_len=self._profile.max_model_len)
        flight = self._submit(asked)
        try:
            if asked.stream:
                return await self._stream(request, flight)
            ended = await _end_of(flight.answer)
            return web.json_response(flight.reply.whole(ended))
        finally:
            # For a client that has disconnected; a request that has ended is ignored.
            self.live.cancel(flight.request_id)

    def _submit(self, asked: Asked) -> _InFlight:
        """Submit a request to the engine.

        Raises:
            RefusedError: the engine does not accept the request.
        """
        tokens, stops = self._length(asked)
        number = next(self._numbers)
        request_id = f"{'chatcmpl' if asked.chat else 'cmpl'}-{self._name}-{number}"
        profile = self._profile
        reply = Reply(request_id, profile.model, int(time.time()), asked, tokens, stops)
        request = SimulatedRequest(
            request_id,
            len(asked.prompt),
            tokens,
            EndReason.STOP if stops else EndReason.LENGTH,
            block_hashes((*asked.prompt, *reply.token_ids), profile.block_tokens, asked.cache_salt),
        )
        try:
            answer = self.live.submit(request, max_tokens=asked.max_tokens)
        except ValueError as error:
            raise RefusedError(str(error), status=BAD_REQUEST) from None
        return _InFlight(request_id, answer, reply)

    def _length(self, asked: Asked) -> tuple[int, bool]:
        """Return the random number of tokens of the answer, and whether the answer ends with a stop token.

        With `ignore_eos`, the answer has `max_tokens` tokens and no stop token.
        """
        if asked.ignore_eos:
            return asked.max_tokens, False
        chance = self._random.lognormvariate(0.0, _SPREAD)
        natural = max(asked.min_tokens, 1, round(_USUAL_ANSWER_TOKENS * chance))
        return min(natural, asked.max_tokens), natural < asked.max_tokens

    async def _stream(self, request: web.Request, flight: _InFlight) -> web.StreamResponse:
        response = web.StreamResponse(headers=_STREAM)
        await response.prepare(request)
        reply = flight.reply
        while True:
            delta = await flight.answer.more()
            ended = delta.ended
            if delta.tokens:
                await response.write(reply.chunk(delta.tokens, last=ended is not None))
            if ended is None:
                continue
            if ended.ok:
                usage = reply.usage_chunk(ended) if reply.asked.include_usage else b""
                await response.write(usage + DONE)
                await response.write_eof()
            elif request.transport is not None:
                # The engine was shut down: the answer stays incomplete, as when a server dies.
                request.transport.abort()
            return response

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = read_body(await request.read())
        check_model(body, self._profile.model)
        tokens = read_prompt(body, chat="messages" in body)
        content = {"count": len(tokens), "max_model_len": self._profile.max_model_len}
        return web.json_response({**content, "tokens": list(tokens), "token_strs": None})

    async def _metrics(self, _: web.Request) -> web.Response:
        self.live.catch_up()
        page = server_page(self.live.cores, self._started_unix_s, self._figures.registry)
        return web.Response(body=page, headers=_TEXT)

    async def _models(self, _: web.Request) -> web.Response:
        model = {
            "id": self._profile.model,
            "object": "model",
            "created": int(self._started_unix_s),
            "owned_by": SERVER,
            "root": self._profile.model,
            "parent": None,
            "max_model_len": self._profile.max_model_len,
        }
        return web.json_response({"object": "list", "data": [model]})

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": VERSION})

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()


async def _end_of(answer: Answer) -> RequestEnded:
    """Wait until a request ends; return the event of its end.

    Raises:
        RefusedError: the request was not completed, because the engine was shut down.
    """
    while (ended := (await answer.more()).ended) is None:
        pass
    if not ended.ok:
        message = "EngineCore encountered an issue. See stack trace (above) for the root cause."
        raise RefusedError(message, status=_INTERNAL, kind="InternalServerError")
    return ended


async def _sign(_: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = SERVER
